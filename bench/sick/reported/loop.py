"""To be written: loop."""
