"""To be written: further_nets."""
