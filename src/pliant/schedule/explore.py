"""The programs that a trace stands for: other decisions at its sampling steps.

    replay(trace, p)                              as it was decided
    replay(trace, at_random(p, Random(0)))        every decision drawn
    replay(decide(trace, width=32), p)            one decision replaced, the rest as it was
    changed(trace, p, Random(0))                  one decision moved to a neighbour

Whatever is decided, the steps after it check what they do: a program that is not refused means the
same as `p` does.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Primitive, Program, replay
from pliant.schedule.sample import SPACES
from pliant.schedule.space import Space
from pliant.schedule.trace import Step, Trace, plain


def decide(trace: Trace, **decisions: Any) -> Trace:
    """The trace with other decisions for the sampling steps of these names."""
    missing = set(decisions) - {name_of(s) for s in trace}
    if missing:
        raise SchedulingError("decide", min(missing), "no step decides it")
    return tuple(_with(s, decisions[n]) if (n := name_of(s)) in decisions else s for s in trace)


def name_of(step: Step) -> str:
    """What a sampling step decides; empty for other steps."""
    return str(step.args[0]) if step.name in SPACES else ""


def at_random(p: Program, rng: Random) -> Program:
    """The program, whose sampling steps draw what they decide and record it."""

    def drawing(name: str) -> Primitive:
        def sample(p: Program, *args: Any, **options: Any) -> Program:
            drawn = space_at(p, Step(name, args, tuple(options.items()))).draw(rng)
            return given[name](p, *args, **{**options, "decision": drawn})

        return sample

    given = p.primitives
    return replace(p, primitives={**given, **{n: drawing(n) for n in SPACES if n in given}})


def space_at(p: Program, step: Step) -> Space:
    """What a sampling step, the next one of the program, decides among."""
    options = {k: v for k, v in step.options if k != "decision"}
    args, given = p.decided(step.args), {k: plain(p.decided(v)) for k, v in options.items()}
    return SPACES[step.name](p, *map(plain, args), **given)


def changed(trace: Trace, p: Program, rng: Random) -> Program:
    """The program with one decision, taken at random, changed to one near it. Refused where no
    decision has another near it, or a later step does not go with it."""
    samples = [k for k, s in enumerate(trace) if s.name in SPACES]
    rng.shuffle(samples)
    for k in samples:
        q = replay(trace[:k], p)
        space = space_at(q, trace[k])
        near = space.neighbours(_decision(trace[k], space))
        if near:
            return replay((_with(trace[k], rng.choice(near)), *trace[k + 1 :]), q)
    raise SchedulingError("changed", "the trace", "there is nothing to decide otherwise")


def _decision(step: Step, space: Space) -> Any:
    found = dict(step.options).get("decision")
    return space.default if found is None else found


def _with(step: Step, decision: Any) -> Step:
    options = {**dict(step.options), "decision": plain(decision)}
    return Step(step.name, step.args, tuple(options.items()))
