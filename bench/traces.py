"""Every kernel of a model, and the steps that made it from its definition: there is no other way.

    PYTHONPATH=src:. python bench/traces.py [MODEL …]

While a model is compiled it is noted what is turned into code. Each kernel must be what its spec's
schedule says, and the trace of that, replayed on the unscheduled program of the definition, must
give the same again; what is not a kernel is the host's. Standard output is a table of kernels by
model and kind, with the steps taken. Exit code 4 where a kernel came about otherwise.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from pliant import pipeline
from pliant.cli.terminal import table
from pliant.codegen import build
from pliant.codegen.build import kernel_schedule
from pliant.codegen.llvm.target import Target
from pliant.loop.printer import function_text
from pliant.loop.stmt import Function
from pliant.lower.canonical import Spec
from pliant.schedule.program import Program, replay
from pliant.schedule.recipes import start


@dataclass
class Seen:
    """What was compiled: specs with their targets by symbol, and loop functions as code was made of
    them."""

    specs: dict[str, tuple[Spec, Target]] = field(default_factory=dict)
    kernels: list[Function] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[Seen]:
    """Notes what is turned into code meanwhile: nothing comes from the cache, or is made in other
    processes."""
    seen, program, source = Seen(), build.kernel_program, build.kernel_source

    def program_of(symbol: str, spec: Spec, t: Target) -> Function:
        seen.specs[symbol] = spec, t
        return program(symbol, spec, t)

    def source_of(f: Function, t: Target) -> Any:
        seen.kernels.append(f)
        return source(f, t)

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, PLIANT_CACHE_DIR=folder),
        patch.object(pipeline, "MOST_PROCESSES", 0),
        patch.object(build, "kernel_program", program_of),
        patch.object(build, "kernel_source", source_of),
    ):
        yield seen


def scheduled(spec: Spec, t: Target) -> tuple[Program, Program]:
    """A kernel's unscheduled program and its schedule."""
    begun: list[Program] = []
    make = start.program

    def noted(*args: Any, **options: Any) -> Program:
        begun.append(make(*args, **options))
        return begun[-1]

    with patch.object(start, "program", noted):
        p = kernel_schedule(spec, t)
    return begun[-1], p


def faults(seen: Seen) -> list[str]:
    """Kernels that are not what the steps of their schedules make of their definitions."""
    found = []
    for f in seen.kernels:
        if f.name not in seen.specs:
            found.append(f"{f.name} has no spec")
            continue
        begun, p = scheduled(*seen.specs[f.name])
        text = function_text(f)
        if begun.trace or function_text(p.function.replace(name=f.name)) != text:
            found.append(f"{f.name} is not what its schedule says")
        elif function_text(replay(p.trace, begun).function.replace(name=f.name)) != text:
            found.append(f"{f.name} is not what its trace makes")
    return found


def main() -> int:
    """Print the table."""
    from bench.models import MODELS  # what these need is no part of what the tests need

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", default=[], metavar="MODEL")
    rows, wrong = [], 0
    for name in parser.parse_args().models or MODELS:
        with watching() as seen:
            MODELS[name]().compile(threads=1)
        kinds, steps = Counter[str](), Counter[str]()
        for f in seen.kernels:
            spec, t = seen.specs[f.name]
            kinds[spec.kind] += 1
            steps[spec.kind] += len(kernel_schedule(spec, t).trace)
        rows += [[name, kind, str(n), str(steps[kind])] for kind, n in sorted(kinds.items())]
        for fault in faults(seen):
            wrong += 1
            print(f"{name}: {fault}")
    print(table(["model", "kind", "kernels", "steps"], rows))
    return 4 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
