"""Taggers: each gives a sentence its scaffold state S_i; one file each, found by name (`protocol.py`)."""

from fabula.corpus.taggers import emotion, sentiment, verb  # noqa: F401  (they register themselves)
