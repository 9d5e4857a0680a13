"""Floats of 16 bits. They travel as their bits, in memory and in registers, and become f32 where
something is computed.

LLVM's own types turn conversions, and for bf16 even plain stores, into calls of a library that is
not there (`__extendhfsf2`), on every processor without instructions for them.
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import DType, bf16
from pliant.codegen.llvm.types import f32_literal, vector_type
from pliant.codegen.llvm.writer import FunctionText

CONVERTS_F16: Final = frozenset({"f16c", "neon"})
"""Features with instructions between f16 and f32."""

_SIGN: Final = 0x8000
_QUIET: Final = 0x400000  # of an f32 that is NaN
_INFINITY: Final = 0x7F800000
_LEAST_NORMAL: Final = 0x38800000  # of f16, as an f32
_TOO_LARGE: Final = 0x47800000  # from here on nothing rounds to a number of f16
_HALF: Final = 0x3F000000  # as an f32 it has the least number of f16 as its last place
_REBIAS: Final = 127 - 15  # from an exponent of f16 to one of f32


def is_narrow(dtype: DType) -> bool:
    """Whether values of the type travel as their bits."""
    return dtype.is_float and dtype.bits == 16


def to_f32(t: FunctionText, dtype: DType, text: str, lanes: int, features: frozenset[str]) -> str:
    """The f32 with the value of a 16-bit float. NaN of f16 becomes quiet."""
    short, out = vector_type("i16", lanes), vector_type("float", lanes)
    if dtype is not bf16 and features & CONVERTS_F16:
        half = vector_type("half", lanes)
        value = t.assign(f"bitcast {short} {text} to {half}")
        return t.assign(f"fpext {half} {value} to {out}")
    w = _Words(t, lanes)
    wide = t.assign(f"zext {short} {text} to {w.word}")
    bits = w.binary("shl", wide, 16) if dtype is bf16 else _f32_of_f16(w, wide)
    return t.assign(f"bitcast {w.word} {bits} to {out}")


def from_f32(
    t: FunctionText, dtype: DType, text: str, lanes: int, features: frozenset[str],
    *, flushes: bool = False,
) -> str:  # fmt: skip
    """The bits of the 16-bit float nearest to an f32, of two the even one. NaN becomes quiet. With
    `flushes` subnormal numbers of bf16 may become 0."""
    if dtype is bf16 and flushes and "avx512bf16" in features and lanes in (8, 16, 32):
        return _by_instruction(t, text, lanes)
    short, source = vector_type("i16", lanes), vector_type("float", lanes)
    if dtype is not bf16 and features & CONVERTS_F16:
        half = vector_type("half", lanes)
        value = t.assign(f"fptrunc {source} {text} to {half}")
        return t.assign(f"bitcast {half} {value} to {short}")
    w = _Words(t, lanes)
    word = t.assign(f"bitcast {source} {text} to {w.word}")
    bits = _bf16_of_f32(w, word) if dtype is bf16 else _f16_of_f32(w, word)
    return t.assign(f"trunc {w.word} {bits} to {short}")


def _by_instruction(t: FunctionText, text: str, lanes: int) -> str:
    """The bf16 of an f32 by AVX-512's instruction for it, which takes subnormal numbers for 0."""
    kind, out = vector_type("float", lanes), vector_type("bfloat", lanes)
    if lanes == 32:  # of two registers; the first has the upper half
        half, name = vector_type("float", 16), "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        args = []
        for start in (16, 0):
            at = ", ".join(f"i32 {start + k}" for k in range(16))
            mask = f"<16 x i32> <{at}>"
            args.append((half, t.assign(f"shufflevector {kind} {text}, {kind} poison, {mask}")))
        value = t.intrinsic(name, out, args)
    else:
        name = f"llvm.x86.avx512bf16.cvtneps2bf16.{lanes * 32}"
        value = t.intrinsic(name, out, [(kind, text)])
    return t.assign(f"bitcast {out} {value} to {vector_type('i16', lanes)}")


