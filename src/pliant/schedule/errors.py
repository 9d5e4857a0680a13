"""A schedule step that was refused."""

from __future__ import annotations

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
