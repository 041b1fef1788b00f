"""Text to arrays: read stories, tokenise, tag, count, and open the prepared folder again.

Only `dataset`, `vocabulary` and `transitions` are needed to train on a prepared corpus; they import numpy and nothing
else. spaCy and VADER are imported inside the functions that read raw text.
"""
