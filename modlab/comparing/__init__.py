"""A comparison: what is passed in, seen and kept in each pass, and how far two passes are apart."""
