"""Fission: a graph function as a flat list of tensor expressions, one comprehension each.

    y = softmax(x, axis=1)     ->     y.0: t[_i0] = max(x[_i0, _r0])
                                      y.1: t[_i0, _i1] = exp(x[_i0, _i1] - y.0[_i0])
                                      y.2: t[_i0] = sum(y.1[_i0, _r0])
                                      y:   t[_i0, _i1] = y.1[_i0, _i1] / y.2[_i0]

Each stage reads placeholders named after what produces them. Equal stages are one (common
subexpressions), stages that nobody needs are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pliant.base.names import fresh_name
from pliant.base.spans import Span
from pliant.graph.builder import define
from pliant.graph.expression import Notes, expression_of
from pliant.graph.function import Function, Value
from pliant.graph.operator import Operators
from pliant.ir.node import Node, exact, transform
from pliant.ir.tensor import (
    Compute,
    Input,
    Opaque,
    OpaqueOutput,
    Scan,
    Scatter,
    Tensor,
    compute,
    producers,
    sources,
)
from pliant.lower.access import reads_many
from pliant.sym.expr import Int
from pliant.sym.facts import Facts


@dataclass(frozen=True)
class Stage:
    """`name` is defined by `tensor`, whose inputs are placeholders with the names of others.

    `notes` are what passes have decided before, where the function was lowered so far already."""

    name: str
    tensor: Tensor
    op: str
    spans: tuple[Span, ...] = ()
    notes: Notes = ()

    def note(self, name: str) -> Any:
        """What was decided, or None."""
        return dict(self.notes).get(name)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(s.name for s in sources(self.tensor))


@dataclass
class Stages:
    """A function after fission. `stages` is in execution order."""

    name: str
    params: tuple[Value, ...]
    weights: tuple[tuple[Value, str], ...]
    stages: dict[str, Stage]
    results: tuple[str, ...]
    facts: Facts
    function: Function
    types: dict[str, Input] = field(default_factory=dict)

    def placeholder(self, name: str) -> Input:
        """The placeholder of a parameter, weight or stage."""
        return self.types[name]

    def fresh(self, wish: str) -> str:
        """A name that nothing has, like `wish`."""
        return fresh_name(wish, self.types)

    def added(self, wish: str, tensor: Compute, op: str, spans: tuple[Span, ...]) -> Stage:
        """A stage under a name like `wish`, which is not among the others yet."""
        name = self.fresh(wish)
        self.types[name] = Input(name, tensor.dtype, tensor.shape)
        return Stage(name, tensor, op, spans)

    def apart(self, stage: Stage, wish: str) -> tuple[Stage, Stage]:
        """What a stage makes, under a name like `wish`, and a copy of it under the stage's own."""
        tensor, inner = stage.tensor, self.fresh(wish)
        self.types[inner] = Input(inner, tensor.dtype, tensor.shape)
        copy = Stage(stage.name, copy_of(self.types[inner]), "copy", stage.spans)
        return replace(stage, name=inner), copy


def readers_of(s: Stages) -> dict[str, list[str]]:
    """The stages that read each value."""
    readers: dict[str, list[str]] = {}
    for name, stage in s.stages.items():
        for source in stage.inputs:
            readers.setdefault(source, []).append(name)
    return readers


def copy_of(source: Input) -> Compute:
    """The comprehension that copies a value."""
    return compute(source.dims, lambda *i: source[i])


