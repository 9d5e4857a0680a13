"""Schedules: primitives that transform loop programs, and recipes made of them."""
