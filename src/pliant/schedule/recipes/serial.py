"""Scans, scatters and opaque programs: the unscheduled program, as written."""

from __future__ import annotations

from pliant.ir.tensor import Opaque, Tensor
from pliant.loop.from_tensor import unscheduled
from pliant.loop.stmt import Function
from pliant.lower.canonical import Spec
from pliant.sym.expr import Int


def serial_kernel(spec: Spec) -> Function:
    """A kernel for one stage that must run in order."""
    members = dict(spec.members)
    outputs = [members[n] for n in spec.outputs]
    layouts: dict[Tensor, tuple[Int, ...]] = {i: spec.strides_of(i.label) for i in spec.inputs}
    layouts |= {members[n]: spec.strides_of(n) for n in spec.outputs}
    assert not any(isinstance(o, Opaque) for o in outputs)
    return unscheduled("kernel", outputs, spec.inputs, spec.sizes, layouts)
