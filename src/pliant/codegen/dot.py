"""The step of a micro-kernel: products of neighbours along the reduction, added up in every lane.

    acc[j] += sum over t < group of a[t] * b[j, t]                       j < lanes

A group is one *word*: as many elements of a type as an instruction adds up at once. Those of `a`
are the same in every lane; those of `b` lie next to each other in memory, lane after lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from pliant.base.dtypes import DType, bf16, f32, f64, i8, i32, u8
from pliant.codegen.llvm.types import mangle, scalar_type, vector_type
from pliant.codegen.llvm.writer import FunctionText

Values = tuple[str, ...]  # what a step needs of one word in every lane, in registers


class Dot(Protocol):
    """One kind of step. Its methods emit code and give the names of values.

    With `biased` every sum has too much in it by what a word of zeros gives; the micro-kernel
    takes that away again.
    """

    @property
    def name(self) -> str:
        """Part of a symbol."""

    @property
    def a(self) -> DType: ...

    @property
    def b(self) -> DType: ...

    @property
    def c(self) -> DType:
        """What is added up."""

    @property
    def group(self) -> int:
        """Elements of a word."""

    @property
    def biased(self) -> bool: ...

    @property
    def parts(self) -> int:
        """Registers that the words of a vector take."""

    @property
    def latency(self) -> int:
        """Cycles, about, from sums to sums: as many as the step's instructions have on recent
        processors, one after the other."""

    def left(self, t: FunctionText, lanes: int, words: str) -> Values:
        """Words of `a`, one a lane."""

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        """Words of `b`, one a lane."""

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        """The accumulators, with the products added."""


def word_type(dot: Dot, shares: int = 1) -> str:
    """LLVM's type of a word, or of so many."""
    if dot.group * shares == 1:
        return scalar_type(dot.a)
    return f"i{dot.a.bits * dot.group * shares}"


