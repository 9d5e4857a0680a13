"""Bare expressions through auto-tensorisation, beside the recipe for contractions.

    PYTHONPATH=src:. python bench/tensorize.py [--runs N] [--check N] [--types f32 bf16 u8s8]
                                               [--only WORD] [--json FILE]

For every workload: the mapping that was found from the expression alone, the intrinsic, and how
many times as long the compiled recipe takes (`x recipe`: above 1, the bare kernel is faster). Both
get both operands in every call, so that packing counts, and run on one thread. The recipe's side
includes a call from Python. `--check N` compares results with torch instead, at N random shapes,
each with sizes at run time and with constant ones, in each of the types, and says which intrinsic
each reached.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import nn

from bench.kernel_calls import Kernel
from bench.timing import build, compare, contention, report
from pliant.base.dtypes import u8
from pliant.codegen.build import target_matmuls
from pliant.codegen.llvm.target import target
from pliant.loop.stmt import Function
from pliant.schedule.auto_tensorize import auto_tensorize, groups_apart, mappings_to
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from tests.schedule.workloads import (
    BF16,
    F32,
    INT8,
    WORKLOADS,
    Make,
    Types,
    Workload,
    products,
    windows,
)

SIZES = {1: (4, 4000), 2: (2, 56, 56), 3: (1, 12, 28, 28)}  # batch and space of a window
MATRICES = (512, 512, 512)
TYPES = {"f32": F32, "bf16": BF16, "u8s8": INT8}


class Apply(nn.Module):
    """A workload as a module."""

    def __init__(self, w: Workload) -> None:
        super().__init__()
        self.w = w

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.w.reference(x, y)


def bare(w: Workload, t: Types = F32, **known: int) -> tuple[Program, MatmulIntrinsic]:
    """The unscheduled program, and the micro-kernel of this machine for the types."""
    wanted = t.a, t.b, t.sum
    mm = next(x for x in target_matmuls(target()) if (x.a, x.b, x.c) == wanted)
    return program(w.function(**known), intrinsics=mm.intrinsics), mm


def tensorized(w: Workload, t: Types, **known: int) -> tuple[Function, MatmulIntrinsic]:
    """The program that calls the micro-kernel."""
    p, mm = bare(w, t, **known)
    return auto_tensorize(p, w.result.name, [mm.plain]).function, mm


def mapping_of(p: Program, block: str, intrinsic: str) -> str:
    """The best mapping, perhaps after groups were split off."""
    best = mappings_to(p, block, intrinsic).best
    apart = groups_apart(p, block)
    if best is None and apart is not None:
        best = mappings_to(apart, block, intrinsic).best
    return str(best).replace(f"{block}_v", "")


def tensors(w: Workload, sizes: dict[str, int]) -> list[torch.Tensor]:
    """Operands of small whole numbers, whose sums are exact, as f32."""
    least = [0 if i.dtype is u8 else -4 for i in w.inputs]
    shapes = [[d.eval(sizes) for d in i.dims] for i in w.inputs]
    return [torch.randint(a, a + 9, s).float() for a, s in zip(least, shapes, strict=True)]


def time(name: str, w: Workload, runs: int) -> dict[str, object]:
    """One row of the table."""
    sizes = sizes_of(w)
    f, mm = tensorized(w, F32)
    kernel = Kernel(f, target())
    args = tensors(w, sizes)
    arrays, numbers = [a.numpy() for a in args], [sizes[s] for s in w.sizes]
    out = np.empty([d.eval(sizes) for d in w.result.shape], np.float32)
    recipe = build(Apply(w), tuple(args), threads=1)
    to = torch.empty_like(recipe(*args))
    kernel([*arrays, out], numbers)
    assert np.array_equal(out, to.copy_(recipe(*args)).numpy())
    calls = {
        "bare": lambda: kernel([*arrays, out], numbers),
        "recipe": lambda: recipe(*args, out=to),
    }
    mapping = mapping_of(bare(w)[0], w.result.name, mm.plain)
    return {"workload": name, "mapping": mapping, "intrinsic": mm.symbol} | compare(
        calls, "bare", runs
    )


def sizes_of(w: Workload) -> dict[str, int]:
    if w.result.name == "c":
        values = (8, *(x // 2 for x in MATRICES)) if "b" in w.sizes else MATRICES
    else:
        values = SIZES[len(w.sizes) - 1]
    return dict(zip(w.sizes, values, strict=True))


def check(name: str, make: Make, t: Types, count: int) -> str:
    """Compare with torch at random shapes, with sizes at run time and constant ones; the intrinsic
    that was reached."""
    w, random = make(t), Random(name)
    f, mm = tensorized(w, t)
    symbolic = Kernel(f, target())
    for _ in range(count):
        most = 70 if w.result.name == "c" else 20 if len(w.sizes) < 4 else 9
        sizes = {s: random.randint(1, 3 if s == "b" else most) for s in w.sizes}
        args = tensors(w, sizes)
        expected = w.reference(*args).numpy()
        shape = [d.eval(sizes) for d in w.result.shape]
        constant = Kernel(tensorized(w, t, **sizes)[0], target())
        given = [
            a.contiguous().numpy().astype(i.dtype.numpy)
            for a, i in zip(args, w.inputs, strict=True)
        ]
        for kernel, numbers in ((symbolic, [sizes[s] for s in w.sizes]), (constant, [])):
            out = np.full(shape, 77, t.sum.numpy)
            kernel([*given, out], numbers)
            np.testing.assert_array_equal(out, expected, err_msg=f"{name} {sizes}")
    return mm.symbol


def main() -> None:
    """Print the table, or check results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--check", type=int, default=0)
    parser.add_argument("--types", nargs="+", choices=list(TYPES), default=list(TYPES))
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check:
        for types, (name, make) in itertools.product(options.types, WORKLOADS.items()):
            if options.only in name:
                reached = check(name, make, TYPES[types], options.check)
                what = f"{options.check} shapes, at run time and constant"
                print(f"{types} {name}: {reached}, {what}", flush=True)
        return
    busy, rows = contention(), []
    for name, make in (products() | windows(16, 64, 64)).items():
        if options.only in name:
            rows.append(time(name, make(F32), options.runs))
    report(rows, busy, options.json)


if __name__ == "__main__":
    main()
