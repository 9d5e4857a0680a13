"""Notes on loops and blocks, for whoever reads the program later.

Notes mean nothing by themselves. They are part of the program's text, and stay as long as their
loop or block does; where a primitive puts others in its place (as `split` does with a loop), they
go.

Before:

    @loop
    def twice(x: f32["n"], y: f32["n"], n: i64):
        for i in grid(n):
            with block("y", S(i, n)) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.annotate('i', 'depth', 3)
    p = p.annotate('y', 'use', 'tile')

After:

    for i in grid(n, notes={"depth": 3}):
        with block("y", S(i, n), notes={"use": "tile"}) as (a,):
            y[a] = x[a] * 2.0

Steps:

    p = p.annotate('i', 'depth', 3)
    p = p.annotate('i', 'use', 'tile')
    p = p.unannotate('i', 'depth')

After:

    for i in grid(n, notes={"use": "tile"}):
        with block("y", S(i, n)) as (a,):
            y[a] = x[a] * 2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.loop.lower_pipeline import PIPELINE
from pliant.loop.rewrite import path_to, replace_at
from pliant.loop.stmt import PARTS, PREFETCH, STREAM, Block, For, Stmt
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive
from pliant.schedule.trace import plain
from pliant.sym.expr import Int

Value = str | int | float | Int | Sequence["Value"] | None
# Notes that mean something, and who makes them.
TAKEN: Final = {
    "grain": "parallel", PIPELINE: "software_pipeline", PREFETCH: "prefetch", STREAM: "stream",
    PARTS: "stream",
}  # fmt: skip


@primitive
def annotate(p: Program, place: str, key: str, value: Value) -> Program:
    """The loop or block `place` gets the note, in place of one with the same key."""
    path = check_annotate(p, place, key, value)
    node = path[-1]
    notes = dict(_notes(node)) | {key: plain(value)}
    return p.with_body(replace_at(path, node.replace(notes=tuple(notes.items()))))


@primitive
def unannotate(p: Program, place: str, key: str) -> Program:
    """The loop or block `place` loses the note."""
    path = check_unannotate(p, place, key)
    node = path[-1]
    notes = tuple((k, v) for k, v in _notes(node) if k != key)
    return p.with_body(replace_at(path, node.replace(notes=notes)))


def check_annotate(p: Program, place: str, key: str, value: Value) -> tuple[Stmt, ...]:
    """There is one loop or block of that name; the key has no meaning of its own; integers in the
    value are in terms of sizes. Gives the path."""
    path = _path(p, "annotate", place)
    _check_key("annotate", place, key)
    strange = _names(value) - p.sizes
    if strange:
        reason = f"the value mentions {', '.join(sorted(strange))}, which are not sizes"
        raise SchedulingError("annotate", place, reason)
    return path


def check_unannotate(p: Program, place: str, key: str) -> tuple[Stmt, ...]:
    """There is such a note. Gives the path to what has it."""
    path = _path(p, "unannotate", place)
    _check_key("unannotate", place, key)
    if key not in dict(_notes(path[-1])):
        raise SchedulingError("unannotate", place, f"it has no note {key!r}")
    return path


def _path(p: Program, primitive: str, place: str) -> tuple[Stmt, ...]:
    body = p.function.body
    loop = path_to(body, lambda s: isinstance(s, For) and s.var == place)
    block = path_to(body, lambda s: isinstance(s, Block) and s.name == place)
    if loop is not None and block is not None:
        raise SchedulingError(primitive, place, "a loop and a block have that name")
    found = block if loop is None else loop
    if found is None:
        raise SchedulingError(primitive, place, "there is no such loop or block")
    return found


def _check_key(primitive: str, place: str, key: str) -> None:
    if key in TAKEN:
        raise SchedulingError(primitive, place, f"{key!r} is the business of {TAKEN[key]}")


def _notes(s: Stmt) -> tuple[tuple[str, Any], ...]:
    assert isinstance(s, For | Block)
    return s.notes


def _names(value: Value) -> frozenset[str]:
    match value:
        case Int():
            return value.names
        case list() | tuple():
            return frozenset[str]().union(*(_names(v) for v in value))
    return frozenset()
