"""What torch computes while importing: operators without a rule, of weights and numbers alone.

torch.linalg.matrix_exp(self.weight)   ->   a weight
torch.hamming_window(400)              ->   a weight
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from pliant.frontend.torch.mutation import is_mutating


class Constants:
    """The tensors that a program's weights and numbers decide, by the nodes that make them."""

    def __init__(self, program: ExportedProgram) -> None:
        specs = {s.arg.name: s for s in program.graph_signature.input_specs}
        self._known: dict[Node, Any] = {}
        self._decided: set[Node] = set()
        for node in program.graph.nodes:
            if node.op == "placeholder" and specs[node.name].kind is not InputKind.USER_INPUT:
                target = specs[node.name].target
                stored = program.constants.get(target, program.state_dict.get(target))
                if isinstance(stored, torch.Tensor) and not stored.is_meta:
                    self._known[node] = stored.detach()
                    self._decided.add(node)
            elif _computes(node) and self._decided.issuperset(node.all_input_nodes):
                self._decided.add(node)

    def decides(self, node: Node) -> bool:
        """Whether torch can compute the node now."""
        return node in self._decided

    def value(self, node: Node) -> Any:
        """What the node gives, where that is decided."""
        if node not in self._known:
            args = torch.fx.node.map_arg((node.args, node.kwargs), self.value)
            with torch.no_grad():
                self._known[node] = node.target(*args[0], **args[1])  # type: ignore[operator]
        return self._known[node]


def _computes(node: Node) -> bool:
    """Whether it makes the same of the same, and changes nothing."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded not in target.tags and not is_mutating(node)
