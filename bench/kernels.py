"""Single kernels: f32 matmul and attention beside PyTorch, the cost of a call. Those that move data
are in bench/moving.py.

    PYTHONPATH=src:. python bench/kernels.py [--threads N] [--runs N] [--json FILE]

`x torch` says how many times as long PyTorch takes: matmul is wanted at 0.80 or more, attention
(16 heads of 64) at 1 or more.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.kernel_models import Attention, Product
from bench.timing import build, compare, contention, eager, interleave, report


class AddOne(nn.Module):
    """One element: what is left is the call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def product(n: int, threads: int, runs: int) -> dict[str, Any]:
    """The row of the product of two square matrices."""
    args = torch.randn(n, n), torch.randn(n, n)
    f, out = build(Product(), args, threads=threads), torch.empty(n, n)
    calls = {"pliant": lambda: f(*args, out=out), "torch": eager(Product(), args)}
    row = compare(calls, "pliant", runs)
    return {"kernel": f"matmul {n}"} | row | {"GFLOP/s": 2e-6 * n**3 / row["pliant ms"]}


def attention(n: int, threads: int, runs: int, *, causal: bool) -> dict[str, Any]:
    """The row of 16 heads of 64 features, of so many queries and keys."""
    module, shape = Attention(causal=causal), (1, 16, n, 64)
    args, out = tuple(torch.randn(shape) for _ in range(3)), torch.empty(shape)
    f = build(module, args, threads=threads)
    row = compare(
        {"pliant": lambda: f(*args, out=out), "torch": eager(module, args)}, "pliant", runs
    )
    pairs = n * (n + 1) / 2 if causal else n * n
    name = f"attention {n}" + " causal" * causal
    return {"kernel": name} | row | {"GFLOP/s": 4e-6 * 16 * 64 * pairs / row["pliant ms"]}


def main() -> None:
    """Print a table, and the call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    lengths = [128, 512, 1024, 4096]
    parser.add_argument("--lengths", type=int, nargs="*", default=lengths, help="of attention")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    busy, threads, runs = contention(), options.threads, options.runs
    rows = [product(n, threads, runs) for n in options.sizes]
    for causal in (False, True):
        rows += [attention(n, threads, runs, causal=causal) for n in options.lengths]
    report(rows, busy, options.json)
    one, out = torch.zeros(1), torch.zeros(1)
    f = build(AddOne(), (one,), threads=threads)
    seconds = interleave({"pliant": lambda: f(one, out=out)}, 200)["pliant"].median
    print(f"a call, torch in, given out: {seconds * 1e6:.2f} us")


if __name__ == "__main__":
    main()
