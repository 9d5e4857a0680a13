"""Running programs with bound loops as a device would: with threads, in random orders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pliant.ir.tensor import compute
from pliant.loop.from_tensor import unscheduled
from pliant.loop.interpret import Callee, Order, interpret
from pliant.loop.interpret_threads import interpret_threads
from pliant.loop.launch import Limits
from pliant.loop.lower_pipeline import lower_pipelines
from pliant.loop.lower_threads import lower_threads
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.stmt import Function
from pliant.loop.verify import verify_function
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import SIZES_OF, k, matmul, n, softmax, stencil, x2

TILE, PART, STEP = 8, 2, 4  # of a product: rows and columns of a block, of a thread; a k step
LANES = 4  # threads of a row


def staged_matmul() -> Program:
    """A product with tiles of both operands in shared memory and a tile of the result in each
    thread; nothing is bound yet but what is fetched together."""
    p = matmul().cache_write("c", "local")
    p = p.split("c_i", TILE).split("c_i_1", PART).split("c_j", TILE).split("c_j_1", PART)
    p = p.split("c_r", STEP)
    p = p.reorder("c_i_0", "c_j_0", "c_r_0", "c_i_1_0", "c_j_1_0", "c_r_1", "c_i_1_1", "c_j_1_1")
    p = p.reverse_compute_at("c_store", "c_j_0").decompose_reduction("c", "c_r_0")
    p = p.cache_read("c", "a", "shared").cache_read("c", "b", "shared")
    p = p.compute_at("a_cache", "c_r_0").compute_at("b_cache", "c_r_0")
    for memory in ("a_cache", "b_cache", "c_local"):
        p = p.shrink_buffer(memory)
    for fetch in ("a_cache", "b_cache"):
        p = p.fuse(*p.loops(fetch)[-2:])
        p = p.split(*p.made, (TILE // PART) ** 2)
        p = p.split(p.made[1], TILE // PART)
        p = p.bind(p.made[0], "threadIdx.y").bind(p.made[1], "threadIdx.x")
    p = p.split("c_store_0", PART).split("c_store_1", PART)
    return p.reorder("c_store_0_0", "c_store_1_0", "c_store_0_1", "c_store_1_1")


def device_matmul() -> Program:
    """The same on blocks of threads."""
    p = staged_matmul()
    for block, at in (("c_init", 2), ("c", 3), ("c_store", 2)):
        rows, columns = p.loops(block)[at : at + 2]
        p = p.bind(rows, "threadIdx.y").bind(columns, "threadIdx.x")
    return p.bind("c_i_0", "blockIdx.y").bind("c_j_0", "blockIdx.x")


def row_softmax() -> Program:
    """Softmax with all that is done for a row in one loop, columns in steps of LANES."""
    p = softmax().compute_inline("e").merge("m_i", "s_i").merge("m_i", "y_i")
    for block in ("m", "s", "y"):
        p = p.split(p.loops(block)[-1], LANES)
    for memory in ("m", "s"):
        p = p.set_scope(memory, "shared").shrink_buffer(memory)
    return p


def device_softmax() -> Program:
    """A block of threads for each row, which reduce together."""
    p = row_softmax()
    for block in ("m", "s", "y"):
        p = p.bind(p.loops(block)[-1], "threadIdx.x")
    return p.bind("m_i", "blockIdx.x")


def halo_stencil() -> Program:
    """Three-point sums in tiles, from a tile of the input with one more at each end."""
    p = stencil().split("u_i", TILE).set_scope("t", "shared").compute_at("t", "u_i_0")
    p = p.shrink_buffer("t")
    return p.split(p.loops("t")[-1], TILE)


def device_stencil() -> Program:
    """The same on blocks of threads."""
    p = halo_stencil()
    p = p.bind(p.loops("t")[-1], "threadIdx.x").bind("u_i_1", "threadIdx.x")
    return p.bind("u_i_0", "blockIdx.x")


def transposition() -> Program:
    """y[i, j] = x[j, i]."""
    y = compute((k, n), lambda i, j: x2[j, i], "y")
    return program(unscheduled("transposition", [y], [x2], ["n", "k"]))


def staged_transposition() -> Program:
    """By tiles that are read by rows, and written by rows of the result."""
    p = transposition().cache_read("y", "x", "shared")
    p = p.split("y_i", TILE).split("y_j", TILE).reorder("y_i_0", "y_j_0", "y_i_1", "y_j_1")
    return p.compute_at("x_cache", "y_j_0").shrink_buffer("x_cache")


def device_transposition() -> Program:
    """The same on blocks of threads."""
    p = staged_transposition()
    for block in ("x_cache", "y"):
        rows, columns = p.loops(block)[-2:]
        p = p.bind(rows, "threadIdx.y").bind(columns, "threadIdx.x")
    return p.bind("y_i_0", "blockIdx.y").bind("y_j_0", "blockIdx.x")


# Programs on which threads share work, with what they compute.
STAGED = {
    "matmul": (matmul, staged_matmul),
    "softmax": (softmax, row_softmax),
    "stencil": (stencil, halo_stencil),
    "transposition": (transposition, staged_transposition),
}


def shuffled(seed: int) -> Order:
    """An order of iterations: another one each time it is asked."""
    rng = random.Random(seed)

    def order(of: range) -> Iterable[int]:
        return rng.sample(of, len(of))

    return order


def device(p: Program, limits: Limits | None = None) -> Function:
    """The device form, which is well formed and round-trips."""
    lowered = lower_threads(lower_pipelines(p.function, p.facts, p.invoked), p.facts, limits=limits)
    verify_function(lowered)
    assert parse_function(function_text(lowered)) is lowered
    return lowered


def same_on_device(
    p: Program, q: Program, cases: Sequence[Sequence[int]] | None = None
) -> Function:
    """The device form of `q` computes what `p` does, in several orders of threads and blocks, with
    no race."""
    lowered = device(q)
    agree(p, lowered, interpret_threads, cases)
    return lowered


def same_pipelined(
    p: Program,
    q: Program,
    cases: Sequence[Sequence[int]] | None = None,
    callees: dict[str, Callee] | None = None,
) -> Function:
    """The loops of `q` that are noted, with prologue, steady state and epilogue, compute what `p`
    does."""
    lowered = lower_pipelines(q.function, q.facts, q.invoked)
    verify_function(lowered)
    agree(p, lowered, partial(interpret, callees=callees), cases)
    return lowered


def agree(p: Program, lowered: Function, run: Any, cases: Sequence[Sequence[int]] | None) -> None:
    """`run` of `lowered` gives what the interpreter gives of `p`."""
    for sizes in cases or SIZES_OF[len(p.function.sizes)]:
        rng = np.random.default_rng(sum(sizes))
        given = dict(zip(p.function.sizes, sizes, strict=True))
        arrays = []
        for b in p.function.buffers:
            shape = [d.eval(given) for d in b.shape]
            arrays.append(rng.integers(-4, 5, shape).astype(b.dtype.numpy))
        expected = [a.copy() for a in arrays]
        interpret(p.function, expected, given)
        for order in (iter, reversed, shuffled(1)):
            got = [a.copy() for a in arrays]
            run(lowered, got, given, order=order)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(given))
