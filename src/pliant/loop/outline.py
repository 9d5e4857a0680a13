"""What is where in a program, from one walk over it.

Schedule steps ask many times for loops and blocks by their names, and every step makes a new
program; so the answers for one program are found at once, and kept for the last ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pliant.loop.stmt import Alloc, Block, For, Stmt

Kind = Literal["loop", "block", "buffer"]


@dataclass(frozen=True, eq=False)
class Outline:
    """The statements below a root, each once, in program order, and the first one of each name."""

    statements: tuple[Stmt, ...]
    named: Mapping[tuple[Kind, str], Stmt]  # a buffer is where it is allocated
    parents: Mapping[Stmt, Stmt]  # where a statement comes first

    def path(self, kind: Kind, name: str) -> tuple[Stmt, ...] | None:
        """The statements from the root down to what has this name; None if nothing has."""
        found = self.named.get((kind, name))
        if found is None:
            return None
        path = [found]
        while path[-1] in self.parents:
            path.append(self.parents[path[-1]])
        return tuple(path[::-1])


@lru_cache(128)
def outline(root: Stmt) -> Outline:
    named: dict[tuple[Kind, str], Stmt] = {}
    parents: dict[Stmt, Stmt] = {}
    seen: dict[Stmt, None] = {root: None}
    stack = [(root, s) for s in root.nested()[::-1]]
    _name(root, named)
    while stack:
        parent, s = stack.pop()
        if s in seen:
            continue
        seen[s] = None
        parents[s] = parent
        _name(s, named)
        stack += [(s, c) for c in s.nested()[::-1]]
    return Outline(tuple(seen), named, parents)


def _name(s: Stmt, named: dict[tuple[Kind, str], Stmt]) -> None:
    if isinstance(s, For):
        named.setdefault(("loop", s.var), s)
    elif isinstance(s, Block):
        named.setdefault(("block", s.name), s)
    elif isinstance(s, Alloc):
        named.setdefault(("buffer", s.buffer.name), s)
