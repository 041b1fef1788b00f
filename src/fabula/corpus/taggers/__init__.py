"""Taggers: each gives a sentence its scaffold state S_i; one file each, found by name (`protocol.py`)."""

from fabula.corpus.taggers import sentiment  # noqa: F401  (it registers itself)
