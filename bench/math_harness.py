"""Compile vector elementary functions in this process and run them over NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import llvmlite.binding as llvm
import numpy as np

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math import MATH_FUNCTIONS, definitions, math_function

Array = np.ndarray
NUMPY = {f32: np.float32, f64: np.float64}
_ENGINES: list[llvm.ExecutionEngine] = []  # keeps compiled code alive


def loop_text(name: str, dtype: DType, lanes: int) -> str:
    """Module text with `void run(ptr out, ptr x, ptr y, i64 n)`; n is a multiple of `lanes`."""
    function = math_function(name, dtype, lanes)
    element = "float" if dtype is f32 else "double"
    vector = element if lanes == 1 else f"<{lanes} x {element}>"
    align = dtype.bytes
    arguments = [f"{vector} %v{p}" for p in "xy"[: MATH_FUNCTIONS[name]]]
    loads = [
        line
        for p in "xy"[: MATH_FUNCTIONS[name]]
        for line in (
            f"  %a{p} = getelementptr {element}, ptr %{p}, i64 %i",
            f"  %v{p} = load {vector}, ptr %a{p}, align {align}",
        )
    ]
    return "\n".join(
        [
            definitions([function]),
            "define void @run(ptr noalias %out, ptr noalias %x, ptr noalias %y, i64 %n) {",
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
        ]
    )


@lru_cache(maxsize=None)
def machine(features: str | None = None) -> llvm.TargetMachine:
    """A target machine for this processor's features (or the given ones) with full-width vectors."""
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
    """`runner(x)` or `runner(x, y)`: the function over contiguous arrays of the dtype."""

    def __init__(
        self, name: str, dtype: DType, lanes: int, features: str | None = None
    ) -> None:
        target = machine(features)
        module = optimise(loop_text(name, dtype, lanes), target)
        self.assembly = target.emit_assembly(module)
        engine = llvm.create_mcjit_compiler(module, target)
        engine.finalize_object()
        _ENGINES.append(engine)
        pointer = ctypes.c_void_p
        self.call = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, ctypes.c_int64)(
            engine.get_function_address("run")
        )
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
        return np.ascontiguousarray(np.concatenate([a, np.ones(padding, a.dtype)]) if padding else a)


@lru_cache(maxsize=None)
def runner(name: str, dtype: DType, lanes: int, features: str | None = None) -> Runner:
    return Runner(name, dtype, lanes, features)


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
