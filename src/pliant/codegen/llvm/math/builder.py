"""A small emitter of LLVM IR text in which vector functions read like their maths.

Arithmetic on `Value`s appends one instruction each and returns the result; Python numbers become
splat constants. No instruction carries a fast-math flag: compensated steps and the adding of big
constants to round must survive. `mad` is for steps that may round once or twice (LLVM contracts it
where the target has the instruction), `fma` for steps that need the exact product.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal

from pliant.base.dtypes import DType, f32, f64
from pliant.base.errors import UnsupportedError

Kind = Literal["float", "double", "i1", "i32", "i64"]
Number = int | float

Features = frozenset[str]
NO_FEATURES: Final[Features] = frozenset()

SPLIT_FROM: Final = 6
"""Number of coefficients from which `polynomial` splits its chain."""

_SUFFIX: Final[dict[Kind, str]] = {
    "float": "f32",
    "double": "f64",
    "i1": "i1",
    "i32": "i32",
    "i64": "i64",
}


@dataclass(frozen=True, slots=True)
class Format:
    """The numbers that describe a binary floating-point format."""

    kind: Kind
    int_kind: Kind
    bits: int
    mantissa: int
    bias: int
    min_normal: float
    rounding: float
    """Adding this to |x| < 2^(mantissa - 2) leaves round(x) in the low bits of the sum."""

    @property
    def sign_mask(self) -> int:
        return -(1 << (self.bits - 1))


FORMATS: Final[dict[DType, Format]] = {
    f32: Format("float", "i32", 32, 23, 127, 2.0**-126, 1.5 * 2.0**23),
    f64: Format("double", "i64", 64, 52, 1023, 2.0**-1022, 1.5 * 2.0**52),
}


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA value (or constant) of `builder.lanes` lanes; operators emit instructions."""

    builder: Builder
    text: str
    kind: Kind

    # floats: fadd ...; integers: wrapping add ...
    def __add__(self, other: Operand) -> Value:
        return self.builder.binary("add", self, other)

    def __radd__(self, other: Number) -> Value:
        return self.builder.binary("add", self.like(other), self)

    def __sub__(self, other: Operand) -> Value:
        return self.builder.binary("sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return self.builder.binary("sub", self.like(other), self)

    def __mul__(self, other: Operand) -> Value:
        return self.builder.binary("mul", self, other)

    def __rmul__(self, other: Number) -> Value:
        return self.builder.binary("mul", self.like(other), self)

    def __truediv__(self, other: Operand) -> Value:
        return self.builder.binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return self.builder.binary("div", self.like(other), self)

    def __neg__(self) -> Value:
        return self.builder.unary("fneg", self)

    # integers and masks
    def __and__(self, other: Operand) -> Value:
        return self.builder.bitwise("and", self, other)

    def __or__(self, other: Operand) -> Value:
        return self.builder.bitwise("or", self, other)

    def __xor__(self, other: Operand) -> Value:
        return self.builder.bitwise("xor", self, other)

    def __invert__(self) -> Value:
        return self.builder.bitwise("xor", self, -1)

    def __lshift__(self, places: int) -> Value:
        return self.builder.bitwise("shl", self, places)

    def lshr(self, places: int) -> Value:
        """Shift right, filling with zeros."""
        return self.builder.bitwise("lshr", self, places)

    def ashr(self, places: int) -> Value:
        """Shift right, filling with the sign."""
        return self.builder.bitwise("ashr", self, places)

    # comparisons: false where a float operand is NaN, but `ne`, which is true there
    def __lt__(self, other: Operand) -> Value:
        return self.builder.compare("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.builder.compare("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.builder.compare("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.builder.compare("ge", self, other)

    def eq(self, other: Operand) -> Value:
        return self.builder.compare("eq", self, other)

    def ne(self, other: Operand) -> Value:
        return self.builder.compare("ne", self, other)

    # functions
    def mad(self, factor: Operand, addend: Operand) -> Value:
        """self * factor + addend, rounded once or twice as the target prefers."""
        return self.builder.intrinsic("fmuladd", self, factor, addend)

    def fma(self, factor: Operand, addend: Operand) -> Value:
        """self * factor + addend, rounded once."""
        return self.builder.intrinsic("fma", self, factor, addend)

    def abs(self) -> Value:
        return self.builder.intrinsic("fabs", self)

    def sqrt(self) -> Value:
        return self.builder.intrinsic("sqrt", self)

    def scalef(self, power: Value) -> Value:
        """self 2^floor(power), rounded once. Where `builder.has_scalef`."""
        return self.builder.scalef(self, power)

    def entry_of(self, table: tuple[float, ...]) -> Value:
        """The entry that the low bits of each integer name. Where `builder.has_tables`."""
        return self.builder.entry_of(self, table)

    def nearest_zero(self, limit: float) -> Value:
        """self where |self| <= limit, else a number in [-limit, limit], for NaN too. Where
        `builder.has_tables`."""
        return self.builder.nearest_zero(self, limit)

    def trunc(self) -> Value:
        return self.builder.intrinsic("trunc", self)

    def copysign(self, sign: Value) -> Value:
        return self.builder.intrinsic("copysign", self, sign)

    def at_most(self, limit: Number) -> Value:
        """min(self, limit); NaN stays NaN."""
        return (self > limit).select(limit, self)

    def at_least(self, limit: Number) -> Value:
        """max(self, limit); NaN stays NaN."""
        return (self < limit).select(limit, self)

    def select(self, yes: Operand, no: Operand) -> Value:
        """`yes` where this mask is true, else `no`."""
        return self.builder.select(self, yes, no)

    def as_int(self) -> Value:
        """The bits of a float."""
        return self.builder.cast("bitcast", self, "i32" if self.kind == "float" else "i64")

    def as_float(self) -> Value:
        """The float with these bits."""
        return self.builder.cast("bitcast", self, "float" if self.kind == "i32" else "double")

    def to_float(self) -> Value:
        """The signed integer as a float of the same width."""
        return self.builder.cast("sitofp", self, "float" if self.kind == "i32" else "double")

    def widen(self) -> Value:
        return self.builder.cast("fpext", self, "double")

    def narrow(self) -> Value:
        return self.builder.cast("fptrunc", self, "float")

    def like(self, number: Number) -> Value:
        """A constant of this value's type."""
        return self.builder.constant(self.kind, number)


Operand = Value | int | float


class Builder:
    """Emits one function over vectors of `lanes` elements of `dtype` (scalars for one lane)."""

    def __init__(
        self, symbol: str, dtype: DType, lanes: int, arity: int, features: Features = NO_FEATURES
    ) -> None:
        if dtype not in FORMATS:
            raise UnsupportedError(f"no vector function {symbol}: compute {dtype} in f32")
        self.symbol = symbol
        self.dtype = dtype
        self.lanes = lanes
        self.format = FORMATS[dtype]
        bits = lanes * self.format.bits
        self.has_scalef = bits == 512 or ("avx512vl" in features and bits in (128, 256))
        self.has_scalef &= "avx512f" in features
        self.has_tables = bits == 512 and dtype is f32 and {"avx512f", "avx512dq"} <= features
        self.has_table_of_8 = bits == 256 and dtype is f32 and "avx2" in features
        self.has_fma = not features.isdisjoint(("fma", "neon"))
        self.params = tuple(Value(self, f"%x{i}", self.format.kind) for i in range(arity))
        self.declares: dict[str, None] = {}
        self.requires: list[str] = []
        self.lines: list[str] = []
        self._count = 0
        self._blocks = 0

    def type(self, kind: Kind) -> str:
        """LLVM type of a value of this kind."""
        return kind if self.lanes == 1 else f"<{self.lanes} x {kind}>"

    def constant(self, kind: Kind, number: Number) -> Value:
        """The same number in every lane."""
        text = _literal(kind, number)
        return Value(self, text if self.lanes == 1 else f"splat ({kind} {text})", kind)

    def emit(self, text: str, kind: Kind) -> Value:
        """Append the instruction `%t = text`."""
        name = f"%t{self._count}"
        self._count += 1
        self.lines.append(f"  {name} = {text}")
        return Value(self, name, kind)

    def unary(self, opcode: str, a: Value) -> Value:
        return self.emit(f"{opcode} {self.type(a.kind)} {a.text}", a.kind)

    def binary(self, name: str, a: Value, other: Operand) -> Value:
        prefix = "f" if a.kind in ("float", "double") else ""
        return self.bitwise(prefix + name, a, other)

    def bitwise(self, opcode: str, a: Value, other: Operand) -> Value:
        b = self._operand(other, a.kind)
        return self.emit(f"{opcode} {self.type(a.kind)} {a.text}, {b.text}", a.kind)

    def compare(self, relation: str, a: Value, other: Operand) -> Value:
        b = self._operand(other, a.kind)
        if a.kind in ("float", "double"):
            opcode = "fcmp " + ("une" if relation == "ne" else f"o{relation}")
        else:
            opcode = "icmp " + (relation if relation in ("eq", "ne") else f"s{relation}")
        return self.emit(f"{opcode} {self.type(a.kind)} {a.text}, {b.text}", "i1")

    def select(self, mask: Value, yes: Operand, no: Operand) -> Value:
        kind = yes.kind if isinstance(yes, Value) else no.kind if isinstance(no, Value) else None
        if kind is None:
            kind = self.format.kind
        a, b = self._operand(yes, kind), self._operand(no, kind)
        typ = self.type(kind)
        return self.emit(
            f"select {self.type('i1')} {mask.text}, {typ} {a.text}, {typ} {b.text}", kind
        )

    def cast(self, opcode: str, a: Value, kind: Kind) -> Value:
        return self.emit(f"{opcode} {self.type(a.kind)} {a.text} to {self.type(kind)}", kind)

    def intrinsic(self, name: str, a: Value, *others: Operand) -> Value:
        """Call llvm.<name>, all of whose operands and result have the type of `a`."""
        typ = self.type(a.kind)
        operands = [a, *(self._operand(o, a.kind) for o in others)]
        callee = f"@llvm.{name}.{self._mangled(a.kind)}"
        self.declares[f"declare {typ} {callee}({', '.join([typ] * len(operands))})"] = None
        arguments = ", ".join(f"{typ} {o.text}" for o in operands)
        return self.emit(f"call {typ} {callee}({arguments})", a.kind)

    def scalef(self, a: Value, power: Value) -> Value:
        bits = self.lanes * self.format.bits
        suffix = "ps" if a.kind == "float" else "pd"
        name = f"@llvm.x86.avx512.mask.scalef.{suffix}.{bits}"
        vector, mask = self.type(a.kind), f"i{max(8, self.lanes)}"
        rounding = ["i32"] if bits == 512 else []  # 4: as the mode says
        parameters = ", ".join([vector, vector, vector, mask, *rounding])
        self.declares[f"declare {vector} {name}({parameters})"] = None
        values = [(vector, a.text), (vector, power.text), (vector, a.text), (mask, "-1")]
        values += [(kind, "4") for kind in rounding]
        arguments = ", ".join(f"{kind} {text}" for kind, text in values)
        return self.emit(f"call {vector} {name}({arguments})", a.kind)

    def entry_of(self, index: Value, table: tuple[float, ...]) -> Value:
        """By the instruction for one or for two registers full of entries."""
        assert self.has_tables or (self.has_table_of_8 and len(table) == self.lanes)
        assert len(table) in (self.lanes, 2 * self.lanes)
        vector, indices = self.type("float"), self.type(index.kind)
        entries = [f"float {_literal('float', t)}" for t in table]
        halves = [entries[k : k + self.lanes] for k in range(0, len(entries), self.lanes)]
        values = [(vector, f"<{', '.join(half)}>") for half in halves]
        values.insert(1, (indices, index.text))
        kind = "avx512.permvar.sf.512" if len(halves) == 1 else "avx512.vpermi2var.ps.512"
        name = f"@llvm.x86.{kind if self.has_tables else 'avx2.permps'}"
        self.declares[f"declare {vector} {name}({', '.join(t for t, _ in values)})"] = None
        arguments = ", ".join(f"{t} {text}" for t, text in values)
        return self.emit(f"call {vector} {name}({arguments})", "float")

    def nearest_zero(self, a: Value, limit: float) -> Value:
        assert self.has_tables
        vector, mask = self.type(a.kind), f"i{self.lanes}"
        name = f"@llvm.x86.avx512.mask.range.ps.{self.lanes * self.format.bits}"
        parameters = ", ".join([vector, vector, "i32", vector, mask, "i32"])
        self.declares[f"declare {vector} {name}({parameters})"] = None
        # 6: of the two the one of lesser magnitude, with its sign; 4: round as the mode says
        other = self.constant(a.kind, limit)
        arguments = (
            f"{vector} {a.text}, {vector} {other.text}, i32 6, {vector} {a.text}, {mask} -1, i32 4"
        )
        return self.emit(f"call {vector} {name}({arguments})", a.kind)

    def rarely(
        self, mask: Value, function: str, arguments: tuple[Value, ...], usual: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """`function(arguments)` if `mask` holds in any lane, else the values `usual`.

        The function returns a struct of values like `usual` and is marked cold, so that the
        branch is laid out for not being taken.
        """
        self.requires.append(function)
        n = self._blocks
        self._blocks += 1
        struct_type = "{ " + ", ".join(self.type(v.kind) for v in usual) + " }"
        before = f"join{n - 1}" if n else "entry"
        self.lines += [
            f"  br i1 {self._any(mask)}, label %rare{n}, label %join{n}",
            f"rare{n}:",
        ]
        operands = ", ".join(f"{self.type(a.kind)} {a.text}" for a in arguments)
        self.lines.append(f"  %rare{n}.all = call fastcc {struct_type} @{function}({operands})")
        rare = [
            self.emit(f"extractvalue {struct_type} %rare{n}.all, {i}", v.kind)
            for i, v in enumerate(usual)
        ]
        self.lines += [f"  br label %join{n}", f"join{n}:"]
        return tuple(
            self.emit(
                f"phi {self.type(v.kind)} [ {v.text}, %{before} ], [ {r.text}, %rare{n} ]", v.kind
            )
            for v, r in zip(usual, rare, strict=True)
        )

    def define(self, result: Value) -> str:
        """The text of the finished function."""
        typ = self.type(self.format.kind)
        params = ", ".join(f"{typ} {p.text}" for p in self.params)
        head = f"define internal fastcc {typ} @{self.symbol}({params}) alwaysinline nounwind {{"
        return "\n".join([head, "entry:", *self.lines, f"  ret {typ} {result.text}", "}", ""])

    def _any(self, mask: Value) -> str:
        if self.lanes == 1:
            return mask.text
        callee = f"@llvm.vector.reduce.or.{self._mangled('i1')}"
        self.declares[f"declare i1 {callee}({self.type('i1')})"] = None
        return self.emit(f"call i1 {callee}({self.type('i1')} {mask.text})", "i1").text

    def _mangled(self, kind: Kind) -> str:
        return _SUFFIX[kind] if self.lanes == 1 else f"v{self.lanes}{_SUFFIX[kind]}"

    def _operand(self, operand: Operand, kind: Kind) -> Value:
        return operand if isinstance(operand, Value) else self.constant(kind, operand)


def horner(x: Value, coefficients: tuple[float, ...]) -> Value:
    """The polynomial with these coefficients (lowest power first) at x, by Horner's rule."""
    total: Operand = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = x.mad(total, c)
    assert isinstance(total, Value)
    return total


def polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    """The same with half the latency, for one more operation: a loop over long chains stalls.

    The even and the odd powers from the third coefficient on are two independent chains in x^2;
    the first two steps, whose rounding matters, stay Horner's.
    """
    low, high = coefficients[:2], coefficients[2:]
    if len(high) < SPLIT_FROM:
        return horner(x, coefficients)
    z = x * x
    total = x.mad(horner(z, high[1::2]), horner(z, high[0::2]))
    for c in reversed(low):
        total = x.mad(total, c)
    return total


def in_pairs(x: Value, coefficients: tuple[float, ...]) -> Value:
    """The same with less latency, where the rounding of no step matters: c0 + c1 x, c2 + c3 x, …
    side by side, and Horner's rule for these in x^2. Of an even number."""
    pairs = [x.mad(b, a) for a, b in zip(coefficients[::2], coefficients[1::2], strict=True)]
    z, total = x * x, pairs[-1]
    for pair in reversed(pairs[:-1]):
        total = z.mad(total, pair)
    return total


def round_f32(number: float) -> float:
    """The nearest f32."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def bits_of_f32(number: float) -> int:
    """Those of the nearest f32."""
    return int(struct.unpack("<i", struct.pack("<f", number))[0])


def f32_of_bits(bits: int) -> float:
    """The f32 with these bits."""
    return float(struct.unpack("<f", struct.pack("<i", bits))[0])


def _literal(kind: Kind, number: Number) -> str:
    if kind in ("float", "double"):
        value = round_f32(number) if kind == "float" else float(number)
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if kind == "i1":
        return "true" if number else "false"
    return str(int(number))
