"""Running programs with bound loops as a device would: with threads, in random orders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pliant.loop.interpret import Order, interpret
from pliant.loop.interpret_threads import interpret_threads
from pliant.loop.lower_pipeline import lower_pipelines
from pliant.loop.lower_threads import Limits, lower_threads
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.stmt import Function
from pliant.loop.verify import verify_function
from pliant.schedule.program import Program
from tests.schedule.programs import SIZES_OF


def shuffled(seed: int) -> Order:
    """An order of iterations: another one each time it is asked."""
    rng = random.Random(seed)

    def order(of: range) -> Iterable[int]:
        return rng.sample(of, len(of))

    return order


def device(p: Program, limits: Limits | None = None) -> Function:
    """The device form, which is well formed and round-trips."""
    lowered = lower_threads(lower_pipelines(p.function, p.facts), p.facts, limits=limits)
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
    p: Program, q: Program, cases: Sequence[Sequence[int]] | None = None
) -> Function:
    """The loops of `q` that are noted, with prologue, steady state and epilogue, compute what `p`
    does."""
    lowered = lower_pipelines(q.function, q.facts)
    verify_function(lowered)
    agree(p, lowered, interpret, cases)
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
