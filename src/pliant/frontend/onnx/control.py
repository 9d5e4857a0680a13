"""Control flow: branches, and loops of a known number of steps.

If        where its condition is known, the branch is imported in its place; else both are computed,
          as neither changes anything, and one is taken
Loop      the body is imported for every step, one after the other
Scan      the same, with parts of tensors going in
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from onnx import AttributeProto, GraphProto, ValueInfoProto

from pliant.base.dtypes import boolean, i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Item, ItemList, NeedsValueError, Site
from pliant.frontend.onnx.symbolic import is_numeric
from pliant.frontend.onnx.tensors import dtype_of
from pliant.graph.function import Value

MOST_NODES: Final = 20_000
"""That a loop becomes: beyond, compiling takes longer than anybody waits."""

Items = tuple[Item | None, ...]
RunGraph = Callable[[GraphProto, Mapping[str, Item]], Items]
"""Import the nodes of a graph, with these values for names: its results."""


class BlockedError(Exception):
    """A node reads what could not be imported."""


def branch(site: Site, run: RunGraph) -> Items:
    """The branch that the condition takes; where only a call can tell, what it takes of both."""
    condition = site.item(0)
    if is_numeric(condition.known):
        taken = "then_branch" if bool(condition.known.all()) else "else_branch"
        return run(_graph(site, taken), {})
    both = [_complete(run(_graph(site, name), {})) for name in ("then_branch", "else_branch")]
    if len(both[0]) != len(both[1]):
        raise InvalidModelError(f"{site.span}: its branches have different numbers of results")
    flag = site.x(0)
    if flag.shape:
        flag = site.call("reshape", flag, shape=())
    pairs = zip(*both, strict=True)
    return tuple(_taken(site, flag, *p) if k in site.used else None for k, p in enumerate(pairs))


def _taken(site: Site, flag: Value, then: Item, otherwise: Item) -> Item:
    """The one or the other, element by element, as the condition says in a call."""
    if isinstance(then, ItemList) or isinstance(otherwise, ItemList):
        raise site.unsupported("a branch gives a sequence, and which is taken is computed")
    facts = site.builder.facts
    alike = (
        then.dtype is otherwise.dtype
        and then.small == otherwise.small
        and then.rank == otherwise.rank
        and all(facts.equal(a, b) for a, b in zip(then.shape, otherwise.shape, strict=True))
    )
    if not alike:
        raise NeedsValueError(
            f"its branches give {_type(then)} and {_type(otherwise)}, and which is taken is "
            "computed at run time: they must be alike", site.item(0).inputs,
        )  # fmt: skip
    value = site.call("where", flag, *(site.emitter.tensor(x) for x in (then, otherwise)))
    return Item(value.dtype, value.shape, value, small=then.small)


def _type(item: Item) -> str:
    return f"{item.dtype}[{', '.join(map(str, item.shape))}]"


def loop(site: Site, run: RunGraph) -> Items:
    """All steps, one after the other; whether there is another must be known after each."""
    body = _graph(site, "body")
    most = int(site.const(0, "number of steps").item()) if site.has(0) else None
    going = bool(site.const(1, "condition").all()) if site.has(1) else True
    carried = [_given(site, k) for k in range(2, len(site.items))]
    count = len(carried)
    if len(body.input) != count + 2 or len(body.output) < count + 1:
        raise InvalidModelError(f"{site.span}: its body does not fit its operands")
    kept: list[list[Item]] = [[] for _ in body.output[count + 1 :]]
    step = 0
    while going and (most is None or step < most):
        _check_nodes(site, body, step)
        own = (_known(np.asarray(step, np.int64)), _known(np.asarray(True)))
        names = [i.name for i in body.input]
        results = _complete(run(body, dict(zip(names, (*own, *carried), strict=True))))
        goes_on, carried, step = results[0], results[1 : count + 1], step + 1
        for parts, result in zip(kept, results[count + 1 :], strict=True):
            parts.append(result)
        if not is_numeric(goes_on.known):
            raise NeedsValueError("whether it goes on is computed at run time", goes_on.inputs)
        going = bool(goes_on.known.all())
    axes = (0,) * len(kept)
    return (*carried, *_collected(site, kept, axes, count, body.output[count + 1 :]))


def scan(site: Site, run: RunGraph) -> Items:
    """All steps along an axis of the last operands."""
    if site.opset < 9:
        raise site.unsupported("Scan before opset 9 is not supported")
    body = _graph(site, "body")
    many = site.int_attr("num_scan_inputs")
    states = len(site.items) - many
    rest = len(body.output) - states
    if many < 1 or states < 0 or rest < 0 or len(body.input) != len(site.items):
        raise InvalidModelError(f"{site.span}: its body does not fit its operands")
    axes = site.ints_attr("scan_input_axes", (0,) * many)
    back = site.ints_attr("scan_input_directions", (0,) * many)
    sources = [site.x(states + k) for k in range(many)]
    lengths = [
        x.shape[site.positive_axis(a, len(x.shape))] for x, a in zip(sources, axes, strict=True)
    ]
    if not lengths[0].is_const:
        raise site.unsupported(f"it has {lengths[0]} steps, and their number must be known")
    for other in lengths[1:]:
        site.builder.equal(lengths[0], other, f"{site.span}: lengths of its operands")
    count = lengths[0].value
    carried = [_given(site, k) for k in range(states)]
    kept: list[list[Item]] = [[] for _ in range(rest)]
    names = [i.name for i in body.input]
    for step in range(count):
        _check_nodes(site, body, step)
        parts = [
            _part(site, x, a, count - 1 - step if b else step)
            for x, a, b in zip(sources, axes, back, strict=True)
        ]
        results = _complete(run(body, dict(zip(names, (*carried, *parts), strict=True))))
        carried = results[:states]
        for found, result in zip(kept, results[states:], strict=True):
            found.append(result)
    out_axes = site.ints_attr("scan_output_axes", (0,) * rest)
    out_back = site.ints_attr("scan_output_directions", (0,) * rest)
    turned = [found[::-1] if b else found for found, b in zip(kept, out_back, strict=True)]
    return (*carried, *_collected(site, turned, out_axes, states, body.output[states:]))


def _graph(site: Site, name: str) -> GraphProto:
    found = site.attributes.get(name)
    if found is None or found.type != AttributeProto.GRAPH:
        raise InvalidModelError(f"{site.span}: attribute {name!r} is no graph")
    return found.g


def _given(site: Site, index: int) -> Item:
    item = site.items[index]
    if item is None:
        raise InvalidModelError(f"{site.span}: operand {index} is missing")
    return item


def _known(array: np.ndarray) -> Item:
    return Item(boolean if array.dtype == np.bool_ else i64, (), known=array)


def _check_nodes(site: Site, body: GraphProto, steps: int) -> None:
    if (steps + 1) * max(len(body.node), 1) > MOST_NODES:
        raise site.unsupported(
            f"{steps + 1} steps of {len(body.node)} nodes or more; it is written out, "
            f"and {MOST_NODES} nodes are the most"
        )


def _complete(items: Items) -> list[Item]:
    found = [i for i in items if i is not None]
    if len(found) != len(items):
        raise BlockedError
    return found


def _part(site: Site, x: Value, axis: int, k: int) -> Item:
    """`x` at place k of an axis."""
    axis = site.positive_axis(axis, len(x.shape))
    value = site.call("squeeze", site.part(x, axis, k, k + 1), axes=(axis,))
    return Item(value.dtype, value.shape, value)


def _stacked(site: Site, parts: Sequence[Item], axis: int) -> Item:
    values = tuple(site.emitter.tensor(p) for p in parts)
    where = site.positive_axis(axis, len(values[0].shape) + 1)
    value = site.call("stack", values, axis=where)
    return Item(value.dtype, value.shape, value)


def _collected(
    site: Site, kept: Sequence[Sequence[Item]], axes: Sequence[int], first: int,
    infos: Sequence[ValueInfoProto],
) -> list[Item | None]:  # fmt: skip
    """What all steps gave, joined, from result `first` of the node on; None where nobody reads."""
    found: list[Item | None] = []
    for k, (parts, axis, info) in enumerate(zip(kept, axes, infos, strict=True), first):
        if k not in site.used:
            found.append(None)
        else:
            found.append(_stacked(site, parts, axis) if parts else _nothing(site, info))
    return found


def _nothing(site: Site, info: ValueInfoProto) -> Item:
    """What no step adds to: its type must be in the file."""
    tensor = info.type.tensor_type
    dims = [d.dim_value for d in tensor.shape.dim if d.HasField("dim_value")]
    if not tensor.HasField("shape") or len(dims) != len(tensor.shape.dim):
        raise site.unsupported("it has no steps, and the file does not say what its results are")
    value = site.full((0, *dims), 0, dtype_of(tensor.elem_type, "a result"))
    return Item(value.dtype, value.shape, value)
