"""ATen operators without an import rule, written with others by torch's own decompositions.

aten.cross_entropy_loss  ->  log_softmax, gather, where, mean …
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Collection
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

_QUANTIZATION: Final = (
    "choose_qparams_per_token", "choose_qparams_per_token_asymmetric",
    "quantize_per_token", "dequantize_per_token",
    "quantize_per_channel_group", "dequantize_per_channel_group",
)  # fmt: skip
_SPLIT: Final = torch.ops.aten.tensor_split.sections


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
        wider = run_decompositions(program, chosen)
    except Exception:  # some decompositions do not go with others: torch raises many kinds
        return None
    effects = any(s.kind is InputKind.TOKEN for s in wider.graph_signature.input_specs)
    return None if effects else wider


def run_decompositions(program: ExportedProgram, table: dict[Any, Any]) -> ExportedProgram:
    """Torch's, but parts of about equal sizes stay so at every size.

    Torch writes `tensor_split` as slices, whatever the table, and which parts are longer by one as
    it is for the example.
    """
    if any(node.target is _SPLIT for node in program.graph.nodes):
        graph = copy.deepcopy(program.graph)
        for node in graph.nodes:
            if node.target is _SPLIT:
                _split_by_sizes(node, *node.args, **node.kwargs)
        module = GraphModule(program.graph_module, graph)
        program = program._update(module, program.graph_signature)
    result: ExportedProgram = program.run_decompositions(table)
    return result


def _split_by_sizes(node: Node, x: Node, sections: int, dim: int = 0) -> None:
    """`tensor_split(x, 3, d)` -> `split_with_sizes(x, [(n + 2) // 3, (n + 1) // 3, n // 3], d)`."""

    def call(function: Any, value: Any, *args: Any) -> Node:
        made = node.graph.call_function(function, args)
        made.meta["val"] = value
        return made

    n = x.meta["val"].shape[dim]
    if not isinstance(n, torch.SymInt):
        return
    sizes = []
    with node.graph.inserting_before(node):
        whole = call(torch.ops.aten.sym_size.int, n, x, dim)
        for k in reversed(range(sections)):
            more = call(operator.add, n + k, whole, k)
            sizes.append(call(operator.floordiv, (n + k) // sections, more, sections))
    node.target, node.kwargs = torch.ops.aten.split_with_sizes.default, {}
    node.args = (x, sizes, dim)


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Torch's core decompositions, and the others that it has."""
    more = {op: f for op, f in torch._decomp.decomposition_table.items() if _is_aten(op)}
    core: Any = torch.export.default_decompositions()
    return {**more, **dict(core.items()), **_quantization(), **fused_layers()}


def fused_layers() -> dict[Any, Any]:
    """What torch runs whole layers with, where no gradients are wanted."""
    return {torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}


def _encoder_layer(
    x: Any, width: int, heads: int, joint: Any, joint_bias: Any, out: Any, out_bias: Any,
    use_gelu: bool, norm_first: bool, eps: float, scale_1: Any, shift_1: Any, scale_2: Any,
    shift_2: Any, wide: Any, wide_bias: Any, narrow: Any, narrow_bias: Any, mask: Any = None,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """`nn.TransformerEncoderLayer` of rows that all count."""
    if mask is not None:
        return NotImplemented

    def attended(x: Any) -> Any:
        parts: Any = linear(x, joint, joint_bias)
        parts = parts.unflatten(-1, (3, heads, -1)).unbind(-3)
        q, k, v = (part.transpose(-2, -3) for part in parts)
        scores = q @ k.transpose(-1, -2) * (width // heads) ** -0.5
        return linear((scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2), out, out_bias)

    def fed(x: Any) -> Any:
        h = linear(x, wide, wide_bias)
        h = torch.nn.functional.gelu(h) if use_gelu else h.relu()
        return linear(h, narrow, narrow_bias)

    linear, norm = torch.nn.functional.linear, torch.nn.functional.layer_norm
    for part, scale, shift in ((attended, scale_1, shift_1), (fed, scale_2, shift_2)):
        if norm_first:
            x = x + part(norm(x, (width,), scale, shift, eps))
        else:
            x = norm(x + part(x), (width,), scale, shift, eps)
    return x


def _quantization() -> dict[Any, Any]:
    """Torch's own definitions of operators of quantised graphs, which it gives no decompositions
    of."""
    from torch.ao.quantization.fx import _decomposed  # most models do not wait for it

    ops = torch.ops.quantized_decomposed
    return {getattr(ops, name).default: getattr(_decomposed, name) for name in _QUANTIZATION}


def _is_aten(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and op.namespace == "aten"
