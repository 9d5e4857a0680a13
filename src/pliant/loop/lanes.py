"""What vectorized loops may hold: things that all lanes do at once.

for i in vectorized(8):
    for j in grid(i + 1):      # no: lanes would leave the loop at different times
        ...
    copy_row(address(t), m)    # no: one call for all lanes, and each has a t of its own
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.ir.expr import Expr, Load, Var
from pliant.ir.node import walk
from pliant.loop.outline import outline
from pliant.loop.rewrite import int_names
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    Flat,
    For,
    Function,
    Invoke,
    Let,
    Stmt,
    While,
)


@dataclass(frozen=True)
class _Here:
    """What differs between lanes."""

    names: frozenset[str]
    own: frozenset[Buffer] = frozenset()  # memory of each lane


def lanes_fault(f: Function) -> tuple[For, str] | None:
    """The first vectorized loop whose iterations cannot be lanes, and why; None if there is
    none."""
    for s in outline(f.body).statements:
        if isinstance(s, For) and s.kind == "vectorized":
            why = why_not_lanes(s)
            if why:
                return s, why
    return None


def why_not_lanes(loop: For) -> str:
    """Why iterations of the loop cannot be lanes; empty if they can. (That they are independent is
    another matter.)"""
    return _why(loop.body, _Here(frozenset({loop.var})))


def _why(s: Stmt, here: _Here) -> str:
    match s:
        case While():
            return "there is a while loop inside"
        case Invoke(callee=callee):
            return f"there is a call of {callee} inside"
        case For(var=var, extent=extent, kind=kind):
            if not here.names.isdisjoint(extent.names):
                return f"the extent of {var} depends on it"
            if kind not in ("serial", "unrolled"):
                return f"loop {var} inside it is {kind}"
        case Block(iters=iters, bindings=bindings):
            pairs = zip(iters, bindings, strict=True)
            new = {i.var for i, b in pairs if not here.names.isdisjoint(b.names)}
            here = _Here(here.names | new, here.own)
        case Let(var=var, value=value, body=body) if _differs(value, here):
            if var.name in int_names(body):  # a size, which is one for all lanes
                return f"{var.name}, which depends on it, is used as an index"
            here = _Here(here.names | {var.name}, here.own)
        case Alloc(buffer=buffer):
            here = _Here(here.names, here.own | {buffer})
    inner = (_why(c, here) for c in s.nested())
    return next(filter(None, inner), "")


def _differs(x: Expr, here: _Here) -> bool:
    """Whether it may have another value in each lane."""
    if not here.names.isdisjoint(int_names(x)):
        return True
    for n in walk(x):
        if isinstance(n, Var) and n.name in here.names:
            return True
        if isinstance(n, Load):
            source = n.source.buffer if isinstance(n.source, Flat) else n.source
            if source in here.own:
                return True
    return False
