"""Pairs of parameters of a test: not all, where their effects do not depend on one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def woven(firsts: Sequence[Any], seconds: Sequence[Any], each: int = 1) -> list[tuple[Any, Any]]:
    """Every first with so many of the seconds, which take turns; every second is there."""
    assert len(firsts) * each >= len(seconds)
    turns = ((first, k + i) for k, first in enumerate(firsts) for i in range(each))
    return [(first, seconds[k % len(seconds)]) for first, k in turns]
