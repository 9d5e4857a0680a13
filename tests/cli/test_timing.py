"""Interleaved timing, by a clock that only calls and pauses move."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pliant.cli import timing


class Clock:
    """What happened, and when it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.log = 0.0, list[tuple[str, float]]()
        fake = SimpleNamespace(perf_counter=lambda: self.now, sleep=lambda s: self.spend("", s))
        monkeypatch.setattr(timing, "time", fake)

    def spend(self, what: str, seconds: float) -> None:
        self.log.append((what, seconds))
        self.now += seconds

    def call(self, what: str, seconds: float) -> timing.Call:
        return lambda: self.spend(what, seconds)


@pytest.mark.parametrize("settle", [0.0, 0.0625])
def test_who_is_timed_has_the_machine(monkeypatch: pytest.MonkeyPatch, settle: float) -> None:
    """A short call runs until threads of others sleep, a long one waits as long."""
    clock = Clock(monkeypatch)
    calls = {"short": clock.call("short", 2**-7), "long": clock.call("long", 0.125)}
    found = timing.interleave(calls, 4, warmup=1, settle=settle)
    assert {name: t.seconds for name, t in found.items()} == {
        "short": (2**-7,) * 4, "long": (0.125,) * 4,
    }  # fmt: skip
    rounds = clock.log[2:]
    untimed = 8 if settle else 1
    assert [name for name, _ in rounds].count("short") == 4 * (untimed + 1)
    assert [s for name, s in rounds if not name] == [settle] * 4
    assert [rounds[k - 1] for k, (name, _) in enumerate(rounds) if name == "long"] == [
        ("", settle)
    ] * 4


def test_every_other_round_goes_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    calls = {name: clock.call(name, 0.125) for name in "ab"}
    timing.interleave(calls, 3, warmup=1)
    assert "".join(name for name, _ in clock.log[2:]) == "baabba"


def test_no_more_rounds_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    found = timing.interleave({"a": clock.call("a", 0.125)}, 100, limit=0.5)
    assert len(found["a"].seconds) == 5
    found = timing.interleave({"a": clock.call("a", 1.0)}, 100, limit=0.5)
    assert len(found["a"].seconds) == 3
