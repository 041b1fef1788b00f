"""Fabula writes and fills in short stories along an emotional arc."""

__version__ = "0.1.0"
