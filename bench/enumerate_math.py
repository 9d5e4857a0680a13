"""Measure the f32 elementary functions against float64, in ulps.

    python bench/enumerate_math.py               2^24 inputs per function, a few seconds each
    python bench/enumerate_math.py --full        all 2^32 inputs, a minute or two each
    python bench/enumerate_math.py --full exp    only the functions named

Prints a Markdown table (see docs/math.md): the largest error, and the input that has it. Functions
of two arguments get pairs of random bit patterns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from math_harness import ORACLES, Array, runner, ulp_error

from pliant.base.dtypes import f32
from pliant.codegen.llvm.math import MATH_FUNCTIONS

CHUNK = 1 << 13  # temporaries fit the cache and stay below the size that malloc maps
ODD = {"tanh", "sinh", "asinh", "atanh", "erf", "sin", "tan", "asin", "atan"}
EVEN = {"cosh", "cos"}
EXPONENT_BITS = np.int64(0x7FF << 52)


@dataclass
class Worst:
    """The largest error met so far."""

    error: float = 0.0
    arguments: tuple[float, ...] = ()

    def add(self, got: Array, want: Array, arguments: tuple[Array, ...]) -> None:
        """Errors by the short way where they are plain numbers, by `ulp_error` where not."""
        power = (want.view(np.int64) & EXPONENT_BITS).view(np.float64)
        spacing = np.maximum(power, 2.0**-126) * 2.0**-23
        error = np.abs(got - want) / spacing
        error[np.isnan(got) & np.isnan(want)] = 0.0
        special = ~(error < 4)
        if special.any():
            error[special] = ulp_error(got[special], want[special])
        i = int(np.argmax(error))
        if error[i] > self.error:
            self.error = float(error[i])
            self.arguments = tuple(float(a[i]) for a in arguments)


def measure(name: str, full: bool) -> Worst:
    """Run the function over all bit patterns, or over random ones.

    Of odd and even functions the positive half is measured, and the other compared with it.
    """
    function, oracle = runner(name, f32, 16), ORACLES[name]
    worst = Worst()
    out, mirrored = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.float32)
    for arguments in patterns(name, full):
        got = function(*arguments, out=out)
        wide = tuple(a.astype(np.float64) for a in arguments)
        worst.add(got, oracle(*wide), wide)
        if full and name in ODD | EVEN:
            function(-arguments[0], out=mirrored)
            expected = -got if name in ODD else got
            if not np.array_equal(mirrored, expected, equal_nan=True):
                raise AssertionError(f"{name} is not symmetric in {arguments[0][0]} ...")
    return worst


def patterns(name: str, full: bool) -> Iterator[list[Array]]:
    """Chunks of arguments."""
    if full and MATH_FUNCTIONS[name] == 1:
        steps = np.arange(CHUNK, dtype=np.uint32)
        for start in range(0, 1 << (31 if name in ODD | EVEN else 32), CHUNK):
            yield [(steps + np.uint32(start)).view(np.float32)]
        return
    random = np.random.default_rng(0)
    for _ in range(1 << 11):
        bits = random.integers(0, 1 << 32, (MATH_FUNCTIONS[name], CHUNK), dtype=np.uint32)
        yield list(bits.view(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all 2^32 inputs")
    parser.add_argument("names", nargs="*", help="functions; default all")
    options = parser.parse_args()
    print("| function | largest error (ulp) | at | seconds |\n| --- | --- | --- | --- |")
    for name in options.names or MATH_FUNCTIONS:
        start = time.perf_counter()
        with np.errstate(all="ignore"):
            worst = measure(name, options.full)
        at = ", ".join(a.hex() for a in worst.arguments)
        seconds = time.perf_counter() - start
        print(f"| {name} | {worst.error:.3f} | {at} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
