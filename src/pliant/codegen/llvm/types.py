"""LLVM names of our types, and literals."""

from __future__ import annotations

import struct
from typing import Final

from pliant.base.dtypes import DType
from pliant.ir.expr import Const

# Floats of 16 bits travel as their bits (`narrow`).
_SCALAR: Final = {
    "f64": "double", "f32": "float", "f16": "i16", "bf16": "i16", "i64": "i64", "i32": "i32",
    "i16": "i16", "i8": "i8", "u64": "i64", "u32": "i32", "u16": "i16", "u8": "i8", "bool": "i1",
}  # fmt: skip
_MANGLED: Final = {"double": "f64", "float": "f32"}


def scalar_type(dtype: DType) -> str:
    """The type of a value in a register; booleans are i1."""
    return _SCALAR[dtype.name]


def memory_type(dtype: DType) -> str:
    """The type of an element in memory; booleans take a byte."""
    return "i8" if dtype.kind == "bool" else _SCALAR[dtype.name]


def vector_type(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def value_type(dtype: DType, lanes: int) -> str:
    return vector_type(scalar_type(dtype), lanes)


def mangle(element: str, lanes: int) -> str:
    """The suffix that overloaded intrinsics carry: f32, v16f32, …"""
    name = _MANGLED.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


def literal(const: Const, lanes: int = 1) -> str:
    """A constant operand, without its type."""
    text = _scalar_literal(const)
    return text if lanes == 1 else f"splat ({scalar_type(const.dtype)} {text})"


def _scalar_literal(const: Const) -> str:
    dtype = const.dtype
    if dtype.kind == "bool":
        return "true" if const.bits else "false"
    if dtype.is_int:
        return str(const.bits - (1 << dtype.bits) if const.bits >> (dtype.bits - 1) else const.bits)
    if dtype.bits == 16:
        return str(const.bits)
    if dtype.name == "f64":
        return f"0x{const.bits:016X}"
    return f32_literal(const.bits)


def f32_literal(bits: int) -> str:
    """An f32 as LLVM wants it: the pattern of the double of the same value."""
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    if value != value:  # keep sign and payload of a NaN, which a conversion may quieten
        sign, payload = bits >> 31, bits & 0x7FFFFF
        return f"0x{(sign << 63) | (0x7FF << 52) | (payload << 29):016X}"
    (wide,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{wide:016X}"
