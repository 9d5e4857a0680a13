"""Frontends: what users write becomes graph functions. Nothing is optimised here."""