def fission(function: Function, operators: Operators, facts: Facts) -> Stages:
    """Split every operator into its comprehensions."""
    types: dict[str, Input] = {}
    alias: dict[str, str] = {}
    for value in (*function.params, *(v for v, _ in function.weights)):
        types[value.name] = Input(value.name, value.dtype, value.shape)
    stages: dict[str, Stage] = {}
    known: dict[Tensor, str] = {}
    definitions: dict[Any, tuple[Tensor, ...]] = {}
    for binding in function.bindings:
        key = (binding.op, tuple(_signature(a) for a in binding.args), exact(binding.attrs))
        tensors = definitions.get(key)
        if tensors is None:
            tensors = define(operators[binding.op], binding.args, binding.attributes())
            definitions[key] = tensors
        operands = _operand_names(binding.args)
        found = expression_of(binding)
        # What it is for is no decision.
        notes = () if found is None else tuple(x for x in found[1] if x[0] != "op")
        op = dict(binding.attributes().get("notes", ())).get("op", binding.op)
        memo: dict[Node, Any] = {}
        names: dict[Tensor, str] = {}
        finals = dict(zip(tensors, binding.outputs, strict=True))
        for k, tensor in enumerate(producers(tensors)):
            if isinstance(tensor, Input):
                name = operands[tensor.label]
                memo[tensor] = types[alias.get(name, name)]
                continue
            final = finals.get(tensor)
            name = f"{binding.outputs[0].name}.{k}" if final is None else final.name
            renamed = _retarget(tensor, memo, name)
            if final is not None and isinstance(renamed, Compute):
                renamed = _of_shape(renamed, final.shape)
            # What is made of many elements of an image is larger than it: each reader has its own.
            if not isinstance(renamed, Compute) or renamed.reduce_axes or not reads_many(renamed):
                name = known.setdefault(renamed, name)
            if name not in stages:
                stages[name] = Stage(name, renamed, op, binding.spans, notes)
                types[name] = Input(name, tensor.dtype, renamed.shape)
            memo[tensor] = renamed if isinstance(renamed, Opaque) else types[name]
            names[tensor] = name
        for tensor, value in zip(tensors, binding.outputs, strict=True):
            name = operands[tensor.label] if isinstance(tensor, Input) else names[tensor]
            alias[value.name] = alias.get(name, name)
    results = tuple(alias.get(v.name, v.name) for v in function.results)
    out = Stages(function.name, function.params, function.weights, stages, results, facts, function,
                 types)  # fmt: skip
    remove_dead(out)
    return out


def remove_dead(s: Stages) -> None:
    """Drop stages that no result needs."""
    needed: set[str] = set()
    stack = list(s.results)
    while stack:
        name = stack.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in s.stages:
            stack += s.stages[name].inputs
    s.stages = {n: st for n, st in s.stages.items() if n in needed}


def _retarget(tensor: Tensor, memo: dict[Node, Any], name: str) -> Tensor:
    """`tensor` reading from what `memo` maps its sources to; only a program keeps a label. What it
    requires of sizes is among the function's equalities, and no stage's business any more."""
    table = dict(memo)
    match tensor:
        case Compute():
            body = transform(tensor.body, _same, table)
            return Compute("t", tensor.axes, body)
        case Scan():
            return tensor.replace(label="t", body=transform(tensor.body, _same, table))
        case Scatter():
            return tensor.replace(
                label="t",
                base=memo[tensor.base],
                where=tuple(transform(w, _same, table) for w in tensor.where),
                value=transform(tensor.value, _same, table),
                skip=None if tensor.skip is None else transform(tensor.skip, _same, table),
                requires=(),
            )
        case Opaque():
            return tensor.replace(
                label=name, operands=tuple(memo[o] for o in tensor.operands), requires=()
            )
        case OpaqueOutput():
            return tensor.replace(of=memo[tensor.of])
    raise AssertionError(tensor)


def _of_shape(tensor: Compute, shape: tuple[Int, ...]) -> Compute:
    """A definition's `max(0, h - 2)` is `h - 2` where a model's sizes are known to be large enough:
    what reads it says so."""
    if tensor.shape == shape:
        return tensor
    axes = [a.replace(extent=d) for a, d in zip(tensor.axes, shape, strict=True)]
    return tensor.replace(axes=tuple(axes))


def _same(node: Node) -> Node:
    return node


def _signature(arg: Any) -> Any:
    if arg is None:
        return None
    return tuple(_signature(a) for a in arg) if isinstance(arg, tuple) else arg.type


def _operand_names(args: tuple[Any, ...]) -> dict[str, str]:
    """The names that `define` gives to operands -> the values' names."""
    names: dict[str, str] = {}
    for k, arg in enumerate(args):
        if isinstance(arg, tuple):
            names |= {f"a{k}_{j}": a.name for j, a in enumerate(arg) if a is not None}
        elif arg is not None:
            names[f"a{k}"] = arg.name
    return names
