"""A schedule step that was refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pliant.base.errors import PliantError


class SchedulingError(PliantError):
    """A primitive's conditions do not hold; the program is as before.

    The text reads "split of loop i: the factor 0 is not at least 1".
    """

    def __init__(self, primitive: str, place: str, reason: str) -> None:
        super().__init__(f"{primitive} of {place}: {reason}")
        self.primitive, self.place, self.reason = primitive, place, reason

    def __reduce__(self) -> tuple[type[SchedulingError], tuple[str, str, str]]:
        return type(self), (self.primitive, self.place, self.reason)


class NoPrimitiveError(PliantError, AttributeError):
    """There is no primitive of that name."""

    def __init__(self, name: str, near: Sequence[str] = ()) -> None:
        hint = f"; there is {', '.join(near)}" if near else ""
        super().__init__(f"no schedule primitive {name!r}{hint}")
        self.name, self.near = name, tuple(near)

    def __reduce__(self) -> tuple[type[NoPrimitiveError], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self.name), self.near)


def close_names(name: str, names: Iterable[str]) -> list[str]:
    """Those that were perhaps meant: alike, or all where there are few."""
    every = list(dict.fromkeys(names))
    return get_close_matches(name, every, n=3) or (every if len(every) <= 6 else [])
