"""What the benchmarks share: interleaved timing (that of `pliant bench`), and their reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pliant.cli.terminal import message, table
from pliant.cli.timing import Times, contention, geometric_mean, interleave, paired_ratio
from pliant.codegen.llvm.target import target
from pliant.frontend.select import Request, import_model
from pliant.ops.table import OPERATORS
from pliant.pipeline import compile_imported
from pliant.runtime.callable import Compiled

__all__ = [
    "Times", "build", "compare", "contention", "eager", "geometric_mean", "interleave", "message",
    "paired_ratio", "report", "table",
]  # fmt: skip


def build(
    module: torch.nn.Module, args: tuple[Any, ...], *, threads: int, constant_extents: bool = False
) -> Compiled:
    """A module at fixed shapes: sizes as run-time parameters of its kernels, or as constants."""
    imported = import_model(Request(module.eval(), args), OPERATORS)
    return compile_imported(
        imported, target(), OPERATORS, threads=threads, constant_extents=constant_extents
    )


def eager(module: torch.nn.Module, args: tuple[Any, ...]) -> Callable[[], object]:
    """A call of PyTorch without gradients."""

    def call() -> object:
        with torch.inference_mode():
            return module(*args)

    return call


def compare(calls: Mapping[str, Callable[[], object]], ours: str, runs: int) -> dict[str, float]:
    """Milliseconds of each, and how many times as long as `ours` each takes."""
    times = interleave(calls, runs, warmup=5, limit=5.0)
    row = {f"{name} ms": t.median * 1e3 for name, t in times.items()}
    return row | {f"x {n}": paired_ratio(t, times[ours]) for n, t in times.items() if n != ours}


def report(rows: Sequence[Mapping[str, Any]], busy: str, path: Path | None) -> None:
    """Print rows as a table with the geometric means of the ratios; write them as JSON."""
    header = list(rows[0])
    cells = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    print(table(header, cells))
    means = {h: geometric_mean([r[h] for r in rows]) for h in header if h.startswith("x ")}
    for name, mean in means.items():
        print(f"geometric mean of {name}: {mean:.3f}")
    if busy:
        print(f"WARNING: {busy}")
    if path:
        data = {"contention": busy, "rows": list(rows), "geometric_mean": means}
        path.write_text(json.dumps(data, indent=1) + "\n")
