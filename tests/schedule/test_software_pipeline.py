"""Software pipelining: what is legal; prologue, steady state and epilogue mean the loop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pliant.base.errors import InvalidModelError
from pliant.loop.lower_pipeline import lower_pipelines
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.stmt import Alloc, For
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.software_pipeline import check_software_pipeline
from pliant.sym.facts import Facts
from tests.schedule.programs import matmul, rows, same
from tests.schedule.threads import device_matmul, same_on_device, same_pipelined

# What is loaded is computed with, and the result is stored: three parts.
LOAD = """\
@loop
def load(x: f32["n", 4], y: f32["n", 4], z: f32[4], n: i64):
    for k in grid(n):
        s = alloc(f32[4], scope="shared", strides=(2,))
        t = alloc(f32[4], scope="scratch")
        for a in grid(4):
            with block("s", S(k, n), S(a, 4)) as (i, j):
                s[j] = x[i, j]
        for b in grid(4):
            with block("t", S(k, n), S(b, 4)) as (i, j):
                t[j] = s[3 - j] * 2.0 + s[j]
        for c in grid(4):
            with block("y", S(k, n), S(c, 4)) as (i, j):
                y[i, j] = t[j]
        for d in grid(4):
            with block("z", R(k, n), S(d, 4)) as (i, j):
                z[j] = z[j] + t[j]"""
TRIPS = [(n,) for n in (0, 1, 2, 3, 4, 7)]


def load(text: str = LOAD) -> Program:
    return program(parse_function(text))


@pytest.mark.parametrize(
    ("stages", "orders"),
    [
        ((0, 0, 0, 0), None),
        ((0, 1, 1, 1), None),
        ((0, 1, 2, 2), None),
        ((0, 2, 3, 5), None),
        ((0, 1, 2, 2), (3, 2, 1, 0)),
        ((0, 1, 2, 3), (3, 0, 2, 1)),
        ((0, 0, 1, 1), (1, 2, 0, 3)),
    ],
)
def test_times_of_parts(stages: Sequence[int], orders: Sequence[int] | None) -> None:
    p = load()
    q = p.software_pipeline("k", stages, orders)
    same(p, q, TRIPS)
    same_pipelined(p, q, TRIPS)


@pytest.mark.parametrize(
    ("stages", "orders"),
    [((0, 1, 1, 1), None), ((0, 1, 2, 2), (3, 2, 1, 0)), ((0, 2, 3, 5), None)],
)
def test_written_out(stages: Sequence[int], orders: Sequence[int] | None) -> None:
    """In the schedule, where it is a program as any other: its loops keep their names."""
    p = load()
    q = p.software_pipeline("k", stages, orders).expand_pipeline("k")
    same(p, q, TRIPS)
    assert {"k", "a", "b", "c", "d"} <= {s.var for s in q.statements() if isinstance(s, For)}
    r = q.unroll("a").split("c", 2).vectorize("d")
    same(p, r, TRIPS)
    with pytest.raises(SchedulingError, match="it has no stages; software_pipeline gives it some"):
        q.expand_pipeline("k")


def test_loops_of_one_time_are_merged() -> None:
    """What is stored late and what is computed for the next iteration, in one version of t."""
    p = load()
    q = p.software_pipeline("k", (0, 0, 1, 1), (0, 3, 2, 1)).expand_pipeline("k")
    q = q.merge("c", "b")
    same(p, q, TRIPS)
    assert q.buffer("t").rank == 1
    q = p.software_pipeline("k", (0, 0, 1, 1), (0, 3, 1, 2)).expand_pipeline("k")
    with pytest.raises(SchedulingError, match="between them, block z reads and block t writes"):
        q.merge("c", "b")


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
def test_constant_trips(trips: int) -> None:
    p = load(LOAD.replace(", n: i64", "").replace('"n"', str(trips)).replace("n)", f"{trips})"))
    same_pipelined(p, p.software_pipeline("k", (0, 1, 2, 2)), [()])


SUMS = """\
@loop
def sums(x: f32["n", 8], y: f32[8], n: i64):
    for k in grid(n):
        s = alloc(f32[8], scope="shared")
        for a in grid(8):
            with block("s", S(k, n), S(a, 8)) as (i, j):
                s[j] = x[i, j]
        for b in grid(8):
            with block("y", R(k, n), S(b, 8)) as (i, j):
                y[j] = y[j] + s[j]"""

PIPELINED = """\
@loop
def sums(x: f32["n", 8], y: f32[8], n: i64):
    s = alloc(f32[2, 8], scope="shared")
    if 0 < n:
        for a_p in grid(8):
            with block("s_p", S(0, n), S(a_p, 8)) as (i_p, j_p):
                s[0, j_p] = x[i_p, j_p]
    for k in grid(max(0, n - 1)):
        for a in grid(8):
            with block("s", S(k + 1, n), S(a, 8)) as (i, j):
                s[(k + 1)%2, j] = x[i, j]
        for b in grid(8):
            with block("y", R(k, n), S(b, 8)) as (i, j):
                y[j] = y[j] + s[k%2, j]
    if 0 < n:
        for b_p in grid(8):
            with block("y_p", R(n - 1, n), S(b_p, 8)) as (i_p_1, j_p_1):
                y[j_p_1] = y[j_p_1] + s[(n + 1)%2, j_p_1]"""


def test_text_of_a_pipelined_loop() -> None:
    q = load(SUMS).software_pipeline("k", (0, 1))
    assert function_text(lower_pipelines(q.function, q.facts)) == PIPELINED


def test_what_is_known_needs_no_condition() -> None:
    facts = Facts()
    facts.declare("n", min=2)
    p = program(parse_function(LOAD), facts).software_pipeline("k", (0, 1, 2, 2))
    text = function_text(lower_pipelines(p.function, facts))
    assert "if" not in text
    assert "max" not in text


@pytest.mark.parametrize(
    ("stages", "orders", "versions"),
    [
        ((0, 0, 0, 0), None, {"s": 1, "t": 1}),
        ((0, 1, 1, 1), None, {"s": 2, "t": 1}),
        ((0, 1, 1, 1), (3, 0, 1, 2), {"s": 1, "t": 1}),  # what was used is loaded over
        ((0, 2, 3, 5), None, {"s": 3, "t": 4}),
    ],
)
def test_versions(stages: Sequence[int], orders: Sequence[int] | None, versions: object) -> None:
    q = load().software_pipeline("k", stages, orders)
    lowered = program(lower_pipelines(q.function, q.facts))
    found = {
        s.buffer.name: 1 if s.buffer.rank == 1 else s.buffer.shape[0].value
        for s in lowered.statements()
        if isinstance(s, Alloc)
    }
    assert found == versions


@pytest.mark.parametrize(
    ("text", "stages", "orders", "reason"),
    [
        (LOAD, (0, 1), (0, 1), "it has 4 parts, and there are 2 stages, 2 orders"),
        (LOAD, (1, 1, 1, 1), (0, 1, 2, 3), "the first stage is 1, not 0"),
        (LOAD, (0, 1, 1, -1), (0, 1, 2, 3), "stages and orders are numbers from 0 on"),
        (LOAD, (0, 1, 1, 1), (0, 1, 2, 2), "are not the numbers from 0 to 3, each once"),
        (LOAD, (1, 0, 1, 1), (0, 1, 2, 3),
         "block s, which writes s, would come after block t, which reads s, in an iteration"),
        (LOAD, (0, 0, 1, 1), (1, 0, 2, 3),
         "block s, which writes s, would come after block t, which reads s, in an iteration"),
        # y of an iteration is read by the next one
        (LOAD.replace("s[j] = x[i, j]", "s[j] = y[(i + n - 1)%n, j]"), (0, 1, 2, 2), (0, 1, 2, 3),
         "block y, which writes y, would come after block s, which reads y, in the iteration aft"),
        (LOAD.replace("f32[4], scope=\"scratch", "f32[k + 4], scope=\"scratch"), (0, 1, 1, 1),
         (0, 1, 2, 3), "the shape of t depends on it"),
    ],
)  # fmt: skip
def test_refuses(text: str, stages: Sequence[int], orders: Sequence[int], reason: str) -> None:
    p = load(text)
    with pytest.raises(SchedulingError) as caught:
        check_software_pipeline(p, "k", stages, orders)
    assert reason in str(caught.value)
    with pytest.raises(SchedulingError, match="software_pipeline of loop k"):
        p.software_pipeline("k", stages, orders)


def test_refuses_loops_that_are_not_plain() -> None:
    with pytest.raises(SchedulingError, match="block s has its init inside; decompose_reduction"):
        rows().software_pipeline("s_r", (0,))
    with pytest.raises(SchedulingError, match="it is parallel already"):
        rows().parallel("s_i").software_pipeline("s_i", (0,))
    p = rows().software_pipeline("s_i", (0,))
    with pytest.raises(SchedulingError, match="it has stages already"):
        p.software_pipeline("s_i", (0,))


def test_a_loop_that_changed_since_is_not_pipelined() -> None:
    f = load().software_pipeline("k", (0, 1, 1, 1)).function
    text = function_text(f).replace("z[j] = z[j]", "y[i, j] = z[j]")
    assert lower_pipelines(parse_function(text))
    with pytest.raises(InvalidModelError, match="loop k cannot be pipelined: it has 4 parts, and "):
        lower_pipelines(parse_function(text.replace("(0, 1, 1, 1)", "(0, 1, 1)")))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("stages", "orders", "barriers"),
    [((0, 0, 1), None, 3), ((0, 0, 2), None, 3), ((0, 0, 1), (1, 2, 0), 4)],
)
def test_double_buffering_of_a_tiled_product(
    stages: Sequence[int], orders: Sequence[int] | None, barriers: int
) -> None:
    p = device_matmul().software_pipeline("c_r_0", stages, orders)
    sizes = [(5, 9, k) for k in (0, 1, 4, 5, 8, 9, 13)]
    same(matmul(), p, sizes[:3])
    text = function_text(same_on_device(matmul(), p, sizes))
    assert text.count("barrier()") == barriers
    versions = 1 if orders else stages[-1] + 1
    shape = "8, 4" if versions == 1 else f"{versions}, 8, 4"
    assert f'a_cache = alloc(f32[{shape}], scope="shared")' in text


def test_a_step_that_would_break_a_pipeline_is_refused() -> None:
    """The loop would have more parts than there were when it was noted."""
    p = load().software_pipeline("k", (0, 1, 1, 1))
    for step in (lambda: p.cache_read("y", "t"), lambda: p.split("a", 3, tail="peel")):
        with pytest.raises(SchedulingError, match="then loop k cannot be pipelined as was noted: "):
            step()
    q = p.vectorize("a").vectorize("b")
    same_pipelined(load(), q, TRIPS)


@pytest.mark.parametrize("mark", ["parallel", "vectorize", "bind vthread"])
def test_a_pipelined_loop_keeps_its_order(mark: str) -> None:
    """Its iterations were to run at once, each in the versions of memory of another."""
    p = program(
        parse_function(
            "@loop\n"
            'def load(x: f32["n", 8], y: f32["n", 8], n: i64):\n'
            "    for i in grid(n):\n"
            "        for k in grid(8):\n"
            '            s = alloc(f32[1], scope="local")\n'
            '            with block("s", S(i, n), S(k, 8)) as (a, b):\n'
            "                s[0] = x[a, b]\n"
            '            with block("y", S(i, n), S(k, 8)) as (a, b):\n'
            "                y[a, b] = s[0]\n"
        )
    )
    mark, *axis = mark.split()
    getattr(p, mark)("k", *axis)
    noted = p.software_pipeline("k", (0, 1))
    with pytest.raises(SchedulingError, match="loop k cannot be pipelined as was noted: it is "):
        getattr(noted, mark)("k", *axis)
    same_pipelined(p, noted.unroll("k"), TRIPS)


def test_a_part_that_is_pipelined_itself() -> None:
    """It became several parts of the loop around it."""
    p = program(
        parse_function(
            "@loop\n"
            'def nested(x: f32["n", 5], y: f32["n", 5], n: i64):\n'
            "    for k in grid(n):\n"
            '        s = alloc(f32[5], scope="shared")\n'
            "        for a in grid(5):\n"
            '            with block("s", S(k, n), S(a, 5)) as (i, j):\n'
            "                s[j] = x[i, j]\n"
            "        for b in grid(5):\n"
            '            t = alloc(f32[1], scope="scratch")\n'
            '            with block("t", S(k, n), S(b, 5)) as (i, j):\n'
            "                t[0] = s[j] * 2.0\n"
            '            with block("y", S(k, n), S(b, 5)) as (i, j):\n'
            "                y[i, j] = t[0]\n"
        )
    )
    q = p.software_pipeline("b", (0, 1)).software_pipeline("k", (0, 1))
    same_pipelined(p, q, TRIPS)
