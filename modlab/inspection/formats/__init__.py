"""The formats of checkpoint files, a file each: what a header, an index or a pickle says of tensors, before any is read."""
