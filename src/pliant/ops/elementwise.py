"""Elementwise operators: each element of the result depends on one element of each operand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import FLOAT_UNARY, Binary, Bitcast, Expr, Guard, Select, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, select
from pliant.ops.activation import ACTIVATIONS
from pliant.ops.common import (
    aligned,
    broadcast,
    broadcast_to,
    check_rank,
    elementwise,
    needs_float,
    same_type,
)
from pliant.sym.expr import Int

DIRECT: Final = (*sorted(FLOAT_UNARY), "neg", "abs", "sign", "isnan", "isinf")
"""Operators of one operand that the expression language has."""


def apply_unary(x: Tensor, *, op: str) -> Compute:
    """`op` of every element."""
    return compute(x.shape, lambda *i: Unary(op, x[i]), op)


def not_(x: Tensor) -> Compute:
    """Logical on bool, bitwise on integers."""
    if x.dtype.is_float:
        raise InvalidModelError(f"not of {x.dtype}")
    return compute(x.shape, lambda *i: ~x[i], "not")


def relu(x: Tensor) -> Compute:
    """max(x, 0); NaN stays."""
    return compute(x.shape, lambda *i: Binary("max", x[i], as_expr(0, x.dtype)), "relu")


def square(x: Tensor) -> Compute:
    """x * x."""
    return compute(x.shape, lambda *i: x[i] * x[i], "square")


def reciprocal(x: Tensor) -> Compute:
    """1 / x."""
    needs_float(x)
    return compute(x.shape, lambda *i: 1.0 / x[i], "reciprocal")


def clamp(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Compute:
    """min(max(x, low), high), where given; NaN stays."""
    same_type(x, low, high)
    for bound in (low, high):
        if bound is not None:
            check_rank(bound, 0, "bound")

    def body(*i: Int) -> Expr:
        value: Expr = x[i]
        if low is not None:
            value = Binary("max", value, low[()])
        return value if high is None else Binary("min", value, high[()])

    return compute(x.shape, body, "clamp")


def identity(x: Tensor) -> Compute:
    """x."""
    return compute(x.shape, lambda *i: x[i], "identity")


def cast(x: Tensor, *, to: DType) -> Compute:
    """Values converted: float to int truncates and saturates, int to int wraps."""
    return compute(x.shape, lambda *i: x[i].cast(to), "cast")


def bitcast(x: Tensor, *, to: DType) -> Compute:
    """The same bits read as another type of the same width."""
    if x.dtype.bits != to.bits:
        raise InvalidModelError(f"{x.dtype} and {to} differ in width")
    return compute(x.shape, lambda *i: Bitcast(to, x[i]), "bitcast")


def prelu(x: Tensor, slope: Tensor) -> Compute:
    """x where positive, slope * x elsewhere; the slope broadcasts to x."""
    same_type(x, slope)

    def body(*i: Int) -> Expr:
        k = slope[aligned(i, slope.shape, x.shape)]
        return select(x[i] < 0, k * x[i], x[i])

    return compute(x.shape, body, "prelu", broadcast_to(slope.shape, x.shape))


def binary(a: Tensor, b: Tensor, name: str, fn: Callable[[Expr, Expr], Expr]) -> Compute:
    """`fn` of the elements of two operands of one type that broadcast together."""
    same_type(a, b)
    shape, requires = broadcast((a.shape, b.shape))
    return compute(
        shape,
        lambda *i: fn(a[aligned(i, a.shape, shape)], b[aligned(i, b.shape, shape)]),
        name,
        requires,
    )


def apply_binary(a: Tensor, b: Tensor, *, op: str) -> Compute:
    """`op` of two numbers."""
    return binary(a, b, op, partial(Binary, op))


def greater(a: Tensor, b: Tensor) -> Compute:
    """a > b."""
    return binary(a, b, "gt", lambda x, y: y < x)


def greater_equal(a: Tensor, b: Tensor) -> Compute:
    """a >= b."""
    return binary(a, b, "ge", lambda x, y: y <= x)


def div(a: Tensor, b: Tensor) -> Compute:
    """a / b, of floats."""
    needs_float(a)
    return apply_binary(a, b, op="div")


def whole_division(a: Tensor, b: Tensor, *, op: str) -> Compute:
    """A quotient or remainder; dividing an integer by 0 fails the call."""

    def fn(x: Expr, y: Expr) -> Expr:
        value = Binary(op, x, y)
        if x.dtype.is_float:
            return value
        return Guard(y.ne(0), value, "zero", f"{op}: integer division by zero")

    if a.dtype.kind == "bool":
        raise InvalidModelError(f"{op} of bool")
    return binary(a, b, op, fn)


def logic(a: Tensor, b: Tensor, *, op: str) -> Compute:
    """Logical on bool, bitwise on integers."""
    if a.dtype.is_float:
        raise InvalidModelError(f"{op} of {a.dtype}")
    return apply_binary(a, b, op=op)


def shift(a: Tensor, b: Tensor, *, op: str) -> Compute:
    """Integers shifted by a count taken modulo their width; right shifts keep the sign."""
    if not a.dtype.is_int:
        raise InvalidModelError(f"{op} of {a.dtype}")
    return apply_binary(a, b, op=op)


def where(cond: Tensor, a: Tensor, b: Tensor) -> Compute:
    """a where cond holds, else b; all three broadcast."""
    same_type(a, b)
    shape, requires = broadcast((cond.shape, a.shape, b.shape))

    def body(*i: Int) -> Expr:
        c, x, y = (t[aligned(i, t.shape, shape)] for t in (cond, a, b))
        return Select(c, x, y)

    return compute(shape, body, "where", requires)


def _activation(name: str, fn: Callable[..., Expr]) -> Operator:
    def define(x: Tensor, **attributes: float | str) -> Compute:
        needs_float(x)
        return elementwise(x, lambda v: fn(v, **attributes), name)

    define.__doc__ = fn.__doc__
    return Operator(name, define)


_NUMBERS: Final = ("add", "sub", "mul", "pow", "atan2", "fmin", "fmax")
_COMPARISONS: Final = ("eq", "ne", "lt", "le")
_WHOLE: Final = ("floordiv", "floormod", "truncdiv", "truncmod")

ELEMENTWISE: Final[tuple[Operator, ...]] = (
    *(Operator(op, partial(apply_unary, op=op)) for op in DIRECT),
    *(_activation(name, fn) for name, fn in ACTIVATIONS.items()),
    *(Operator(op, partial(apply_binary, op=op)) for op in (*_NUMBERS, *_COMPARISONS)),
    *(Operator(op, partial(whole_division, op=op)) for op in _WHOLE),
    *(Operator(op, partial(logic, op=op)) for op in ("and", "or", "xor")),
    *(Operator(op, partial(shift, op=op)) for op in ("shl", "shr")),
    Operator("not", not_),
    Operator("relu", relu),
    Operator("square", square),
    Operator("reciprocal", reciprocal),
    Operator("clamp", clamp),
    Operator("identity", identity),
    Operator("cast", cast),
    Operator("bitcast", bitcast),
    Operator("prelu", prelu),
    Operator("gt", greater),
    Operator("ge", greater_equal),
    Operator("div", div),
    Operator("where", where),
)