class _Words:
    """Arithmetic on 32-bit words, one in each lane; numbers are constants."""

    def __init__(self, t: FunctionText, lanes: int) -> None:
        self.t, self.lanes = t, lanes
        self.word, self.float = vector_type("i32", lanes), vector_type("float", lanes)
        self.flag = vector_type("i1", lanes)

    def binary(self, how: str, a: str, b: str | int) -> str:
        return self.t.assign(f"{how} {self.word} {a}, {self._operand(b)}")

    def less(self, a: str, bound: int) -> str:
        """Whether a word without a sign is less."""
        return self.t.assign(f"icmp ult {self.word} {a}, {self._operand(bound)}")

    def select(self, flag: str, yes: str | int, no: str) -> str:
        kind, first = self.word, self._operand(yes)
        return self.t.assign(f"select {self.flag} {flag}, {kind} {first}, {kind} {no}")

    def real(self, how: str, a: str, constant: int) -> str:
        """An operation of floats on a word that holds one, with the float of these bits."""
        number = self._splat("float", f32_literal(constant))
        x = self.t.assign(f"bitcast {self.word} {a} to {self.float}")
        y = self.t.assign(f"{how} {self.float} {x}, {number}")
        return self.t.assign(f"bitcast {self.float} {y} to {self.word}")

    def _operand(self, b: str | int) -> str:
        return b if isinstance(b, str) else self._splat("i32", str(b))

    def _splat(self, kind: str, text: str) -> str:
        return text if self.lanes == 1 else f"splat ({kind} {text})"


def _bf16_of_f32(w: _Words, bits: str) -> str:
    """bf16 is the upper half of an f32. To round, half a unit is added, less one bit where the half
    is even. That could carry a NaN to infinity, so NaN is only made quiet."""
    upper = w.binary("lshr", bits, 16)
    bias = w.binary("add", w.binary("and", upper, 1), 0x7FFF)
    rounded = w.binary("lshr", w.binary("add", bits, bias), 16)
    number = w.less(w.binary("and", bits, 0x7FFFFFFF), _INFINITY + 1)
    return w.select(number, rounded, w.binary("or", upper, _QUIET >> 16))


def _f32_of_f16(w: _Words, half: str) -> str:
    """Exponents are moved to the other bias, those that stand for infinity and NaN twice. What has
    the least exponent is a multiple of f16's least number: put below the bits of 1/2 it is added to
    it, and 1/2 taken away again, which is exact."""
    size = w.binary("and", half, 0x7FFF)
    sign = w.binary("shl", w.binary("and", half, _SIGN), 16)
    normal = w.binary("add", w.binary("shl", size, 13), _REBIAS << 23)
    special = w.binary("add", normal, _REBIAS << 23)
    quiet = w.binary("or", special, _QUIET)
    special = w.select(w.less(special, _INFINITY + 1), special, quiet)
    small = w.real("fsub", w.binary("add", size, _HALF), _HALF)
    value = w.select(w.less(size, 0x7C00), normal, special)
    return w.binary("or", w.select(w.less(size, 0x0400), small, value), sign)


def _f16_of_f32(w: _Words, bits: str) -> str:
    """As for bf16, with the exponent moved to the other bias. Below f16's normal numbers the sum
    with 1/2 is rounded where f16 ends, by the processor, and has its bits below those of 1/2."""
    size = w.binary("and", bits, 0x7FFFFFFF)
    sign = w.binary("and", w.binary("lshr", bits, 16), _SIGN)
    odd = w.binary("and", w.binary("lshr", size, 13), 1)
    rounded = w.binary("add", w.binary("add", size, odd), 0xFFF - (_REBIAS << 23))
    value = w.binary("lshr", rounded, 13)
    small = w.binary("sub", w.real("fadd", size, _HALF), _HALF)
    value = w.select(w.less(size, _LEAST_NORMAL), small, value)
    payload = w.binary("and", w.binary("lshr", size, 13), 0x3FF)
    nan = w.binary("or", payload, 0x7C00 | _QUIET >> 13)
    infinite = w.select(w.less(size, _INFINITY + 1), 0x7C00, nan)
    return w.binary("or", w.select(w.less(size, _TOO_LARGE), value, infinite), sign)
