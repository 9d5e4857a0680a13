"""Elements of small tensors whose values are known while importing: numbers, sizes, ratios.

A known tensor is a NumPy array: numeric where every element is a number, else of dtype object with
`Int` elements (integer tensors) or `Ratio` elements (float tensors: what scales and quotients of
sizes are). Moving elements about is then NumPy's own work.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeGuard

import numpy as np

from pliant.base.dtypes import DType
from pliant.sym.expr import Int, as_int, ceildiv, maximum, minimum
from pliant.sym.facts import Facts

Known = np.ndarray

# Largest denominator for which a float is read as the fraction that was meant.
_LARGEST_DENOMINATOR: Final = 4096


class UndecidedError(Exception):
    """The value of a known element does not follow from what is known of the sizes."""


@dataclass(frozen=True)
class Ratio:
    """num / den with den >= 1: a float made of sizes."""

    num: Int
    den: Int

    def __add__(self, other: Ratio) -> Ratio:
        return Ratio(self.num * other.den + other.num * self.den, self.den * other.den)

    def __sub__(self, other: Ratio) -> Ratio:
        return self + Ratio(-other.num, other.den)

    def __neg__(self) -> Ratio:
        return Ratio(-self.num, self.den)

    def __mul__(self, other: Ratio) -> Ratio:
        return _lowest(self.num * other.num, self.den * other.den)

    def floor(self) -> Ratio:
        """The greatest integer that is not greater."""
        return Ratio(self.num // self.den, as_int(1))

    def ceil(self) -> Ratio:
        """The least integer that is not less."""
        return Ratio(ceildiv(self.num, self.den), as_int(1))

    @property
    def number(self) -> float | None:
        """The value, if it is a number."""
        if self.num.is_const and self.den.is_const:
            return self.num.value / self.den.value
        return None


def ratio_of(value: Any, dtype: DType) -> Ratio:
    """A float (of type `dtype`) as the fraction that was meant: 0.3333333 in f32 is 1/3."""
    if isinstance(value, Ratio):
        return value
    number = float(value)
    if not np.isfinite(number):
        raise UndecidedError
    meant = Fraction(number).limit_denominator(_LARGEST_DENOMINATOR)
    if dtype.numpy.type(float(meant)) != dtype.numpy.type(number):
        meant = Fraction(number)
    if meant.denominator > 1 << 30 or abs(meant.numerator) > 1 << 62:
        raise UndecidedError
    return Ratio(as_int(meant.numerator), as_int(meant.denominator))


def to_symbolic(known: Known, dtype: DType) -> Known:
    """The same elements as `Int`s or `Ratio`s."""
    if known.dtype == object:
        return known
    if dtype.is_float:
        return _map(lambda v: ratio_of(v, dtype), known)
    return _map(lambda v: as_int(int(v)), known)


def settle(known: Known, dtype: DType) -> Known:
    """A numeric array where every element is a number, else the array as it is."""
    if known.dtype != object:
        return known
    flat = list(known.ravel())
    if not flat:
        return np.zeros(known.shape, dtype.numpy)
    if all(isinstance(v, Int) and v.is_const for v in flat):
        numbers: list[Any] = [v.value for v in flat]
    elif all(isinstance(v, Ratio) and v.number is not None for v in flat):
        numbers = [v.number for v in flat]
    else:
        return known
    if dtype.is_int and not all(dtype.min <= v <= dtype.max for v in numbers):
        raise UndecidedError
    return np.asarray(numbers, dtype.numpy).reshape(known.shape)


def is_numeric(known: Known | None) -> TypeGuard[Known]:
    """Whether the elements are known, and numbers."""
    return known is not None and known.dtype != object


def from_ints(values: Any, shape: tuple[int, ...]) -> Known:
    """An object array of integers."""
    out = np.empty(len(values), dtype=object)
    out[:] = [as_int(v) for v in values]
    return out.reshape(shape)


def ints_in(known: Known) -> tuple[Int, ...]:
    """The elements of a known integer tensor, in order."""
    if known.dtype == object:
        return tuple(known.ravel())
    return tuple(as_int(int(v)) for v in known.ravel())


@dataclass(frozen=True)
class Sizes:
    """Arithmetic on sizes with what is known of them."""

    facts: Facts

    def is_nonneg(self, a: Int) -> bool:
        """Whether a >= 0 always."""
        return self.facts.nonneg(a)

    def is_negative(self, a: Int) -> bool:
        """Whether a < 0 always."""
        return self.facts.nonneg(-a - 1)

    def is_positive(self, a: Int) -> bool:
        """Whether a >= 1 always."""
        return self.facts.positive(a)

    def equal(self, a: Int, b: Int) -> bool:
        """Whether a == b; UndecidedError where neither that nor the contrary follows."""
        if a == b or self.facts.equal(a, b):
            return True
        if self.is_positive(a - b) or self.is_positive(b - a):
            return False
        raise UndecidedError

    def less(self, a: Int, b: Int) -> bool:
        """Whether a < b; UndecidedError where neither that nor the contrary follows."""
        if self.is_positive(b - a):
            return True
        if self.is_nonneg(a - b):
            return False
        raise UndecidedError

    def least(self, a: Int, b: Int) -> Int:
        """The lesser one."""
        if self.is_nonneg(b - a):
            return a
        return b if self.is_nonneg(a - b) else minimum(a, b)

    def greatest(self, a: Int, b: Int) -> Int:
        """The greater one."""
        if self.is_nonneg(a - b):
            return a
        return b if self.is_nonneg(b - a) else maximum(a, b)

    def clamp(self, a: Int, low: Int, high: Int) -> Int:
        """min(max(a, low), high)."""
        return self.least(self.greatest(a, low), high)

    def truncdiv(self, a: Int, b: Int) -> Int:
        """The quotient rounded towards zero."""
        if a.is_const and b.is_const:
            if b.value == 0:
                raise UndecidedError
            return as_int(int(Fraction(a.value, b.value)))
        if self.is_negative(b):
            return self.truncdiv(-a, -b)
        if not self.is_nonneg(b):
            raise UndecidedError
        if self.is_nonneg(-a):
            return -self.divide(-a, b)
        if self.is_nonneg(a):
            return self.divide(a, b)
        up = self.divide(maximum(a, 0), b)
        return up if self.is_positive(a + b) else up - self.divide(maximum(-a, 0), b)

    def divide(self, a: Int, b: Int) -> Int:
        """a // b for b >= 0; where b may be 0 the divisor is then taken to be 1, never a trap."""
        if self.is_positive(b):
            return a // b
        exact = a // b
        return exact if exact * b == a else a // maximum(b, 1)

    def rest(self, a: Int, b: Int) -> Int:
        """a % b for b >= 0, likewise."""
        return a % (b if self.is_positive(b) else maximum(b, 1))

    def wrap(self, index: Int, size: Int) -> Int:
        """A position, counted from the end where it is negative."""
        if self.is_nonneg(index):
            return index
        if self.is_negative(index):
            return index + size
        return index + size * minimum(maximum(-index, 0), 1)


def _lowest(num: Int, den: Int) -> Ratio:
    """num / den with constant factors cancelled, and size factors where that is exact."""
    if den.is_const and den.value != 1:
        whole = num // den
        if whole * den == num:
            return Ratio(whole, as_int(1))
    elif not den.is_const:
        whole = num // den
        if whole * den == num:
            return Ratio(whole, as_int(1))
        inverse = den // num if num.is_const and num.value > 0 else None
        if inverse is not None and inverse * num == den:
            return Ratio(as_int(1), inverse)
    return Ratio(num, den)


def _map(fn: Any, known: Known) -> Known:
    out = np.empty(known.size, dtype=object)
    out[:] = [fn(v) for v in known.ravel().tolist()]
    return out.reshape(known.shape)
