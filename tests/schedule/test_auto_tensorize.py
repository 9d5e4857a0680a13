"""Bare expressions reach intrinsics: by which mapping, with which results, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from bench.kernel_calls import Kernel
from pliant.base.dtypes import DType, bf16, f32, i8, i32, u8
from pliant.codegen.build import micro_kernel
from pliant.codegen.llvm.target import target
from pliant.ir.expr import Load
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.loop.stmt import Function, Invoke, Store, buffer, for_, statements
from pliant.schedule.auto_tensorize import auto_tensorize, mappings_to
from pliant.schedule.errors import SchedulingError
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.sym.expr import IntLike, var
from tests.schedule.programs import same
from tests.schedule.workloads import BF16, DEPTHWISE, F32, INT8, WORKLOADS, Types, Workload

MM = MatmulIntrinsic("mm_3x4", 3, 4, 2)
n, m, k = var("n"), var("m"), var("k")


def product_tile(name: str, t: Types, rows: IntLike, columns: int, depth: int) -> Intrinsic:
    """c[i, j] += a[i, k] * b[k, j], in the type of the sum."""
    a, b = buffer("a", (rows, depth), t.a), buffer("b", (depth, columns), t.b)
    c = buffer("c", (rows, columns), t.sum, strides=(var("ldc"), 1))
    i, j, r = var("i"), var("j"), var("r")
    value = c[i, j] + a[i, r].cast(t.sum) * b[r, j].cast(t.sum)
    body = for_([("i", rows), ("j", columns), ("r", depth)], Store(c, c[i, j].indices, value))
    return Intrinsic(name, Function(name, (a, b, c), ("ldc",), body))


def dot(name: str, t: Types, columns: int, depth: int) -> Intrinsic:
    """c[j] += sum over k of a[k] * b[j, k]: what the dot product instructions do."""
    a, b = buffer("a", (depth,), t.a), buffer("b", (columns, depth), t.b)
    c = buffer("c", (columns,), t.sum)
    j, r = var("j"), var("r")
    value = c[j] + a[r].cast(t.sum) * b[j, r].cast(t.sum)
    return Intrinsic(
        name, Function(name, (a, b, c), (), for_([("j", columns), ("r", depth)], Store(c, c[j].indices, value)))
    )


def lanes(columns: int) -> Intrinsic:
    """c[j] += a[j] * b[j]: a vector's multiply and add."""
    a, b, c = (buffer(x, (columns,), f32) for x in "abc")
    j = var("j")
    body = for_([("j", columns)], Store(c, c[j].indices, c[j] + a[j] * b[j]))
    return Intrinsic("fma", Function("fma", (a, b, c), (), body))


def bare(w: Workload, *intrinsics: Intrinsic, **known: int) -> Program:
    return program(w.function(**known), intrinsics=intrinsics or MM.intrinsics)


def groups(p: Program, block: str, intrinsic: str) -> str:
    """The best mapping, without the block's name."""
    best = mappings_to(p, block, intrinsic).best
    assert best is not None
    return str(best).replace(f"{block}_v", "")
