"""To be written: strange_too."""
