"""What was made of a function, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pliant.graph.function import Function

if TYPE_CHECKING:
    from pliant.lower.function import Lowered


def explain(function: Function, lowered: Lowered, notes: Sequence[str] = ()) -> str:
    """Notes of the frontend, symbols with their ranges, checks, and each launch with its stages
    and source places."""
    lines = [f"{function.name}: {len(lowered.kernels)} kernels, {len(lowered.launches)} launches"]
    lines.append(f"memory for intermediate values: {lowered.memory.total} bytes")
    lines += [f"note: {note}" for note in notes]
    for name, known in function.dims:
        top = "" if known.max is None else f" <= {known.max}"
        multiple = f", multiple of {known.multiple}" if known.multiple > 1 else ""
        lines.append(f"symbol {name}: {known.min} <= {name}{top}{multiple}")
    for a, b, message in function.equalities:
        lines.append(f"checked in every call: {a} == {b} ({message})")
    for k, ((symbol, launch), group) in enumerate(
        zip(lowered.launches, lowered.groups, strict=True)
    ):
        ops = " ".join(dict.fromkeys(m.op for m in group.members))
        lines.append(f"{k:4d} {symbol} [{group.kind}] {ops}")
        shapes = ", ".join(
            f"{n}{[str(d) for d in lowered.types[n].dims]}" for n in launch.outputs
        ).replace("'", "")
        lines.append(f"       -> {shapes}")
        for span in dict.fromkeys(str(s) for m in group.members for s in m.spans):
            lines.append(f"       from {span}")
    return "\n".join(lines)
