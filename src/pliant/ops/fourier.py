"""Discrete Fourier transforms of known lengths with small prime factors, in steps.

    y[k] = sum over j of x[j] * exp(-2 pi i j k / n),    n = a * m

    z[p, k, j] = (sum over i < a of x[p, i*m + j] * root_a[i*k]) * root_n[j*k]      a step
    y[k + a*l] = the transform of z[k] over j, at l

(Cooley and Tukey, "An Algorithm for the Machine Calculation of Complex Fourier Series", 1965; that
results come in order, as Stockham has it: a digit of the result goes before those found earlier.)

A step is a map with a case for each k and part: cases share what they have in common, which makes
fast transforms of a elements of their sums (`schedule.recipes.cases`). Transforms run beside one
another in vectors: along the dimensions after the transform's; or, where these are few, along all
others, which are turned to lie there; or, of few long ones, along the second factor of
n = a * b ("four steps": Bailey, "FFTs in External or Hierarchical Memory", 1990).

n numbers that are real are n / 2 complex ones: the even ones and the odd ones (Numerical Recipes,
section 12.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple

from pliant.base.dtypes import DType, f32, f64
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, Index, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, select
from pliant.ops.common import check_axis, replaced, without
from pliant.sym.expr import Int, IntLike, as_int

Place = tuple[Int, ...]
LANES: Final = 16  # transforms side by side that fill vectors
LONG: Final = 256  # elements of one that is split to have them
SHORT: Final = 64  # elements of one that is not worth turning: a product with a matrix is as fast
PRIMES: Final = (2, 3, 5, 7)
MOST: Final = 1 << 26  # elements of one


def has_steps(n: Int) -> bool:
    """Whether these operators take so many elements: known, and products of few small primes."""
    rest = n.value if n.is_const and n.value <= MOST else 0
    for p in PRIMES:
        while rest > 1 and rest % p == 0:
            rest //= p
    return rest == 1


def pays(shape: Sequence[Int], axis: int, n: Int) -> bool:
    """Whether steps take less time than a product with a matrix, for transforms of n elements along
    an axis."""
    return has_steps(n) and (n.value >= SHORT or not _Along(tuple(shape), axis).are_few)


def radices(n: int) -> list[int]:
    """The factors of the steps, of at most 8."""
    found: list[int] = []
    twos = (n & -n).bit_length() - 1
    n >>= twos
    for p in PRIMES[1:]:
        while n % p == 0:
            found.append(p)
            n //= p
    if twos == 1 and 3 in found:
        found[found.index(3)], twos = 6, 0
    while twos > 4 or twos == 3:
        found.append(8)
        twos -= 3
    if twos:
        found += [4, 4] if twos == 4 else [1 << twos]
    return sorted(found, reverse=True)


# ---- complex numbers as expressions


class Number(NamedTuple):
    """A complex number; None is 0."""

    re: Expr | None
    im: Expr | None


def _plus(a: Expr | None, b: Expr | None) -> Expr | None:
    return a if b is None else b if a is None else a + b


def _minus(a: Expr | None, b: Expr | None) -> Expr | None:
    return a if b is None else -b if a is None else a - b


def _by(a: Expr | None, factor: float | Expr) -> Expr | None:
    return None if a is None else a * factor


def _sum(a: Number, b: Number) -> Number:
    return Number(_plus(a.re, b.re), _plus(a.im, b.im))


def _difference(a: Number, b: Number) -> Number:
    return Number(_minus(a.re, b.re), _minus(a.im, b.im))


def _product(a: Number, re: float | Expr, im: float | Expr) -> Number:
    return Number(_minus(_by(a.re, re), _by(a.im, im)), _plus(_by(a.re, im), _by(a.im, re)))


def _turned(a: Number, k: int, n: int) -> Number:
    """Times exp(2 pi i k / n): quarters of a turn take no product, eighths two."""
    k %= n
    if 4 * k % n == 0:
        opposite = Number(_minus(None, a.re), _minus(None, a.im))
        return (a, Number(opposite.im, a.re), opposite, Number(a.im, opposite.re))[4 * k // n]
    re, im = math.cos(2 * math.pi * k / n), math.sin(2 * math.pi * k / n)
    if 8 * k % n == 0:
        both, apart = _plus(a.re, a.im), _minus(a.re, a.im)
        return Number(
            _by(apart if re * im > 0 else both, re), _by(both if re * im > 0 else apart, im)
        )
    return _product(a, re, im)


def _transformed(x: Sequence[Number], sign: int) -> list[Number]:
    """The transform of a few numbers: of the even and the odd ones; of a prime number of them, from
    the sums and differences of those that are turned alike."""
    n = len(x)
    if n == 1:
        return list(x)
    if n % 2 == 0:
        even, odd = _transformed(x[::2], sign), _transformed(x[1::2], sign)
        odd = [_turned(v, sign * k, n) for k, v in enumerate(odd)]
        pairs = list(zip(even, odd, strict=True))
        return [_sum(*p) for p in pairs] + [_difference(*p) for p in pairs]
    half = range(1, n // 2 + 1)
    sums, apart = {m: _sum(x[m], x[-m]) for m in half}, {m: _difference(x[m], x[-m]) for m in half}
    out = [x[0]] * n
    for m in half:
        out[0] = _sum(out[0], sums[m])
    for k in half:
        along, across = x[0], Number(None, None)
        for m in half:
            angle = 2 * math.pi * (k * m % n) / n
            c, s = math.cos(angle), sign * math.sin(angle)
            along = Number(_plus(along.re, _by(sums[m].re, c)), _plus(along.im, _by(sums[m].im, c)))
            across = Number(
                _minus(across.re, _by(apart[m].im, s)), _plus(across.im, _by(apart[m].re, s))
            )
        out[k], out[n - k] = _sum(along, across), _difference(along, across)
    return out


# ---- transforms side by side


Read = Callable[[Place, Int, Place], Number]


@dataclass(frozen=True)
class Signals:
    """Transforms side by side: `read(b, j, t)` is element j of that at the places b of the
    dimensions `before` and t of those `after`, which vectors run along."""

    read: Read
    before: tuple[Int, ...]
    after: tuple[Int, ...]
    dtype: DType

    def stored(self, n: int, name: str) -> Signals:
        """The first n elements of each as a value: [before, n, 2, after]."""
        many = len(self.before)

        def body(*i: Int) -> Expr:
            return self.part(self.read(i[:many], i[many], i[many + 2 :]), i[many + 1])

        made = compute((*self.before, as_int(n), as_int(2), *self.after), body, name)
        return replace(
            self, read=lambda b, j, t: Number(made[(*b, j, 0, *t)], made[(*b, j, 1, *t)])
        )

    def part(self, x: Number, part: IntLike) -> Expr:
        """The real part where `part` is 0, else the imaginary one."""
        re, im = (as_expr(0.0, self.dtype) if v is None else v for v in x)
        part = as_int(part)
        if part.is_const:
            return im if part.value else re
        return select(as_expr(part).eq(0), re, im)


def transformed(x: Signals, n: int, sign: int) -> Signals:
    """The transforms of n elements, not scaled; `sign` is that of the exponent."""
    if n == 1:
        return x
    few = _are_few((*x.before, *x.after))
    a = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    if few and n >= LONG and a >= LANES and all(d is as_int(1) for d in x.after):
        return _in_two(x, a, n // a, sign)
    return _in_steps(x, n, sign)


def _are_few(dims: Sequence[Int]) -> bool:
    """Whether so many side by side are known not to fill vectors."""
    return all(d.is_const for d in dims) and prod(d.value for d in dims) < LANES


def _in_two(x: Signals, a: int, b: int, sign: int) -> Signals:
    """Each is one of a elements of b side by side, turned, and one of b elements of a."""
    only = tuple(as_int(0) for _ in x.after)
    columns = replace(x, read=lambda p, i, t: x.read(p, i * b + t[0], only), after=(as_int(b),))
    found = _in_steps(columns, a, sign, _roots((a, b), a * b, sign, x.dtype))
    rows = replace(x, read=lambda p, j, t: found.read(p, t[0], (j,)), after=(as_int(a),))
    results = _in_steps(rows.stored(b, "turned"), b, sign)
    return replace(x, read=lambda p, k, t: results.read(p, k // a, (k % a,)))


@dataclass(frozen=True)
class _Steps:
    """What steps have made: `read(b, d, j, t)` is element j, of `rest`, of the transform that is
    left for the digits d, the last one first, of which there are `digits`."""

    read: Callable[[Place, Place, Int, Place], Number]
    digits: tuple[int, ...]
    rest: int


Table = tuple[Compute, Compute]
"""Cosines and sines of angles."""


def _in_steps(x: Signals, n: int, sign: int, turns: Table | None = None) -> Signals:
    """One step after the other; `turns` are what results are multiplied by, [n, after]."""
    steps = _Steps(lambda b, _, j, t: x.read(b, j, t), (), n)
    for a in radices(n):
        steps = _step(x, steps, a, sign, turns)
    weights = [prod(steps.digits[k + 1 :]) for k in range(len(steps.digits))]

    def read(b: Place, k: Int, t: Place) -> Number:
        pairs = zip(weights, steps.digits, strict=True)
        return steps.read(b, tuple([k // w % d for w, d in pairs]), as_int(0), t)

    return replace(x, read=read)


def _step(x: Signals, s: _Steps, a: int, sign: int, turns: Table | None) -> _Steps:
    """The next digit, of a, of the results."""
    rest, many, found = s.rest // a, len(x.before), len(s.digits)
    table = turns if rest == 1 else _roots((a, rest), s.rest, sign, x.dtype)
    shape = (*x.before, as_int(a), *map(as_int, s.digits), as_int(rest), as_int(2), *x.after)

    def body(*i: Int) -> Expr:
        b, d, (j, c), t = (
            i[:many], i[many + 1 : many + 1 + found], i[many + 1 + found : many + 3 + found],
            i[many + 3 + found :],
        )  # fmt: skip
        results = _transformed([s.read(b, d, k * rest + j, t) for k in range(a)], sign)
        for k, y in enumerate(results):
            if table is not None and (rest == 1 or k):
                at = (_number((as_int(k), *d), (a, *s.digits)), *t) if rest == 1 else (k, j)
                results[k] = _product(y, table[0][at], table[1][at])
        parts = [x.part(y, c) for y in results]
        value = parts[-1]
        for k in reversed(range(a - 1)):
            value = select(as_expr(i[many]).eq(k), parts[k], value)
        return value

    made = compute(shape, body, "fourier_step")

    def read(b: Place, d: Place, j: Int, t: Place) -> Number:
        return Number(made[(*b, *d, j, 0, *t)], made[(*b, *d, j, 1, *t)])

    return _Steps(read, (a, *s.digits), rest)


def _number(digits: Sequence[Int], sizes: Sequence[int]) -> Int:
    """What the digits, that of the greatest weight first, stand for."""
    value = as_int(0)
    for d, size in zip(digits, sizes, strict=True):
        value = value * size + d
    return value


def _roots(shape: Sequence[int], n: int, sign: int, dtype: DType) -> Table:
    """exp(sign * 2 pi i p / n) where p is the product of the places."""

    def table(function: str, factor: int) -> Compute:
        def body(*i: Int) -> Expr:
            angle = Index(prod(i, start=as_int(1)) % n).cast(f64) * (2 * math.pi / n)
            return (Unary(function, angle) * float(factor)).cast(dtype)

        return compute(shape, body, f"{function}_of_turns")

    return table("cos", 1), table("sin", sign)


# ---- the operators


@dataclass(frozen=True)
class _Along:
    """The transforms along an axis of tensors of this shape, whatever they have along it."""

    shape: tuple[Int, ...]
    axis: int

    @property
    def before(self) -> tuple[Int, ...]:
        return self.shape[: self.axis]

    @property
    def after(self) -> tuple[Int, ...]:
        return self.shape[self.axis + 1 :]

    @property
    def are_few(self) -> bool:
        """Whether there are too few beside one another to fill vectors."""
        return _are_few(self.after)

    @property
    def is_turned(self) -> bool:
        """Whether all others are turned to lie beside one another instead."""
        return self.are_few and not _are_few(self.before)

    def signals(self, read: Callable[[Place], Number], dtype: DType) -> Signals:
        """`read(place)`: the element there."""
        if self.is_turned:
            others = (*self.before, *self.after)
            return Signals(lambda _, j, t: read(self.place(t, j)), (), others, dtype)
        return Signals(lambda b, j, t: read((*b, j, *t)), self.before, self.after, dtype)

    def lying(self, x: Tensor) -> Callable[[Place], Expr]:
        """What reads elements of x, where transforms lie side by side."""
        if not self.is_turned:
            return lambda i: x[i]
        shape = (x.shape[self.axis], *self.before, *self.after)
        turned = compute(shape, lambda j, *t: x[self.place(t, j)], "turned")
        return lambda i: turned[(i[self.axis], *without(i, self.axis))]

    def place(self, others: Place, j: Int) -> Place:
        """Where element j of a transform is."""
        return (*others[: self.axis], j, *others[self.axis :])

    def element(self, x: Signals, place: Place) -> Number:
        """The element there of what has been made of signals."""
        b, j, t = place[: self.axis], place[self.axis], place[self.axis + 1 :]
        return x.read((), j, (*b, *t)) if self.is_turned else x.read(b, j, t)

    def made(
        self, x: Signals, many: int, part: Callable[[Place], tuple[Int, IntLike]], name: str
    ) -> Compute:
        """So many elements of each: `part` says which element it is, and which part of that."""
        shape = self.place((*self.before, *self.after), as_int(many))

        def body(*i: Int) -> Expr:
            k, c = part(i)
            return x.part(self.element(x, replaced(i, self.axis, k)), c)

        return compute(shape, body, name)

    def both(self, x: Signals, many: int, name: str) -> tuple[Compute, Compute]:
        """Both parts."""
        return (
            self.made(x, many, lambda i: (i[self.axis], 0), f"{name}_re"),
            self.made(x, many, lambda i: (i[self.axis], 1), f"{name}_im"),
        )


def fourier(
    re: Tensor, im: Tensor | None = None, *, axis: int, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """The real and the imaginary part of the transform along an axis, not scaled: y[k] is the sum
    of x[j] * exp(-2 pi i j k / n), or with `inverse` of x[j] * exp(2 pi i j k / n). Operands of one
    shape, f32 or f64; `im` is 0 where it is absent. Raises InvalidModelError for other types, and
    for lengths that `has_steps` refuses."""
    n, along = _length(re, axis), _Along(re.shape, axis)
    parts = [None if x is None else along.lying(x) for x in (re, im)]
    signals = along.signals(lambda i: Number(*(x and x(i) for x in parts)), re.dtype)
    return along.both(transformed(signals, n, 1 if inverse else -1), n, "fourier")


def fourier_of_reals(x: Tensor, *, axis: int) -> tuple[Tensor, Tensor]:
    """The first n // 2 + 1 elements of the transform of n real numbers, not scaled; the others are
    their conjugates. Types and lengths as in `fourier`."""
    n, along = _length(x, axis), _Along(x.shape, axis)
    element = along.lying(x)
    if n % 2:
        y = transformed(along.signals(lambda i: Number(element(i), None), x.dtype), n, -1)
        return along.both(y, n // 2 + 1, "fourier_of_reals")
    half = n // 2

    def pair(i: Place) -> Number:
        j = 2 * i[axis]
        return Number(*(element(replaced(i, axis, j + k)) for k in (0, 1)))

    cos, sin = _roots((half + 1,), n, -1, x.dtype)
    pairs = transformed(along.signals(pair, x.dtype), half, -1)

    def untangled(b: Place, k: Int, t: Place) -> Number:
        """Even elements make (y[k] + conj y[-k]) / 2, odd ones (y[k] - conj y[-k]) / 2i."""
        y, z = pairs.read(b, k % half, t), _conjugate(pairs.read(b, (half - k) % half, t))
        even, odd = _sum(y, z), _turned(_difference(y, z), 3, 4)
        y = _sum(even, _product(odd, cos[k], sin[k]))
        return Number(_by(y.re, 0.5), _by(y.im, 0.5))

    found = replace(pairs, read=untangled).stored(half + 1, "untangled")
    return along.both(found, half + 1, "fourier_of_reals")


def fourier_to_reals(re: Tensor, im: Tensor, *, axis: int, n: int) -> Tensor:
    """n real numbers, of whose transform these are the first n // 2 + 1 elements, not scaled: the
    imaginary parts of the first and of the middle element do not count. Types and lengths as in
    `fourier`; raises InvalidModelError also for another number of elements."""
    half, dtype, along = n // 2, re.dtype, _Along(re.shape, axis)
    check_axis(axis, re.rank)
    _check_type(re)
    if re.shape[axis] is not as_int(half + 1) or not has_steps(as_int(n)):
        raise InvalidModelError(f"{re.shape[axis]} elements of a transform of {n}")
    parts = along.lying(re), along.lying(im)
    x = along.signals(lambda i: Number(*(p(i) for p in parts)), dtype)

    def given(b: Place, k: Int, t: Place) -> Number:
        y, real = x.read(b, k, t), as_expr(k).eq(0)
        real = real if n % 2 else real | as_expr(k).eq(half)
        return Number(y.re, select(real, as_expr(0.0, dtype), y.im))

    def mirrored(b: Place, k: Int, t: Place) -> Number:
        here, there = given(b, k, t), _conjugate(given(b, n - k, t))
        later = as_expr(half) < as_expr(k)
        return Number(select(later, there.re, here.re), select(later, there.im, here.im))

    def tangled(b: Place, k: Int, t: Place) -> Number:
        """The transform of even elements and i times that of odd ones."""
        y, z = given(b, k, t), _conjugate(given(b, half - k, t))
        odd = _product(_difference(y, z), cos[k], sin[k])
        return _sum(_sum(y, z), _turned(odd, 1, 4))

    if n % 2:
        whole = replace(x, read=mirrored).stored(n, "mirrored")
        y = transformed(whole, n, 1)
        return along.made(y, n, lambda i: (i[axis], 0), "fourier_to_reals")
    cos, sin = _roots((half + 1,), n, 1, dtype)
    pairs = transformed(replace(x, read=tangled).stored(half, "tangled"), half, 1)
    return along.made(pairs, n, lambda i: (i[axis] // 2, i[axis] % 2), "fourier_to_reals")


def _conjugate(x: Number) -> Number:
    return Number(x.re, _minus(None, x.im))


def _check_type(x: Tensor) -> None:
    if x.dtype not in (f32, f64):
        raise InvalidModelError(f"a transform of {x.dtype}: it is of f32 or f64")


def _length(x: Tensor, axis: int) -> int:
    """That along the axis."""
    check_axis(axis, x.rank)
    _check_type(x)
    if not has_steps(x.shape[axis]):
        raise InvalidModelError(f"{x.shape[axis]} elements have other prime factors than {PRIMES}")
    return x.shape[axis].value


FOURIER: Final[tuple[Operator, ...]] = (
    Operator("fourier", fourier),
    Operator("fourier_of_reals", fourier_of_reals),
    Operator("fourier_to_reals", fourier_to_reals),
)
