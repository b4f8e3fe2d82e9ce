"""Comparing passes: their inputs, what is recorded and kept, and how far two passes differ."""
