"""Decoders: p(X_i | Z_i, S_i, X_:i), one file each, behind one protocol."""
