"""Compile vector elementary functions in this process and run them over NumPy arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math import MATH_FUNCTIONS, definitions, math_function

Array = np.ndarray
NUMPY = {f32: np.float32, f64: np.float64}
_ENGINES: list[llvm.ExecutionEngine] = []  # keeps compiled code alive


REPEAT = """
define void @repeat(ptr %out, ptr %x, ptr %y, i64 %n, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @run(ptr %out, ptr %x, ptr %y, i64 %n)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def loop_text(name: str, dtype: DType, lanes: int, features: frozenset[str]) -> str:
    """Module text with `void run(ptr out, ptr x, ptr y, i64 n)`; n is a multiple of `lanes`."""
    function = math_function(name, dtype, lanes, features)
    element = "float" if dtype is f32 else "double"
    vector = element if lanes == 1 else f"<{lanes} x {element}>"
    align = dtype.bytes
    given = "xy"[: MATH_FUNCTIONS.get(name, 1)]  # variants of functions are of one argument
    arguments = [f"{vector} %v{p}" for p in given]
    loads = [
        line
        for p in given
        for line in (
            f"  %a{p} = getelementptr {element}, ptr %{p}, i64 %i",
            f"  %v{p} = load {vector}, ptr %a{p}, align {align}",
        )
    ]
    return "\n".join(
        [
            definitions([function]),
            "define void @run(ptr noalias %out, ptr noalias %x, ptr noalias %y, i64 %n) noinline {",
            "entry:",
            "  %some = icmp sgt i64 %n, 0",
            "  br i1 %some, label %loop, label %done",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *loads,
            f"  %r = call fastcc {vector} @{function.symbol}({', '.join(arguments)})",
            f"  %o = getelementptr {element}, ptr %out, i64 %i",
            f"  store {vector} %r, ptr %o, align {align}",
            f"  %next = add i64 %i, {lanes}",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
            REPEAT,
        ]
    )


@cache
def machine(features: str | None = None) -> llvm.TargetMachine:
    """A target machine with the host's features (or the given ones) and full-width vectors."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    features += ",-prefer-256-bit"
    return llvm.Target.from_default_triple().create_target_machine(
        cpu="x86-64", features=features, opt=3, jit=True
    )


def optimise(text: str, target: llvm.TargetMachine) -> llvm.ModuleRef:
    """Parse, verify and run the O2 pipeline."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = False
    llvm.create_pass_builder(target, options).getModulePassManager().run(
        module, llvm.create_pass_builder(target, options)
    )
    return module


class Runner:
    """`runner(x)` or `runner(x, y)`: the function over contiguous arrays of the dtype.

    `repeat(out, x, y, n, times)` (addresses) does it many times, for timing.
    """

    def __init__(self, name: str, dtype: DType, lanes: int, features: str | None = None) -> None:
        target = machine(features)
        if features is None:
            features = llvm.get_host_cpu_features().flatten()
        has = frozenset(f[1:] for f in features.split(",") if f[0] == "+")
        module = optimise(loop_text(name, dtype, lanes, has), target)
        self.assembly = target.emit_assembly(module)
        engine = llvm.create_mcjit_compiler(module, target)
        engine.finalize_object()
        _ENGINES.append(engine)
        pointer = ctypes.c_void_p
        self.call = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, ctypes.c_int64)(
            engine.get_function_address("run")
        )
        self.repeat = ctypes.CFUNCTYPE(
            None, pointer, pointer, pointer, ctypes.c_int64, ctypes.c_int64
        )(engine.get_function_address("repeat"))
        self.lanes = lanes
        self.numpy = NUMPY[dtype]

    def __call__(self, x: Array, y: Array | None = None, out: Array | None = None) -> Array:
        padding = -len(x) % self.lanes
        operands = [self._padded(a, padding) for a in (x, x if y is None else y)]
        result = np.empty(len(operands[0]), self.numpy) if out is None else out
        self.call(result.ctypes.data, *(a.ctypes.data for a in operands), len(operands[0]))
        return result[: len(x)]

    def _padded(self, a: Array, padding: int) -> Array:
        assert a.dtype == self.numpy
        return (
            np.concatenate([a, np.ones(padding, a.dtype)]) if padding else np.ascontiguousarray(a)
        )


@cache
def runner(name: str, dtype: DType, lanes: int, features: str | None = None) -> Runner:
    return Runner(name, dtype, lanes, features)


def _where(inside: Array, function: Callable[[float], float], x: Array, outside: Array) -> Array:
    """`outside` with function(x) where `inside`: for functions that only exist one by one."""
    result = np.array(outside, np.float64)
    chosen = x[inside].tolist()
    result[inside] = np.fromiter(map(function, chosen), np.float64, len(chosen))
    return result


def _erf(x: Array) -> Array:
    near = x * (2 / math.sqrt(math.pi))
    a = np.abs(x)
    outside = np.where(a < 1, near * (1 - x * x / 3), np.sign(x))
    return _where((a > 2.0**-13) & (a < 6), math.erf, x, outside)


def _erfc(x: Array) -> Array:
    inside = (np.abs(x) > 2.0**-28) & (x < 27.5) & (x > -6)
    outside = np.where(x > 1, 0.0, np.where(x < -1, 2.0, 1 - x))
    return _where(inside, math.erfc, x, np.where(np.isnan(x), x, outside))


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


ORACLES: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "sigmoid": _sigmoid,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "erfc": _erfc,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "atan2": np.arctan2,
    "pow": np.power,
}
"""The functions in float64, for measuring f32."""


def ulp_error(got: Array, want: Sequence[float] | Array) -> Array:
    """|got - want| in units of the spacing of got's dtype at want, which has more precision.

    Equal infinities and NaN for NaN are 0; an infinity for a value that rounds to one too.
    """
    wide = np.longdouble if got.dtype == np.float64 else np.float64
    exact = np.asarray(want, wide)
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        exponent = np.frexp(exact)[1] - 1
        spacing = np.ldexp(wide(1), np.maximum(exponent, info.minexp) - info.nmant)
        # beyond the largest number the scale goes on, infinity being the next number
        top = np.ldexp(wide(1), info.maxexp)
        value = np.where(np.isinf(got), np.copysign(top, got), got.astype(wide))
        limit = np.where(np.abs(exact) > top, np.copysign(top, exact), exact)
        error = np.abs(value - limit) / spacing
        same = (got == rounded) & (np.signbit(got) == np.signbit(rounded))
        error = np.where(same | (np.isnan(got) & np.isnan(exact)), np.minimum(error, 0.5), error)
        wrong = (np.isnan(got) != np.isnan(exact)) | (
            (got == 0) & (exact == 0) & (np.signbit(got) != np.signbit(exact))
        )
        return np.where(wrong, np.inf, np.where(np.isnan(exact), 0.0, error)).astype(np.float64)
