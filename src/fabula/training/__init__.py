"""Training: recipe (what to do), objective (what to maximise), loop (how), checkpoint (what is kept)."""
