"""Sums in the lanes of a vector, to which one instruction adds products.

    for j in grid(lanes):                        for j in grid(lanes):
        c[j] = c[j] + a[j] * b[j]                    c[j] = c[j] + a[j] * b[0]

    multiply_add_f32_f32_16                      multiply_add_all_f32_f32_16

The second has one factor for all lanes. What is narrower than the sums is converted. Their code
(`codegen.llvm.multiply_add`) becomes part of a kernel that calls it, so that sums in registers
never come to memory, and operands that several calls have in common are loaded once.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from pliant.base.dtypes import DType, bf16, f32, i8, i32, u8
from pliant.loop.stmt import Function, Store, buffer, for_
from pliant.schedule.intrinsic import Intrinsic
from pliant.sym.expr import as_int, var

TYPES: Final = (
    (f32, f32, f32), (bf16, bf16, f32),
    (u8, i8, i32), (i8, i8, i32), (u8, u8, i32), (i8, u8, i32),
)  # fmt: skip
"""Of both factors and of the sum."""


def multiply_add_name(a: DType, b: DType, lanes: int, *, one: bool) -> str:
    """What the intrinsic is called that adds `a` times `b`, of which there is `one` or many."""
    return f"multiply_add_{'all_' * one}{a}_{b}_{lanes}"


def multiply_add_names(a: DType, b: DType, lanes: int) -> tuple[str, ...]:
    """The intrinsics for such factors: many of both, or one of either."""
    many = multiply_add_name(a, b, lanes, one=False)
    one = [multiply_add_name(x, y, lanes, one=True) for x, y in ((a, b), (b, a))]
    return many, *dict.fromkeys(one)


@cache
def multiply_adds(lanes: int) -> tuple[Intrinsic, ...]:
    """The intrinsics for a processor whose vectors hold `lanes` numbers of 32 bits."""
    return tuple(_multiply_add(*t, lanes, one=one) for t in TYPES for one in (False, True))


def _multiply_add(a: DType, b: DType, total: DType, lanes: int, *, one: bool) -> Intrinsic:
    name, j = multiply_add_name(a, b, lanes, one=one), var("j")
    x, y = buffer("a", (lanes,), a), buffer("b", (1 if one else lanes,), b)
    c = buffer("c", (lanes,), total)
    product = x[j].cast(total) * y[as_int(0) if one else j].cast(total)
    body = for_([("j", lanes)], Store(c, c[j].indices, c[j] + product))
    return Intrinsic(name, Function(name, (x, y, c), (), body), inside=True)
