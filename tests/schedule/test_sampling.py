"""Decisions: defaults, variables in later steps, replay with others, drawing, changing."""

from __future__ import annotations

from random import Random

import pytest

from pliant.schedule.errors import SchedulingError
from pliant.schedule.explore import at_random, changed, decide, space_at
from pliant.schedule.program import Program, replay
from pliant.schedule.sample import INLINE, STAY
from pliant.schedule.space import Choice, Tiles
from pliant.schedule.trace import Decided, Step, parse_trace, print_trace
from pliant.sym.expr import ceildiv, var
from tests.schedule.programs import chain, matmul, outline, rows, same


def tuned() -> Program:
    """A product in sampled tiles, the column tile a multiple of the row tile."""
    p = matmul().sample_categorical("height", (1, 2, 4), default=2)
    (height,) = p.chosen
    p = p.sample_categorical("tail", ("mask", "peel", "clip"), default="mask")
    p = p.split("c_i", height, p.chosen[0])
    p = p.split("c_j", height * 2)
    return p.reorder(p.made[0], "c_i_1") if "c_i_1" in p.loops("c") else p


def test_variables_flow_into_later_steps_and_print() -> None:
    p = tuned()
    text = print_trace(p.trace)
    assert text == (
        "p = p.sample_categorical('height', (1, 2, 4), default=2)\n"
        "p = p.sample_categorical('tail', ('mask', 'peel', 'clip'), default='mask')\n"
        "p = p.split('c_i', sym('height'), decided('tail'))\n"
        "p = p.split('c_j', sym('2*height'))\n"
        "p = p.reorder('c_j_0', 'c_i_1')\n"
    )
    assert parse_trace(text) == p.trace
    assert p.loop("c_j_1").extent == 4
    assert p.decisions == {"height": 2, "tail": "mask"}
    same(matmul(), p)


def test_a_decision_is_replaced_and_the_rest_replayed() -> None:
    trace = decide(tuned().trace, height=4)
    q = replay(trace, matmul())
    assert (q.loop("c_i_1").extent, q.loop("c_j_1").extent) == (4, 8)
    assert "default=2, decision=4" in print_trace(trace)
    same(matmul(), q)
    q = replay(decide(trace, tail="clip"), matmul())
    same(matmul(), q)
    with pytest.raises(SchedulingError, match="height: 3 is none of 1, 2, 4"):
        replay(decide(trace, height=3), matmul())
    with pytest.raises(SchedulingError, match="width: no step decides it"):
        decide(trace, width=3)


def test_an_illegal_replay_is_refused() -> None:
    p = rows().sample_categorical("tail", ("mask", "exact"), default="mask")
    p = p.split("s_i", 4, p.chosen[0])
    with pytest.raises(SchedulingError, match="4 is not known to divide n"):
        replay(decide(p.trace, tail="exact"), rows())
    p = rows().sample_categorical("f", (2, 4), default=2)
    p = p.split("s_i", 4).split("s_i_1", p.chosen[0], "exact").unroll("s_i_1_0")
    assert replay(decide(p.trace, f=4), rows()).loop("s_i_1_0").extent == 1


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(8))
def test_drawn_and_changed_decisions_keep_the_meaning(seed: int) -> None:
    rng, start = Random(seed), matmul()
    p = replay(tuned().trace, at_random(start, rng))
    assert all("decision" in dict(s.options) for s in p.trace[:2])
    assert replay(p.trace, start).function is p.function
    same(start, replay(p.trace, start))
    try:
        q = changed(p.trace, start, rng)
    except SchedulingError:
        return
    assert q.decisions != p.decisions
    same(start, q)


def test_drawing_is_seeded() -> None:
    traces = {replay(tuned().trace, at_random(matmul(), Random(3))).trace for _ in range(3)}
    assert len(traces) == 1
    assert len({replay(tuned().trace, at_random(matmul(), Random(s))).trace for s in range(20)}) > 4


def test_weights() -> None:
    space = Choice(("a", "b", "c"), "a", (0.0, 1.0, 3.0))
    drawn = [space.draw(Random(s)) for s in range(200)]
    assert "a" not in drawn
    assert drawn.count("c") > drawn.count("b") > 0
    assert space.neighbours("b") == ("c",)


def test_perfect_tiles_of_a_number() -> None:
    p = matmul().split("c_i", 24).sample_perfect_tile("tile", "c_i_1", 3, 8)
    assert p.decisions == {"tile": (1, 8), "tile_1": 1, "tile_2": 8}
    assert p.chosen == (var("tile_1"), var("tile_2"))
    outer, inner = p.chosen
    p = p.split("c_i_1", outer * inner, "exact").split("c_i_1_1", inner, "exact")
    q = replay(decide(p.trace, tile=(3, 2)), matmul())
    assert [q.loop(x).extent for x in q.loops("c")[1:4]] == [4, 3, 2]
    same(matmul(), q)
    for bad, why in {
        (5, 1): "the product of (5, 1) does not divide 24",
        (1, 12): "the innermost factor 12 is more than 8",
        (2,): "(2,) is not a tuple of 2 factors",
        (1, 0): "(1, 0) has a factor that is no number from 1 up",
    }.items():
        with pytest.raises(SchedulingError) as error:
            replay(decide(p.trace, tile=bad), matmul())
        assert error.value.reason == why


