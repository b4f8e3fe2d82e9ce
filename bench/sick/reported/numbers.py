"""To be written: numbers."""
