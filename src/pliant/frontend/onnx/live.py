"""What of a graph the outputs need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from onnx import GraphProto, NodeProto

from pliant.frontend.onnx.load import subgraphs
from pliant.graph.function import Binding, Function


def live_nodes(
    nodes: Sequence[NodeProto], outputs: Sequence[str]
) -> list[tuple[int, NodeProto, frozenset[int]]]:
    """The nodes that `outputs` need, with their index and the positions of the outputs read."""
    needed = set(outputs)
    live: list[tuple[int, NodeProto, frozenset[int]]] = []
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        used = frozenset(k for k, o in enumerate(node.output) if o in needed)
        if not used:
            continue
        live.append((index, node, used))
        needed.update(n for n in node.input if n)
        for graph in subgraphs(node):
            needed.update(read_in(graph))
    return live[::-1]


def pruned(
    function: Function, weights: dict[str, np.ndarray]
) -> tuple[Function, dict[str, np.ndarray]]:
    """The function without bindings and weights that no result needs."""
    needed = set(function.results)
    kept: list[Binding] = []
    for binding in reversed(function.bindings):
        if needed.intersection(binding.outputs):
            kept.append(binding)
            needed.update(binding.operands())
    used = tuple((v, key) for v, key in function.weights if v in needed)
    keys = {key for _, key in used}
    small = function.replace(bindings=tuple(kept[::-1]), weights=used)
    return small, {k: a for k, a in weights.items() if k in keys}


def read_in(graph: GraphProto) -> Iterator[str]:
    """Names that the nodes of a graph, those inside of nodes, or its outputs read."""
    for node in graph.node:
        yield from (n for n in node.input if n)
        for inner in subgraphs(node):
            yield from read_in(inner)
    yield from (o.name for o in graph.output)
