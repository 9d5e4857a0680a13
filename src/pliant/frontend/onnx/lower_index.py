"""Gather, scatter, sort and other operators that move elements by index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Lowering, Site, product
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int

_REDUCTIONS: Final = {"none", "add", "mul", "max", "min"}


def indices(s: Site, index: int = 1) -> Value:
    """An operand of integers; negative ones count from the end."""
    x = s.x(index)
    if not x.dtype.is_int:
        raise InvalidModelError(f"{s.span}: indices are {x.dtype}")
    return x


def lower_gather(s: Site) -> Value:
    """Slices along an axis."""
    x = s.x()
    axis = s.axis("axis", 0, rank=len(x.shape))
    return s.call("gather", x, indices(s), axis=axis)


def lower_gather_elements(s: Site) -> Value:
    """One element for each index."""
    x = s.x()
    axis = s.axis("axis", 0, rank=len(x.shape))
    return s.call("gather_elements", x, indices(s), axis=axis)


def lower_gather_nd(s: Site) -> Value:
    """Slices by index tuples."""
    batch = s.int_attr("batch_dims", 0)
    x = s.x()
    return s.call("gather_nd", x, indices(s), batch_dims=batch)


def _reduction(s: Site) -> str:
    found = s.str_attr("reduction", "none")
    if found not in _REDUCTIONS:
        raise InvalidModelError(f"{s.span}: reduction {found!r}")
    return found


def lower_scatter_elements(s: Site) -> Value:
    """Stores one element for each index."""
    x = s.x()
    axis = s.axis("axis", 0, rank=len(x.shape))
    at = indices(s)
    return s.call("scatter_elements", x, at, s.x(2), axis=axis, reduction=_reduction(s))


def lower_scatter_nd(s: Site) -> Value:
    """Stores slices at index tuples."""
    x = s.x()
    return s.call("scatter_nd", x, indices(s), s.x(2), reduction=_reduction(s))


def lower_top_k(s: Site) -> tuple[Value, ...]:
    """k is an operand since opset 10."""
    x = s.x()
    k = s.ints(1, "k")[0] if s.opset >= 10 else as_int(s.int_attr("k"))
    return s.call_many(
        "topk", x, k=k, axis=s.axis("axis", -1, rank=len(x.shape)),
        largest=bool(s.int_attr("largest", 1)), sorted=bool(s.int_attr("sorted", 1)),
    )  # fmt: skip


def lower_one_hot(s: Site) -> Value:
    """Positions out of range give no "on" value."""
    depth = s.ints_of_any(1, "depth")[0]
    values = s.x(2)
    at = s.item(0)
    axis = s.axis("axis", -1, rank=at.rank + 1)
    where = s.cast(s.x(0), i64)
    negative = s.call("lt", where, s.scalar(0, i64))
    where = s.call("where", negative, s.call("add", where, s.size(depth)), where)
    shape = tuple(depth if k == axis else as_int(1) for k in range(at.rank + 1))
    places = s.reshape(s.call("iota", size=depth, start=0, step=1, dtype=i64), shape)
    hit = s.call("eq", s.call("unsqueeze", where, axes=(axis,)), places)
    off, on = (s.reshape(_element(s, values, k), ()) for k in (0, 1))
    return s.call("where", hit, on, off)


def _element(s: Site, values: Value, k: int) -> Value:
    bounds = {"starts": (as_int(k),), "stops": (as_int(k + 1),), "steps": (1,)}
    return s.call("slice", values, **bounds)


def lower_compress(s: Site) -> Value:
    """With a constant condition it is a gather."""
    x = s.x()
    (keep,) = np.nonzero(s.const(1, "condition").ravel())
    picked = s.weight(keep.astype(np.int64), "kept")
    if not s.has_attr("axis"):
        return s.call("gather", s.reshape(x, (product(x.shape),)), picked, axis=0)
    return s.call("gather", x, picked, axis=s.axis(rank=len(x.shape)))


def lower_reverse_sequence(s: Site) -> Value:
    """Reverses the first `sequence_lens[b]` steps of each sample."""
    x = s.x()
    time, batch = s.int_attr("time_axis", 0), s.int_attr("batch_axis", 1)
    shape = x.shape
    steps = s.call("iota", size=shape[time], start=0, step=1, dtype=i64)
    t = s.reshape(steps, _along(len(shape), time, shape[time]))
    lengths = s.reshape(s.cast(s.x(1), i64), _along(len(shape), batch, shape[batch]))
    back = s.call("sub", s.call("sub", lengths, s.scalar(1, i64)), t)
    at = s.call("where", s.call("lt", t, lengths), back, t)
    at = s.call("expand", at, shape=shape)
    return s.call("gather_elements", x, at, axis=time)


def _along(rank: int, axis: int, size: Int) -> tuple[Int, ...]:
    return tuple(size if k == axis else as_int(1) for k in range(rank))


def lower_tensor_scatter(s: Site) -> Value:
    """Writes new keys or values into a cache, from a position for each sample."""
    cache, update = s.x(0), s.x(1)
    rank = len(cache.shape)
    axis = s.axis("axis", -2, rank=rank)
    length = update.shape[axis]
    at = s.call("iota", size=length, start=0, step=1, dtype=i64)
    at = s.reshape(at, _along(rank, axis, length))
    if s.has(2):
        first = s.reshape(s.cast(s.x(2), i64), _along(rank, 0, cache.shape[0]))
        at = s.call("add", at, first)
    if s.str_attr("mode", "linear") == "circular":
        at = s.call("floormod", at, s.size(cache.shape[axis]))
    at = s.call("expand", at, shape=update.shape)
    return s.call("scatter_elements", cache, at, update, axis=axis, reduction="none")


INDEX: Final[Mapping[str, Lowering]] = {
    "Compress": lower_compress,
    "Gather": lower_gather,
    "GatherElements": lower_gather_elements,
    "GatherND": lower_gather_nd,
    "OneHot": lower_one_hot,
    "ReverseSequence": lower_reverse_sequence,
    "Scatter": lower_scatter_elements,
    "ScatterElements": lower_scatter_elements,
    "ScatterND": lower_scatter_nd,
    "TensorScatter": lower_tensor_scatter,
    "TopK": lower_top_k,
}
