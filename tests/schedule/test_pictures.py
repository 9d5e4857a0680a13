"""The pictures in the docstrings of primitives are true.

    Before:

        @loop
        def double(x: f32["n"], y: f32["n"], n: i64):
            …

    Intrinsic:                          (where a step needs one; more than one may be)

        @loop
        def …

    Steps:

        p = p.split('i', 8)

    After:

        for i_0, i_1 in grid(…):        (what the function holds then)
            …

Steps and After may be repeated, for other ways to go on from the same Before.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, replace
from textwrap import dedent

import pytest

from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.primitives import PRIMITIVES, program
from pliant.schedule.program import Program, replay
from pliant.schedule.trace import Trace, parse_trace
from tests.schedule.programs import same

HEADINGS = ("Before:", "Intrinsic:", "Steps:", "After:")
MODULES = sorted({fn.__module__ for fn in PRIMITIVES.values()})
TO_CONVERT: frozenset[str] = frozenset()  # modules whose pictures are not in this form yet


@dataclass(frozen=True)
class Picture:
    """A program, steps, and the text of what the function holds after them."""

    start: Program
    steps: Trace = ()
    after: str = ""


def pictures(doc: str) -> list[Picture]:
    """The pictures in a docstring."""
    found: list[Picture] = []
    current: Picture | None = None
    intrinsics: list[Intrinsic] = []
    for heading, text in _parts(doc):
        match heading:
            case "Intrinsic:":
                semantics = parse_function(text)
                intrinsics.append(Intrinsic(semantics.name, semantics))
            case "Before:":
                current, intrinsics = Picture(program(parse_function(text))), []
            case "Steps:":
                assert current is not None, "steps before a program"
                start = program(current.start.function, intrinsics=intrinsics)
                current = Picture(start, parse_trace(text))
            case "After:":
                assert current is not None and current.steps, "no steps"
                found.append(replace(current, after=text))
    return found


def _parts(doc: str) -> list[tuple[str, str]]:
    """Headings, each with the indented lines below it."""
    parts: list[tuple[str, list[str]]] = []
    inside = False
    for line in inspect.cleandoc(doc).split("\n"):
        if line in HEADINGS:
            parts.append((line, []))
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        elif inside:
            parts[-1][1].append(line)
    return [(heading, dedent("\n".join(lines)).strip("\n")) for heading, lines in parts]


def holds(p: Program) -> str:
    """The text of what the function holds."""
    text = function_text(p.function).split("\n")
    header = next(k for k, line in enumerate(text) if line.startswith("def "))
    return dedent("\n".join(text[header + 1 :]))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("module", [m for m in MODULES if m not in TO_CONVERT])
def test_pictures_are_true(module: str) -> None:
    found = pictures(sys.modules[module].__doc__ or "")
    for picture in found:
        p = picture.start
        q = replay(picture.steps, p)
        assert holds(q) == picture.after
        same(p, q, callees={i.callee: i.semantics for i in p.intrinsics.values()})
    shown = {s.name for picture in found for s in picture.steps}
    own = {n for n, fn in PRIMITIVES.items() if fn.__module__ == module}
    assert own <= shown, "a primitive without a picture"


def test_only_old_pictures_are_excused() -> None:
    assert set(MODULES) >= TO_CONVERT
    for module in TO_CONVERT:
        assert not pictures(sys.modules[module].__doc__ or ""), f"{module} is converted"
