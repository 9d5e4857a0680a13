"""Compute the polynomial coefficients of the vector elementary functions.

    python tools/minimax.py             print src/pliant/codegen/llvm/math/coefficients.py
    python tools/minimax.py --report    print each polynomial's worst weighted error in bits

Each polynomial P minimises max |w(x) (P(u(x)) - g(x))| over an interval (Remez's exchange
algorithm on a dense grid, in 60-digit arithmetic), where w turns the error of P into the relative
error of the function that uses it. Coefficients must be machine numbers: they are rounded one at a
time, the most important (lowest power) first, and the others are fitted again around the rounded
ones, so that rounding costs next to nothing.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
from mpmath import mpf

mp.mp.dps = 60
GRID_POINTS = 700
Fn = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """One polynomial: `count` coefficients in x (or x*x if `even`), from the lowest power."""

    name: str
    target: Fn
    weight: Fn
    low: mpf
    high: mpf
    count: int
    bits: int
    even: bool = False


@dataclass
class Problem:
    """The fit sampled on its grid: variable u, target g and weight w >= 0 at every point."""

    u: list[mpf]
    g: list[mpf]
    w: list[mpf]

    def errors(self, coefficients: list[mpf]) -> list[mpf]:
        """Unweighted errors P(u) - g."""
        return [mp.polyval(coefficients[::-1], u) - g for u, g in zip(self.u, self.g, strict=True)]

    def without(self, constant: mpf) -> Problem:
        """The problem of the remaining coefficients once the constant term is fixed."""
        g = [(g - constant) / u for u, g in zip(self.u, self.g, strict=True)]
        w = [w * abs(u) for u, w in zip(self.u, self.w, strict=True)]
        return problem_of(self.u, g, w)


def sample(fit: Fit) -> Problem:
    """Evaluate target and weight at Chebyshev points (which avoid 0 and the end points)."""
    middle, half = (fit.high + fit.low) / 2, (fit.high - fit.low) / 2
    angles = [mp.pi * (2 * i + 1) / (2 * GRID_POINTS) for i in range(GRID_POINTS)]
    xs = [middle - half * mp.cos(a) for a in angles]
    u = [x * x for x in xs] if fit.even else xs
    return problem_of(u, [fit.target(x) for x in xs], [abs(fit.weight(x)) for x in xs])


def problem_of(u: list[mpf], g: list[mpf], w: list[mpf]) -> Problem:
    """A problem without the points whose weight is too small to matter (or to compute with)."""
    least = max(w) * mpf("1e-9")
    kept = [i for i in range(len(u)) if w[i] > least]
    return Problem([u[i] for i in kept], [g[i] for i in kept], [w[i] for i in kept])


def alternation(signed: list[mpf], count: int) -> list[int]:
    """Indices of `count` extrema of alternating sign, the largest that lie side by side."""
    peaks: list[int] = []
    for i, e in enumerate(signed):
        if peaks and (e > 0) == (signed[peaks[-1]] > 0):
            if abs(e) > abs(signed[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        drop = 0 if abs(signed[peaks[0]]) < abs(signed[peaks[-1]]) else len(peaks) - 1
        del peaks[drop]
    return peaks


def level(problem: Problem, points: list[int], count: int) -> tuple[list[mpf], mpf]:
    """The coefficients whose weighted error is +-e at the given count + 1 points, and |e|."""
    matrix, right = mp.matrix(count + 1, count + 1), mp.matrix(count + 1, 1)
    for row, i in enumerate(points):
        for column in range(count):
            matrix[row, column] = problem.u[i] ** column
        matrix[row, count] = (-1) ** row / problem.w[i]
        right[row] = problem.g[i]
    solution = mp.lu_solve(matrix, right)
    return [solution[k] for k in range(count)], abs(solution[count])


def remez(problem: Problem, count: int, start: list[mpf]) -> list[mpf]:
    """The minimax coefficients of a sampled problem; never worse than `start` where given."""
    size = len(problem.u)
    points = [int((size - 1) * (1 - mp.cos(mp.pi * i / count)) / 2) for i in range(count + 1)]
    best: list[mpf] = []
    best_error = mp.inf
    candidate = start
    for _ in range(30):
        leveled = mpf(0)
        if not candidate:
            candidate, leveled = level(problem, points, count)
        signed = [e * w for e, w in zip(problem.errors(candidate), problem.w, strict=True)]
        worst = max(abs(e) for e in signed)
        if worst < best_error:
            best, best_error = candidate, worst
        extrema = alternation(signed, count + 1)
        if worst <= leveled * mpf("1.005") or (len(extrema) < count + 1 and candidate is not start):
            break
        points = extrema if len(extrema) == count + 1 else points
        candidate = []
    return best


def round_to(value: mpf, bits: int) -> mpf:
    """Nearest float with `bits` bits of precision (24 or 53)."""
    if bits == 24:
        return mpf(struct.unpack("f", struct.pack("f", float(value)))[0])
    return mpf(float(value))


def solve(fit: Fit) -> tuple[list[mpf], mpf]:
    """Rounded coefficients, and the worst weighted error with them."""
    whole = problem = sample(fit)
    rounded: list[mpf] = []
    free: list[mpf] = []
    for remaining in range(fit.count, 0, -1):
        free = remez(problem, remaining, free[1:])
        rounded.append(round_to(free[0], fit.bits))
        problem = problem.without(rounded[-1])
    errors = [abs(e * w) for e, w in zip(whole.errors(rounded), whole.w, strict=True)]
    return rounded, max(errors)


def log1p_tail(f: mpf) -> mpf:
    """(log(1 + f) - f) / f^2."""
    return (mp.log1p(f) - f) / f**2


def log1p_part(e: mpf) -> mpf:
    """log(1 + e) / e."""
    return mp.log1p(e) / e


def atanh_tail(s: mpf) -> mpf:
    """(2 atanh(s) - 2 s) / s^3: with s = f / (2 + f), log(1 + f) = 2 atanh(s)."""
    return (2 * mp.atanh(s) - 2 * s) / s**3


def atanh_tail2(s: mpf) -> mpf:
    """(2 atanh(s) - 2 s - 2 s^3 / 3) / s^5."""
    return (2 * mp.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5


def erf_exponent(a: mpf) -> mpf:
    """Q(a) with erf(a) = 1 - exp(-a (SLOPE + Q(a))), SLOPE = 2 / sqrt(pi) rounded to f32."""
    return -mp.log(mp.erfc(a)) / a - round_to(2 / mp.sqrt(mp.pi), 24)


def erf_weight(a: mpf) -> mpf:
    """Relative change of erf(a) for a change of Q."""
    return a * mp.erfc(a) / mp.erf(a)


def erfc_exponent(a: mpf) -> mpf:
    """P(a) with erfc(a) = 2^(a P(a))."""
    return mp.log(mp.erfc(a), 2) / a


def erfc_weight(a: mpf) -> mpf:
    """Change of erfc(a) for a change of P."""
    return a * mp.log(2) * mp.erfc(a)


def erf_curvature_weight(t: mpf) -> mpf:
    """Relative change of erf(a) for a change of R; not so little at the end that R runs away."""
    return max((t + 3) * erf_weight(t + 3), mpf("1e-7"))


HALF = mpf("0.50001")
HALF_LN2 = mp.log(2) / 2 * mpf("1.0001")
ROOT_LOW, ROOT_HIGH = mp.sqrt(0.5) - 1 - mpf("1e-6"), mp.sqrt(2) - 1 + mpf("1e-6")
S_MAX = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mpf("1.0001")
# |x| 2/pi is rounded before n is taken, so |r| exceeds pi/4 a little for large x.
QUARTER_PI = mp.pi / 4 + mpf("0.005")
ASIN_LIMIT = mpf("0.5701")
ZERO, ONE = mpf(0), mpf(1)


def exp_fit(name: str, count: int, bits: int, high: mpf = HALF_LN2) -> Fit:
    """exp(r) = 1 + r + r^2 P(r) for |r| <= high."""
    return Fit(
        name,
        lambda r: (mp.exp(r) - 1 - r) / r**2,
        lambda r: r**2 / mp.exp(r),
        -high,
        high,
        count,
        bits,
    )


def expm1_fit(name: str, count: int, bits: int) -> Fit:
    """The same P, weighted for the relative error of exp(r) - 1."""
    return Fit(
        name,
        lambda r: (mp.exp(r) - 1 - r) / r**2,
        lambda r: r**2 / mp.expm1(r),
        -HALF_LN2,
        HALF_LN2,
        count,
        bits,
    )


def exp2_fit(name: str, count: int, bits: int, high: mpf = HALF) -> Fit:
    """2^r = 1 + r P(r) for |r| <= high."""
    return Fit(name, lambda r: (2**r - 1) / r, lambda r: r / 2**r, -high, high, count, bits)


def odd_fit(name: str, f: Fn, high: mpf, count: int, bits: int) -> Fit:
    """f(x) = x + x^3 P(x^2) for an odd f."""
    return Fit(
        name, lambda x: (f(x) - x) / x**3, lambda x: x**3 / f(x), ZERO, high, count, bits, True
    )


def cos_fit(name: str, count: int, bits: int) -> Fit:
    """cos(r) = 1 - r^2 / 2 + r^4 P(r^2)."""
    return Fit(
        name,
        lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4,
        lambda r: r**4 / mp.cos(r),
        ZERO,
        QUARTER_PI,
        count,
        bits,
        True,
    )


def log_fit(name: str, count: int, bits: int) -> Fit:
    """log(1 + f) = f + f^2 P(f)."""
    return Fit(name, log1p_tail, lambda f: f**2 / mp.log1p(f), ROOT_LOW, ROOT_HIGH, count, bits)


def erf_curvature(t: mpf) -> mpf:
    """R(t) with erf(a) = 1 - exp(-a (2 / sqrt(pi) + a R(t))), t = a - 3."""
    a = t + 3
    return (-mp.log(mp.erfc(a)) / a - 2 / mp.sqrt(mp.pi)) / a


def erfc_fit(name: str, high: mpf, count: int) -> Fit:
    """(1 + 2 a) exp(a^2) erfc(a) = 1 + (1 + t) P(t), t = (a - 4) / (a + 4), for 0 <= a <= high."""

    def scaled(t: mpf) -> mpf:
        a = 4 * (1 + t) / (1 - t)
        return (1 + 2 * a) * mp.exp(a**2) * mp.erfc(a)

    return Fit(
        name,
        lambda t: (scaled(t) - 1) / (1 + t),
        lambda t: (1 + t) / scaled(t),
        -ONE,
        (high - 4) / (high + 4),
        count,
        53,
    )


FITS = (
    exp_fit("EXP_SIXTEENTH_F32", 2, 24, HALF_LN2 / 16),
    exp_fit("EXP_F64", 10, 53),
    expm1_fit("EXPM1_F32", 5, 24),
    expm1_fit("EXPM1_F64", 11, 53),
    exp2_fit("EXP2_F32", 6, 24),
    exp2_fit("EXP2_ROUNDED_F32", 5, 24),
    exp2_fit("EXP2_SIXTEENTH_F32", 3, 24, HALF / 8),
    exp2_fit("EXP2_THIRTY_SECOND_F32", 2, 24, HALF / 32),
    exp2_fit("EXP2_F64", 11, 53),
    exp2_fit("EXP2_MEDIUM", 6, 53),
    log_fit("LOG_F32", 8, 24),
    log_fit("LOG_MEDIUM", 13, 53),
    Fit("LOG1P_OF_EXP_F32", log1p_part, lambda e: 1 / log1p_part(e), ZERO, ONE, 10, 24),
    Fit("LOG_F64", atanh_tail, lambda s: s**2, ZERO, S_MAX, 7, 53, True),
    odd_fit("SIN_F32", mp.sin, QUARTER_PI, 3, 24),
    odd_fit("SIN_F64", mp.sin, QUARTER_PI, 6, 53),
    cos_fit("COS_F32", 3, 24),
    cos_fit("COS_F64", 6, 53),
    odd_fit("TAN_F32", mp.tan, QUARTER_PI, 7, 24),
    odd_fit("TAN_F64", mp.tan, QUARTER_PI, 15, 53),
    odd_fit("ATAN_F32", mp.atan, ONE, 8, 24),
    odd_fit("ATAN_F64", mp.atan, ONE, 20, 53),
    odd_fit("ASIN_F32", mp.asin, ASIN_LIMIT, 6, 24),
    odd_fit("ASIN_F64", mp.asin, ASIN_LIMIT, 15, 53),
    odd_fit("SINH_F32", mp.sinh, ONE, 4, 24),
    odd_fit("SINH_F64", mp.sinh, ONE, 8, 53),
    Fit("ERF_F32", erf_exponent, erf_weight, ZERO, mpf("3.95"), 9, 24),
    Fit("ERFC_EXPONENT", erfc_exponent, erfc_weight, ZERO, mpf("4.2"), 8, 24),
    Fit("ERF_ROUNDED", lambda a: mp.erf(a) / a, lambda a: a, ZERO, mpf("3.1"), 9, 24, True),
    Fit("ERF_F64", erf_curvature, erf_curvature_weight, -mpf(3), mpf("2.95"), 25, 53),
    erfc_fit("ERFC_MEDIUM", mpf("10.1"), 13),
    erfc_fit("ERFC_F64", mpf("27.3"), 22),
    Fit("LOG2_TAIL", atanh_tail2, lambda s: s**4, ZERO, S_MAX, 7, 53, True),
)

HEADER = '''"""Minimax coefficients, lowest power first. Written by tools/minimax.py."""

from __future__ import annotations

from typing import Final
'''


def emit(fit: Fit, coefficients: list[mpf], error: mpf) -> str:
    """One table entry, with the fit's error as its comment."""
    lines = [f"    float.fromhex({float(c).hex()!r}),".replace("'", '"') for c in coefficients]
    comment = f"# worst weighted error 2^{float(mp.log(error, 2)):.1f}"
    return "\n".join([f"{fit.name}: Final = (  {comment}", *lines, ")"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="print errors, not the table")
    parser.add_argument("--only", default="", help="only fits whose name contains this")
    options = parser.parse_args()
    fits = [fit for fit in FITS if options.only in fit.name]
    if not options.report:
        print(HEADER)
    for fit in fits:
        coefficients, error = solve(fit)
        if options.report:
            print(f"{fit.name:12} {fit.count:3} 2^{float(mp.log(error, 2)):.2f}", flush=True)
        else:
            print(emit(fit, coefficients, error), flush=True)


if __name__ == "__main__":
    main()
