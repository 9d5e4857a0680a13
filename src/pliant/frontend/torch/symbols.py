"""Torch's symbolic sizes (sympy expressions over `s27` and the like) as Pliant's integers.

Symbols({"s27": var("batch"), "s5": var("seq")}).of(x.shape[0] * 2)   ->   2*batch
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import sympy
import torch

from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.rounded import rounded, rounded_product
from pliant.sym.expr import Int, as_int, ceildiv, maximum, minimum, var
from pliant.sym.facts import Facts

Ratio = tuple[Int, int | Int]
"""A rational number: numerator, denominator (at least 1)."""


@dataclass(frozen=True)
class SizeFloat:
    """A float computed from sizes: `over / under`, where it is not simply a number."""

    over: Int
    under: Int


@dataclass(frozen=True)
class SizeFunction:
    """Any other float computed from sizes: the operator `op` of others."""

    op: str
    args: tuple[SizeNumber, ...]


SizeNumber = SizeFloat | SizeFunction


class Symbols:
    """Which integer each of torch's symbols is."""

    def __init__(self, names: Mapping[str, Int]) -> None:
        self._names = dict(names)
        self._memo: dict[Any, Int] = {}

    def define(self, name: str, value: Int) -> None:
        """Say what a symbol of torch's is, if that is not known yet."""
        self._names.setdefault(name, value)

    def of(self, size: Any) -> Int:
        """The integer that a SymInt, a sympy expression or a number stands for."""
        if isinstance(size, int):
            return as_int(int(size))
        if isinstance(size, torch.SymInt):
            size = size.node.expr
        found = self._memo.get(size)
        if found is None:
            found = self._memo[size] = self._integer(size)
        return found

    def shape(self, value: Any) -> tuple[Int, ...]:
        """The shape of a tensor of the exported program."""
        return tuple(self.of(d) for d in value.shape)

    def truth(self, value: Any) -> Int:
        """1 where what a SymBool says of sizes holds, and 0 elsewhere."""
        e = value.node.expr if isinstance(value, torch.SymBool) else value
        if e in (sympy.true, sympy.false):
            return as_int(int(bool(e)))
        if isinstance(e, sympy.Not):
            return 1 - self.truth(e.args[0])
        if isinstance(e, sympy.And | sympy.Or):
            join = minimum if isinstance(e, sympy.And) else maximum
            return functools.reduce(join, map(self.truth, e.args))
        if isinstance(e, sympy.Eq | sympy.Ne):
            a, b = self.sides(e.lhs, e.rhs)
            apart = minimum((a - b) ** 2, 1)
            return apart if isinstance(e, sympy.Ne) else 1 - apart
        if isinstance(e, sympy.Ge | sympy.Gt | sympy.Le | sympy.Lt):
            a, b = self.sides(e.lts, e.gts)
            more = b - a if isinstance(e, sympy.Gt | sympy.Lt) else b - a + 1
            return maximum(minimum(more, 1), 0)
        raise UnsupportedError(f"whether {e} holds cannot be computed by integer arithmetic")

    def sides(self, a: Any, b: Any) -> tuple[Int, Int]:
        """Integers that compare as these do: fractions times their denominators."""
        (over, under), (over_b, under_b) = self.ratio(a), self.ratio(b)
        return over * under_b, over_b * under

    def number(self, value: Any) -> SizeNumber:
        """A SymFloat made from sizes: as an exact fraction of integers if it is one."""
        if isinstance(value, torch.SymFloat):
            value = value.node.expr
        return self._number(sympy.sympify(value))

    def _number(self, e: Any) -> SizeNumber:
        try:
            over, under = self.ratio(e)
        except UnsupportedError:
            op = _FLOATS.get(type(e).__name__.removeprefix("OpaqueUnaryFn_"))
            if op is None:
                raise
            first, *others = (self._number(a) for a in e.args)
            if not others:
                return SizeFunction(op, (first,))
            return functools.reduce(lambda a, b: SizeFunction(op, (a, b)), others, first)
        return SizeFloat(over, as_int(under))

    def _integer(self, e: Any) -> Int:
        if e.is_Integer:
            return as_int(int(e))
        if e.is_Symbol:
            return self._symbol(e.name)
        if e.is_Add:
            return sum((self.of(a) for a in e.args), as_int(0))
        if e.is_Mul:
            return self._product(e)
        if e.is_Pow and e.exp.is_Integer and int(e.exp) >= 0:
            return self.of(e.base) ** int(e.exp)
        name = type(e).__name__
        if name in _ROUNDINGS:
            return self._rounded(_ROUNDINGS[name], e.args[0])
        if name in _CALLS:
            return _CALLS[name](*(self.of(a) for a in e.args))
        raise UnsupportedError(
            f"the size {e} cannot be computed from the sizes of the inputs by integer arithmetic"
        )

    def _rounded(self, kind: str, e: Any) -> Int:
        """A number as an integer; of a size times a float as doubles are."""
        if e.is_Mul and len(e.args) == 2 and e.args[0].is_Float:
            factor = float(e.args[0])
            over, under = self.ratio(e.args[1])
            if under == 1 and factor > 0 and _sign(over) == 1:
                kind = "floor" if kind == "trunc" else kind
                return rounded_product(kind, over, factor, _meant(factor))
        over, under = self.ratio(e)
        return _truncate(over, under) if kind == "trunc" else rounded(kind, over, under)

    def _symbol(self, name: str) -> Int:
        found = self._names.get(name)
        if found is not None:
            return found
        if name.startswith(("u", "f", "z")):
            raise UnsupportedError(
                f"a number ({name}) depends on the values of a tensor (nonzero, item(), boolean "
                "masks); make it depend on shapes only"
            )
        return var(name)

    def _product(self, e: Any) -> Int:
        over, under = self.ratio(e)
        if under == 1:
            return over
        return over // under  # torch knows that the quotient is exact

    def ratio(self, e: Any) -> Ratio:
        """A sympy expression as an exact fraction of integers. Raises UnsupportedError."""
        if e.is_Rational:
            return as_int(int(e.p)), int(e.q)
        if e.is_Float:
            return _fraction(float(e))
        name = type(e).__name__
        if name in ("ToFloat", "Identity"):
            return self.ratio(e.args[0])
        if name in ("IntTrueDiv", "FloatTrueDiv"):
            (a, b), (c, d) = self.ratio(e.args[0]), self.ratio(e.args[1])
            by = as_int(b * c)
            return (-a * d, -by) if by.is_const and by.value < 0 else (a * d, by)
        if e.is_Mul:
            over: Int = as_int(1)
            under: int | Int = 1
            for a in e.args:
                n, d = self.ratio(a)
                over, under = over * n, under * d
            return over, under
        if e.is_Add:
            over, under = as_int(0), 1
            for a in e.args:
                n, d = self.ratio(a)
                over, under = over * d + n * under, under * d
            return over, under
        return self.of(e), 1


