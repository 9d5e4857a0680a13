"""Opaque programs: the unscheduled program, as written."""

from __future__ import annotations

from pliant.lower.canonical import Spec
from pliant.schedule.program import Program
from pliant.schedule.recipes.start import start


def serial_recipe(spec: Spec) -> Program:
    """A schedule for a stage that must run in order."""
    return start(spec)
