"""What torch assumed of sizes while tracing, as equalities to check in every call."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational
from torch.export import ExportedProgram
from torch.utils._sympy.functions import Max

from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.places import READERS, TRACERS
from pliant.frontend.torch.symbols import Symbols
from pliant.sym.expr import Int, as_int, maximum, minimum
from pliant.sym.facts import Facts


def demands(program: ExportedProgram) -> tuple[Any, ...]:
    """What the model's own code asked of sizes while tracing.

    Torch's assumptions are left out: they say how it lays out tensors, and that sizes are neither
    0 nor 1, which importing does not rely on.
    """
    found = [e for e, is_users in _guards(program) if is_users and isinstance(e, Relational)]
    return tuple(e for e in dict.fromkeys(found) if not (_is_assumed(e) or _of_values(e)))


def assumed_equal(program: ExportedProgram) -> tuple[Any, ...]:
    """The equalities that the trace holds for, the model's own and torch's."""
    found = [e for e, _ in _guards(program) if isinstance(e, sympy.Eq)]
    return tuple(e for e in dict.fromkeys(found) if not (_of_values(e) or _of_strides(e)))


def limits(program: ExportedProgram) -> tuple[Any, ...]:
    """The greatest sizes that torch took from tracing, as `symbol <= number`."""
    ranges = program.range_constraints.items()
    return tuple(sympy.Le(s, r.upper) for s, r in ranges if r.upper.is_Integer)


def equalities(
    program: ExportedProgram, symbols: Symbols, facts: Facts, needless: Collection[Any] = ()
) -> Iterator[tuple[Int, Int, str]]:
    """Pairs of sizes that must be equal, and why. `a <= b` is `max(a, b) == b`.

    Of torch's own assumptions only equalities count. Raises UnsupportedError where what was assumed
    cannot be checked.
    """
    seen: set[tuple[Int, Int]] = set()
    asked = dict.fromkeys((*assumed_equal(program), *demands(program)))
    for expr in (e for e in asked if e not in needless):
        try:
            pair = _pair(expr, symbols)
            why = f"the model takes another path unless {_words(expr, symbols)}"
        except UnsupportedError as error:
            raise UnsupportedError(
                f"the model was traced for sizes of which {expr} holds, and that cannot be checked "
                f"in a call: {error}"
            ) from error
        if pair is None or pair in seen:
            continue
        seen.add(pair)
        if not facts.equal(*pair):
            yield *pair, "" if isinstance(expr, sympy.Eq) else why


def bounded_by_user(program: ExportedProgram) -> frozenset[str]:
    """The symbols that the model's own code compares with a number greater than 2."""
    found: set[str] = set()
    for expr, is_users in _guards(program):
        if is_users and isinstance(expr, Relational):
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
    for symbol, known in program.range_constraints.items():
        low, high = known.lower, known.upper
        if low.is_Integer and high.is_Integer and 2 < int(low) < int(high) < 2 * int(low):
            found.add(symbol.name)  # 32 <= h <= 63: torch took h // 32 for 1
    return frozenset(found)


def _guards(program: ExportedProgram) -> Iterator[tuple[Any, bool]]:
    """Each guard with whether the model's own code (not torch's) asked for it."""
    env = _shape_env(program)
    for guard in getattr(env, "guards", ()):
        frame = getattr(getattr(guard, "sloc", None), "framework_loc", None)
        file = getattr(frame, "filename", None) or str(frame)
        # Dynamo asks what the code that it reads would ask.
        yield env.replace(guard.expr), not file.startswith(TRACERS) or file.startswith(READERS)


def _pair(e: Any, symbols: Symbols) -> tuple[Int, Int] | None:
    if isinstance(e, sympy.Eq):
        return symbols.sides(e.lhs, e.rhs)
    if isinstance(e, sympy.Ne):
        a, b = symbols.sides(e.lhs, e.rhs)
        return minimum((a - b) ** 2, as_int(1)), as_int(1)
    if isinstance(e, sympy.Ge | sympy.Gt | sympy.Le | sympy.Lt):
        a, b = symbols.sides(e.lts, e.gts)
        if isinstance(e, sympy.Gt | sympy.Lt):
            a = a + 1
        return maximum(a, b), b
    return None


def _words(e: Any, symbols: Symbols) -> str:
    left, right = symbols.sides(e.lhs, e.rhs)
    return f"{left} {e.rel_op} {right}"


def _of_values(e: Any) -> bool:
    """Whether it is about numbers out of tensors, which torch checks where they are used."""
    return any(s.name.startswith(("u", "zu")) for s in e.free_symbols)


def _of_strides(e: Any) -> bool:
    """Whether it says no more than that sizes are not 0: `max(1, n) == n`, as torch's strides count
    sizes."""

    def counted(*args: Any) -> Any:
        rest = [a for a in args if a != 1]
        return rest[0] if len(rest) == 1 < len(args) else Max(*args)  # type: ignore[no-untyped-call]

    if not e.has(Max):
        return False
    lhs, rhs = (side.replace(Max, counted) for side in (e.lhs, e.rhs))
    return bool(sympy.expand(lhs - rhs) == 0)


def _is_assumed(e: Any) -> bool:
    """Whether it says no more than that sizes are neither 0 nor 1."""
    if isinstance(e, sympy.Ne):
        return any(side in (0, 1) and other.is_Symbol
                   for side, other in ((e.lhs, e.rhs), (e.rhs, e.lhs)))  # fmt: skip
    if isinstance(e, sympy.Ge | sympy.Gt | sympy.Le | sympy.Lt):
        strict = isinstance(e, sympy.Gt | sympy.Lt)
        return bool(e.lts.is_Integer) and int(e.lts) + strict <= 2 and bool(e.gts.is_Symbol)
    return False


def _is_small(e: Any) -> bool:
    return bool(e.is_Integer) and abs(int(e)) <= 2


def _shape_env(program: ExportedProgram) -> Any:
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and hasattr(value, "fake_mode"):
            return value.fake_mode.shape_env  # type: ignore[attr-defined]
    return None
