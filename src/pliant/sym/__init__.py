"""Symbolic integers, facts about them, and index maps."""
