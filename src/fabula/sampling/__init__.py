"""Filling in: the missing sentences of a story, drawn given the rest."""
