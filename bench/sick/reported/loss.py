"""To be written: loss."""
