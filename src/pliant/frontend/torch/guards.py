"""What torch assumed of sizes while tracing, as equalities to check in every call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.places import TORCH
from pliant.frontend.torch.symbols import Symbols
from pliant.sym.expr import Int, maximum
from pliant.sym.facts import Facts


def equalities(
    program: ExportedProgram, symbols: Symbols, facts: Facts
) -> Iterator[tuple[Int, Int]]:
    """Pairs of sizes that must be equal. `a <= b` is `max(a, b) == b`.

    Of torch's own assumptions only equalities count: the others say how it lays out tensors, and
    that sizes are neither 0 nor 1, which importing does not rely on.
    """
    seen: set[tuple[Int, Int]] = set()
    for expr, is_users in _guards(program):
        if not is_users and not isinstance(expr, sympy.Eq):
            continue
        try:
            pair = _pair(expr, symbols)
        except UnsupportedError:
            continue
        if pair is None or pair in seen:
            continue
        seen.add(pair)
        if not facts.equal(*pair):
            yield pair


def bounded_by_user(program: ExportedProgram) -> frozenset[str]:
    """The symbols that the model's own code compares with a number greater than 2."""
    found: set[str] = set()
    for expr, is_users in _guards(program):
        if is_users and isinstance(expr, sympy.core.relational.Relational):
            sides = (expr.lhs, expr.rhs)
            if any(e.is_Integer for e in sides) and not any(map(_is_small, sides)):
                found |= {s.name for s in expr.free_symbols}
    return frozenset(found)


def tight_symbols(program: ExportedProgram) -> frozenset[str]:
    """The symbols of sizes inside the model that happened to be 0 or 1 in the example."""
    found: set[str] = set()
    for expr, _ in _guards(program):
        sides = (expr.lhs, expr.rhs) if isinstance(expr, sympy.Eq) else ()
        if any(e.is_Integer and 0 <= int(e) <= 1 for e in sides) and "Mod" not in str(expr):
            found |= {s.name for s in expr.free_symbols}
    return frozenset(found)


def _guards(program: ExportedProgram) -> Iterator[tuple[Any, bool]]:
    """Each guard with whether the model's own code (not torch's) asked for it."""
    env = _shape_env(program)
    for guard in getattr(env, "guards", ()):
        frame = getattr(getattr(guard, "sloc", None), "framework_loc", None)
        file = getattr(frame, "filename", None) or str(frame)
        yield env.replace(guard.expr), not file.startswith(TORCH)


def _pair(e: Any, symbols: Symbols) -> tuple[Int, Int] | None:
    if isinstance(e, sympy.Eq):
        return symbols.of(e.lhs), symbols.of(e.rhs)
    if isinstance(e, sympy.Ge | sympy.Gt | sympy.Le | sympy.Lt):
        low, high = (e.lts, e.gts)
        if _is_small(low) or _is_small(high):
            return None
        a, b = symbols.of(low), symbols.of(high)
        if isinstance(e, sympy.Gt | sympy.Lt):
            a = a + 1
        return maximum(a, b), b
    return None


def _is_small(e: Any) -> bool:
    return bool(e.is_Integer) and abs(int(e)) <= 2


def _shape_env(program: ExportedProgram) -> Any:
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and hasattr(value, "fake_mode"):
            return value.fake_mode.shape_env  # type: ignore[attr-defined]
    return None
