"""To be written: optimizer."""
