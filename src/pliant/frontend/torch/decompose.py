"""ATen operators without an import rule, written with others by torch's own decompositions.

aten.cross_entropy_loss  ->  log_softmax, gather, where, mean …
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind


def can_decompose(op: Any) -> bool:
    """Whether torch can write the operator with others."""
    return op in _decompositions()


def decomposed(
    program: ExportedProgram, known: Collection[str], refused: Collection[Any]
) -> ExportedProgram | None:
    """The program without the operators `refused`; None where torch cannot rewrite it so.

    Everything that has no rule among the `known` names is decomposed along with them, what has one
    is left as it is.
    """
    table = _decompositions()
    if not any(op in table for op in refused):
        return None
    chosen = {op: f for op, f in table.items() if op in refused or str(op) not in known}
    try:
        wider = program.run_decompositions(chosen)
    except Exception:  # some decompositions do not go with others: torch raises many kinds
        return None
    effects = any(s.kind is InputKind.TOKEN for s in wider.graph_signature.input_specs)
    return None if effects else wider


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Torch's core decompositions, and the others that it has."""
    more = {op: f for op, f in torch._decomp.decomposition_table.items() if _is_aten(op)}
    core: Any = torch.export.default_decompositions()
    return {**more, **dict(core.items())}


def _is_aten(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and op.namespace == "aten"
