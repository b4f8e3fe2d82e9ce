"""Mistakes that PyTorch silently accepts: one small function each, in files by subject."""
