"""The random run, a few of it: a number is the same schedule every time, and reports are small."""

from __future__ import annotations

import pytest

from bench.fuzzing import schedules
from bench.fuzzing.schedules import run_case


def test_a_number_is_a_schedule() -> None:
    for k in range(20):
        a, b = run_case(7, k, 0.0), run_case(7, k, 0.0)
        assert not a.failure
        assert (a.function, a.trace, a.steps, a.refused) == (
            b.function,
            b.trace,
            b.steps,
            b.refused,
        )


def test_a_failure_is_made_minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that no schedule may have a `split` in it: one is left, with what it needs itself."""

    def check(start: object, p: schedules.Program, *_: object) -> None:
        assert not any(s.name == "split" for s in p.trace), "a split"

    monkeypatch.setattr(schedules, "check", check)
    found = [c for k in range(12) if (c := run_case(7, k, 0.0)).failure]
    assert found
    for case in found:
        assert case.failure.count("p = p.split(") == 1
        # The loop may be another step's, whose own may be one's before it.
        assert case.failure.count("p = p.") <= 3
