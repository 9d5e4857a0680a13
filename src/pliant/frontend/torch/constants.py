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
        for node in program.graph.nodes:
            if node.op == "placeholder" and specs[node.name].kind is not InputKind.USER_INPUT:
                target = specs[node.name].target
                stored = program.constants.get(target, program.state_dict.get(target))
                if isinstance(stored, torch.Tensor) and not stored.is_meta:
                    self._known[node] = stored.detach()

    def decides(self, node: Node) -> bool:
        """Whether torch can compute the node now."""
        if node in self._known:
            return True
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            return False
        random = torch.Tag.nondeterministic_seeded in target.tags
        return not random and not is_mutating(node) and all(map(self.decides, node.all_input_nodes))

    def value(self, node: Node) -> Any:
        """What the node gives, where that is decided."""
        if node not in self._known:
            args = torch.fx.node.map_arg((node.args, node.kwargs), self.value)
            with torch.no_grad():
                self._known[node] = node.target(*args[0], **args[1])  # type: ignore[operator]
        return self._known[node]
