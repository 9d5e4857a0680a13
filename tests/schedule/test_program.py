"""Programs, references, traces."""

from __future__ import annotations

import pickle

import pytest

from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import PRIMITIVES, program
from pliant.schedule.program import BlockRef, LoopRef, replay
from pliant.schedule.trace import Step, parse_trace, print_trace
from pliant.sym.expr import var
from tests.schedule.programs import chain, matmul, rows, softmax


def test_references_survive_other_steps() -> None:
    p = softmax()
    assert p.blocks == ("m", "e", "s", "y")
    i, r = p.loops("s")
    p = p.split("y_i", 4)
    assert p.loops("s") == (i, r)
    assert all(isinstance(x, LoopRef) for x in p.made)
    assert isinstance(p.blocks[0], BlockRef)
    assert p.loop(r).var == "s_r"


def test_a_reference_that_is_gone_says_which_step_it_went_in() -> None:
    p = matmul().parallel("c_j").split("c_i", 8).split("c_r", 4)
    with pytest.raises(SchedulingError) as error:
        p.reorder("c_i", "c_r_0")
    assert error.value.reason == (
        "there is no such loop: step 2, split('c_i', 8), replaced it; that step made c_i_0, c_i_1"
    )
    p = chain().compute_inline("a")
    with pytest.raises(SchedulingError) as error:
        p.compute_inline("a")
    gone = "step 1, compute_inline('a'), removed it"
    assert error.value.reason == f"there is no such block: {gone}"
    with pytest.raises(SchedulingError, match=r"loop a_i: there is no such loop: step 1"):
        p.split("a_i", 2)
    with pytest.raises(SchedulingError, match=r"buffer of a: there is no such buffer: step 1"):
        p.set_scope("a", "scratch")
    with pytest.raises(SchedulingError, match=r"there is no such loop; there is b_i"):
        p.split("z", 2)


def test_a_name_is_never_given_to_something_else() -> None:
    p = rows().split("s_i", 4).split("s_i_0", 2)
    p = p.fuse("s_i_0_0", "s_i_0_1")
    assert "s_i_0" not in p.loops("s")
    assert p.names().variable("s_i_0") == "s_i_0_2"
    p = chain().compute_inline("a")
    names = p.names()
    assert (names.block("a"), names.buffer("a")) == ("a_1", "a_1")


def test_programs_are_values() -> None:
    p = rows()
    q = p.split("s_i", 4)
    assert p.loops("s") == ("s_i", "s_r")
    assert q.loops("s") == ("s_i_0", "s_i_1", "s_r")
    assert not p.trace


def test_trace_prints_parses_and_replays() -> None:
    p = matmul().split("c_i", var("k") + 1).split("c_j", 4, tail="mask").reorder("c_j_0", "c_i_0")
    text = print_trace(p.trace)
    assert text == (
        "p = p.split('c_i', sym('k + 1'))\n"
        "p = p.split('c_j', 4, tail='mask')\n"
        "p = p.reorder('c_j_0', 'c_i_0')\n"
    )
    assert parse_trace(text) == p.trace
    assert replay(parse_trace(text), matmul()).function is p.function


def test_trace_rejects_other_text() -> None:
    with pytest.raises(ValueError, match="not a schedule step: q = 1"):
        parse_trace("q = 1")
    with pytest.raises(SchedulingError, match="cannot be an argument"):
        rows().split("s_i", object())  # type: ignore[arg-type]


def test_the_table_of_primitives_is_a_value() -> None:
    p = program(rows().function, primitives={"split": PRIMITIVES["split"]})
    assert p.split("s_i", 2).trace == (Step("split", ("s_i", 2)),)
    with pytest.raises(AttributeError, match="no schedule primitive 'fuse'"):
        p.fuse("s_i")


def test_errors_pickle_and_say_place_and_reason() -> None:
    error = SchedulingError("split", "loop i", "no")
    again = pickle.loads(pickle.dumps(error))
    assert (again.primitive, again.place, again.reason) == ("split", "loop i", "no")
    assert str(again) == "split of loop i: no"


def test_every_primitive_says_what_it_does() -> None:
    for name, fn in PRIMITIVES.items():
        assert fn.__doc__, name
