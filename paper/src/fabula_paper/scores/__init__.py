"""Scores that the paper's tables need and the core does not."""
