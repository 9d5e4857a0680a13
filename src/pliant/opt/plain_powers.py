"""Powers whose exponent is a small whole number of the model are products.

    c = full(shape=(), value=3.0)                 s = square(x)
    y = pow(x, c)                       ->        y = mul(s, x)

Two roundings at most, of which each is half an ULP, where a power takes an exponential and a
logarithm. Exports of normalisations are full of squares, those of GELU of cubes.
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import f32
from pliant.graph.builder import Builder
from pliant.graph.function import Function, Value
from pliant.graph.operator import Operators
from pliant.graph.rewrite import Match, Rule, any_, op, rewrite
from pliant.ir.rewrite import NoMatch

PRODUCTS: Final = (1, 2, 3, 4)


def plain_powers(function: Function, operators: Operators) -> Function:
    """The function with such powers as products."""
    power = op("pow", any_("x"), op("full", name="exponent", any_args=True))
    return rewrite(function, (Rule("whole powers", power, _product),), operators)[0]


def _product(match: Match, builder: Builder) -> Value | NoMatch:
    exponent = match.attrs("exponent")["value"]
    base: Value = match["x"]
    if exponent not in PRODUCTS:
        return NoMatch(f"{exponent} is none of {PRODUCTS}")
    if match.root.outputs[0].shape != base.shape:
        return NoMatch("the exponent has more elements than the base")
    if exponent == 1:
        return base
    wide = base if base.dtype.bits > 16 else builder.call("cast", base, to=f32)
    made = square = builder.call("square", wide)
    if exponent > 2:
        made = builder.call("mul", square, wide if exponent == 3 else square)
    made = made if made.dtype is base.dtype else builder.call("cast", made, to=base.dtype)
    assert isinstance(made, Value)
    return made
