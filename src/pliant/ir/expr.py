"""Scalar expressions: the bodies of tensor expressions and of loop programs.

The whole language:

    Const      a literal, kept as its bit pattern
    Index      a symbolic integer (loop variables, sizes) used as an i64 value
    Var        a scalar bound by a `Let` or a parameter
    Load       an element of a tensor (tensor expression) or buffer (loop program)
    Unary      neg, abs, sqrt, exp, …                    (`UNARY_OPS`)
    Binary     add, sub, mul, …, comparisons, logic      (`BINARY_OPS`)
    Select     lazily: the branch not taken is not evaluated (loads in it may be out of bounds)
    Cast       value conversion (saturating for float -> int, NaN -> 0; wrapping for int -> int)
    Bitcast    same bits, other type of the same width
    Guard      a value that is legal only if a condition holds; else the call fails with a message
    Reduce     a reduction of `body` over axes of its own

Types are strict: the operands of a binary operator have one type; casts are written out. f16 and
bf16 arithmetic is done in f32 and rounded after every operator. Integers wrap.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from pliant.base.dtypes import DType, boolean, f32, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.node import Node, transform, walk
from pliant.sym.expr import Int, IntLike, as_int

__all__ = [
    "BINARY_OPS", "COMBINERS", "COMPARISONS", "UNARY_OPS", "Axis", "Binary", "Bitcast", "Cast",
    "Const", "Expr", "Guard", "Index", "Load", "Reduce", "Select", "Unary", "Var", "as_expr",
    "const", "loads_of", "substitute",
]  # fmt: skip

# Float functions of one argument; each is exact or within 2 ULP in f32.
FLOAT_UNARY: Final = frozenset(
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p tanh sigmoid erf erfc sin cos tan asin acos"
    " atan sinh cosh asinh acosh atanh floor ceil trunc round".split()
)
# exp_from_max: exp of what is not above 0 (or NaN), as a difference from a maximum is.
# neg/abs: any number; sign: any number; not: bool or integer (bitwise); isnan/isinf: float -> bool
_OF_FLOATS: Final = FLOAT_UNARY | {"exp_from_max", "isnan", "isinf"}
UNARY_OPS: Final = _OF_FLOATS | {"neg", "abs", "sign", "not"}

# eq, ne, lt, le: any type -> bool. NaN compares unequal.
COMPARISONS: Final = frozenset({"eq", "ne", "lt", "le"})
# div: floats only. floordiv/floormod round to -inf, truncdiv/truncmod towards zero (int or float).
# min/max return NaN if either is NaN; fmin/fmax return the other one.
# and/or/xor: bool or integer. shl/shr: integers, shr arithmetic when signed, count taken mod bits.
BINARY_OPS: Final = COMPARISONS | frozenset(
    "add sub mul div floordiv floormod truncdiv truncmod min max fmin fmax pow atan2 and or xor"
    " shl shr".split()
)
COMMUTATIVE: Final = frozenset("add mul min max fmin fmax and or xor eq ne".split())

# Reduction operators and what an empty reduction gives. argmax/argmin give the i64 position of the
# first best element along their single axis (NaN beats everything).
COMBINERS: Final = (
    "sum", "prod", "max", "min", "fmax", "fmin", "any", "all", "argmax", "argmin",
)  # fmt: skip


class Expr(Node):
    """A scalar value of type `dtype`."""

    _extra_slots: ClassVar[tuple[str, ...]] = ("_dtype",)  # where it follows from the operands
    _dtype: ClassVar[DType]

    @property
    def dtype(self) -> DType:
        return self._dtype

    def _typed(self, dtype: DType) -> None:
        object.__setattr__(self, "_dtype", dtype)

    def __add__(self, other: Any) -> Expr:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _binary("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _binary("div", other, self)

    def __neg__(self) -> Expr:
        return Unary("neg", self)

    def __lt__(self, other: Any) -> Expr:
        return _binary("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return _binary("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _binary("lt", other, self)

    def __ge__(self, other: Any) -> Expr:
        return _binary("le", other, self)

    def eq(self, other: Any) -> Expr:
        return _binary("eq", self, other)

    def ne(self, other: Any) -> Expr:
        return _binary("ne", self, other)

    def __and__(self, other: Any) -> Expr:
        return _binary("and", self, other)

    def __or__(self, other: Any) -> Expr:
        return _binary("or", self, other)

    def __invert__(self) -> Expr:
        return Unary("not", self)

    def cast(self, dtype: DType) -> Expr:
        """Converted to `dtype`; itself if it has that type already."""
        return self if self.dtype is dtype else Cast(dtype, self)


class Const(Expr):
    """A literal. `bits` is the two's complement or IEEE pattern as a non-negative integer."""

    type: DType
    bits: int

    @property
    def dtype(self) -> DType:
        return self.type

    @property
    def value(self) -> int | float | bool:
        """The value as a Python number (bool for booleans)."""
        kind, width = self.type.kind, self.type.bits
        if kind == "bool":
            return bool(self.bits)
        if kind == "uint":
            return self.bits
        if kind == "int":
            return self.bits - (1 << width) if self.bits >> (width - 1) else self.bits
        raw = self.bits.to_bytes(self.type.bytes, "little")
        return float(np.frombuffer(raw, self.type.numpy)[0])


class Index(Expr):
    """A symbolic integer as an i64 value."""

    int_: Int

    @property
    def dtype(self) -> DType:
        return i64


class Var(Expr):
    """A named scalar."""

    name: str
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


