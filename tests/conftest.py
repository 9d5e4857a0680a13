"""Puts this folder on the path, for `generate`."""
