"""ONNX's rules for shapes given as operands, on symbolic sizes.

reshape to [0, -1, 64]        0 copies a dim, -1 is what remains
slice [-5:INT_MAX]            counted from the end, clamped to the dim
expand to [1, n]              broadcasts both ways
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Site, product
from pliant.frontend.onnx.symbolic import Sizes
from pliant.ops.common import joined
from pliant.sym.expr import Int, as_int


@dataclass(frozen=True)
class SliceRange:
    """Normalised bounds along one dim; with step < 0 a stop of -1 means before the first."""

    start: Int
    stop: Int
    step: int


def reshaped(site: Site) -> tuple[Int, ...]:
    """The shape that Reshape gives."""
    shape = site.item(0).shape
    wanted = site.ints(1, "shape")
    if site.item(1).rank > 1:
        raise InvalidModelError(f"{site.span}: the shape is a tensor of rank {site.item(1).rank}")
    zero_copies = not (site.opset >= 14 and site.int_attr("allowzero", 0))
    out: list[Int] = []
    open_at = None
    for k, d in enumerate(wanted):
        if d == 0 and zero_copies:
            if k >= len(shape):
                raise InvalidModelError(f"{site.span}: shape entry {k} copies a missing dim")
            out.append(shape[k])
        elif d == -1:
            if open_at is not None:
                raise InvalidModelError(
                    f"{site.span}: the shape {list(map(str, wanted))} has two -1"
                )
            open_at = k
            out.append(as_int(1))
        else:
            out.append(d)
    if open_at is not None:
        out[open_at] = quotient(site.sizes, shape, [d for k, d in enumerate(out) if k != open_at])
    return tuple(out)


def quotient(sizes: Sizes, shape: Sequence[Int], rest: Sequence[Int]) -> Int:
    """product(shape) / product(rest), which reshape checks to be exact.

    Equal factors are cancelled first, so that no size that may be 0 divides.
    """
    left = list(shape)
    right: list[Int] = []
    for d in rest:
        if d in left:
            left.remove(d)
        else:
            right.append(d)
    total, divisor = product(left), product(right)
    if divisor == 1:
        return total
    return sizes.divide(total, divisor)


def slice_ranges(site: Site) -> tuple[SliceRange, ...]:
    """The bounds of Slice, one range a dim."""
    shape = site.item(0).shape
    if site.opset >= 10:
        starts, ends = site.ints(1, "starts"), site.ints(2, "ends")
        axes = site.axes(3, len(shape), since=10) if site.has(3) else None
        steps = site.numbers(4, "steps") if site.has(4) else (1,) * len(starts)
    else:
        starts = tuple(map(as_int, site.ints_attr("starts")))
        ends = tuple(map(as_int, site.ints_attr("ends")))
        axes = site.axes(3, len(shape), since=10)
        steps = (1,) * len(starts)
    if axes is None:
        axes = tuple(range(len(starts)))
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise InvalidModelError(f"{site.span}: starts, ends, axes and steps do not fit together")
    out = [SliceRange(as_int(0), d, 1) for d in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if axis >= len(shape):
            raise InvalidModelError(f"{site.span}: slices dim {axis} of a rank {len(shape)} tensor")
        out[axis] = slice_range(site.sizes, start, end, step, shape[axis])
    return tuple(out)


def slice_range(sizes: Sizes, start: Int, end: Int, step: int, size: Int) -> SliceRange:
    """Bounds along a dim of `size`, clamped."""
    if step > 0:
        first = _clamped(sizes, start, as_int(0), size, size)
        last = _clamped(sizes, end, as_int(0), size, size)
        return SliceRange(first, sizes.greatest(last, first), step)
    # Not before the first element, as ONNX has it, where there is one: NumPy takes nothing then.
    lowest = sizes.least(as_int(0), size - 1)
    first = _clamped(sizes, start, lowest, size - 1, size)
    last = _clamped(sizes, end, as_int(-1), size - 1, size)
    return SliceRange(first, sizes.least(last, first), step)


def _clamped(sizes: Sizes, at: Int, low: Int, high: Int, size: Int) -> Int:
    if at.is_const and abs(at.value) >= 1 << 30:  # "to the end", however it is spelt
        return high if at.value > 0 else low
    at = sizes.wrap(at, size)
    if sizes.is_nonneg(high - at):
        return sizes.greatest(at, low)
    return sizes.greatest(sizes.least(at, high), low)


def split_sizes(site: Site, axis: int) -> tuple[Int, ...]:
    """The sizes of Split's parts along `axis`."""
    size = site.item(0).shape[axis]
    if site.opset >= 13 and site.has(1):
        return site.ints(1, "split")
    if site.opset < 13 and site.has_attr("split"):
        return tuple(map(as_int, site.ints_attr("split")))
    count = len(site.node.output)
    if site.opset < 18:
        return (site.sizes.divide(size, as_int(count)),) * count
    parts = site.int_attr("num_outputs", count)
    if parts != count:
        raise InvalidModelError(
            f"{site.span}: num_outputs is {parts}, and there are {count} outputs"
        )
    chunk = (size + parts - 1) // parts
    full = [site.sizes.clamp(size - chunk * k, as_int(0), chunk) for k in range(parts)]
    return tuple(full)


def broadcast(sizes: Sizes, a: Sequence[Int], b: Sequence[Int]) -> tuple[Int, ...]:
    """The shape of two shapes broadcast against each other."""
    rank = max(len(a), len(b))
    left = (as_int(1),) * (rank - len(a)) + tuple(a)
    right = (as_int(1),) * (rank - len(b)) + tuple(b)
    return tuple(_broadcast_dim(sizes, x, y) for x, y in zip(left, right, strict=True))


def _broadcast_dim(sizes: Sizes, a: Int, b: Int) -> Int:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if a.is_const:
        return a
    if b.is_const or sizes.facts.equal(a, b):
        return b
    return joined((a, b))
