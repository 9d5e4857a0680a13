"""Frontends: other systems' models to graph functions. No optimisation happens here."""
