"""What primitives of few conditions take and refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.schedule.sample import INLINE
from pliant.sym.expr import var
from tests.schedule.programs import chain, matmul, rows, same, softmax

Step = Callable[[Program], Program]
n, k = var("n"), var("k")


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (rows, lambda p: p.split("s_i", 3).unroll("s_i_1")),
        (matmul, lambda p: p.split("c_r", 4).unroll("c_r_1")),
        (matmul, lambda p: p.split("c_j", 3, tail="peel").unroll("c_j_1")),
        (rows, lambda p: _tiled(p.sample_partitioned_tile("t", "s_r", 3, 1, 4), "s_r")),
        (matmul, lambda p: _tiled(p.sample_partitioned_tile("t", "c_j", 3, 1, 6), "c_j")),
        (matmul, lambda p: _tiled(p.sample_partitioned_tile("t", "c_r", 3, 2, 2), "c_r")),
        (rows, lambda p: p.annotate("s_r", "a", 1).unannotate("s_r", "a").split("s_r", 3)),
        (chain, lambda p: p.annotate("b", "a", n).compute_inline("a").unannotate("b", "a")),
        (rows, lambda p: p.name_size("half", n // 2).split("s_i", var("half") + 1)),
    ],
)
def test_legal(make: Callable[[], Program], step: Step) -> None:
    same(make(), step(make()))


def _tiled(p: Program, loop: str) -> Program:
    """A loop split by the two factors that were just sampled."""
    outer, inner = p.chosen
    return p.split(loop, outer * inner).split(f"{loop}_1", inner, "exact")


@pytest.mark.parametrize(
    ("make", "step", "reason"),
    [
        (rows, lambda p: p.add_unit_loop("t"), "add_unit_loop of t: there is no such loop or bloc"),
        (rows, lambda p: p.split("s_i", 2).add_unit_loop("s_i"), "of s_i: there is no such loop"),
        (rows, lambda p: p.add_unit_loop("x"), "of x: there is no such loop or block"),
        (chain, lambda p: p.compute_inline("a").add_unit_loop("a"), "of a: there is no such loop"),
        (rows, lambda p: p.unroll("t"), "loop t: there is no such loop"),
        (rows, lambda p: p.parallel("s_i").unroll("s_i"), "it is parallel already"),
        (rows, lambda p: p.unroll("s_i"), "loop s_i: its extent n is not a number"),
        (
            chain, lambda p: p.sample_compute_location("v", "z"),
            "block z: there is no such block",
        ),
        (
            chain, lambda p: p.sample_compute_location("n", "a"),
            "sample_compute_location of n: the name is taken",
        ),
        (
            softmax, lambda p: p.sample_compute_location("v", "s", default=INLINE),
            f"{INLINE} is no place for block s: compute_inline of block s: ",
        ),
        (
            chain, lambda p: p.sample_compute_location("v", "b", default="a_i"),
            "a_i is no place for block b: compute_at of block b: ",
        ),
        (rows, lambda p: p.name_size("2n", n * 2), "size 2n: this is no name, or one in use"),
        (rows, lambda p: p.name_size("k", n + 1), "size k: this is no name, or one in use"),
        (rows, lambda p: p.name_size("t", var("z") + 1), "z [+] 1 mentions z, which are not sizes"),
        (rows, lambda p: p.unannotate("t", "a"), "unannotate of t: there is no such loop or block"),
        (chain, lambda p: p.shrink_buffer("x"), "buffer x: it is a parameter"),
        (chain, lambda p: p.compute_inline("a").shrink_buffer("a"), "there is no such buffer"),
        (
            chain, lambda p: p.split("a_i", 2).sample_partitioned_tile("v", "a_i", 2, 1, 4),
            "loop a_i: there is no such loop",
        ),
    ],
)  # fmt: skip
def test_illegal(make: Callable[[], Program], step: Step, reason: str) -> None:
    with pytest.raises(SchedulingError, match=reason):
        step(make())
