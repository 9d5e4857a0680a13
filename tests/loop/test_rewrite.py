"""Substitution in loop programs."""

from __future__ import annotations

from pliant.loop.rewrite import names_below, subst
from pliant.loop.stmt import For, Nop
from pliant.sym.expr import var


def test_sizes_in_notes() -> None:
    """How many iterations are worth a thread is known by the names that a kernel has for sizes."""
    n, m = var("n"), var("m")
    loop = For("i", m, Nop(), "parallel", (("grain", n // 4), ("tile", 8), ("speed", 1.5)))
    found = subst(loop, {"n": 2 * m})
    assert found == For("i", m, Nop(), "parallel", (("grain", m // 2), ("tile", 8), ("speed", 1.5)))
    assert names_below(loop) == {"n", "m"}
    assert subst(loop, {"k": n}) is loop
