"""The table of vector elementary functions and their definitions as LLVM IR text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from pliant.base.dtypes import DType
from pliant.base.errors import UnsupportedError
from pliant.codegen.llvm.math import erf, exp, hyperbolic, log, modulo, pow, reduce_huge, trig
from pliant.codegen.llvm.math.builder import NO_FEATURES, Builder, Features, Value


@dataclass(frozen=True, slots=True)
class MathFunction:
    """One function at one type and width. `definition` needs `declares` and all of `requires`."""

    symbol: str
    definition: str
    declares: tuple[str, ...]
    requires: tuple[MathFunction, ...]


def rsqrt(b: Builder, x: Value) -> Value:
    """1 / sqrt(x), both correctly rounded."""
    return 1.0 / x.sqrt()


Unary = Callable[[Builder, Value], Value]
Binary = Callable[[Builder, Value, Value], Value]

_UNARY: Final[dict[str, Unary]] = {
    "exp": exp.exp,
    "exp2": exp.exp2,
    "expm1": exp.expm1,
    "sigmoid": exp.sigmoid,
    "log": log.log,
    "log2": log.log2,
    "log10": log.log10,
    "log1p": log.log1p,
    "tanh": hyperbolic.tanh,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "erf": erf.erf,
    "erfc": erf.erfc,
    "sin": trig.sin,
    "cos": trig.cos,
    "tan": trig.tan,
    "asin": trig.asin,
    "acos": trig.acos,
    "atan": trig.atan,
    "rsqrt": rsqrt,
}
_BINARY: Final[dict[str, Binary]] = {"atan2": trig.atan2, "pow": pow.pow}

MATH_FUNCTIONS: Final[Mapping[str, int]] = MappingProxyType(
    dict.fromkeys(_UNARY, 1) | dict.fromkeys(_BINARY, 2)
)
"""Name of every function -> number of its arguments."""

_EXACT: Final[dict[str, Binary]] = {"truncmod": modulo.truncmod}
_LESS_EXACT: Final[dict[str, Unary]] = {
    "exp_of_difference": exp.exp_of_difference,  # as accurate as a difference, which was rounded
    "exp_from_max": exp.exp_from_max,  # likewise, of no argument above 0
    "one_plus_erf": erf.one_plus_erf,  # as accurate as the sum, which is rounded
    "one_plus_tanh": hyperbolic.one_plus_tanh,  # likewise
    "log1p_of_exp": log.log1p_of_exp,  # two functions in one
    "erf_to_round": erf.erf_to_round,  # as accurate as bf16, which its result becomes
}


@cache
def math_function(
    name: str, dtype: DType, lanes: int, features: Features = NO_FEATURES
) -> MathFunction:
    """`name` over vectors of `lanes` elements (over scalars if 1) of f32 or f64, for
    processors with these features. The bits of its results do not depend on them, but the last
    ones do of exp in f32 where AVX-512's registers are full, and of what is made of less exact
    powers where a register is their table (AVX2, too). `exp_of_difference` is exp of what
    was rounded by a subtraction, `exp_from_max` that of no number above 0, `one_plus_erf` is
    1 + erf, `one_plus_tanh` 1 + tanh, `log1p_of_exp` log1p of exp, `erf_to_round` erf for what
    becomes bf16."""
    unary = (_UNARY | _LESS_EXACT).get(name)
    definition: Callable[..., Value] | None = unary or (_BINARY | _EXACT).get(name)
    if definition is None:
        known = ", ".join(MATH_FUNCTIONS)
        raise UnsupportedError(f"no elementary function {name!r}; known: {known}")
    symbol = f"pl_{name}_{dtype}" + (f"x{lanes}" if lanes > 1 else "")
    b = Builder(symbol, dtype, lanes, 1 if unary else 2, features)
    result = definition(b, *b.params)
    requires = tuple(_cold(function, dtype, lanes) for function in dict.fromkeys(b.requires))
    return MathFunction(symbol, b.define(result), tuple(b.declares), requires)


def definitions(functions: Iterable[MathFunction]) -> str:
    """Module text with these functions and all they require, each once."""
    found: dict[str, MathFunction] = {}
    pending = list(functions)[::-1]
    while pending:
        function = pending.pop()
        if function.symbol not in found:
            found[function.symbol] = function
            pending += function.requires[::-1]
    declares = sorted({line for f in found.values() for line in f.declares})
    return "\n".join([*declares, "", *(f.definition for f in found.values())])


@cache
def _cold(symbol: str, dtype: DType, lanes: int) -> MathFunction:
    """What a function calls for arguments that are rare."""
    if symbol == modulo.symbol(dtype, lanes):
        return MathFunction(symbol, *modulo.define_large(dtype, lanes), ())
    assert symbol == reduce_huge.symbol(dtype, lanes)
    text, declares = reduce_huge.define_lane(dtype)
    lane = MathFunction(reduce_huge.lane_symbol(dtype), text, declares, ())
    return MathFunction(symbol, reduce_huge.define_lanes(dtype, lanes), (), (lane,))
