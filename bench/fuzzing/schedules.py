"""One random schedule of one random program: made from a number, checked, made minimal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.loop.interpret import interpret
from pliant.loop.lower_pipeline import PIPELINE
from pliant.loop.printer import function_text
from pliant.loop.stmt import Alloc, For, Function, Invoke, statements
from pliant.loop.threads import is_bound
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.trace import Step, Trace, print_trace, step
from tests.schedule.native import native
from tests.schedule.programs import same
from tests.schedule.random_programs import INTRINSICS, programs
from tests.schedule.test_random import NAMES, moves
from tests.schedule.threads import same_pipelined

BYTES: Final = 8192  # of chance, for one case
STEPS: Final = 12  # tried at most
CALLEES: Final = {i.callee: i.semantics for i in INTRINSICS}


@dataclass
class Case:
    """What came of one number."""

    number: int
    function: str = ""
    steps: Counter[str] = field(default_factory=Counter)  # applied, by primitive
    refused: Counter[str] = field(default_factory=Counter)
    trace: str = ""
    sizes: tuple[tuple[int, ...], ...] = ()
    native: bool = False
    seconds: float = 0.0
    failure: str = ""  # what is wrong, with a minimal schedule


def run_case(seed: int, number: int, native_share: float) -> Case:
    """Make and check case `number` of the run `seed`."""
    rng = Random(f"{seed}/{number}")
    began, result = time.perf_counter(), Case(number)

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def once(data: Any) -> None:
        _one(data.draw, result, rng.random() < native_share)

    # Hypothesis's strategies fed with plain chance: no search for small examples, no database.
    once.hypothesis.fuzz_one_input(rng.randbytes(BYTES))
    result.seconds = time.perf_counter() - began
    return result


def _one(draw: Callable[[Any], Any], result: Case, with_native: bool) -> None:
    function, result.sizes = draw(programs())
    result.function = function_text(function)
    p = start = program(function, intrinsics=INTRINSICS)
    tried: Step | None = None
    try:
        for _ in range(draw(st.integers(1, STEPS))):
            for name, args, options in moves(draw, p, draw(st.sampled_from(NAMES))):
                tried = step(name, args, options)
                try:
                    p = getattr(p, name)(*args, **options)
                    result.steps[name] += 1
                except SchedulingError:
                    result.refused[name] += 1
        tried = None
        result.native = with_native and _compiles(p)
        check(start, p, result.sizes, result.native)
    except Exception as error:
        steps = (*p.trace, tried) if tried else p.trace
        result.failure = _report(start, steps, result, f"{type(error).__name__}: {error}")
    result.trace = print_trace(p.trace)


def check(
    start: Program, p: Program, sizes: Sequence[Sequence[int]], with_native: bool = False
) -> None:
    """Raise unless `p` means what `start` does under the interpreter, with its noted loops
    pipelined too, and, if wanted, compiled."""
    with np.errstate(all="ignore"):
        same(start, p, sizes, CALLEES)
        loops = [s for s in p.statements() if isinstance(s, For)]
        if any(PIPELINE in dict(s.notes) for s in loops):
            same_pipelined(start, p, sizes, CALLEES)
        for case in sizes if with_native else ():
            given_sizes = dict(zip(p.function.sizes, case, strict=True))
            wanted, got = (_arrays(p.function, given_sizes) for _ in range(2))
            interpret(start.function, wanted, given_sizes)
            native(p.function, got, given_sizes)
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=f"native {case}")


def _arrays(f: Function, sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(sizes.values()))
    shapes = [[d.eval(sizes) for d in b.shape] for b in f.buffers]
    pairs = zip(shapes, f.buffers, strict=True)
    return [rng.integers(-4, 5, s).astype(b.dtype.numpy) for s, b in pairs]


def _compiles(p: Program) -> bool:
    """Whether there is machine code for it: its intrinsics have none, and neither have devices."""
    return not any(
        isinstance(s, Invoke)
        or is_bound(s)
        or (isinstance(s, Alloc) and s.buffer.scope not in ("register", "scratch"))
        for s in statements(p.function.body)
    )


# ---- reports


def _report(start: Program, steps: Trace, result: Case, error: str) -> str:
    """The failure with as few steps and sizes as still fail."""
    sizes = result.sizes
    found = _failure(start, steps, sizes, result.native)
    if found:
        error = found
        k = 0
        while k < len(steps):
            fewer = (*steps[:k], *steps[k + 1 :])
            found = _failure(start, fewer, sizes, result.native)
            if found:
                steps, error = fewer, found
            else:
                k += 1
        for case in sizes:
            found = _failure(start, steps, (case,), result.native)
            if found:
                sizes, error = (case,), found
                break
    return (
        f"case {result.number}\n{function_text(start.function)}\n\n{print_trace(steps)}\n"
        f"sizes {sizes}: {error}\n"
    )


def _failure(
    start: Program, steps: Trace, sizes: Sequence[Sequence[int]], with_native: bool
) -> str:
    """What is wrong after these steps, those that are refused left out; empty if nothing is."""
    p = start
    try:
        for s in steps:
            try:
                p = getattr(p, s.name)(*s.args, **dict(s.options))
            except SchedulingError:
                continue
        check(start, p, sizes, with_native and _compiles(p))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
