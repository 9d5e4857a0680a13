"""What is bf16 among expressions of f32: instructions take it as it is."""

from __future__ import annotations

from pliant.base.dtypes import bf16, f32
from pliant.ir.expr import Binary, Cast, Const, Expr, Select, const


def from_bf16(x: Expr) -> Expr | None:
    """The bf16 that an f32 expression widens, or that a number is exactly."""
    if isinstance(x, Cast) and x.dtype is f32 and x.a.dtype is bf16:
        return x.a
    if isinstance(x, Const) and x.dtype is f32:
        short = const(x.value, bf16)
        return short if const(float(short.value), f32) is x else None
    return None


def chosen_in_bf16(x: Select) -> Expr | None:
    """The choice between two that are bf16, chosen before it is widened."""
    a, b = from_bf16(x.a), from_bf16(x.b)
    return None if a is None or b is None else Select(x.cond, a, b).cast(f32)


def factors_in_bf16(x: Expr) -> tuple[Expr, Expr] | None:
    """The factors of a product in f32 of two that are bf16; None for anything else."""
    match x:
        case Binary("mul", a, b) if x.dtype is f32:
            left, right = _short(a), _short(b)
            return None if left is None or right is None else (left, right)
    return None


def _short(x: Expr) -> Expr | None:
    """The bf16 that is widened, perhaps of a choice."""
    if isinstance(x, Select):
        chosen = chosen_in_bf16(x)
        return None if chosen is None else from_bf16(chosen)
    return None if isinstance(x, Const) else from_bf16(x)