class Load(Expr):
    """`source[indices]`. `source` has `shape` and `dtype`: a tensor expression or a buffer."""

    source: Any
    indices: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.source.shape):
            raise InvalidModelError(
                f"{len(self.indices)} indices for {self.source.name} of rank "
                f"{len(self.source.shape)}"
            )

    @property
    def dtype(self) -> DType:
        return self.source.dtype  # type: ignore[no-any-return]


class Unary(Expr):
    op: str
    a: Expr

    def __post_init__(self) -> None:
        if self.op not in UNARY_OPS:
            raise InvalidModelError(f"no unary operator {self.op!r}")
        if self.op in _OF_FLOATS and not self.a.dtype.is_float:
            raise InvalidModelError(f"{self.op} needs a float, not {self.a.dtype}")
        self._typed(boolean if self.op in ("isnan", "isinf") else self.a.dtype)


class Binary(Expr):
    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.op not in BINARY_OPS:
            raise InvalidModelError(f"no binary operator {self.op!r}")
        if self.a.dtype is not self.b.dtype:
            raise InvalidModelError(f"{self.op} of {self.a.dtype} and {self.b.dtype}: cast first")
        self._typed(boolean if self.op in COMPARISONS else self.a.dtype)


class Select(Expr):
    cond: Expr
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.cond.dtype is not boolean or self.a.dtype is not self.b.dtype:
            raise InvalidModelError(
                f"select({self.cond.dtype}, {self.a.dtype}, {self.b.dtype}) is ill-typed"
            )
        self._typed(self.a.dtype)


class Cast(Expr):
    to: DType
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.to


class Bitcast(Expr):
    to: DType
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.to


class Guard(Expr):
    """`value`, legal only where `cond` holds; elsewhere the whole call fails with `message`.

    `kind` is "index" (out of range) or "zero" (integer division by zero).
    """

    cond: Expr
    value: Expr
    kind: str
    message: str

    def __post_init__(self) -> None:
        self._typed(self.value.dtype)


class Axis(Node):
    """A loop variable of a comprehension: 0 <= var < extent. Names begin with an underscore."""

    var: str
    extent: Int


class Reduce(Expr):
    """`combiner` over all values of `axes` of `body`.

    "max" and "min" of floats are NaN where a value is; "fmax" and "fmin" pass over NaN. The tree is
    ours to choose: no order is promised unless the numerics are strict.
    """

    combiner: str
    axes: tuple[Axis, ...]
    body: Expr

    def __post_init__(self) -> None:
        if self.combiner not in COMBINERS:
            raise InvalidModelError(f"no reduction {self.combiner!r}")
        if self.combiner in ("any", "all") and self.body.dtype is not boolean:
            raise InvalidModelError(f"{self.combiner} of {self.body.dtype}")
        self._typed(i64 if self.combiner in ("argmax", "argmin") else self.body.dtype)


def const(value: int | float | bool, dtype: DType) -> Const:
    """A literal of type `dtype`; floats are rounded to it, integers must fit (else ValueError)."""
    if dtype.kind == "bool":
        return Const(dtype, int(bool(value)))
    if dtype.is_int:
        number = int(value) if math.isfinite(value) else None
        if number is None or number != value or not dtype.min <= number <= dtype.max:
            raise ValueError(f"{value} is no {dtype}")
        return Const(dtype, number & ((1 << dtype.bits) - 1))
    if dtype is f32:  # the common case, without NumPy
        try:
            return Const(dtype, struct.unpack("<I", struct.pack("<f", value))[0])
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    with np.errstate(all="ignore"):
        raw = np.asarray(value, np.float64).astype(dtype.numpy).tobytes()
    return Const(dtype, int.from_bytes(raw, "little"))


def as_expr(value: Any, dtype: DType | None = None) -> Expr:
    """Python numbers become literals of `dtype`, symbolic integers become i64 values."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Int):
        return Index(value) if dtype is None else Index(value).cast(dtype)
    if isinstance(value, bool | int | float | np.generic):
        if dtype is None:
            dtype = boolean if isinstance(value, bool) else i64 if isinstance(value, int) else f32
        if dtype is i64 and not isinstance(value, bool):
            return Index(as_int(int(value)))
        return const(value if isinstance(value, bool | int | float) else value.item(), dtype)
    raise TypeError(f"not a scalar: {value!r}")


def _binary(op: str, a: Any, b: Any) -> Expr:
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype)
    elif not isinstance(b, Expr):
        b = as_expr(b, a.dtype)
    if isinstance(a, Index) and isinstance(b, Index):  # stay in the integer algebra
        if op == "add":
            return Index(a.int_ + b.int_)
        if op == "sub":
            return Index(a.int_ - b.int_)
        if op == "mul":
            return Index(a.int_ * b.int_)
    return Binary(op, a, b)


def index_names(index: Expr) -> frozenset[str]:
    """The variables of an index that is a symbolic integer; none of another, which data decide."""
    return index.int_.names if isinstance(index, Index) else frozenset()


def loads_of(root: Node) -> Iterator[Load]:
    """Every distinct load in an expression or statement."""
    return (n for n in walk(root) if isinstance(n, Load))


def substitute(root: Any, sizes: Mapping[str, IntLike]) -> Any:
    """Replace symbolic integer variables in every `Index` (and axis extent) below `root`."""
    if not sizes:
        return root

    def visit(node: Node) -> Node:
        if isinstance(node, Index):
            return Index(node.int_.subs(sizes))
        if isinstance(node, Axis):
            return Axis(node.var, node.extent.subs(sizes))
        return node

    return transform(root, visit)
