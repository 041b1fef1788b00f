"""The losses: a file each, with its equation."""