def splat(t: FunctionText, lanes: int, element: str, value: str) -> str:
    """A value in every lane."""
    kind = vector_type(element, lanes)
    one = t.assign(f"insertelement {kind} poison, {element} {value}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return t.assign(f"shufflevector {kind} {one}, {kind} poison, {zeros}")


def repeated(t: FunctionText, dot: Dot, lanes: int, shares: int, word: str) -> str:
    """So many words, one after the other over all lanes."""
    if shares == 1:
        return splat(t, lanes, word_type(dot), word)
    few = vector_type(word_type(dot), shares)
    words = t.assign(f"bitcast {word_type(dot, shares)} {word} to {few}")
    mask = ", ".join(f"i32 {k % shares}" for k in range(lanes))
    return t.assign(f"shufflevector {few} {words}, {few} poison, <{lanes} x i32> <{mask}>")


@dataclass(frozen=True)
class FloatMultiplyAdd:
    """f32, f64: a multiplication and an addition, rounded once where the processor can do that."""

    fused: bool = True
    name: str = "f32"
    a: DType = f32
    b: DType = f32
    c: DType = f32
    group: int = 1
    biased: bool = False
    parts: int = 1
    latency: int = 4

    def left(self, t: FunctionText, lanes: int, words: str) -> Values:
        return (words,)

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        return (words,)

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        return _multiply_add(t, lanes, self.fused, a[0], b[0], acc, scalar_type(self.c))


F32: Final = FloatMultiplyAdd()


def float64(fused: bool) -> FloatMultiplyAdd:
    """The same of f64."""
    return FloatMultiplyAdd(fused, "f64", f64, f64, f64)


@dataclass(frozen=True)
class Instruction:
    """What one instruction does with words as they are. LLVM's `intrinsic` takes the sums, then the
    factors (those of `b` first if `panel_first`) as vectors of `element`; its name may mention how
    many `{lanes}` and `{elements}` there are, and the `{bits}` of the sums."""

    name: str
    intrinsic: str
    element: str
    a: DType
    b: DType
    c: DType
    group: int
    panel_first: bool = False
    biased: bool = False
    parts: int = 1
    latency: int = 4

    def left(self, t: FunctionText, lanes: int, words: str) -> Values:
        return self.right(t, lanes, words)

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        kind = f"<{lanes} x {word_type(self)}>"
        return (t.assign(f"bitcast {kind} {words} to {self._elements(lanes)}"),)

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        sums, factors = vector_type(scalar_type(self.c), lanes), self._elements(lanes)
        x, y = (b[0], a[0]) if self.panel_first else (a[0], b[0])
        args = [(sums, acc), (factors, x), (factors, y)]
        name = self.intrinsic.format(
            lanes=lanes, bits=lanes * self.c.bits, elements=lanes * self.group
        )
        return t.intrinsic(name, sums, args)

    def _elements(self, lanes: int) -> str:
        return vector_type(self.element, lanes * self.group)


@dataclass(frozen=True)
class WidenedBf16:
    """bf16 in pairs, made f32 in registers: products are exact, every addition rounds, and
    denormals count. For processors without an instruction for it."""

    fused: bool = True
    name: str = "bf16"
    a: DType = bf16
    b: DType = bf16
    c: DType = f32
    group: int = 2
    biased: bool = False
    parts: int = 2
    latency: int = 8

    def left(self, t: FunctionText, lanes: int, words: str) -> Values:
        return self.right(t, lanes, words)

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        kind = f"<{lanes} x i32>"
        first = t.assign(f"shl {kind} {words}, splat (i32 16)")
        second = t.assign(f"and {kind} {words}, splat (i32 -65536)")
        to = f"<{lanes} x float>"
        return tuple(t.assign(f"bitcast {kind} {x} to {to}") for x in (first, second))

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        for x, y in zip(a, b, strict=True):
            acc = _multiply_add(t, lanes, self.fused, x, y, acc)
        return acc


@dataclass(frozen=True)
class MultiplyAdd:
    """8-bit integers one by one, made 32 bits wide. Exact; the sum wraps."""

    a: DType
    b: DType
    c: DType = i32
    group: int = 1
    biased: bool = False
    parts: int = 1
    latency: int = 4

    @property
    def name(self) -> str:
        return f"{self.a}{self.b}"

    def left(self, t: FunctionText, lanes: int, words: str) -> Values:
        return (_wide(t, lanes, words, self.a),)

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        return (_wide(t, lanes, words, self.b),)

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        product = t.assign(f"mul <{lanes} x i32> {a[0]}, {b[0]}")
        return t.assign(f"add <{lanes} x i32> {acc}, {product}")


def _wide(t: FunctionText, lanes: int, value: str, dtype: DType) -> str:
    extend = "sext" if dtype.is_signed else "zext"
    return t.assign(f"{extend} {vector_type('i8', lanes)} {value} to {vector_type('i32', lanes)}")


@dataclass(frozen=True)
class Flipped:
    """8-bit integers in fours, where the processor's `dot` is for the other signedness of `a`.

    With its sign bit flipped, an unsigned number is 128 too small as a signed one, a signed one 128
    too large as an unsigned one: every product is wrong by 128 * b. So is that of a zero, and what
    is wrong in a sum is what zeros would give. Integers wrap, so the difference is exact.
    """

    dot: Dot
    biased: bool = True
    parts: int = 1

    @property
    def name(self) -> str:
        return f"{self.a}{self.b}_by_{self.dot.name}"

    @property
    def a(self) -> DType:
        return {i8: u8, u8: i8}[self.dot.a]

    @property
    def b(self) -> DType:
        return self.dot.b

    @property
    def c(self) -> DType:
        return self.dot.c

    @property
    def group(self) -> int:
        return self.dot.group

    @property
    def latency(self) -> int:
        return self.dot.latency

    def left(self, t: FunctionText, lanes: int, words: str) -> Values:
        signs = f"splat (i32 {0x80808080})"
        return self.dot.right(t, lanes, t.assign(f"xor <{lanes} x i32> {words}, {signs}"))

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        return self.dot.right(t, lanes, words)

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        return self.dot.step(t, lanes, acc, a, b)


def _multiply_add(
    t: FunctionText, lanes: int, fused: bool, x: str, y: str, acc: str, element: str = "float"
) -> str:
    """x * y + acc in every lane. Without an instruction for it `fma` would be a call."""
    vec = vector_type(element, lanes)
    args = [(vec, x), (vec, y), (vec, acc)]
    name = "llvm.fma" if fused else "llvm.fmuladd"
    return t.intrinsic(f"{name}.{mangle(element, lanes)}", vec, args)
