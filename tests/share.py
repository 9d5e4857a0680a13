"""How much of what could be tested a run of the tests takes: all of it, or a share.

`make test` takes a share, to be done in a quarter of an hour; `pytest --all-cases`, or naming a
file or a test, takes all. conftest.py says which, before any test is imported.
"""

from __future__ import annotations

from typing import Final

SWEEP: Final = 16
"""Of the cases of a sweep (`pytest.mark.sweep`) one in so many runs: the first, of the next so many
the second, and so on, as every sixteenth would be of one kind wherever the innermost parameter has
two or four values. Cases that are more apart, or cost less, say a smaller number:
`pytest.mark.sweep(3)`."""

DRAWS: Final = 4
"""Of what is drawn at random one in so many."""

_whole = False


def take(*, everything: bool) -> None:
    """For this run."""
    global _whole
    _whole = everything


def is_whole() -> bool:
    """Whether this run takes everything."""
    return _whole


def draws(count: int) -> int:
    """How many of `count` random examples to draw."""
    return count if _whole else -(-count // DRAWS)
