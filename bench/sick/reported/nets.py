"""To be written: nets."""
