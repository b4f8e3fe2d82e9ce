"""Mistakes that PyTorch lets pass in silence: one small function each, in files by subject."""
