"""To be written: strange."""
