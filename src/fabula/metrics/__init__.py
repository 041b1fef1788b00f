"""Measuring: likelihood, use of the latent, and the records every figure is kept in."""
