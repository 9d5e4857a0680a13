"""Bare expressions through auto-tensorisation, beside the recipes for them.

    PYTHONPATH=src:. python bench/tensorize.py [--runs N] [--check N] [--types f32 bf16 u8s8]
                                               [--only WORD] [--json FILE]

For every workload and type: the mapping that was found from the expression alone, the intrinsic,
and how many times as long the recipe takes (`x least` and `x mean` of five shapes: above 1, the
bare kernel is faster). Both are compiled once, for sizes at run time; both get both operands in
every call, so that packing counts, run on one thread, and are called from Python. `--check N`
compares results with torch instead, at N random shapes, each with sizes at run time and with
constant ones, in each of the types, and says which intrinsic each reached.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import nn

import pliant
from bench.kernel_calls import Kernel
from bench.timing import compare, contention, geometric_mean, message, report
from pliant.base.dtypes import bf16, f32, i8, i32, u8
from pliant.codegen.build import target_intrinsics, target_matmuls
from pliant.codegen.llvm.square import is_square
from pliant.codegen.llvm.target import target
from pliant.loop.stmt import Invoke, statements
from pliant.runtime.callable import Compiled
from pliant.schedule.auto_tensorize import (
    auto_tensorize,
    groups_apart,
    mappings_to,
    phases_alone,
)
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.multiply_add import multiply_add_names
from tests.schedule.workloads import (
    BF16,
    F32,
    INT8,
    WORKLOADS,
    Make,
    Types,
    Workload,
    depthwise,
    products,
    windows,
)

# Batch and space of a window; rows, columns and depth of a product, after a batch.
SPACES = {
    1: ((4, 4000), (1, 1000), (2, 333), (8, 128), (1, 16001)),
    2: ((2, 56, 56), (4, 28, 28), (8, 14, 14), (8, 7, 7), (1, 113, 97)),
    3: ((1, 12, 28, 28), (2, 8, 14, 14), (4, 4, 7, 7), (1, 5, 17, 19), (1, 8, 56, 56)),
}
MATRICES = ((512, 512, 512), (128, 1536, 384), (196, 768, 768), (1000, 129, 257), (64, 256, 1024))
BATCHED = (
    (8, 256, 256, 256), (12, 128, 128, 64), (12, 128, 64, 128), (5, 197, 61, 67), (2, 512, 512, 512)
)  # fmt: skip
TORCH = {f32: torch.float32, bf16: torch.bfloat16, u8: torch.uint8, i8: torch.int8}
TYPES = {"f32": F32, "bf16": BF16, "u8s8": INT8}


class Apply(nn.Module):
    """A workload as a module: products of what is wide enough for their sum."""

    def __init__(self, w: Workload, t: Types) -> None:
        super().__init__()
        self.w = w
        self.wide = torch.int32 if t.sum is i32 else torch.float32

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.w.reference(x.to(self.wide), y.to(self.wide))


def bare(w: Workload, t: Types = F32, **known: int) -> tuple[Program, tuple[str, ...]]:
    """The unscheduled program, and the intrinsics of this machine for the types: the micro-kernel,
    then what adds products in the lanes of a vector."""
    wanted, here = (t.a, t.b, t.sum), target()
    mm = next(x for x in target_matmuls(here) if (x.a, x.b, x.c) == wanted)
    names = mm.plain, *multiply_add_names(t.a, t.b, here.lanes(32))
    return program(w.function(**known), intrinsics=target_intrinsics(here)), names


def tensorized(w: Workload, t: Types, **known: int) -> Program:
    """The program that calls one of these."""
    p, names = bare(w, t, **known)
    return auto_tensorize(p, w.result.name, names)


def reached(p: Program) -> str:
    """The intrinsic that a program calls, besides those that copy."""
    calls = {s.callee for s in statements(p.function.body) if isinstance(s, Invoke)}
    (callee,) = (c for c in calls if not is_square(c))
    return callee


def mapping_of(w: Workload, t: Types, callee: str) -> str:
    """The best mapping to what is called, perhaps after groups were split off, or of the last of
    several phases; to lanes, which are one iterator, the best such."""
    (p, names), block = bare(w, t), w.result.name
    known = next(p.intrinsics[n] for n in names if p.intrinsics[n].callee == callee)
    phases = None if known.inside else phases_alone(p, block, known.name)
    if phases is not None:
        p, blocks = phases
        best = mappings_to(p, blocks[-1], known.name).best
        return f"{len(blocks)} phases, {best}".replace(f"{blocks[-1]}_v", "")
    maps = mappings_to(p, block, known.name).maps
    apart = groups_apart(p, block)
    if not maps and apart is not None:
        maps = mappings_to(apart, block, known.name).maps
    fit = [m for m in maps if not known.inside or all(len(g) == 1 for g in m.groups.values())]
    return str(fit[0]).replace(f"{block}_v", "")


def tensors(w: Workload, sizes: dict[str, int]) -> list[torch.Tensor]:
    """Operands of small whole numbers, whose sums are exact."""
    out = []
    for i in w.inputs:
        least = 0 if i.dtype is u8 else -4
        x = torch.randint(least, least + 9, [d.eval(sizes) for d in i.dims])
        out.append(x.to(TORCH[i.dtype]))
    return out


def as_array(x: torch.Tensor) -> np.ndarray:
    """Its values as they lie in memory, rows first."""
    x = x.contiguous()
    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).numpy().view(bf16.numpy)
    return x.numpy()


def recipe(w: Workload, t: Types, example: dict[str, int]) -> Compiled:
    """The workload as a model, with the sizes as its dims."""
    dims = tuple({d: str(x) for d, x in enumerate(i.dims) if x.names} for i in w.inputs)
    args = tuple(tensors(w, example))
    precision = "bf16" if t is BF16 else None
    return pliant.compile(Apply(w, t), args, dynamic_shapes=dims, precision=precision, threads=1)


def time(name: str, w: Workload, t: Types, runs: int) -> dict[str, object]:
    """One row of the table."""
    shapes = [dict(zip(w.sizes, s, strict=True)) for s in shapes_of(w)]
    p = tensorized(w, t)
    ours, other = pliant.compile(p, threads=1), recipe(w, t, shapes[0])
    ratios = []
    for sizes in shapes:
        args = tensors(w, sizes)
        y, z = ours(*args), other(*args)
        assert torch.equal(y, z)
        calls = {
            "bare": lambda g=args, o=y: ours(*g, out=o),  # type: ignore[misc]
            "recipe": lambda g=args, o=z: other(*g, out=o),  # type: ignore[misc]
        }
        ratios.append(compare(calls, "bare", runs)["x recipe"])
    callee = reached(p)
    row = {"workload": name, "mapping": mapping_of(w, t, callee), "intrinsic": callee}
    return row | {"x least": min(ratios), "x mean": geometric_mean(ratios)}


def shapes_of(w: Workload) -> tuple[tuple[int, ...], ...]:
    if w.result.name == "c":
        return BATCHED if "b" in w.sizes else MATRICES
    return SPACES[len(w.sizes) - 1]


def check(name: str, make: Make, t: Types, count: int) -> str:
    """Compare with torch at random shapes, with sizes at run time and constant ones; the intrinsic
    that was reached."""
    w, random = make(t), Random(name)
    p = tensorized(w, t)
    symbolic = Kernel(p.function, target())
    for _ in range(count):
        most = 70 if w.result.name == "c" else 20 if len(w.sizes) < 4 else 9
        sizes = {s: random.randint(1, 3 if s == "b" else most) for s in w.sizes}
        args = tensors(w, sizes)
        expected = w.reference(*(a.float() for a in args)).numpy()
        shape = [d.eval(sizes) for d in w.result.shape]
        constant = Kernel(tensorized(w, t, **sizes).function, target())
        given = [as_array(a) for a in args]
        for kernel, numbers in ((symbolic, [sizes[s] for s in w.sizes]), (constant, [])):
            out = np.full(shape, 77, t.sum.numpy)
            kernel([*given, out], numbers)
            np.testing.assert_array_equal(out, expected, err_msg=f"{name} {sizes}")
    return reached(p)


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
        for types, (name, make) in itertools.product(
            options.types, (WORKLOADS | depthwise(19)).items()
        ):
            if options.only in name:
                reached = check(name, make, TYPES[types], options.check)
                what = f"{options.check} shapes, at run time and constant"
                print(f"{types} {name}: {reached}, {what}", flush=True)
        return
    busy, rows, workloads = contention(), [], products() | windows(16, 64, 64) | depthwise(64)
    for types, (name, make) in itertools.product(options.types, workloads.items()):
        if options.only in name:
            message(f"{types} {name}")
            rows.append(time(f"{types} {name}", make(TYPES[types]), TYPES[types], options.runs))
    report(rows, busy, options.json)


if __name__ == "__main__":
    main()
