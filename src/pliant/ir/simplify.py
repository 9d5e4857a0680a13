"""Simplifications that hold for every value, NaN, infinities and signed zeros included.

Nothing is reassociated, and nothing is dropped that could fail: constants fold through the NumPy
meaning of the operators, and integer division by a literal zero stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from pliant.base.dtypes import DType, boolean, i64
from pliant.base.errors import InvalidModelError
from pliant.ir import scalar
from pliant.ir.expr import (
    BINARY_OPS,
    UNARY_OPS,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Guard,
    Index,
    Unary,
    as_expr,
)
from pliant.ir.node import Node
from pliant.ir.rewrite import (
    Explain,
    NoMatch,
    Rule,
    any_,
    binary,
    bitcast,
    bools,
    cast,
    floats,
    guard,
    index,
    ints,
    literal,
    literal_value,
    logic,
    rewrite,
    select,
    unary,
)
from pliant.ir.tensor import own_nodes
from pliant.sym.expr import Int, maximum, minimum

DIVISIONS: Final = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})

N = TypeVar("N", bound=Node)


def simplify(root: N, *, explain: Explain | None = None) -> N:
    """`root` with every simplification below and at it."""
    return rewrite(root, RULES, explain=explain)


def _literal(value: Any, dtype: DType) -> Expr:
    """A NumPy scalar as a literal; i64 literals are symbolic integers."""
    if dtype is i64:
        return as_expr(int(value))
    raw = np.asarray(value, dtype.numpy).tobytes()
    return Const(dtype, int.from_bytes(raw, "little"))


def _number(expr: Expr) -> Any:
    if isinstance(expr, Const):
        return scalar.from_bits(expr.bits, expr.type)
    return np.int64(_known(literal_value(expr)))


def _known(value: Any) -> Any:
    assert value is not None, "a pattern's literal has a value"
    return value


def _fold(compute: Callable[[], Any], dtype: DType) -> Expr | NoMatch:
    try:
        with np.errstate(all="ignore"):
            return _literal(compute(), dtype)
    except (ZeroDivisionError, OverflowError, TypeError, InvalidModelError) as error:
        return NoMatch(f"it cannot be folded: {error}")


def _fold_unary(root: Unary, c: Expr) -> Expr | NoMatch:
    return _fold(lambda: scalar.unary_operation(root.op, c.dtype)(_number(c)), root.dtype)


def _fold_binary(root: Binary, c: Expr, d: Expr) -> Expr | NoMatch:
    def compute() -> Any:
        return scalar.binary_operation(root.op, c.dtype)(_number(c), _number(d))

    return _fold(compute, root.dtype)


def _fold_cast(root: Cast, c: Expr) -> Expr | NoMatch:
    return _fold(lambda: scalar.cast(_number(c), c.dtype, root.to), root.to)


def _fold_bitcast(root: Bitcast, c: Expr) -> Expr | NoMatch:
    return _fold(lambda: scalar.bitcast(_number(c), c.dtype, root.to), root.to)


def _algebra(root: Binary, n: Index, m: Index) -> Expr | NoMatch:
    """Operators over symbolic integers that the integer algebra knows."""
    a, b = n.int_, m.int_
    match root.op:
        case "floordiv" | "floormod":
            if not (b.is_const and b.value >= 1):
                return NoMatch(f"{b} is not a literal of at least 1")
            return Index(a // b if root.op == "floordiv" else a % b)
        case _:
            return Index(_ALGEBRA[root.op](a, b))


def _compare(root: Binary, n: Index, m: Index) -> Expr | NoMatch:
    """Comparison of sizes that differ by a number."""
    difference = m.int_ - n.int_
    if not difference.is_const:
        return NoMatch(f"{difference} may have either sign")
    gap = difference.value
    result = {"eq": gap == 0, "ne": gap != 0, "lt": gap > 0, "le": gap >= 0}[root.op]
    return as_expr(result)


def _through(root: Cast, x: Expr) -> Expr | NoMatch:
    """cast(T, cast(M, x)) where M holds every value of x: the value, and so the result, is the
    same without it. From an integer through a float it is not: floats saturate, integers wrap."""
    middle = root.a.dtype
    if holds(middle, x.dtype):
        return x.cast(root.to)
    return NoMatch(f"{middle} does not hold every {x.dtype} in kind")


def cannot_fail(root: Expr) -> bool | NoMatch:
    """Whether evaluating the expression always succeeds, so that it may be left out."""
    for node in own_nodes(root):
        if isinstance(node, Guard):
            return NoMatch("it holds a guard")
        if isinstance(node, Binary) and _may_fail(node):
            return NoMatch(f"{node.op} may divide by zero")
    return True


def _may_fail(node: Binary) -> bool:
    return node.op in DIVISIONS and node.dtype.is_int and not literal_value(node.b)


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, of the same kind (bool is of all)."""
    if narrow is boolean:
        return True
    if wide.is_float and narrow.is_float:
        halves = {wide.kind, narrow.kind} == {"float", "bfloat"}
        return wide is narrow or (wide.bits > narrow.bits and not (halves and wide.bits == 16))
    if not (wide.is_int and narrow.is_int):
        return False
    return wide.min <= narrow.min and narrow.max <= wide.max


