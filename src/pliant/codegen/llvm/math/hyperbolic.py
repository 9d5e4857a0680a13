"""tanh, sinh, cosh and their inverses."""

from __future__ import annotations

from pliant.base.dtypes import f32
from pliant.codegen.llvm.math.builder import Builder, Value
from pliant.codegen.llvm.math.exp import half_expm1


def tanh(b: Builder, x: Value) -> Value:
    """With h = (exp(2|x|) - 1) / 2: tanh(|x|) = h / (1 + h) = y - y^2 / (1 + h), y = 1 or y = h.

    y = h below h = 1, y = 1 above: the sum is dominated by its accurate first term in both.
    """
    largest = 10.0 if b.dtype is f32 else 20.0
    h = half_expm1(x.abs().at_most(largest) * 2.0)
    y = (h > 1.0).select(1.0, h)
    return (-(y / (h + 1.0))).mad(y, y).copysign(x)
