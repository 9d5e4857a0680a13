"""Products of n x n matrices by each micro-kernel of this machine, beside PyTorch.

    PYTHONPATH=src:. python bench/tiles.py [--sizes N ...] [--runs N] [--all] [--json FILE]

One thread. The second operand is packed before, as a weight's is; PyTorch's is too where it can be
(quantized linear, which also rounds its results to bytes), and `mm` and `_int_mm` pack or not as
they like. `x` columns say how many times as long the other takes. `--all` measures the kernels of
every feature set that runs here, not only those of the best.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench.timing import compare, contention, report
from pliant.base.dtypes import i8, i64, u8
from pliant.codegen.build import Image, build_with_micro_kernels
from pliant.codegen.llvm.target import FEATURE_SETS, Target, target
from pliant.codegen.micro_kernels import micro_kernels
from pliant.codegen.microkernel import MatrixKernel
from pliant.ir.expr import Index
from pliant.loop.stmt import BufferRef, Function, Invoke, buffer, for_
from pliant.runtime.features import forbidden_features, host_machine, missing_features
from pliant.sym.expr import as_int, minimum, var

CHUNK = 8  # panels that rows pass over while both stay in the cache
TILES = 8  # tiles of a block of rows


def product(mk: MatrixKernel, n: int) -> Function:
    """c = a @ b of n x n, b in panels: blocks of tiles of rows over chunks of panels."""
    words, panels = -(-n // mk.group), -(-n // mk.columns)
    a, at, other = buffer("a", (n, n), mk.a), buffer("at", (n,), i64), buffer("other", (n,), mk.a)
    b = buffer("b", (panels, words, mk.columns, mk.group), mk.b)
    c = buffer("c", (n, panels * mk.columns), mk.c)
    even = math.ceil(n / math.ceil(n / mk.rows))  # rows of a tile
    panel = CHUNK * var("chunk") + var("panel")
    block = even * TILES * var("block")
    row = block + even * var("tile")

    def ref(of: object, *indices: object) -> BufferRef:
        return BufferRef(of, tuple(Index(as_int(i)) for i in indices))  # type: ignore[arg-type]

    sizes = (minimum(even, n - row), 1, n, panels * mk.columns, var("tile"))
    call = Invoke(
        mk.symbol,
        (
            ref(a, 0, 0), ref(at, row), ref(other, 0), ref(b, panel, 0, 0, 0),
            ref(c, row, mk.columns * panel), *(Index(as_int(s)) for s in sizes),
        ),
    )  # fmt: skip
    left = minimum(even * TILES, n - block)
    loops = [
        ("chunk", -(-panels // CHUNK)),
        ("block", -(-n // (even * TILES))),
        ("panel", minimum(CHUNK, panels - CHUNK * var("chunk"))),
        ("tile", (left + even - 1) // even),
    ]
    return Function("product", (a, at, other, b, c), (), for_(loops, call))


def compiled(mk: MatrixKernel, t: Target, n: int) -> Callable[[], np.ndarray]:
    """A call on random operands, checked against NumPy."""
    f = product(mk, n)
    image = Image(build_with_micro_kernels(f, t), [f.name], t)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6)(image.entries[f.name])
    rng = np.random.default_rng(n)
    a, b = (rng.integers(0, 100, (n, n)).astype(x.numpy) for x in (mk.a, mk.b))
    words, panels = -(-n // mk.group), -(-n // mk.columns)
    panel = np.zeros((words * mk.group, panels * mk.columns), mk.b.numpy)
    panel[:n, :n] = b
    panel = panel.reshape(words, mk.group, panels, mk.columns).transpose(2, 0, 3, 1).copy()
    c = np.zeros((n, panels * mk.columns), mk.c.numpy)
    at, other = np.arange(n, dtype=np.int64) * n, np.zeros(n, mk.a.numpy)
    addresses = [x.ctypes.data for x in (a, at, other, panel, c)]

    def call() -> np.ndarray:
        entry(None, *addresses)
        return c

    exact = a[:3].astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(call()[:3, :n], exact, rtol=1e-5)
    call.kept = image, a, at, other, panel  # type: ignore[attr-defined]
    return call


def peers(mk: MatrixKernel, n: int) -> dict[str, Callable[[], object]]:
    """PyTorch's ways to do as much."""
    if not mk.a.is_int:
        kind = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[mk.a.name]
        x, y = torch.randn(n, n).to(kind), torch.randn(n, n).to(kind)
        return {"mm": lambda: torch.mm(x, y)}
    p, q = (torch.randint(-100, 100, (n, n), dtype=torch.int8) for _ in range(2))
    found: dict[str, Callable[[], object]] = {"_int_mm": lambda: torch._int_mm(p, q)}
    if (mk.a, mk.b) == (u8, i8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # quantized tensors are deprecated
            w = torch.quantize_per_tensor(torch.randn(n, n), 0.05, 0, torch.qint8)
            x8 = torch.quantize_per_tensor(torch.rand(n, n), 0.01, 0, torch.quint8)
        packed = torch.ops.quantized.linear_prepack(w, None)
        found["linear"] = lambda: torch.ops.quantized.linear(x8, packed, 0.1, 0)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    busy, rows = contention(), []
    for t in _targets(options.all):
        for mk in micro_kernels(t):
            if mk.b not in (mk.a, i8):
                continue  # by the same instructions as another
            for n in options.sizes:
                calls = {"pliant": compiled(mk, t, n), **peers(mk, n)}
                row = compare(calls, "pliant", options.runs)
                ratio = min(v for k, v in row.items() if k.startswith("x "))
                rows.append({
                    "kernel": mk.symbol, "n": n, "pliant ms": row["pliant ms"],
                    "GOP/s": 2e-6 * n**3 / row["pliant ms"], "x best of torch": ratio,
                })  # fmt: skip
    report(rows, busy, options.json)


def _targets(every: bool) -> list[Target]:
    if not every:
        return [target()]
    known = [target(name) for name in FEATURE_SETS]
    here = [t for t in known if t.architecture == host_machine()]
    return [t for t in here if not missing_features(t.features) + forbidden_features(t.features)]


if __name__ == "__main__":
    main()
