"""Arguments that a primitive does not take: errors name step and argument, and what it takes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from pliant.base.errors import PliantError
from pliant.schedule.errors import NoPrimitiveError, SchedulingError
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.programs import chain, matmul, same

n, k = var("n"), var("k")
FACTOR = "argument factor must be an integer, or an expression of sizes, not"


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (lambda p: p.split("a_i", 2.5), f"split of a_i: {FACTOR} 2.5"),
        (lambda p: p.split("a_i", True), f"split of a_i: {FACTOR} True"),
        (lambda p: p.split("a_i", "4"), f"split of a_i: {FACTOR} '4'"),
        (lambda p: p.split(4, "a_i"), "split of a_i: argument loop must be a name, not 4"),
        (
            lambda p: p.split("a_i", 4, "maks"),
            "split of loop a_i: there is no tail 'maks'",
        ),
        (lambda p: p.split("a_i", by=4), "there is no argument by; it takes loop, factor, tail"),
        (lambda p: p.split("a_i"), "argument factor is missing; it takes loop, factor, tail"),
        (lambda p: p.split("a_i", 4, loop="a_i"), "argument loop is given twice; it takes loop"),
        (lambda p: p.split("a_i", 4, "mask", "mask"), "4 arguments are too many; it takes loop"),
        (lambda p: p.split("a_i", np.float32(4)), "cannot be an argument of a schedule step"),
        (lambda p: p.split("a_q", 4), "split of loop a_q: there is no such loop; there is a_"),
        (lambda p: p.split("a", 4), "split of loop a: there is no such loop; it is a block"),
        (lambda p: p.reorder("a_i", 3), "reorder of a_i: argument loops must be a name, not 3"),
        (lambda p: p.cache_read("a", "x", pad="0"), "argument pad must be a number, or None, not"),
        (lambda p: p.cache_read("a", "x", layout=3), "argument layout must be a sequence, each an"),
        (lambda p: p.compute_inline("a", keep=1), "argument keep must be True or False, not 1"),
    ],
)
def test_mistakes(step: Callable[[Program], Program], text: str) -> None:
    with pytest.raises(SchedulingError) as found:
        step(chain())
    assert text in str(found.value)


def test_primitives_that_there_are_not() -> None:
    with pytest.raises(PliantError, match="no schedule primitive 'splt'; there is split") as found:
        chain().splt("a_i", 4)
    again = pickle.loads(pickle.dumps(found.value))
    assert isinstance(again, NoPrimitiveError)
    assert str(again) == str(found.value)
    assert not hasattr(chain(), "splt")
    assert copy.copy(chain()).blocks == chain().blocks


def test_what_may_be_0_divides_nothing() -> None:
    """The interpreter and machine code would divide by it whatever it is."""
    p, at = matmul(), [var(f"_{d}") for d in range(2)]
    for step in (
        lambda: p.name_size("part", n // k),
        lambda: p.split("c_i", n // k + 1),
        lambda: p.loop_partition("c_i", n % k),
        lambda: p.cache_read("c", "a", layout=(at[0] // k, at[0] % k, at[1])),
        lambda: p.prefetch("c_r", "a", n // k),
        lambda: p.transform_block_layout("c", (at[0] // k, at[0] % k, at[1], var("_2"))),
    ):
        with pytest.raises(SchedulingError, match="divides by k, which is not known to be at lea"):
            step()
    q = p.name_size("part", n // (k + 1) + 1).split("c_i", n // (var("part")) + 1)
    same(p, q)
