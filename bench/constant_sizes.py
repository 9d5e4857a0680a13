"""Kernels whose sizes come at run time against kernels for one size, and PyTorch.

    PYTHONPATH=src:. python bench/constant_sizes.py [--threads N] [--runs N] [--only TEXT]
        [--json FILE]

`x constant` is how many times as long the constant kernel takes (0.95 or more is wanted), `x torch`
the same of PyTorch eager (0.80 or more).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from bench.timing import build, compare, contention, eager, message, report

Case = tuple[str, nn.Module, torch.Tensor]


def cases() -> Iterator[Case]:
    """Name, module, input."""
    for m in (1, 16, 128):
        for k in (384, 1536):
            for n in (384, 1536):
                yield f"linear M={m} K={k} N={n}", nn.Linear(k, n), torch.randn(m, k)
    for side, channels in ((56, 64), (14, 256), (7, 512)):
        for stride in (1, 2):
            conv = nn.Conv2d(channels, channels, 3, stride, 1)
            name = f"conv 3x3 {channels} at {side}x{side} stride {stride}"
            yield name, conv, torch.randn(1, channels, side, side)
    up = nn.ConvTranspose2d(64, 32, 2, 2)
    yield "transposed conv 2x2 64 at 56x56", up, torch.randn(1, 64, 56, 56)
    up = nn.ConvTranspose2d(256, 128, 4, 2, 1)
    yield "transposed conv 4x4 256 at 14x14", up, torch.randn(1, 256, 14, 14)
    up = nn.ConvTranspose2d(64, 64, 3, 2, 1, 1)
    yield "transposed conv 3x3 64 at 28x28", up, torch.randn(1, 64, 28, 28)
    for channels, groups, side in ((128, 32, 56), (512, 32, 14), (1024, 32, 7), (240, 3, 28)):
        size = 1 if groups == 3 else 3
        conv = nn.Conv2d(channels, channels, size, 1, size // 2, groups=groups)
        name = f"conv {size}x{size} {channels} in {groups} groups at {side}x{side}"
        yield name, conv, torch.randn(1, channels, side, side)
    for channels, side, size, stride in ((64, 56, 3, 1), (144, 56, 3, 2), (96, 56, 7, 1)):
        conv = nn.Conv2d(channels, channels, size, stride, size // 2, groups=channels)
        name = f"depthwise conv {size}x{size} {channels} at {side}x{side} stride {stride}"
        yield name, conv, torch.randn(1, channels, side, side)
    for rows, width in ((128, 384), (1024, 768)):
        yield f"layer norm {rows}x{width}", nn.LayerNorm(width), torch.randn(rows, width)
        yield f"softmax {rows}x{width}", nn.Softmax(-1), torch.randn(rows, width)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=31)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    busy = contention()
    rows = []
    for name, module, x in cases():
        if options.only not in name:
            continue
        message(name)
        ours = build(module, (x,), threads=options.threads)
        fixed = build(module, (x,), threads=options.threads, constant_extents=True)
        expected = eager(module, (x,))()
        for f in (ours, fixed):
            torch.testing.assert_close(f(x), expected, rtol=1e-3, atol=1e-4)
        calls = {
            "pliant": lambda f=ours, x=x: f(x),
            "constant": lambda f=fixed, x=x: f(x),
            "torch": eager(module, (x,)),
        }
        rows.append({"case": name} | compare(calls, "pliant", options.runs))
    report(rows, busy, options.json)


if __name__ == "__main__":
    main()
