"""To be written: sequence."""