def test_tiles_of_a_symbolic_extent_leave_a_tail() -> None:
    p = matmul().sample_perfect_tile("tile", "c_j", 2)
    p = p.split("c_j", *p.chosen)
    assert p.loop("c_j_0").extent == ceildiv(var("m"), 16)
    q = replay(decide(p.trace, tile=(5,)), matmul())
    same(matmul(), q)


def test_partitioned_tiles() -> None:
    p = matmul().split("c_i", 24).sample_partitioned_tile("t", "c_i_1", 3, 1, 8, 4)
    assert p.decisions["t"] == (2, 4)
    with pytest.raises(SchedulingError, match="from loop 1 on are no multiple of 8"):
        replay(decide(p.trace, t=(1, 4)), matmul())
    p = matmul().sample_partitioned_tile("t", "c_j", 3, 2, 4, default=(2, 12))
    assert p.decisions["t"] == (2, 12)
    with pytest.raises(SchedulingError, match="cannot be a multiple of 32 up to 16"):
        matmul().sample_partitioned_tile("t", "c_j", 3, 2, 32)


@pytest.mark.parametrize(
    "space",
    [
        Tiles(24, 3, 8),
        Tiles(60, 4, 5, 2, 6),
        Tiles(13, 2, 16),
        Tiles(1, 3, 16),
        Tiles(0, 3, 16),
        Tiles(10, 3, 16, 1, 4),
        Tiles(None, 2, 16),
        Tiles(None, 3, 12, 1, 12),
        Tiles(720720, 5, 64, 0, 16),
    ],
    ids=str,
)
def test_drawn_tiles_and_neighbours_are_in_the_space(space: Tiles) -> None:
    assert not space.refuses(space.default)
    drawn = [space.draw(Random(s)) for s in range(100)]
    for value in drawn:
        assert not space.refuses(value)
        for near in space.neighbours(value):
            assert not space.refuses(near)
            assert value in space.neighbours(near) or not space.divides
    if space.extent not in (1, 13):
        assert len(set(drawn)) > 3


def test_places() -> None:
    start = chain()
    p = start.sample_compute_location("place", "a")
    assert p.function is start.function
    space = space_at(start, Step("sample_compute_location", ("place", "a")))
    assert space == Choice((STAY, INLINE, "b_i", "b_j"), STAY)
    for place in space.candidates:
        q = replay(decide(p.trace, place=place), start)
        assert q.decisions == {"place": place}
        assert parse_trace(print_trace(q.trace)) == q.trace
        same(start, q)
    assert "b_i < n\n  a_j < k" in outline(replay(decide(p.trace, place="b_i"), start))
    with pytest.raises(SchedulingError, match="y_i is no place for block a: compute_at of block a"):
        replay(decide(p.trace, place="y_i"), start)


def test_illegal_sampling_is_refused() -> None:
    p = matmul()
    for args, why in [
        (("n", (1, 2)), "the name is taken"),
        (("c_i", (1, 2)), "the name is taken"),
        (("2x", (1, 2)), "that is no name"),
        (("x", ()), "there are no candidates"),
        (("x", (1, "a")), "numbers and other values"),
        (("x", (1.5, "a")), "a candidate is no plain value"),
        (("x", (1, 2), (1.0,)), "are not weights for 2 candidates"),
    ]:
        with pytest.raises(SchedulingError, match=why):
            p.sample_categorical(*args, default=1)
    with pytest.raises(SchedulingError, match="x: 5 is none of 1, 2"):
        p.sample_categorical("x", (1, 2), default=5)
    with pytest.raises(SchedulingError, match="1 loops are no tiling"):
        p.sample_perfect_tile("x", "c_i", 1)
    with pytest.raises(SchedulingError, match="there is no loop 3 among 3"):
        p.sample_partitioned_tile("x", "c_i", 3, 3, 2)
    with pytest.raises(SchedulingError, match="a factor is at least 1"):
        p.sample_perfect_tile("x", "c_i", 2, 0)
    with pytest.raises(SchedulingError, match="loop z: there is no such loop"):
        p.sample_perfect_tile("x", "z", 2)
    q = p.sample_categorical("x", (1, 2), default=1)
    with pytest.raises(SchedulingError, match="the name is taken"):
        q.sample_perfect_tile("x", "c_i", 2).sample_categorical("x_1", (1,), default=1)
    with pytest.raises(SchedulingError, match="decided of y: no step before decides it"):
        q.split("c_i", 2, Decided("y"))


def test_defaults_may_depend_on_earlier_decisions() -> None:
    p = rows().sample_categorical("a", (2, 4), default=2)
    p = p.sample_categorical("b", (8, 4), default=16 // p.chosen[0])
    assert p.decisions == {"a": 2, "b": 8}
    assert replay(decide(p.trace, a=4), rows()).decisions == {"a": 4, "b": 4}


def test_loops_do_not_take_the_name_of_a_variable() -> None:
    p = rows().sample_categorical("s_i_0", (2, 4), default=2)
    p = p.split("s_i", p.chosen[0])
    assert p.made == ("s_i_0_1", "s_i_1")
    same(rows(), p)
