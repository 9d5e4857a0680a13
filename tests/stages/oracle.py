"""A compilation run by the interpreters: every graph stage, then kernels and host functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pliant.codegen.build import kernel_program, target_factors
from pliant.codegen.llvm.target import Target
from pliant.codegen.micro_kernels import micro_kernel
from pliant.graph.function import Function, Module
from pliant.graph.interpret import bind_sizes, interpret
from pliant.loop import interpret as loops
from pliant.loop.stmt import Function as LoopFunction
from pliant.lower.function import Lowered, lower_function
from pliant.ops.table import OPERATORS
from pliant.schedule.recipes.square import squares

Arrays = dict[str, np.ndarray]


@dataclass
class Stages:
    """What every stage of a compilation has made."""

    function: Function
    weights: Arrays
    graph: dict[str, Module] = field(default_factory=dict)
    parts: list[Lowered] = field(default_factory=list)
    prepared: tuple[str, ...] = ()
    kernels: dict[str, LoopFunction] = field(default_factory=dict)


def stages_of(function: Function, weights: Arrays, t: Target, *, programs: bool = True) -> Stages:
    """Lower a function and keep all stages, or the graph stages only."""
    out = Stages(function, weights)

    def watch(stage: str, functions: Callable[[], Sequence[Any]]) -> None:
        out.graph[stage] = Module({f.name: f for f in functions()}, weights)

    split = lower_function(
        function, OPERATORS, micro_kernel(t).columns, factors=target_factors(t),
        lanes=t.lanes(32), watch=watch,
    )  # fmt: skip
    out.parts = [p for p in (split.prepare, split.main) if p is not None]
    out.prepared = split.prepared
    for part in out.parts if programs else ():
        out.kernels |= {s: kernel_program(s, spec, t) for s, spec in part.kernels.items()}
    return out


def run_opaque(program: Any, arrays: list[Any], sizes: Mapping[str, int]) -> None:
    loops.interpret(program, arrays, sizes)


def run_graph(function: Function, weights: Arrays, inputs: Arrays) -> list[np.ndarray]:
    """The results of a graph function."""
    found = interpret(function, weights, inputs, OPERATORS, run_opaque)
    return [np.asarray(a) for a in found]


def run_programs(stages: Stages, inputs: Arrays, t: Target) -> list[np.ndarray]:
    """The results of the host functions, which call the kernels."""
    mk = micro_kernel(t)
    turned = {i.callee: i.semantics for i in squares(t.lanes(32))}
    callees: dict[str, loops.Callee] = {mk.symbol: _micro_kernel, **turned, **stages.kernels}
    weights = {v.name: stages.weights[key] for v, key in stages.function.weights}
    sizes = bind_sizes(stages.function, {n: a.shape for n, a in inputs.items()})
    results: list[np.ndarray] = []
    for k, part in enumerate(stages.parts):
        given = inputs if k == len(stages.parts) - 1 else {}
        arrays = [*given.values(), *(weights[n] for n in part.weights)]
        arrays += [np.array(a.shape, np.int64) for a in given.values()]
        outputs: Arrays = {}
        loops.interpret(part.host, [a.copy() for a in arrays], sizes, callees, outputs=outputs)
        results = [outputs[f"output{j}"] for j in range(len(outputs))]
        if part is not stages.parts[-1]:
            weights |= dict(zip(stages.prepared, results, strict=True))
    return results


def _micro_kernel(
    a: np.ndarray, offsets: np.ndarray, zeros: np.ndarray, b: np.ndarray, c: np.ndarray,
    m: int, positions: int, depth: int, ldc: int, turn: int,
) -> None:  # fmt: skip
    """c[i, j] = sum over p, k of a[offsets[p, i] + k] * b[p, k, j]; see codegen/microkernel."""
    for i in range(m):
        total = np.zeros(ldc, np.float32)
        for p in range(positions):
            start = int(offsets[p * m + i])
            row = zeros[:depth] if start < 0 else a[start : start + depth]
            total += row @ b[p * depth * ldc : (p + 1) * depth * ldc].reshape(depth, ldc)
        c[i * ldc : (i + 1) * ldc] = total
