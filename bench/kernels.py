"""Single kernels: f32 matmul beside PyTorch, rows beside a copy, the cost of a call.

    PYTHONPATH=src:. python bench/kernels.py [--threads N] [--runs N] [--json FILE]

`x` columns say how many times as long the other takes: matmul is wanted at 0.80 of torch or more,
softmax and layer norm at 0.70 of a copy of the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from bench.timing import build, compare, contention, eager, interleave, report


class Product(nn.Module):
    """Both operands come with the call: packing counts."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class AddOne(nn.Module):
    """One element: what is left is the call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    busy, threads, runs = contention(), options.threads, options.runs

    def against(
        other: str, call: Callable[[], object], module: nn.Module, *args: torch.Tensor
    ) -> dict[str, float]:
        f = build(module, args, threads=threads)
        out = torch.empty_like(f(*args))
        return compare({"pliant": lambda: f(*args, out=out), other: call}, "pliant", runs)

    rows = []
    for n in options.sizes:
        a, b = torch.randn(n, n), torch.randn(n, n)
        row = against("torch", eager(Product(), (a, b)), Product(), a, b)
        rows.append({"matmul": n} | row | {"GFLOP/s": 2e-6 * n**3 / row["pliant ms"]})
    report(rows, busy, options.json and options.json.with_suffix(".matmul.json"))
    rows = []
    for name, make in (("softmax", lambda w: nn.Softmax(-1)), ("layer norm", nn.LayerNorm)):
        for shape in ((256, 384), (4096, 1024)):
            x = torch.randn(shape)
            to = torch.empty_like(x)
            copying = lambda x=x, to=to: to.copy_(x)  # noqa: E731
            rows.append({"rows": f"{name} {shape}"} | against("copy", copying, make(shape[1]), x))
    report(rows, busy, options.json and options.json.with_suffix(".rows.json"))
    one, out = torch.zeros(1), torch.zeros(1)
    f = build(AddOne(), (one,), threads=threads)
    seconds = interleave({"pliant": lambda: f(one, out=out)}, 200)["pliant"].median
    print(f"a call, torch in, given out: {seconds * 1e6:.2f} us")


if __name__ == "__main__":
    main()
