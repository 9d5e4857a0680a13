"""Pliant: compile a model once; run it at every shape."""
