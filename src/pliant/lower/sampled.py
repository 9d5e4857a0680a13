"""Maps that sample: several elements of one source, at places along some of its dimensions that
other values choose (grid_sample, warping by a flow, aligned regions, deformed windows).

    y[n, c, i, j] = x[n, c, u(n, i, j), v(n, i, j)] * a + x[n, c, u + 1, v] * b + …

Read as it lies, every vector of such a map gathers element by element, and finds the places and
weights again for each c. With c last a place is found once and what is read there is a row.
(Zen 4: grid_sample of 32 channels takes 0.1 as long, with copies of what comes and goes.)
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Final

from pliant.ir.expr import Index, Load
from pliant.ir.mapping import likely_value
from pliant.ir.tensor import Compute, Tensor, own_nodes
from pliant.lower.stages import Stage, Stages
from pliant.sym.expr import as_int, var
from pliant.sym.facts import Facts

TAPS: Final = 2  # elements of the source for each of the result
LEAST: Final = 8  # elements of a row
GATHERED: Final = 4  # elements copied in the time of one gathered


def sampled_along(tensor: Compute, facts: Facts) -> str:
    """The iterator along which what a map samples should lie; empty where it does not sample, or
    so little of the source that a copy of that is not worth it."""
    loads = (x for x in own_nodes(tensor.body) if isinstance(x, Load))
    chosen = [x for x in loads if not all(isinstance(i, Index) for i in x.indices)]
    if tensor.reduce_axes or not chosen:
        return ""
    ((source, taps),) = Counter(x.source for x in chosen).most_common(1)
    taken = [x for x in chosen if x.source is source]
    for d in reversed(range(len(source.shape))):
        for axis in tensor.axes:
            rows = all(x.indices[d] is Index(var(axis.var)) for x in taken)
            if rows and axis.extent.is_const:
                worth = d == len(source.shape) - 1 or (
                    taps >= TAPS
                    and _elements(source, facts) <= GATHERED * taps * _elements(tensor, facts)
                )
                return axis.var if worth and axis.extent.value >= LEAST else ""
    return ""


def _elements(x: Tensor, facts: Facts) -> int:
    return likely_value(prod(x.shape, start=as_int(1)), facts)


def turn_sampled(s: Stages) -> None:
    """A result that samples is a copy of a value which may lie otherwise."""
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if name in s.results and isinstance(tensor, Compute):
            along = sampled_along(tensor, s.facts)
            if along and along != tensor.axes[-1].var:
                sampled, stage = s.apart(stage, f"{name}.sampled")
                stages[sampled.name] = sampled
        stages[name] = stage
    s.stages = stages
