"""A trace: who listens, what is noted, and what follows from it."""
