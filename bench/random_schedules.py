"""Random schedules on random small programs: each step is refused, or keeps the meaning.

    PYTHONPATH=src:. python bench/random_schedules.py [--count 20000] [--seed 0] [--processes 2]
        [--native 0.02] [--log FILE] [--only NUMBER] [--no-tests]

Every schedule is checked under the interpreter, a share of them (--native) as machine code too; its
text and trace round-trip, and the trace replays. Standard output is a table of the primitives:

    legal     schedules with a step of it whose meaning the tests of tests/schedule compare
    illegal   different calls of it that are refused in these tests
    random    random programs that kept their meaning after a step of it
    refused   random calls that were refused

The random tests among them (test_random.py) are left out of the first two. The log has a line for
each schedule: number, steps, refusals, sizes, seconds. A failure is printed with few steps;
`--only` runs one number again. Exit code 4 where there was one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, Final, cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.fuzzing.schedules import Case, run_case
from pliant.cli.terminal import message, table
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import PRIMITIVES
from pliant.schedule.program import Primitive, Program
from tests.schedule import programs

CHUNK: Final = 100
REPORTS: Final = 10  # failures that are printed


def main() -> int:
    """Run; print failures and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--native", type=float, default=0.02, help="share that is compiled")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--only", type=int, help="run this number alone")
    parser.add_argument("--no-tests", action="store_true", help="do not count those of tests/")
    options = parser.parse_args()
    if options.only is not None:
        case = run_case(options.seed, options.only, options.native)
        print(case.failure or f"{case.function}\n\n{case.trace}\nkeeps its meaning")
        return 4 if case.failure else 0
    tested = Counting() if options.no_tests else count_tests()
    log = options.log.open("w") if options.log else None
    kept, refused, failures = run(options, log)
    columns = {"random": kept, "refused": refused}
    if not options.no_tests:
        columns = {"legal": tested.legal, "illegal": tested.illegal, **columns}
    rows = [[n, *(str(c[n]) for c in columns.values())] for n in PRIMITIVES]
    print(table(["primitive", *columns], rows))
    print(f"seed {options.seed}: {options.count} schedules, {failures} wrong")
    return 4 if failures else 0


def run(options: argparse.Namespace, log: IO[str] | None) -> tuple[Counter[str], Counter[str], int]:
    """Programs that kept their meaning and refusals by primitive; failures."""
    kept, refused = Counter[str](), Counter[str]()
    failures = compiled = 0
    slowest, began = 0.0, time.perf_counter()
    for done, case in enumerate(cases(options), 1):
        compiled += case.native
        slowest = max(slowest, case.seconds)
        refused += case.refused
        if case.failure:
            failures += 1
            if failures <= REPORTS:
                print(case.failure, flush=True)
        else:
            kept.update(case.steps.keys())
        if log:
            log.write(json.dumps(vars(case)) + "\n")
        if done % 1000 == 0 or done == options.count:
            seconds = time.perf_counter() - began
            message(
                f"{done} schedules, {compiled} compiled, {failures} wrong, {seconds:.0f} s, "
                f"slowest {slowest:.1f} s"
            )
    return kept, refused, failures


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """All of them, in order, from processes that are replaced now and then: expressions live as
    long as the process."""
    starts = range(0, options.count, CHUNK)
    work = partial(_chunk, options.seed, options.count, options.native)
    with ProcessPoolExecutor(
        options.processes, get_context("spawn"), max_tasks_per_child=10
    ) as pool:
        for chunk in pool.map(work, starts):
            yield from chunk


def _chunk(seed: int, count: int, share: float, first: int) -> list[Case]:
    return [run_case(seed, k, share) for k in range(first, min(first + CHUNK, count))]


# ---- what the tests try


class Counting:
    """A pytest plugin: distinct schedules that are compared and distinct calls that are refused
    while tests run, by primitive."""

    def __init__(self) -> None:
        self.legal, self.illegal = Counter[str](), Counter[str]()
        self._met: set[Any] = set()

    def compared(self, p: Program, q: Program) -> None:
        steps = q.trace[len(p.trace) :]
        if self._new(("same", p.function, steps)):
            self.legal.update({s.name for s in steps})

    def watching(self, name: str, fn: Primitive) -> Primitive:
        """The primitive, with its refusals counted."""

        def watched(p: Program, *args: Any, **options: Any) -> Program:
            try:
                return fn(p, *args, **options)
            except SchedulingError:
                if self._new(("refused", name, p.function, repr((args, options)))):
                    self.illegal[name] += 1
                raise

        return watched

    def _new(self, what: Any) -> bool:
        new = what not in self._met
        self._met.add(what)
        return new


def count_tests() -> Counting:
    """Run tests/schedule, counting."""
    counting = Counting()
    compare, primitives = programs.same, dict(PRIMITIVES)

    def same(p: Program, q: Program, *args: Any, **options: Any) -> None:
        compare(p, q, *args, **options)
        counting.compared(p, q)

    folder = Path(__file__).parents[1] / "tests" / "schedule"
    skip = f"--ignore={folder / 'test_random.py'}"
    table = cast(dict[str, Primitive], PRIMITIVES)  # programs have this very table
    programs.same = same
    table.update({n: counting.watching(n, fn) for n, fn in primitives.items()})
    with redirect_stdout(sys.stderr):
        code = pytest.main(["-q", "--no-header", "--tb=line", skip, str(folder)])
    programs.same = compare
    table.update(primitives)
    if code != 0:
        message(f"tests/schedule fails (exit code {int(code)}): the counts are of what ran")
    return counting


if __name__ == "__main__":
    raise SystemExit(main())
