"""Interleaved timing, A B B A A B …: what disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHORT: Final = 0.02  # seconds: shorter calls are repeated untimed before each timed one
SETTLE: Final = 0.06  # seconds for which threads of ONNX Runtime spin after a call, and some more
BATCH: Final = 2e-4  # seconds: shorter calls are timed several at once
BUSY_LOAD: Final = 1.25  # processes a CPU, above which it is not ours
BUSY_PRESSURE: Final = 20.0  # percent of the last 10 s in which something waited for a CPU

Call = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds of each run, in order; runs of the same number were neighbours in time."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def percentile(self, p: float) -> float:
        """The least time that `p` percent of the runs do not exceed."""
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(p / 100 * len(ordered)) - 1)]


def interleave(
    calls: Mapping[str, Call], runs: int, *, warmup: int = 2, limit: float = math.inf,
    settle: float = 0.0,
) -> dict[str, Times]:  # fmt: skip
    """Time each call `runs` times, taking turns; fewer (3 at least) after `limit` seconds.

    Every other round goes backwards: a call finds in the caches what the one before it left there,
    and none should always have the same one before it. Before a short call is timed it runs
    untimed, once, and for at least `settle` seconds, for which a long one waits: it finds its own
    data there, and the threads that another runtime leaves spinning for a while have gone to sleep
    (SETTLE: a call of two threads within 50 ms of one of ONNX Runtime takes twice as long).
    """
    typical = {name: _warm(call, warmup) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    for k in range(runs):
        if k >= 3 and time.perf_counter() - begun > limit:
            break
        for name, call in list(calls.items())[:: 1 if k % 2 else -1]:
            _settle(call, settle, again=typical[name] < max(SHORT, settle))
            found[name].append(_time(call, max(1, round(BATCH / max(typical[name], 1e-7)))))
    return {name: Times(tuple(seconds)) for name, seconds in found.items()}


def contention() -> str:
    """What else keeps the CPUs busy, or an empty string. Ask before a measurement begins.

    Runtimes whose threads spin at barriers (OpenMP's) can lose a hundredfold when other processes
    take a CPU from one of them: then a ratio says nothing of either.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    stalled = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = Path("/proc/pressure/cpu").read_text().split()  # some avg10=1.50 avg60=…
        stalled = float(line[1].partition("=")[2])
    if load <= cpus * BUSY_LOAD and stalled <= BUSY_PRESSURE:
        return ""
    return (
        f"other processes use the CPUs (load {load:.1f} on {cpus}, pressure {stalled:.0f} %): "
        "these times and ratios are not valid"
    )


def paired_ratio(other: Times, ours: Times) -> float:
    """How many times as long the other one takes: the median over neighbouring runs."""
    return statistics.median(b / a for a, b in zip(ours.seconds, other.seconds, strict=True))


def geometric_mean(values: Sequence[float]) -> float:
    """Of ratios."""
    return math.exp(statistics.fmean(map(math.log, values)))


def _settle(call: Call, seconds: float, *, again: bool) -> None:
    ready = time.perf_counter() + seconds
    if not again:
        time.sleep(seconds)
    while again:
        call()
        again = time.perf_counter() < ready


def _warm(call: Call, times: int) -> float:
    return min(_time(call, 1) for _ in range(max(times, 1)))


def _time(call: Call, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count
