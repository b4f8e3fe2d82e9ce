"""To be written: graph."""
