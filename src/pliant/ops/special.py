"""Special functions of one float: of the gamma function, of the normal distribution, of Bessel.

Computed in f64 and rounded once. They are rare, so one good formula for all numbers counts more
than the last bit of speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Final

from pliant.base.dtypes import f64
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, select
from pliant.ops.common import needs_float
from pliant.sym.expr import Int

INF: Final = math.inf


def in_f64(x: Tensor, fn: Callable[[Expr], Expr], name: str) -> Compute:
    """`fn` of every element, computed in f64."""
    needs_float(x)
    return compute(x.shape, lambda *i: fn(x[i].cast(f64)).cast(x.dtype), name)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """c0 + c1 x + c2 x^2 + …"""
    total = as_expr(coefficients[-1], f64)
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def unary(op: str, x: Expr) -> Expr:
    return Unary(op, x)


# ---- gamma: Stirling's series from 8 on, to which smaller arguments are shifted, and reflection

SHIFT: Final = 8
BERNOULLI: Final = (
    Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30), Fraction(5, 66),
    Fraction(-691, 2730), Fraction(7, 6),
)  # fmt: skip
"""B2, B4, B6 …"""
STIRLING: Final = [float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(BERNOULLI, 1)]
OF_DIGAMMA: Final = [float(b / (2 * k)) for k, b in enumerate(BERNOULLI, 1)]


def lgamma(x: Expr) -> Expr:
    """log |gamma(x)|; gamma(x) gamma(1 - x) = pi / sin(pi x)."""
    a = select(x < 0.5, 1.0 - x, x)
    near = a < float(SHIFT)
    z = select(near, a + float(SHIFT), a)
    product = a
    for k in range(1, SHIFT):
        product = product * (a + float(k))
    tail = polynomial(1.0 / (z * z), STIRLING) / z
    value = (z - 0.5) * unary("log", z) - z + 0.5 * math.log(2 * math.pi) + tail
    value = value - select(near, unary("log", product), 0.0)
    sine = unary("abs", unary("sin", (x - unary("round", x)) * math.pi))
    reflected = unary("log", as_expr(math.pi, f64) / sine) - value
    return select(unary("isinf", x), INF, select(x < 0.5, reflected, value))


def digamma(x: Expr) -> Expr:
    """The derivative of log gamma(x): NaN at negative whole numbers, infinite at 0 (torch)."""
    a = select(x < 0.5, 1.0 - x, x)
    near = a < float(SHIFT)
    z = select(near, a + float(SHIFT), a)
    inverse = 1.0 / (z * z)
    value = unary("log", z) - 0.5 / z - polynomial(inverse, OF_DIGAMMA) * inverse
    before = 1.0 / a
    for k in range(1, SHIFT):
        before = before + 1.0 / (a + float(k))
    value = value - select(near, before, 0.0)
    beside = (x - unary("round", x)) * math.pi
    reflected = value - math.pi / unary("tan", beside)
    whole = beside.eq(0.0)
    pole = select(x.eq(0.0), -1.0 / x, math.nan)
    end = select(x > 0.0, x, math.nan)
    left = select(whole, pole, reflected)
    return select(unary("isinf", x), end, select(x < 0.5, left, value))


# ---- the normal distribution


def erfcx(x: Expr) -> Expr:
    """exp(x^2) erfc(x), far away by its asymptotic series."""
    near = unary("exp", x * x) * unary("erfc", x)
    inverse = 0.5 / (x * x)
    far = polynomial(inverse, [1.0, -1.0, 3.0, -15.0, 105.0]) / (x * math.sqrt(math.pi))
    return select(x > 25.0, far, near)


def log_ndtr(x: Expr) -> Expr:
    """The logarithm of the normal distribution function, which is erfc(-x / sqrt 2) / 2."""
    t = x * math.sqrt(0.5)
    left = unary("log", erfcx(-t) * 0.5) - t * t
    return select(x < -1.0, left, unary("log1p", unary("erfc", t) * -0.5))


def erfinv(x: Tensor) -> Compute:
    """The inverse of erf."""
    needs_float(x)
    distance = compute(x.shape, lambda *i: 1.0 - unary("abs", x[i].cast(f64)), "distance")
    size = compute(x.shape, lambda *i: unary("abs", x[i].cast(f64)), "size")
    found = _refined(size, distance)

    def body(*i: Int) -> Expr:
        value = select(distance[i].eq(0.0), INF, found[i])
        value = select(distance[i] < 0.0, math.nan, value)
        return select(x[i] < 0.0, -value, value).cast(x.dtype)

    return compute(x.shape, body, "erfinv")


def ndtri(x: Tensor) -> Compute:
    """The inverse of the normal distribution function, for small ones to their last bits."""
    needs_float(x)

    def nearer(*i: Int) -> Expr:  # twice the distance to the nearer end
        p = x[i].cast(f64)
        return 2.0 * select(p < 0.5, p, 1.0 - p)

    distance = compute(x.shape, nearer, "distance")
    size = compute(x.shape, lambda *i: 1.0 - distance[i], "size")
    found = _refined(size, distance)

    def body(*i: Int) -> Expr:
        value = select(distance[i].eq(0.0), INF, found[i] * math.sqrt(2))
        value = select(distance[i] < 0.0, math.nan, value)
        return select(x[i].cast(f64) < 0.5, -value, value).cast(x.dtype)

    return compute(x.shape, body, "ndtri")


WINITZKI: Final = 0.147


def _refined(size: Tensor, distance: Tensor) -> Tensor:
    """y >= 0 with erf(y) = size = 1 - distance, both given, as each loses bits of the other.

    Winitzki's approximation, and three steps of Newton's method: of erf(y) in the middle, of the
    logarithm of erfc(y) beyond, which is nearly a parabola.
    """

    def start(*i: Int) -> Expr:
        log = unary("log", distance[i] * (1.0 + size[i]))
        half = log * 0.5 + 2 / (math.pi * WINITZKI)
        root = unary("sqrt", half * half - log / WINITZKI)
        return unary("sqrt", root - half)

    y: Tensor = compute(size.shape, start, "start")
    for _ in range(3):
        y = compute(size.shape, partial(_stepped, y, size, distance), "step")
    return y


def _stepped(y: Tensor, size: Tensor, distance: Tensor, *i: Int) -> Expr:
    at = y[i]
    slope = unary("exp", -(at * at)) * (2 / math.sqrt(math.pi))
    inner = (unary("erf", at) - size[i]) / slope
    rest = unary("erfc", at)
    outer = unary("log", distance[i] / rest) * rest / slope
    inner = inner / (inner * at + 1.0)  # Halley's, as the second derivative is at hand
    return select(size[i] < 0.5, at - inner, at - outer)


# ---- modified Bessel functions: the power series, and from 20 on the asymptotic one

FAR: Final = 20.0


def _near_bessel(order: int) -> list[float]:
    """Of (x/2)^-order I(x) in powers of x^2/4: 1 / (k! (k + order)!)."""
    return [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(50)]


def _far_bessel(order: int) -> list[float]:
    """Of sqrt(2 pi x) exp(-x) I(x) in powers of 1/x."""
    coefficients, term = [1.0], Fraction(1)
    for k in range(1, 26):
        term = term * -(4 * order * order - (2 * k - 1) ** 2) / (8 * k)
        coefficients.append(float(term))
    return coefficients


def bessel(x: Expr, *, order: int, scaled: bool) -> Expr:
    """I0 or I1, odd; `scaled`: times exp(-|x|)."""
    a = unary("abs", x)
    small = polynomial(a * a * 0.25, _near_bessel(order))
    if order:
        small = small * a * 0.5
    large = polynomial(1.0 / a, _far_bessel(order)) / unary("sqrt", a * (2 * math.pi))
    if scaled:
        small = small * unary("exp", -a)
    else:  # half of the exponent at a time, which overflows no sooner than the result
        large = large * unary("exp", a * 0.5) * unary("exp", a * 0.5)
    value = select(a < FAR, small, large)
    value = select(unary("isinf", x), 0.0 if scaled else INF, value)
    return select(x < 0.0, -value, value) if order else value


_ELEMENTWISE: Final[dict[str, Callable[[Expr], Expr]]] = {
    "lgamma": lgamma, "digamma": digamma, "erfcx": erfcx, "log_ndtr": log_ndtr,
    "bessel_i0": partial(bessel, order=0, scaled=False),
    "bessel_i0e": partial(bessel, order=0, scaled=True),
    "bessel_i1": partial(bessel, order=1, scaled=False),
    "bessel_i1e": partial(bessel, order=1, scaled=True),
}  # fmt: skip

SPECIAL: Final[tuple[Operator, ...]] = (
    *(Operator(name, partial(in_f64, fn=fn, name=name)) for name, fn in _ELEMENTWISE.items()),
    Operator("erfinv", erfinv),
    Operator("ndtri", ndtri),
)
