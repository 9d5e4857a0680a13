"""Where intermediate values live: nothing that is wanted at the same time overlaps, at any size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.lower.canonical import Launch
from pliant.lower.memory import MemoryPlan, plan_memory
from pliant.sym.expr import Int, as_int, ceildiv, var
from pliant.sym.facts import Facts

Steps = list[tuple[tuple[str, ...], tuple[str, ...]]]


def _plan(steps: Steps, sizes: dict[str, Int], likely: tuple[int, ...] = ()) -> MemoryPlan:
    facts = Facts()
    for name in ("n", "m"):
        facts.declare(name, 0, None, 1, likely)
    launches = [Launch(cast(Any, None), i, o, (), ()) for i, o in steps]
    return plan_memory(launches, sizes, facts)


def _spans(plan: MemoryPlan, sizes: dict[str, Int], at: dict[str, int]) -> dict[str, range]:
    """The bytes of each value; all are within the arena."""
    known = dict(at)
    for name, value in plan.steps:
        known[name] = value.eval(known)
    total, spans = plan.total.eval(known), dict[str, range]()
    assert total == plan.bytes.eval(at)
    for name, offset in plan.offsets.items():
        start = offset.eval(known)
        spans[name] = range(start, start + sizes[name].eval(at))
        assert start % 64 == 0 and start >= 0 and spans[name].stop <= total <= plan.most.eval(at)
    return spans


def _concurrent(steps: Steps) -> list[set[str]]:
    """What is in memory during each step."""
    first, last = dict[str, int](), dict[str, int]()
    for k, (inputs, outputs) in enumerate(steps):
        for name in (*inputs, *outputs):
            first.setdefault(name, k)
            last[name] = k
    return [{n for n in first if first[n] <= k <= last[n]} for k in range(len(steps))]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Steps, dict[str, Int]]:
    n, m = var("n"), var("m")
    kinds = [n * 4, n * m * 4, m * 12, ceildiv(n, 2) * m, as_int(4096), n * n, as_int(0), n * 4 + m]
    steps: Steps = []
    sizes: dict[str, Int] = {}
    for k in range(draw(st.integers(1, 12))):
        made = list(sizes)
        inputs = tuple(draw(st.lists(st.sampled_from(made), max_size=3))) if made else ()
        outputs = tuple(f"v{k}_{j}" for j in range(draw(st.integers(1, 2))))
        steps.append((inputs, outputs))
        for name in outputs:
            sizes[name] = draw(st.sampled_from(kinds)) * draw(st.integers(1, 3))
    return steps, sizes


@given(programs(), st.integers(0, 300), st.integers(0, 300))
def test_nothing_overlaps(program: tuple[Steps, dict[str, Int]], n: int, m: int) -> None:
    steps, sizes = program
    spans = _spans(_plan(steps, sizes), sizes, {"n": n, "m": m})
    for wanted in _concurrent(steps):
        taken = sorted((spans[x] for x in wanted if len(spans[x])), key=lambda r: r.start)
        for a, b in pairwise(taken):
            assert a.stop <= b.start


@pytest.mark.parametrize("n", [1, 7, 64])
def test_a_chain_takes_what_its_largest_neighbours_take(n: int) -> None:
    """Sizes that cannot be compared lay beside one another, however short they lived."""
    size = var("n")
    sizes = {f"v{k}": 64 * (k % 3 + 1) * ceildiv(size, k % 4 + 1) for k in range(24)}
    steps: Steps = [((f"v{k - 1}",) if k else (), (f"v{k}",)) for k in range(24)]
    plan = _plan(steps, sizes)
    at = {"n": n}
    pairs = [sizes[f"v{k - 1}"].eval(at) + sizes[f"v{k}"].eval(at) for k in range(1, 24)]
    assert plan.bytes.eval(at) <= 1.25 * max(pairs)


def test_likely_sizes_decide() -> None:
    """What is large where a size is likely lies lowest."""
    sizes = {"a": var("n") * 640, "b": as_int(6400), "c": var("n") * 640}
    steps: Steps = [((), ("a",)), (("a",), ("b",)), (("b",), ("c",))]
    assert _plan(steps, sizes, likely=(100,)).offsets["b"] == var("n") * 640
    assert _plan(steps, sizes, likely=(1,)).offsets["b"] == 0


def test_there_may_be_nothing_to_place() -> None:
    plan = _plan([((), ("r",))], {})
    assert plan.offsets == {} and plan.total == 0


def test_values_larger_than_any_memory_have_places() -> None:
    """They are refused in a call, with their size; the plan is not what breaks."""
    steps: Steps = [((), ("a",)), (("a",), ("b",)), (("b",), ("c",)), (("a", "c"), ("d",))]
    sizes = {name: as_int(1 << 70) * (k + 1) for k, name in enumerate("abcd")}
    plan = _plan(steps, sizes)
    known = dict[str, int]()
    for name, value in plan.steps:
        known[name] = value.eval(known)
    for wanted in _concurrent(steps):
        at = sorted((plan.offsets[x].eval(known), sizes[x].value) for x in wanted)
        assert all(start + size <= after for (start, size), (after, _) in pairwise(at))
