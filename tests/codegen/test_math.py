"""The vector elementary functions: accuracy, special values, the same bits at every width."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import mpmath as mp
import numpy as np
import pytest

from pliant.base.dtypes import bf16, f32, f64
from pliant.base.errors import UnsupportedError
from pliant.codegen.llvm.math import MATH_FUNCTIONS, definitions, math_function

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from math_harness import ORACLES, Array, optimise, runner, ulp_error

NAMES = tuple(MATH_FUNCTIONS)
UNARY = tuple(name for name, arity in MATH_FUNCTIONS.items() if arity == 1)
F64_ULPS = {"erfc": 4.0}

# Around these the dense tests run: overflow, underflow, changes of formula, zeros and poles.
THRESHOLDS: dict[str, tuple[float, ...]] = {
    "exp": (88.72284, -87.33655, -103.97208, 0.34657359),
    "exp2": (128.0, -126.0, -149.0, -150.0, 0.5),
    "expm1": (88.72284, -17.32868, -20.0, 0.34657359, 2.0**-25),
    "sigmoid": (88.72284, 103.97208, 16.6),
    "log": (2.0**-126, 2.0**-149, 0.70710678, 1.41421356, 1.0),
    "log2": (2.0**-126, 2.0**-149, 0.70710678, 1.41421356, 1.0, 8.0),
    "log10": (2.0**-126, 2.0**-149, 0.70710678, 1.41421356, 1.0, 1000.0),
    "log1p": (-1.0, -0.29289322, 0.41421356, 2.0**24, 2.0**-24),
    "tanh": (0.54930614, 9.0109, 10.0),
    "sinh": (1.0, 89.415985, 90.0),
    "cosh": (89.415985, 90.0, 2.0**-12),
    "asinh": (2.0**-8, 2.0**64),
    "acosh": (1.0, 2.0**64),
    "atanh": (2.0**-8, 1.0),
    "erf": (3.8325, 3.9192059, 3.95),
    "erfc": (10.0542, 9.1948, -3.9192059, 10.1),
    "sin": (3.1415927, 6.2831855, 2.0**17, 0.7853982),
    "cos": (1.5707964, 4.712389, 2.0**17, 0.7853982),
    "tan": (1.5707964, 3.1415927, 2.0**17, 0.7853982),
    "asin": (0.57, 1.0),
    "acos": (0.57, 1.0),
    "atan": (1.0, 2.4142135, 1e9),
    "rsqrt": (2.0**-126, 2.0**-149),
}


def special_values(dtype: type[np.floating]) -> Array:
    info = np.finfo(dtype)
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 1e5 + 1, 2.0**24 - 1, 2.0**53, np.inf, np.nan]
    positive += [float(v) for v in (info.max, info.tiny, info.smallest_subnormal)]
    positive += [1 - float(info.epsneg), 1 + float(info.eps), float(info.tiny) * 0.75]
    return np.array([*positive, *(-v for v in positive)], dtype)


def neighbourhood(centre: float, count: int) -> Array:
    """Consecutive f32 numbers around a centre and its negative."""
    bits = np.float32(centre).view(np.int32) + np.arange(-count, count, dtype=np.int32)
    near = bits.view(np.float32)
    return np.concatenate([near, -near])


def f32_points(name: str) -> Array:
    """Every exponent with random mantissas, special values, and dense runs at the thresholds."""
    random = np.random.default_rng(sum(name.encode()))
    bits = np.repeat(np.arange(512, dtype=np.uint32) << 23, 1500)
    bits |= random.integers(0, 1 << 23, len(bits), dtype=np.uint32)
    dense = [neighbourhood(c, 5000) for c in THRESHOLDS.get(name, ())]
    usual = random.uniform(-20, 20, 1 << 17).astype(np.float32)
    return np.concatenate([bits.view(np.float32), special_values(np.float32), usual, *dense])


def f32_arguments(name: str) -> tuple[Array, ...]:
    x = f32_points(name)
    if MATH_FUNCTIONS[name] == 1:
        return (x,)
    random = np.random.default_rng(1)
    y = random.permutation(x)
    if name == "pow":  # half of the exponents such that the power is a normal number
        with np.errstate(all="ignore"):
            fitting = random.uniform(-120, 120, len(x)) / np.log2(np.abs(x).astype(np.float64))
        y = np.where(random.random(len(x)) < 0.5, fitting, y).astype(np.float32)
    grid = special_values(np.float32)
    gx, gy = (g.ravel() for g in np.meshgrid(grid, grid))
    return np.concatenate([x, gx]), np.concatenate([y, gy])


def check(got: Array, want: Array, arguments: tuple[Array, ...], ulps: float) -> None:
    error = ulp_error(got, want)
    i = int(np.argmax(error))
    assert error[i] <= ulps, (
        f"{error[i]} ulp at {[float(a[i]).hex() for a in arguments]}: "
        f"{float(got[i])} instead of {float(want[i])}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_f32_within_two_ulps(name: str) -> None:
    arguments = f32_arguments(name)
    got = runner(name, f32, 16)(*arguments)
    with np.errstate(all="ignore"):
        want = ORACLES[name](*(a.astype(np.float64) for a in arguments))
    check(got, want, arguments, 2.0)


@pytest.mark.parametrize("features", [None, "+avx2,+fma", "+sse2"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("name", ["exp_of_difference", "exp_from_max"])
def test_exp_of_a_difference(name: str, lanes: int, features: str | None) -> None:
    """No more error than the difference itself has after it was rounded: |x| / 4 ulp. What is
    below 2^-125 may be 0, or, by a table of 8, anything from 0 to that; where exp rounds to 0, so
    do they."""
    x = f32_points("exp")
    x = np.where(x > 0, -x, x) if name == "exp_from_max" else x
    got = runner(name, f32, lanes, features)(x)
    with np.errstate(all="ignore"):
        want = np.exp(x.astype(np.float64))
    bound = 2.0 + np.where(np.abs(x) < 128, np.abs(x), 0.0) / 4
    error = ulp_error(got, want)
    by_table = lanes == 8 and features != "+sse2"
    tiny = (got >= 0) & (got <= 2.0**-125) if by_table else got == 0
    error[tiny & (want < 2.0**-125)] = 0
    assert (got[x < -104] == 0).all()
    i = int(np.argmax(error - bound))
    assert error[i] <= bound[i], f"{error[i]} ulp at {x[i]}: {got[i]} instead of {want[i]}"


@pytest.mark.parametrize("features", [None, "+avx2,+fma", "+sse2"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize(("name", "two", "zero"), [("erf", 4.2, -4.2), ("tanh", 10, -45)])
def test_one_plus(name: str, two: float, zero: float, lanes: int, features: str | None) -> None:
    """Within 2^-22, NaN of NaN; 2 and 0 from somewhere on, or what is left would count in GELU."""
    x = f32_points(name)
    got = runner(f"one_plus_{name}", f32, lanes, features)(x)
    with np.errstate(all="ignore"):
        want = 1 + ORACLES[name](x.astype(np.float64))
    number = ~np.isnan(x)
    assert (np.isnan(got) == ~number).all()
    assert np.abs(got[number] - want[number]).max() <= 2.0**-22
    assert (got[x >= two] == 2).all()
    assert (got[x <= zero] == 0).all()


@pytest.mark.parametrize("features", [None, "+avx2,+fma", "+sse2"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_log1p_of_exp(lanes: int, features: str | None) -> None:
    """Within 3 ulp, as the two by themselves; also where exp overflows or is subnormal."""
    x = f32_points("exp")
    got = runner("log1p_of_exp", f32, lanes, features)(x)
    with np.errstate(all="ignore"):
        exp = np.exp(x.astype(np.float64)).astype(np.float32)
        want = np.where(np.isinf(exp), exp, np.logaddexp(0.0, x.astype(np.float64)))
    check(got, want, (x,), 3.0)


@pytest.mark.parametrize("features", [None, "+avx2,+fma", "+sse2"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_erf_to_round(lanes: int, features: str | None) -> None:
    """Within 2^-14, and as good as bf16 where it is small; 1 and -1 from somewhere on."""
    x = f32_points("erf")
    got = runner("erf_to_round", f32, lanes, features)(x)
    want = runner("erf", f32, lanes)(x)
    number = ~np.isnan(x)
    assert (np.isnan(got) == ~number).all()
    error = np.abs(got[number].astype(np.float64) - want[number])
    assert error.max() <= 2.0**-14
    assert (error <= 2.0**-11 * np.abs(want[number]) + 1e-44).all()
    far = np.abs(x) >= 3.1
    assert (got[far] == np.sign(x[far])).all()


@pytest.mark.parametrize("name", NAMES)
def test_f32_bits_do_not_depend_on_the_width(name: str) -> None:
    arguments = tuple(a[::7] for a in f32_arguments(name))
    features = "+avx2,+fma" if name == "exp" else None  # AVX-512's, in full registers, is another
    wide = runner(name, f32, 16, features)(*arguments)
    for lanes in (1, 4, 8):
        narrow = runner(name, f32, lanes, features)(*arguments)
        same = (narrow.view(np.int32) == wide.view(np.int32)) | (np.isnan(narrow) & np.isnan(wide))
        assert same.all(), f"{lanes} lanes differ at {[a[~same][:3] for a in arguments]}"


@pytest.mark.parametrize("name", NAMES)
def test_f32_without_fused_multiply_add(name: str) -> None:
    """Targets without the instruction round twice in `mad`, which may cost half an ulp."""
    arguments = tuple(a[::11] for a in f32_arguments(name))
    got = runner(name, f32, 4, "+sse2")(*arguments)
    with np.errstate(all="ignore"):
        want = ORACLES[name](*(a.astype(np.float64) for a in arguments))
    check(got, want, arguments, 2.5)


F64_ORACLES: dict[str, Callable[..., mp.mpf]] = {
    "exp2": lambda x: mp.mpf(2) ** x,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "log2": lambda x: mp.log(x) / mp.log(2),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "pow": mp.power,
}
# where the value is real and finite, for mpmath goes on into the complex plane
F64_DOMAINS: dict[str, tuple[float, float]] = {
    "exp": (-745, 709.7),
    "exp2": (-1074, 1024),
    "expm1": (-745, 709.7),
    "sigmoid": (-745, 1e3),
    "sinh": (-710.4, 710.4),
    "cosh": (-710.4, 710.4),
    "tanh": (-100, 100),
    "erf": (-7, 7),
    "erfc": (-7, 27.2),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-0.9999999, 0.9999999),
    "acosh": (1, 1e300),
    "log": (5e-324, 1e308),
    "log2": (5e-324, 1e308),
    "log10": (5e-324, 1e308),
    "log1p": (-0.999999999, 1e308),
    "rsqrt": (5e-324, 1e308),
}


def f64_arguments(name: str) -> tuple[Array, ...]:
    random = np.random.default_rng(2)
    low, high = F64_DOMAINS.get(name, (-1e300, 1e300))
    x = np.concatenate(
        [
            random.uniform(max(low, -30), min(high, 30), 300),
            random.uniform(max(low, -1e3), min(high, 1e3), 200),
            random.normal(size=200),
            1 + random.normal(size=100) * 1e-3,
            random.integers(0, 2**63, 400, dtype=np.uint64).view(np.float64),
            -random.integers(0, 2**63, 200, dtype=np.uint64).view(np.float64),
        ]
    )
    x = x[(x >= low) & (x <= high)]
    if MATH_FUNCTIONS[name] == 1:
        return (x,)
    if name == "pow":
        x = np.abs(x[x != 0])
        return x, random.uniform(-700, 700, len(x)) / np.maximum(np.abs(np.log(x)), 1e-3)
    return x, random.permutation(x)


@pytest.mark.parametrize("name", NAMES)
def test_f64_accuracy(name: str) -> None:
    arguments = f64_arguments(name)
    got = runner(name, f64, 8)(*arguments)
    oracle = F64_ORACLES.get(name) or getattr(mp, name)
    worst = 0.0
    with mp.workprec(140):
        for value, *point in zip(got, *arguments, strict=True):
            want = oracle(*(mp.mpf(float(p)) for p in point))
            exponent = max(mp.frexp(want)[1] - 1, -1022)
            worst = max(worst, float(abs(mp.mpf(float(value)) - want) * mp.ldexp(1, 52 - exponent)))
    assert worst <= F64_ULPS.get(name, 2.5)


@pytest.mark.parametrize("name", NAMES)
def test_f64_special_values_and_widths(name: str) -> None:
    grid = special_values(np.float64)
    grids = [grid] if name in UNARY else [g.ravel() for g in np.meshgrid(grid, grid)]
    arguments = tuple(
        np.concatenate([g, a]) for g, a in zip(grids, f64_arguments(name), strict=True)
    )
    wide = runner(name, f64, 8)(*arguments)
    count = len(grids[0])
    with np.errstate(all="ignore"):
        want = ORACLES[name](*grids)
    special = ulp_error(wide[:count], want.astype(np.longdouble))
    assert special.max() <= 4, [g[special.argmax()] for g in grids]
    for lanes in (1, 2, 4):
        narrow = runner(name, f64, lanes)(*arguments)
        same = (narrow.view(np.int64) == wide.view(np.int64)) | (np.isnan(narrow) & np.isnan(wide))
        assert same.all()


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("exp", 0.0, 1.0),
        ("exp", -math.inf, 0.0),
        ("exp", math.inf, math.inf),
        ("exp", 3e38, math.inf),
        ("exp", -3e38, 0.0),
        ("exp_of_difference", 0.0, 1.0),
        ("exp_of_difference", -math.inf, 0.0),
        ("exp_of_difference", -3e38, 0.0),
        ("exp_of_difference", 3e38, math.inf),
        ("exp_from_max", 0.0, 1.0),
        ("exp_from_max", -math.inf, 0.0),
        ("exp_from_max", -3e38, 0.0),
        ("exp2", 10.0, 1024.0),
        ("log2", 8.0, 3.0),
        ("log2", 2.0**-149, -149.0),
        ("log", 1.0, 0.0),
        ("sigmoid", 0.0, 0.5),
        ("tanh", -0.0, -0.0),
        ("sin", -0.0, -0.0),
        ("log1p", -0.0, -0.0),
        ("expm1", -0.0, -0.0),
        ("cos", 0.0, 1.0),
    ],
)
def test_exact_values(name: str, x: float, want: float) -> None:
    for lanes in (8, 16):
        got = runner(name, f32, lanes)(np.full(16, x, np.float32))
        assert (got == np.float32(want)).all()
    assert (np.signbit(got) == np.signbit(np.float32(want))).all()


def test_text_is_deterministic_and_carries_no_fast_math_flags() -> None:
    for name in NAMES:
        for dtype, lanes in ((f32, 16), (f64, 1)):
            text = definitions([math_function(name, dtype, lanes)])
            math_function.cache_clear()
            assert text == definitions([math_function(name, dtype, lanes)])
            words = set(text.split())
            assert not words & {"fast", "nnan", "ninf", "nsz", "arcp", "reassoc", "afn"}


@pytest.mark.parametrize(
    ("triple", "features"), [("aarch64-linux-gnu", "+neon"), ("wasm32-unknown-unknown", "+simd128")]
)
def test_other_targets_need_no_libm(triple: str, features: str) -> None:
    """All functions compile; only wasm, which has no fused multiply-add, calls for it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(features=features, opt=2)
    functions = [math_function(name, f32, 4) for name in NAMES]
    kernels = []
    for function, name in zip(functions, NAMES, strict=True):
        arguments = ", ".join(f"<4 x float> %x{i}" for i in range(MATH_FUNCTIONS[name]))
        kernels.append(
            f"define <4 x float> @{name}_kernel({arguments}) {{\n"
            f"  %r = call fastcc <4 x float> @{function.symbol}({arguments})\n"
            "  ret <4 x float> %r\n}\n"
        )
    text = definitions(functions) + "\n".join(kernels)
    assembly = target.emit_assembly(optimise(text, target))
    called = {
        line.split()[-1]
        for line in assembly.splitlines()
        if line.split()[:1] in (["bl"], ["call"]) and "pl_" not in line
    }
    assert called <= ({"fmaf", "fma"} if triple.startswith("wasm") else set())


def test_unknown_functions_and_types_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no elementary function 'gamma'"):
        math_function("gamma", f32, 8)
    with pytest.raises(UnsupportedError, match="compute bf16 in f32"):
        math_function("exp", bf16, 8)
