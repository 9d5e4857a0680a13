"""Asking the systems in turn: every one in a process of its own, and only one of them awake.

A pool of threads that spins (OpenMP's, ONNX Runtime's, OpenVINO's) takes a processor from whoever
comes next, so those that are not asked are stopped (SIGSTOP) until they are. Systems take turns,
A B A B …, a few calls each; ratios are medians over the rounds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from bench.systems import INPUTS, Sizes, key_of, reference_of
from bench.timing import Times, message, paired_ratio

CALLS: Final = 0.3  # seconds of calls a turn, about
TOLERANCE: Final = {"f32": 1e-2, "bf16": 2e-1}  # relative L2 to the source's results in f32
# (of ResNet-50 with random weights every system's bf16 is 0.11 to 0.12 off, its source's own too)
BUILD_LIMIT: Final = 1800  # seconds
SLOW: Final = 10  # times as long as the fastest, and longer than a turn: one call is timed


@dataclass(frozen=True)
class Row:
    """A model at certain sizes."""

    model: str
    sizes: Sizes

    @property
    def name(self) -> str:
        return f"{self.model} {'x'.join(str(n) for n in self.sizes.values() if n != 1)}".strip()


class AskedError(Exception):
    """What a system answered instead of a result."""


class Asked:
    """A system's process, which sleeps except while it is asked."""

    def __init__(self, system: str, model: str, folder: Path, threads: int) -> None:
        command = [sys.executable, "-m", "bench.systems", "run", system, model, str(folder)]
        self._process = subprocess.Popen(
            [*command, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        self._process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer. Raises AskedError."""
        assert self._process.stdin and self._process.stdout
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            self._process.send_signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process ended"}
        if "error" in answer:
            raise AskedError(answer["error"])
        return answer


@dataclass
class Measured:
    """A row at a number of threads. `failed` tells why a system has no time."""

    row: Row
    threads: int
    precision: str
    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    distance: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def ratio(self, other: str, ours: str) -> float:
        """How many times as long the other one takes."""
        theirs, own = self.seconds[other], self.seconds[ours]
        if len(theirs) != len(own):  # it was not asked again
            return statistics.median(theirs) / statistics.median(own)
        return paired_ratio(Times(theirs), Times(own))

    def best(self, ours: Sequence[str]) -> str | None:
        """The fastest system that is none of ours, by median time."""
        medians = {n: statistics.median(s) for n, s in self.seconds.items() if n not in ours}
        return min(medians, key=medians.__getitem__, default=None)


def build(
    systems: Sequence[str], model: str, folder: Path, each: Sequence[Sizes]
) -> dict[str, str]:
    """Make the inputs and every system's files; which systems have none, and why."""
    failed = {}
    for name in (INPUTS, *systems):
        message(f"{model}: building for {name}")
        arguments = ["build", name, model, str(folder), json.dumps(list(each))]
        reason = _run([sys.executable, "-m", "bench.systems", *arguments])
        if reason:
            failed[name] = reason
            message(f"{model}: {name}: {reason}")
    if INPUTS in failed:
        raise AskedError(failed[INPUTS])
    return failed


def _run(command: Sequence[str]) -> str:
    """What a process complained about in a line, or an empty string."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT)
    except subprocess.TimeoutExpired:
        return f"not built within {BUILD_LIMIT} s"
    if done.returncode == 0:
        return ""
    return _reason(done.stderr.strip().splitlines(), f"exit code {done.returncode}")


def _reason(lines: Sequence[str], otherwise: str) -> str:
    """Of what a process printed: a compiler's first error, or the last exception, or the end."""
    found = [x for x in lines if " error: " in x][:1]
    found = found or [x for x in lines if re.match(r"[\w.]+(Error|Exception)\b", x)]
    return (found or lines or [otherwise])[-1][:300]


def measure(
    systems: Sequence[str],
    row: Row,
    folder: Path,
    threads: int,
    precision: str,
    runs: int,
    limit: float,
) -> Measured:
    """One row: `runs` rounds, fewer (3 at least) after `limit` seconds; one of systems that are
    SLOW."""
    found = Measured(row, threads, precision)
    asked: dict[str, Asked] = {}
    try:
        for name in systems:
            asked[name] = Asked(name, row.model, folder, threads)
            try:
                _open(found, name, asked[name], folder)
            except AskedError as e:
                found.failed[name] = str(e)
                asked.pop(name).__exit__(None, None, None)
        _rounds(found, asked, runs, limit)
    finally:
        for process in asked.values():
            process.__exit__(None, None, None)
    return found


def _open(found: Measured, name: str, system: Asked, folder: Path) -> None:
    path = folder / f"results_{name.replace(' ', '_')}_{key_of(found.row.sizes)}.npz"
    answer = system.ask({"open": found.row.sizes, "results": str(path)})
    distance = _distance(path, reference_of(folder, found.row.sizes))
    found.distance[name] = distance
    if not distance <= TOLERANCE[found.precision]:
        raise AskedError(f"its results differ: relative L2 {distance:.1e}")
    found.load[name], found.peak[name] = answer["load"], answer["peak"]


def _distance(path: Path, reference: Path) -> float:
    """The largest relative L2 distance; infinite where results are not of the same shapes."""
    with np.load(path) as got, np.load(reference) as want:
        if len(got.files) != len(want.files):
            return float("inf")
        worst = 0.0
        for name in want.files:
            a, b = got[name].astype(np.float64), want[name].astype(np.float64)
            if a.shape != b.shape:
                return float("inf")
            size = float(np.linalg.norm(b)) or 1.0
            worst = float(np.maximum(worst, np.linalg.norm(a - b) / size))  # NaN stays
        return worst


def _rounds(found: Measured, asked: Mapping[str, Asked], runs: int, limit: float) -> None:
    once = {name: system.ask({"time": 1})["seconds"] for name, system in asked.items()}
    most = max(CALLS, SLOW * min(once.values(), default=0.0))
    count = {n: max(1, min(50, round(CALLS / max(s, 1e-6)))) for n, s in once.items() if s <= most}
    seconds = {n: [] if n in count else [s] for n, s in once.items()}
    begun = time.perf_counter()
    for k in range(runs):
        if k >= 3 and time.perf_counter() - begun > limit:
            break
        for name, calls in count.items():
            seconds[name].append(asked[name].ask({"time": calls})["seconds"])
    found.seconds = {name: tuple(s) for name, s in seconds.items()}


def ceilings(arguments: Sequence[str]) -> Any:
    """What `bench.ceilings` prints, from a process of its own. Raises AskedError."""
    command = [sys.executable, "-m", "bench.ceilings", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AskedError((done.stderr.strip().splitlines() or ["no reason given"])[-1][:300])
    return json.loads(done.stdout.splitlines()[-1])
