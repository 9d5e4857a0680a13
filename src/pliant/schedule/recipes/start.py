"""Where every recipe starts: the unscheduled program of a spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pliant.ir.expr import Load
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Input, Opaque, OpaqueOutput, Tensor
from pliant.loop.from_tensor import unscheduled
from pliant.loop.stmt import Alloc, Function, statements
from pliant.lower.canonical import Spec
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import Int
from pliant.sym.facts import Facts


def start(
    spec: Spec, order: Iterable[str] | None = None, *, intrinsics: Iterable[Intrinsic] = ()
) -> Program:
    """Inputs, then outputs, then sizes; a block `t…` for each member, which writes the buffer of
    the same name, in `order` (None: that of the spec). Outputs alias nothing."""
    made: dict[str, Tensor] = {}

    def link(node: Node) -> Node:
        if isinstance(node, Load) and node.source.name in made:
            return Load(made[node.source.name], node.indices)
        return node

    for name, tensor in spec.members:
        linked = transform(tensor, link)
        opaque = isinstance(linked, Opaque | OpaqueOutput)
        made[name] = linked if opaque else linked.replace(label=name)
    layouts: dict[Tensor, tuple[Int, ...]] = {i: spec.strides_of(i.label) for i in spec.inputs}
    layouts |= {made[n]: spec.strides_of(n) for n in spec.outputs}
    inputs: tuple[Input, ...] = spec.inputs
    first = [made[n] for n in (order or made)]
    f = unscheduled("kernel", [made[n] for n in spec.outputs], inputs, spec.sizes, layouts, first)
    outputs = tuple(b.name for b in f.buffers[len(inputs) :])
    notes: tuple[tuple[str, Any], ...] = (("noalias", outputs),)
    if spec.numerics != "fast":
        notes = (*notes, ("numerics", spec.numerics))
    if spec.flushes:
        notes = (*notes, ("flushes", True))
    if spec.once:
        notes = (*notes, ("once", True))
    return program(f.replace(notes=notes), _facts(f), intrinsics=intrinsics)


def _facts(f: Function) -> Facts:
    """Sizes are at least 0, and so is n - 1 where it is an extent."""
    facts = Facts()
    for size in f.sizes:
        facts.declare(size)
    inside = (s.buffer for s in statements(f.body) if isinstance(s, Alloc))
    for b in (*f.buffers, *inside):
        for extent in b.shape:
            if not facts.nonneg(extent):
                facts.assume_le(0, extent)
    return facts
