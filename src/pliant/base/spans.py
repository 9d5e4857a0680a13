"""Where in the user's source something came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """One place in the user's model: a file and line, or a node of a model file."""

    file: str
    line: int = 0
    name: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place} ({self.name})" if self.name else place
