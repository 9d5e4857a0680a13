"""What a call costs beside its arithmetic: a function of one element, inputs and outputs varied.

PYTHONPATH=src:. python bench/call_overhead.py
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

import numpy as np
import torch

from tests.runtime import tiny


def main() -> None:
    f = tiny.program(threads=1).function("add_one")
    t, u = torch.zeros(1), torch.zeros(1)
    a, b = np.zeros(1, np.float32), np.zeros(1, np.float32)
    cases: dict[str, Callable[[], object]] = {
        "torch in, given out": lambda: f(t, out=u),
        "torch in, new out": lambda: f(t),
        "numpy in, given out": lambda: f(a, out=b),
        "numpy in, new out": lambda: f(a),
        "torch.add, given out": lambda: torch.add(t, 1, out=u),
    }
    for name, call in cases.items():
        best = min(timeit.repeat(call, number=20_000, repeat=5)) / 20_000
        print(f"{name:24s} {best * 1e6:6.2f} us")


if __name__ == "__main__":
    main()
