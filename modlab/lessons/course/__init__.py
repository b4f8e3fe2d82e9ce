"""The contents of the course's lessons, a file each: questions, tasks, and the wrong answers that people give."""
