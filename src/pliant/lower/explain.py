"""What was made of a function, for people.

main: 2 kernels, 2 launches; 1 more ran when it was compiled, on weights alone
memory for intermediate values: 1536*batch bytes
symbol batch: 0 <= batch <= 64
checked in every call: x: dim 1 must be 384
   0 k_contraction_0d71… [contraction] matmul relu
       -> relu[batch, 384]
       from model.py:12 (encoder.fc)
   1 k_row_5cda… [row] softmax
       -> softmax[batch, 384]
       not in 0: a reduction cannot follow in a contraction kernel
       from model.py:13
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pliant.graph.function import Function
from pliant.loop.stmt import Check, statements

if TYPE_CHECKING:
    from pliant.lower.canonical import Spec
    from pliant.lower.function import Lowered
    from pliant.lower.memory import MemoryPlan

LONG: Final = 200  # characters of a formula that is not taken to pieces

# What a check's message says of this very call: ", got {0}", "(a is {0}, b is {1})".
_NUMBERS: Final = re.compile(r"(, got \{\d\}| = \{\d\}| \([^()]*\{\d\}[^()]*\))")


def explain(
    function: Function, main: Lowered, prepare: Lowered | None = None, notes: Sequence[str] = (),
    recipe: Callable[[Spec], str] = lambda spec: spec.kind,
) -> str:  # fmt: skip
    """Notes of the frontend, symbols with their ranges, checks, and each launch with its `recipe`,
    its stages, why these did not join an earlier one, and their places in the model's source."""
    return "\n".join([*_summary(function, main, prepare, notes), *_launches(main, recipe)])


def _summary(
    function: Function, main: Lowered, prepare: Lowered | None, notes: Sequence[str]
) -> Iterator[str]:
    more = ""
    if prepare is not None:
        more = f"; {len(prepare.launches)} more ran when it was compiled, on weights alone"
    yield f"{function.name}: {len(main.kernels)} kernels, {len(main.launches)} launches{more}"
    yield from _memory(main.memory)
    for note in notes:
        yield f"note: {note}"
    wholes: dict[str, list[str]] = {}
    for name, part in main.parts.items():
        wholes.setdefault(part.whole, []).append(name)
    for whole, names in wholes.items():
        yield f"no kernel makes {whole}: in it lie {', '.join(names)}"
    for name, known in function.dims:
        top = "" if known.max is None else f" <= {known.max}"
        multiple = f", multiple of {known.multiple}" if known.multiple > 1 else ""
        yield f"symbol {name}: {known.min} <= {name}{top}{multiple}"
    for stmt in statements(main.host.body):
        if isinstance(stmt, Check):
            yield f"checked in every call: {_NUMBERS.sub('', stmt.message)}"


def _memory(plan: MemoryPlan) -> Iterator[str]:
    """In one formula, or where that is long in steps, which are read more easily."""
    formula = str(plan.bytes)
    if len(formula) <= LONG:
        yield f"memory for intermediate values: {formula} bytes"
        return
    yield f"memory for intermediate values: {plan.total} bytes, where"
    for name, size in plan.steps:
        yield f"  {name} = {size}"


def _launches(main: Lowered, recipe: Callable[[Spec], str]) -> Iterator[str]:
    symbols = {spec: name for name, spec in main.kernels.items()}
    for k, ((symbol, launch), group) in enumerate(zip(main.launches, main.groups, strict=True)):
        ops = " ".join(dict.fromkeys(m.op for m in group.members))
        yield f"{k:4d} {symbol} [{_how(launch.spec, recipe)}] {ops}"
        yield "       -> " + ", ".join(
            f"{n}[{', '.join(map(str, main.types[n].dims))}]" for n in launch.outputs
        )
        for v in launch.variants:
            how = _how(v.spec, recipe)
            yield f"       where {v.guard} is 0: {symbols[v.spec]} [{how}]"
        if group.obstacle:
            yield f"       not in {group.after}: {group.obstacle}"
        for span in dict.fromkeys(str(s) for m in group.members for s in m.spans):
            yield f"       from {span}"


def _how(spec: Spec, recipe: Callable[[Spec], str]) -> str:
    plans = [plan for _, plan in spec.plans]
    if not plans:
        return recipe(spec)
    return f"{recipe(spec)}, {'rows gathered' if plans[0].gather else 'rows read in place'}"