def _fraction(number: float) -> Ratio:
    meant = _meant(number)
    return as_int(meant.numerator), meant.denominator


def _meant(number: float) -> Fraction:
    """The short fraction that a float is the nearest one to; else itself."""
    near = Fraction(number).limit_denominator(1 << 20)
    return near if float(near) == number else Fraction(number)


def _truncate(over: Int, under: int | Int) -> Int:
    """Towards zero."""
    down, up = over // under, ceildiv(over, under)
    return _by_sign(over, down, up, maximum(down, minimum(up, 0)))


def _absolute(a: Int) -> Int:
    return _by_sign(a, a, -a, maximum(a, -a))


def _by_sign(of: Int, positive: Int, negative: Int, otherwise: Int) -> Int:
    """One of these, by what sizes alone say of the sign."""
    sign = _sign(of)
    return positive if sign > 0 else negative if sign < 0 else otherwise


def _sign(of: Int) -> int:
    """1 of what is never negative and -1 of what is never positive, whatever the sizes; else 0."""
    sizes = Facts()
    for name in of.names:
        sizes.declare(name, 0)
    return 1 if sizes.nonneg(of) else -1 if sizes.nonneg(-of) else 0


def _modular_index(a: Int, b: Int, c: Int) -> Int:
    return (a // b) % c


_FLOATS: Final[dict[str, str]] = {
    **dict.fromkeys(("Pow", "FloatPow", "PowByNatural"), "pow"),
    **dict.fromkeys(("IntTrueDiv", "FloatTrueDiv"), "div"),
    "Add": "add", "Mul": "mul", "Max": "max", "Min": "min", "TruncToFloat": "trunc",
    **{n: n for n in ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan",
                      "sinh", "cosh", "tanh", "asinh")},
}  # fmt: skip
"""The operators that functions of floats are."""

_ROUNDINGS: Final[dict[str, str]] = {
    "FloorToInt": "floor", "TruncToInt": "trunc", "CeilToInt": "ceil", "RoundToInt": "round",
    "floor": "floor", "ceiling": "ceil",
}  # fmt: skip
"""How they round: see `pliant.frontend.torch.rounded`."""

_CALLS: Final[dict[str, Callable[..., Int]]] = {
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": ceildiv,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": _modular_index,
    "Abs": _absolute,
    "Max": maximum,
    "Min": minimum,
    "Identity": lambda a: a,
    "PowByNatural": lambda a, b: a**b.value,
    "LShift": lambda a, b: a * (1 << b.value),
    "RShift": lambda a, b: a // (1 << b.value),
}
