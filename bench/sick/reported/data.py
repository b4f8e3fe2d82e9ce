"""To be written: data."""
