"""To be written: generative."""