_ALGEBRA: Final[dict[str, Callable[[Int, Int], Int]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "min": minimum, "max": maximum,
}  # fmt: skip

x, y, c = any_("x"), any_("y"), bools("c")
k, f, b = ints("k"), floats("f"), logic("b")

IDENTITY_RULES: Final = (
    Rule("x * 1", x * 1, x),
    Rule("x / 1", x / 1, x),
    Rule("k + 0", k + 0, k),
    Rule("f + -0.0", f + -0.0, f),  # but f + 0.0 turns -0.0 into 0.0
    Rule("x - 0", x - 0, x),
    Rule("k // 1", k // 1, k),
    Rule("k truncdiv 1", binary("truncdiv", k, 1), k),
    Rule("k << 0", k << 0, k),
    Rule("k >> 0", k >> 0, k),
    Rule("b & b", b & b, b),
    Rule("b | b", b | b, b),
    Rule("b | 0", b | 0, b),
    Rule("b ^ 0", b ^ 0, b),
    Rule("c & True", c & True, c),
    *[Rule(f"{op}(x, x)", binary(op, x, x), x) for op in ("min", "max", "fmin", "fmax")],
)

# These forget an operand, which therefore must be unable to fail.
ZERO_RULES: Final = (
    Rule("k * 0", k * 0, 0, cannot_fail),
    Rule("k - k", k - k, 0, cannot_fail),
    Rule("k % 1", k % 1, 0, cannot_fail),
    Rule("k truncmod 1", binary("truncmod", k, 1), 0, cannot_fail),
    Rule("b & 0", b & 0, 0, cannot_fail),
    Rule("b ^ b", b ^ b, 0, cannot_fail),
    Rule("c | True", c | True, True, cannot_fail),
    Rule("b == b", binary("eq", b, b), True, cannot_fail),  # NaN is not equal to itself
    Rule("b != b", binary("ne", b, b), False, cannot_fail),
    Rule("b <= b", b <= b, True, cannot_fail),
    Rule("x < x", x < x, False, cannot_fail),
)

INVOLUTION_RULES: Final = (
    Rule("--x", unary("neg", -x), x),
    Rule("~~b", ~~b, b),
    Rule("abs(abs(x))", unary("abs", unary("abs", x)), unary("abs", x)),
    Rule("abs(-x)", unary("abs", -x), unary("abs", x), lambda x: x.dtype.is_signed),
    Rule("not k < y", ~(k < y), y <= k),
    Rule("not k <= y", ~(k <= y), y < k),
    Rule("not x == y", ~binary("eq", x, y), binary("ne", x, y)),
    Rule("not x != y", ~binary("ne", x, y), binary("eq", x, y)),
)

SELECT_RULES: Final = (
    Rule("select(True)", select(True, x, y), x),
    Rule("select(False)", select(False, x, y), y),
    Rule("select(c, x, x)", select(c, x, x), x, lambda c: cannot_fail(c)),
    Rule("select(~c)", select(~c, x, y), select(c, y, x)),
    Rule("select(c, True, False)", select(c, True, False), lambda root, c: _condition(root, c)),
    Rule("guard(True)", guard(True, x), x),
)

CAST_RULES: Final = (
    Rule("cast to its type", cast(x), lambda x: x, when=lambda root, x: root.dtype is x.dtype),
    Rule("cast through", cast(cast(x)), _through),
    Rule("bitcast to its type", bitcast(x), lambda x: x,
         when=lambda root, x: root.dtype is x.dtype),
    Rule("bitcast through", bitcast(bitcast(x)), lambda root, x: Bitcast(root.to, x)),
)  # fmt: skip

INTEGER_RULES: Final = (
    *[Rule(f"size {op} size", binary(op, index("n"), index("m")), _algebra)
      for op in (*_ALGEBRA, "floordiv", "floormod")],
    *[Rule(f"size {op} size", binary(op, index("n"), index("m")), _compare)
      for op in ("eq", "ne", "lt", "le")],
)  # fmt: skip

FOLD_RULES: Final = (
    *[Rule(f"fold {op}", unary(op, literal("c")), _fold_unary) for op in sorted(UNARY_OPS)],
    *[Rule(f"fold {op}", binary(op, literal("c"), literal("d")), _fold_binary)
      for op in sorted(BINARY_OPS)],
    Rule("fold cast", cast(literal("c")), _fold_cast),
    Rule("fold bitcast", bitcast(literal("c")), _fold_bitcast),
)  # fmt: skip

RULES: Final = (
    *FOLD_RULES, *IDENTITY_RULES, *ZERO_RULES, *INVOLUTION_RULES, *SELECT_RULES, *CAST_RULES,
    *INTEGER_RULES,
)  # fmt: skip


def _condition(root: Expr, c: Expr) -> Expr | NoMatch:
    return c if root.dtype is boolean else NoMatch("the branches are numbers")
