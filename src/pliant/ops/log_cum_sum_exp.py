"""The running logarithm of a sum of exponentials along one axis, as a loop program.

    for every line along the axis:
        top, total = -inf, 0
        for element x:
            new = max(top, x)
            total = total * exp(top - new) + exp(x - new)
            top, out = new, log(total) + new

Nothing overflows, and small sums at the begin of a line are not lost beside a large element later.
"""

from __future__ import annotations

import math
from typing import Final

from pliant.base.dtypes import DType
from pliant.ir.expr import Binary, Expr, Load, Select, Unary, Var, as_expr
from pliant.loop.stmt import Alloc, For, Function, Let, Store, buffer, seq
from pliant.ops.common import accumulator
from pliant.ops.lines import for_lines
from pliant.ops.merge_sort import at
from pliant.sym.expr import as_int, var

STEP: Final = 32  # multiply-adds that take as long as a step
TOP, TOTAL = (as_int(k) for k in range(2))
"""Slots of what a line is at."""


def log_cum_sum_exp(rank: int, dtype: DType, axis: int) -> Function:
    """`x` along `axis` into `y`. The extents are the program's own sizes n0, n1, …"""
    shape, wide = tuple(var(f"n{d}") for d in range(rank)), accumulator(dtype)
    x, y = buffer("x", shape, dtype), buffer("y", shape, dtype)
    state = buffer("state", (2,), wide, scope="register")
    place = tuple(at(f"i{d}") for d in range(rank))
    value, top, new = (Var(name, wide) for name in ("value", "top", "new"))
    total = state[TOTAL] * _exp_of_difference(top, new) + _exp_of_difference(value, new)
    result = Select(_is_infinite(new), new, Unary("log", state[TOTAL]) + new)
    step = seq(
        Store(state, (as_expr(TOTAL),), total),
        Store(state, (as_expr(TOP),), new),
        Store(y, place, result.cast(dtype)),
    )
    step = Let(new, Binary("max", top, value), step)
    step = Let(value, Load(x, place).cast(wide), Let(top, state[TOP], step))
    line = seq(
        Store(state, (as_expr(TOP),), as_expr(-math.inf, wide)),
        Store(state, (as_expr(TOTAL),), as_expr(0.0, wide)),
        For(f"i{axis}", shape[axis], step),
    )
    outer = [(f"i{d}", e) for d, e in enumerate(shape) if d != axis]
    body = for_lines(outer, Alloc(state, line), STEP * shape[axis])
    return Function("log_cum_sum_exp", (x, y), tuple(map(str, shape)), body)


def _is_infinite(x: Expr) -> Expr:
    return Unary("isinf", x)


def _exp_of_difference(a: Expr, b: Expr) -> Expr:
    """exp(a - b), where equal infinities differ by nothing."""
    return Select(a.eq(b), as_expr(1.0, a.dtype), Unary("exp", a - b))
