"""Which operators are defined for which types, beyond what the construction of a node checks."""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import boolean
from pliant.ir.expr import Binary, Bitcast, Expr, Guard, Reduce, Unary

_INTEGER_ONLY: Final = frozenset({"shl", "shr"})
_FLOAT_ONLY: Final = frozenset({"div", "atan2"})
_LOGIC: Final = frozenset({"and", "or", "xor"})
_NOT_OF_BOOLEANS: Final = frozenset(
    {"sub", "pow", "floordiv", "floormod", "truncdiv", "truncmod", "neg", "sign"}
)


def type_fault(node: Expr) -> str | None:
    """What is wrong with an operator's types beyond what its construction checks."""
    match node:
        case Binary(op, a, _):
            wrong = (
                (op in _NOT_OF_BOOLEANS and a.dtype is boolean)
                or (op in _INTEGER_ONLY and not a.dtype.is_int)
                or (op in _FLOAT_ONLY and not a.dtype.is_float)
                or (op in _LOGIC and a.dtype.is_float)
            )
            return f"{op} of {a.dtype}" if wrong else None
        case Unary(op, a):
            wrong = (
                a.dtype.is_float if op == "not" else a.dtype is boolean and op in _NOT_OF_BOOLEANS
            )
            return f"{op} of {a.dtype}" if wrong else None
        case Bitcast(to, a) if to.bytes != a.dtype.bytes:
            return f"bitcast of {a.dtype} to {to}: widths differ"
        case Guard(cond, _, kind, _):
            if cond.dtype is not boolean:
                return f"the condition of a guard is {cond.dtype}"
            return None if kind in ("index", "zero") else f"no kind of guard {kind!r}"
        case Reduce(combiner, axes, _) if combiner in ("argmax", "argmin") and len(axes) != 1:
            return f"{combiner} over {len(axes)} axes"
    return None
