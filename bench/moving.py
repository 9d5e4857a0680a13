"""Kernels that move data, beside what they cannot beat (bench/limits.py) and PyTorch.

    PYTHONPATH=src:. python bench/moving.py [--threads N] [--runs N] [--json FILE] [--only WORD …]

`of limit` is the lower of two limits divided by what the kernel takes: the best copy of as many
bytes, and, where the kernel computes, the same kernel on data in L1, by the element (the difference
between two small calls, so that the call itself does not count). Kernels write what a call gave;
so do copies, of the same input, where the kernel writes as much as it reads. `x torch` says how
many times as long PyTorch takes; `of L1` is 0 where no two rows fit (of functions of elements alone
narrower ones do). Sizes lie in L2, in the last level and in memory; some fill no vector.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.limits import Copies
from bench.timing import build, contention, eager, interleave, paired_ratio, report

L1_BYTES = 32 << 10  # what data of a call takes, at most, to be called in L1
COLUMNS = 256  # at least, of rows that are made narrower for that


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(*args)


@dataclass(frozen=True)
class Case:
    """A function at one shape. `computes`: rows can be left away to have the rest in L1; with
    `by_element` columns, too. `gathers`: it reads no more than it writes, whatever the size of its
    arguments."""

    name: str
    module: nn.Module
    args: tuple[Tensor, ...]
    computes: bool = True
    gathers: bool = False
    by_element: bool = False

    def few(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """The arguments with as many rows (those that have the rows at all) and columns."""
        whole, _ = self.args[0].shape
        few = (x[:rows] if x.dim() > 1 and x.shape[0] == whole else x for x in self.args)
        return tuple(x[..., :columns].clone() for x in few)


def cases() -> Iterator[Case]:
    """All of them."""
    shapes = [(256, 384), (1024, 1000), (1024, 1023), (4096, 1024), (4096, 512), (2048, 4096)]
    shapes += [(16384, 1024), (4096, 4096)]
    for shape in shapes:
        x, n = torch.randn(shape), shape[1]
        of = f"{shape[0]} x {n}"
        yield Case(f"softmax {of}", nn.Softmax(-1), (x,))
        yield Case(f"log softmax {of}", nn.LogSoftmax(-1), (x,))
        yield Case(f"layer norm {of}", nn.LayerNorm(n), (x,))
        yield Case(f"RMS norm {of}", nn.RMSNorm(n), (x,))
    for shape in ((128, 1536), (1024, 1023), (4096, 4096)):
        x, y, bias = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])
        of = f"{shape[0]} x {shape[1]}"
        gelu = Function(lambda x, b: nn.functional.gelu(x + b))
        silu = Function(lambda x, y: nn.functional.silu(x) * y)
        yield Case(f"add {of}", Function(torch.add), (x, y), by_element=True)
        yield Case(f"bias, GELU {of}", gelu, (x, bias), by_element=True)
        yield Case(f"SiLU · {of}", silu, (x, y), by_element=True)
    for shape in ((512, 512), (2048, 2048), (4096, 4096), (1000, 1023)):
        x = torch.randn(shape)
        of = f"{shape[0]} x {shape[1]}"
        turn = Function(lambda x: x.t().contiguous())
        yield Case(f"transpose {of}", turn, (x,), computes=False)
        yield Case(f"sum of rows {of}", Function(lambda x: x.sum(1)), (x,))
        yield Case(f"sum of columns {of}", Function(lambda x: x.sum(0)), (x,), computes=False)
    image = torch.randn(8, 64, 112, 112)
    last = Function(lambda x: x.permute(0, 2, 3, 1).contiguous())
    first = Function(lambda x: x.permute(0, 3, 1, 2).contiguous())
    yield Case("NCHW to NHWC", last, (image,), computes=False)
    yield Case("NHWC to NCHW", first, (image.permute(0, 2, 3, 1).contiguous(),), computes=False)
    at = torch.randint(0, 30000, (4096,))
    words = torch.randn(30000, 768)
    take = Function(lambda at, words: words[at])
    yield Case("embedding 4096 of 30000 x 768", take, (at, words), False, gathers=True)
    join = Function(lambda x, y: torch.cat([x, y], 1))
    x, y = torch.randn(4096, 768), torch.randn(4096, 512)
    yield Case("concat 4096 x (768, 512)", join, (x, y), computes=False)


def measure(case: Case, threads: int, runs: int) -> dict[str, str | float]:
    """The row of a case."""
    f = build(case.module, case.args, threads=threads)
    out = f(*case.args)
    size = out.numel() * out.element_size()
    read = sum(x.numel() * x.element_size() for x in case.args)
    if case.gathers:
        read = size
    copies = Copies(size + read, (*case.args, out))
    ours: Callable[[], object] = lambda: f(*case.args, out=out)  # noqa: E731
    calls = {"pliant": ours, "torch": eager(case.module, case.args)} | copies.calls()
    times = interleave(calls, runs, warmup=3, limit=3.0)
    best = min(("copy", "memcpy", "stream"), key=lambda n: times[n].median)
    share = paired_ratio(times[best], times["pliant"])
    row: dict[str, str | float] = {"kernel": case.name, "ms": times["pliant"].median * 1e3}
    row |= {"x torch": paired_ratio(times["torch"], times["pliant"])}
    row |= {"copy by": best, "of copy": share}
    inside = in_l1(case, size + read, threads, runs) if case.computes else 0.0
    of_l1 = inside / times["pliant"].median
    return row | {"of L1": of_l1, "of limit": max(share, of_l1)}


def in_l1(case: Case, moved: int, threads: int, runs: int) -> float:
    """Seconds that the whole would take at the speed that rows in L1 have; 0 where none fit."""
    rows, width = case.args[0].shape
    columns = width  # fewer, until eight rows fit
    while case.by_element and columns > COLUMNS and L1_BYTES * rows * width < 8 * moved * columns:
        columns //= 2
    many = L1_BYTES * rows * width // (moved * columns)
    if many < 2:
        return 0.0
    counts = {"one": many // 2, "two": many // 2 * 2}
    calls: dict[str, Callable[[], object]] = {}
    for name, count in counts.items():
        args = case.few(count, columns)
        g = build(case.module, args, threads=threads)
        to = g(*args)
        calls[name] = lambda g=g, args=args, to=to: g(*args, out=to)  # type: ignore[misc]
    times = interleave(calls, runs * 3, warmup=20)
    slope = (times["two"].median - times["one"].median) / (counts["two"] - counts["one"])
    return max(slope, 0.0) * rows * width / columns


def chosen(words: Sequence[str]) -> list[Case]:
    """The cases whose name has one of the words; all where there are none."""
    return [c for c in cases() if not words or any(w in c.name for w in words)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", default=[])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    busy = contention()
    rows = [measure(c, options.threads, options.runs) for c in chosen(options.only)]
    report(rows, busy, options.json)


if __name__ == "__main__":
    main()
