"""Which values are constants: they depend on weights and places alone, and on no symbol.

    angle[i, d] = f32(i) * pow(1e4, -d/32)      takes long: computed when the model is compiled
    rotated[i, d] = cos(angle[i, d])            of a constant
    mask[i, j] = i < j                          cheap, of places: computed where it is read

What is made of places alone costs less to compute again than to load, and what it computes can be
seen where it is read (a mask says which keys it hides): it is a constant only where it takes long,
or where constants alone read it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Final

from pliant.ir.expr import Index
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, own_nodes
from pliant.lower.access import classify, takes_long
from pliant.lower.stages import Stage, Stages, readers_of
from pliant.sym.expr import as_int

MOST: Final = 1 << 22
"""Elements of a map of places that are kept rather than made again."""


def constant_values(s: Stages) -> frozenset[str]:
    """The names of the weights, and of stages that can be computed when the model is compiled."""
    known, placed = _made_early(s)
    readers = readers_of(s)
    for name in reversed(tuple(placed)):
        if readers.get(name) and all(r in known for r in readers[name]):
            known.add(name)
    return frozenset(known)


def part_places(s: Stages) -> None:
    """What is made of places alone, and is read by constants and by others, becomes two stages of
    one meaning: one is computed when the model is compiled, the other where it is read."""
    known, placed = _made_early(s)
    readers = readers_of(s)
    copied: dict[str, Stage] = {}
    for name in reversed(tuple(placed)):
        early = [r for r in readers.get(name, ()) if r in known or r in copied]
        if not early:
            continue
        if len(early) == len(readers[name]):
            known.add(name)
            continue
        stage = s.stages[name]
        copy = replace(stage, name=s.fresh(f"{name}.once"))
        s.types[copy.name] = Input(copy.name, stage.tensor.dtype, stage.tensor.shape)
        moved: dict[Node, Any] = {s.types[name]: s.types[copy.name]}
        for reader in early:
            if reader in copied:
                copied[reader] = _reading(copied[reader], moved)
            else:
                s.stages[reader] = _reading(s.stages[reader], moved)
        copied[name] = copy
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        if name in copied:
            stages[copied[name].name] = copied[name]
        stages[name] = stage
    s.stages = stages


def _reading(stage: Stage, moved: dict[Node, Any]) -> Stage:
    return replace(stage, tensor=transform(stage.tensor, lambda n: n, dict(moved)))


def _made_early(s: Stages) -> tuple[set[str], dict[str, None]]:
    """What is constant by what it is made of; and, of places alone, what is cheap."""
    known = {v.name for v, _ in s.weights}
    placed: dict[str, None] = {}
    for name, stage in s.stages.items():
        if name in s.results or not _is_fixed(stage):
            continue
        if stage.inputs and all(i in known for i in stage.inputs):
            known.add(name)
        elif all(i in known or i in placed for i in stage.inputs):
            if _takes_long(stage):
                known.add(name)
            elif not any(i in known for i in stage.inputs):
                placed[name] = None
    return known, placed


def _takes_long(stage: Stage) -> bool:
    tensor = stage.tensor
    assert isinstance(tensor, Compute)
    if classify(tensor) not in ("map", "copy"):
        return True
    elements = prod(tensor.shape, start=as_int(1)).value
    return takes_long(tensor.body) and elements <= MOST


def _is_fixed(stage: Stage) -> bool:
    """Whether no symbol of the model is in it."""
    tensor = stage.tensor
    if not isinstance(tensor, Compute) or any(d.names for d in tensor.shape):
        return False
    if any(a.extent.names for a in tensor.reduce_axes):
        return False
    return all(n.startswith("_") for n in _index_names(tensor))


def _index_names(tensor: Compute) -> set[str]:
    from_indices: set[str] = set()
    for node in own_nodes(tensor.body):
        if isinstance(node, Index):
            from_indices |= node.int_.names
    return from_indices
