"""Elements per nanosecond of the elementary functions on data in L1, one thread.

    python bench/math_throughput.py [--lanes 16] [names]

Next to NumPy and, where installed, torch (both called on the same arrays with an output given;
their call overhead is part of the number, at 4,096 elements).
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from math_harness import ORACLES, Array, runner

from pliant.base.dtypes import f32, f64
from pliant.codegen.llvm.math import MATH_FUNCTIONS

# operands that make every branch-free path do its usual work
RANGES = {"acosh": (1.0, 10.0), "pow": (0.5, 4.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0)}
RANGES |= {"atanh": (-0.99, 0.99), "log1p": (-0.5, 4.0)}
RANGES |= dict.fromkeys(("log", "log2", "log10", "rsqrt"), (0.01, 100.0))
TORCH_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}


def best_seconds(call: Callable[[], object], repeats: int = 60) -> float:
    """The shortest of many short runs, which other work on the machine disturbs least."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def ours(name: str, lanes: int, arguments: list[Array], double: bool) -> float:
    """Elements per nanosecond of the compiled loop."""
    function = runner(name, f64 if double else f32, lanes)
    out = np.empty_like(arguments[0])
    addresses = [a.ctypes.data for a in (arguments[0], arguments[-1])]
    count, times = len(out), 200
    seconds = best_seconds(lambda: function.repeat(out.ctypes.data, *addresses, count, times))
    return float(count * times / seconds / 1e9)


def library(call: Callable[[], object], count: int) -> float:
    """Elements per nanosecond of a library call."""
    times = 40

    def many() -> None:
        for _ in range(times):
            call()

    return count * times / best_seconds(many) / 1e9


def numpy_call(name: str, arguments: list[Array]) -> Callable[[], object] | None:
    """The NumPy function with an output, or None where it is not one ufunc."""
    function = ORACLES[name]
    if not isinstance(function, np.ufunc):
        return None
    out = np.empty_like(arguments[0])
    return lambda: function(*arguments, out=out)


def torch_call(torch: Any, name: str, arguments: list[Array]) -> Callable[[], object] | None:
    """The torch function with an output."""
    function = getattr(torch, TORCH_NAMES.get(name, name), None)
    if function is None:
        return None
    tensors = [torch.from_numpy(a) for a in arguments]
    out = torch.empty_like(tensors[0])
    return lambda: function(*tensors, out=out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    try:
        torch: Any = importlib.import_module("torch")
        torch.set_num_threads(1)
    except ImportError:
        torch = None
    random = np.random.default_rng(0)
    print("| function | f32 | f64 | numpy f32 | torch f32 |\n| --- | --- | --- | --- | --- |")
    for name in options.names or MATH_FUNCTIONS:
        low, high = RANGES.get(name, (-5.0, 5.0))
        arity = MATH_FUNCTIONS[name]
        single = [random.uniform(low, high, 4096).astype(np.float32) for _ in range(arity)]
        double = [a[:2048].astype(np.float64) for a in single]
        calls = [numpy_call(name, single), torch and torch_call(torch, name, single)]
        rates = [ours(name, options.lanes, single, False)]
        rates.append(ours(name, max(options.lanes // 2, 1), double, True))
        rates += [library(call, 4096) if call else float("nan") for call in calls]
        cells = ["–" if rate != rate else f"{rate:.2f}" for rate in rates]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
