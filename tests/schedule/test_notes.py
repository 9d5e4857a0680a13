"""What changes nothing that runs: reorder_block_iter_var, annotate, unannotate."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.sym.expr import var
from tests.schedule.programs import best, chain, matmul, outline, rows, running, same

n, k = var("n"), var("k")


def test_reorder_block_iter_var() -> None:
    p = matmul()
    q = p.reorder_block_iter_var("c", (2, 0, 1))
    assert "c(c_r, c_i, c_j)" in outline(q)
    assert q.loops("c") == p.loops("c")
    same(p, q)
    same(p, q.split("c_r", 4).rfactor("c_r_1"))
    assert "scratch a_reindex[k, n]" in outline(q.reindex("c", "a"))
    same(p, q.reindex("c", "a").parallel("c_i"))
    assert q.reorder_block_iter_var("c", (1, 2, 0)).function is p.function
    for p, block in [(running(), "y"), (best(), "p")]:
        same(p, p.reorder_block_iter_var(block, [1, 0]))


@pytest.mark.parametrize("order", [(0, 1), (0, 0, 1), (0, 1, 3), (), (0, 1, 2, 3)])
def test_reorder_block_iter_var_refuses(order: tuple[int, ...]) -> None:
    with pytest.raises(SchedulingError, match="is no order of its 3 iterators"):
        matmul().reorder_block_iter_var("c", order)


def test_notes_stay() -> None:
    p = chain()
    q = p.annotate("b", "use", "tile").annotate("b_i", "depth", (1, 2.5, True, None, n // 2))
    q = q.annotate("b_j", "x", 1).annotate("b_j", "x", 2)
    assert dict(q.block("b").notes) == {"use": "tile"}
    assert dict(q.loop("b_i").notes) == {"depth": (1, 2.5, True, None, n // 2)}
    assert dict(q.loop("b_j").notes) == {"x": 2}
    assert "notes={'depth': (1, 2.5, True, None, n//2)}" in function_text(q.function).replace(
        '"', "'"
    )
    same(p, q)
    r = q.reorder("b_j", "b_i").parallel("b_i", grain=3).split("y_i", 4).compute_at("a", "b_j")
    r = r.reorder_block_iter_var("b", (1, 0))
    assert dict(r.block("b").notes) == {"use": "tile"}
    assert dict(r.loop("b_i").notes) == {"depth": (1, 2.5, True, None, n // 2), "grain": 3}
    same(p, r)
    s = r.split("b_j", 4).transform_layout("b", (var("_1"), var("_0")))
    assert dict(s.block("b").notes) == {"use": "tile"}
    same(p, s)
    moved = q.split("y_i", 4).compute_at("b", "y_i_0")
    assert dict(moved.block("b").notes) == {"use": "tile"}


def test_unannotate() -> None:
    p = rows()
    q = p.annotate("s", "a", 1).annotate("s_i", "b", 1).unannotate("s", "a").unannotate("s_i", "b")
    assert q.function is p.function
    same(p, q)


def test_annotate_refuses() -> None:
    def refused(step: str, reason: str, *args: object) -> None:
        with pytest.raises(SchedulingError, match=reason):
            getattr(rows(), step)(*args)

    refused("annotate", "there is no such loop or block", "z", "a", 1)
    refused("annotate", "'grain' is the business of parallel", "s_i", "grain", 4)
    refused("annotate", "mentions s_i, which are not sizes", "s_r", "a", (var("s_i"), 1))
    refused("unannotate", "it has no note 'a'", "s_i", "a")
    refused("unannotate", "'grain' is the business of parallel", "s_i", "grain")
    with pytest.raises(SchedulingError, match="cannot be an argument of a schedule step"):
        rows().annotate("s", "a", object())
    same_name = program(
        parse_function("""
@loop
def f(y: f32["n"], n: i64):
    for t in grid(n):
        with block("t", S(t, n)) as (i,):
            y[i] = 1.0
""")
    )
    with pytest.raises(SchedulingError, match="a loop and a block have that name"):
        same_name.annotate("t", "a", 1)
