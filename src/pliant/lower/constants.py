"""Which values are constants: they depend on weights alone, and on no symbol."""

from __future__ import annotations

from pliant.ir.expr import Index
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.stages import Stage, Stages


def constant_values(s: Stages) -> frozenset[str]:
    """The names of the weights, and of stages that can be computed when the model is compiled."""
    known = {v.name for v, _ in s.weights}
    for name, stage in s.stages.items():
        constant = stage.inputs and all(i in known for i in stage.inputs)
        fixed = not any(d.names for d in stage.tensor.shape) and not _symbolic(stage)
        if constant and fixed and name not in s.results:
            known.add(name)
    return frozenset(known)


def _symbolic(stage: Stage) -> bool:
    tensor = stage.tensor
    if not isinstance(tensor, Compute):
        return True
    return any(a.extent.names for a in tensor.reduce_axes) or any(
        not n.startswith("_") for n in _index_names(tensor)
    )


def _index_names(tensor: Compute) -> set[str]:
    from_indices: set[str] = set()
    for node in own_nodes(tensor.body):
        if isinstance(node, Index):
            from_indices |= node.int_.names
    return from_indices
