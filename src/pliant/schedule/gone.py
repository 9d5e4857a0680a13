"""What became of references: the step that a loop, a block or a buffer went in.

    p = p.split("i", 8)
    p.reorder("j", "i")     reorder of loop i: there is no such loop: step 1, split('i', 8),
                            replaced it; that step made i_0, i_1

Exo's cursors are forwarded through rewrites to what they point at afterwards (Ikarashi et al.,
ASPLOS 2025, "Exo 2"). Here references are names: those of things that live on stay as they are, and
one whose thing is gone is not forwarded, since a loop may have become several; it is explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pliant.loop.outline import outline
from pliant.loop.stmt import Function
from pliant.schedule.trace import Step

References = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Gone:
    """The step that something went in. `number` counts from 1."""

    number: int
    step: Step
    made: tuple[str, ...]

    def __str__(self) -> str:
        where = f"step {self.number}, {self.step.call},"
        if not self.made:
            return f"{where} removed it"
        return f"{where} replaced it; that step made {', '.join(self.made)}"


def gone_in(
    before: Function, after: Function, number: int, step: Step, made: Sequence[str]
) -> dict[tuple[str, str], Gone]:
    """What a step left nothing of, by kind and name."""
    lost = references(before) - references(after)
    return dict.fromkeys(sorted(lost), Gone(number, step, tuple(map(str, made)))) if lost else {}


@lru_cache(256)
def references(function: Function) -> References:
    """All that can be referred to: (kind, name) with kind "loop", "block" or "buffer"."""
    return frozenset(
        {("buffer", b.name) for b in function.buffers}.union(outline(function.body).named)
    )
