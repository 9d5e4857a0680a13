"""Schedules: primitives that rewrite loop programs without changing what they compute."""
