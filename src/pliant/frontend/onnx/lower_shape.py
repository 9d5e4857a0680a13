"""Operators that move elements: reshape, slice, concat, pad and their like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.base.dtypes import boolean, i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.shapes import broadcast, reshaped, slice_ranges, split_sizes
from pliant.frontend.onnx.site import Item, Lowering, Site, product
from pliant.frontend.onnx.symbolic import from_ints, is_numeric
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int


def lower_reshape(s: Site) -> Value:
    """0 copies a dim, -1 is what remains."""
    return s.call("reshape", s.x(), shape=reshaped(s))


def lower_flatten(s: Site) -> Value:
    """To a matrix, split at `axis`."""
    x = s.x()
    rank = len(x.shape)
    axis = s.int_attr("axis", 1)
    if not -rank <= axis <= rank:
        raise InvalidModelError(f"{s.span}: axis {axis} of a tensor of rank {rank}")
    axis = axis + rank if axis < 0 else axis
    shape = (product(x.shape[:axis]), product(x.shape[axis:]))
    return s.call("reshape", x, shape=shape)


def lower_squeeze(s: Site) -> Value:
    """Without axes all dims that are 1 go: these must be known."""
    x = s.x()
    axes = s.axes(1, len(x.shape), since=13)
    if axes is None:
        axes = tuple(k for k, d in enumerate(x.shape) if d == 1)
        if any(not d.is_const for d in x.shape):
            raise s.unsupported("without axes it needs a fixed shape")
    for a in axes:
        if not x.shape[a].is_const:
            s.builder.equal(x.shape[a], 1)
    return s.call("squeeze", x, axes=axes)


def lower_unsqueeze(s: Site) -> Value:
    """Axes count in the result."""
    x = s.x()
    given = s.numbers(1, "axes") if s.opset >= 13 else s.ints_attr("axes")
    axes = s.axes(1, len(x.shape) + len(given), since=13) or ()
    return s.call("unsqueeze", x, axes=tuple(sorted(axes)))


def lower_transpose(s: Site) -> Value:
    """Reverses by default."""
    x = s.x()
    rank = len(x.shape)
    perm = s.ints_attr("perm", tuple(reversed(range(rank))))
    if sorted(perm) != list(range(rank)):
        raise InvalidModelError(f"{s.span}: perm {list(perm)} of a tensor of rank {rank}")
    return s.call("transpose", x, perm=perm)


def lower_concat(s: Site) -> Value:
    """Along an axis."""
    xs = s.xs()
    return s.call("concat", xs, axis=s.axis(rank=len(xs[0].shape)))


def lower_split(s: Site) -> tuple[Value, ...]:
    """Into given, or equal, parts."""
    x = s.x()
    axis = s.axis("axis", 0, rank=len(x.shape))
    return s.call_many("split", x, sizes=split_sizes(s, axis), axis=axis)


def lower_slice(s: Site) -> Value | Item:
    """A full reversal is a flip."""
    x = s.x()
    ranges = slice_ranges(s)
    pairs = list(zip(ranges, x.shape, strict=True))
    whole = [r.start == 0 and r.stop == d and r.step == 1 for r, d in pairs]
    back = [r.start == d - 1 and r.stop == -1 and r.step == -1 for r, d in pairs]
    if all(whole):
        return s.item(0)
    if all(a or b for a, b in zip(whole, back, strict=True)):
        return s.call("flip", x, axes=tuple(k for k, b in enumerate(back) if b))
    return s.call(
        "slice", x, starts=tuple(r.start for r in ranges), stops=tuple(r.stop for r in ranges),
        steps=tuple(r.step for r in ranges),
    )  # fmt: skip


def lower_expand(s: Site) -> Value:
    """Broadcasts both ways."""
    x = s.x()
    return s.call("expand", x, shape=broadcast(s.sizes, x.shape, s.ints(1, "shape")))


def lower_tile(s: Site) -> Value:
    """Repeats along each dim."""
    x = s.x()
    repeats = s.ints(1, "repeats")
    if len(repeats) != len(x.shape):
        raise InvalidModelError(f"{s.span}: {len(repeats)} repeats for rank {len(x.shape)}")
    return s.call("tile", x, repeats=repeats)


def lower_pad(s: Site) -> Value:
    """By a constant, or by elements of the tensor; negative amounts crop."""
    x = s.x()
    rank = len(x.shape)
    amounts = s.ints(1, "pads") if s.opset >= 11 else tuple(map(as_int, s.ints_attr("pads")))
    axes = s.axes(3, rank, since=18) if s.opset >= 18 else None
    if axes is None:
        axes = tuple(range(rank))
    if len(amounts) != 2 * len(axes):
        raise InvalidModelError(f"{s.span}: {len(amounts)} pads for {len(axes)} dims")
    pads: list[tuple[Int, Int]] = [(as_int(0), as_int(0))] * rank
    for k, a in enumerate(axes):
        pads[a] = (amounts[k], amounts[k + len(axes)])
    mode = s.str_attr("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise InvalidModelError(f"{s.span}: mode {mode!r}")
    if mode == "constant":
        return _pad_constant(s, x, tuple(pads))
    return s.call("pad", x, pads=tuple(pads), mode=mode, value=0)


def _pad_constant(s: Site, x: Value, pads: tuple[tuple[Int, Int], ...]) -> Value:
    if s.opset < 11:
        value: float = s.float_attr("value", 0.0)
    elif s.has(2):
        known = s.item(2).known
        if not is_numeric(known):
            return _pad_by_tensor(s, x, pads, s.reshape(s.x(2), ()))
        value = known.ravel()[0].item()
    else:
        value = 0
    if x.dtype.kind == "bool":
        value = bool(value)
    elif x.dtype.is_int:
        value = int(value)
    return s.call("pad", x, pads=pads, mode="constant", value=value)


def _pad_by_tensor(s: Site, x: Value, pads: tuple[tuple[Int, Int], ...], value: Value) -> Value:
    inside = s.full(x.shape, True, boolean)
    kept = s.call("pad", inside, pads=pads, mode="constant", value=False)
    zero = False if x.dtype.kind == "bool" else 0
    padded = s.call("pad", x, pads=pads, mode="constant", value=zero)
    return s.call("where", kept, padded, value)


def lower_shape_of(s: Site) -> Item:
    """The shape, or a part of it."""
    shape = s.item(0).shape
    dims = shape[slice(s.int_attr("start", 0), s.int_attr("end", len(shape)))]
    return Item(i64, (as_int(len(dims)),), known=from_ints(dims, (len(dims),)))


def lower_depth_to_space(s: Site) -> Value:
    """Channels become pixels."""
    mode = s.str_attr("mode", "DCR")
    return s.call("depth_to_space", s.x(), block=s.int_attr("blocksize"), mode=mode)


def lower_space_to_depth(s: Site) -> Value:
    """Pixels become channels."""
    x, block = s.x(), s.int_attr("blocksize")
    if s.str_attr("mode", "DCR") == "DCR":
        return s.call("space_to_depth", x, block=block)
    n, c, h, w = x.shape
    down, right = s.sizes.divide(h, as_int(block)), s.sizes.divide(w, as_int(block))
    apart = s.reshape(x, (n, c, down, block, right, block))
    moved = s.call("transpose", apart, perm=(0, 1, 3, 5, 2, 4))
    return s.reshape(moved, (n, c * block * block, down, right))


def lower_trilu(s: Site) -> Value:
    """The upper or lower triangle."""
    diagonal = s.ints(1, "k")[0] if s.has(1) else as_int(0)
    op = "triu" if s.int_attr("upper", 1) else "tril"
    return s.call(op, s.x(), diagonal=diagonal.value if diagonal.is_const else diagonal)


SHAPE: Final[Mapping[str, Lowering]] = {
    "Concat": lower_concat,
    "DepthToSpace": lower_depth_to_space,
    "Expand": lower_expand,
    "Flatten": lower_flatten,
    "Pad": lower_pad,
    "Reshape": lower_reshape,
    "Shape": lower_shape_of,
    "Slice": lower_slice,
    "SpaceToDepth": lower_space_to_depth,
    "Split": lower_split,
    "Squeeze": lower_squeeze,
    "Tile": lower_tile,
    "Transpose": lower_transpose,
    "Trilu": lower_trilu,
    "Unsqueeze": lower_unsqueeze,
}
