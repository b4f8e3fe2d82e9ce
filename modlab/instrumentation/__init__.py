"""A module at work."""
