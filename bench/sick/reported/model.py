"""To be written: model."""
