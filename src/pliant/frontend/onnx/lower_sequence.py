"""Sequences and optional values: there are none when a model runs, all is decided while importing.

SplitToSequence -> SequenceAt     the parts of a split, one of them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from pliant.base.dtypes import boolean, i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Item, ItemList, Lowering, Site
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int, ceildiv

MOST_MEMBERS: Final = 4096


def lower_construct(s: Site) -> Item:
    """Of the operands."""
    return ItemList.of(tuple(s.item(k) for k in range(len(s.items))))


def lower_empty(s: Site) -> Item:
    """Without members."""
    return ItemList.of(())


def lower_at(s: Site) -> Item:
    """A member."""
    members = s.members(0)
    return members[_position(s, 1, len(members))]


def lower_length(s: Site) -> Item:
    """How many members there are."""
    return Item(i64, (), known=np.asarray(len(s.members(0)), np.int64))


def lower_insert(s: Site) -> Item:
    """A member before another, or behind all."""
    members = s.members(0)
    at = _position(s, 2, len(members) + 1) if s.has(2) else len(members)
    return ItemList.of((*members[:at], s.item(1), *members[at:]))


def lower_erase(s: Site) -> Item:
    """Without a member, the last one if it does not say which."""
    members = s.members(0)
    at = _position(s, 1, len(members)) if s.has(1) else len(members) - 1
    if not members:
        raise InvalidModelError(f"{s.span}: nothing to erase")
    return ItemList.of((*members[:at], *members[at + 1 :]))


def _position(s: Site, index: int, count: int) -> int:
    at = int(s.const(index, "position").item())
    last = count - 1 if index == 2 else count
    if not -last <= at < count:
        raise InvalidModelError(f"{s.span}: position {at} of {last} members")
    return at + last if at < 0 else at


def lower_split(s: Site) -> Item:
    """Parts of given sizes, or of one size, the last perhaps smaller; of one element if none is
    given, then without the dim if `keepdims` is 0."""
    x = s.x(0)
    axis = s.axis("axis", 0, rank=len(x.shape))
    size = x.shape[axis]
    if s.has(1) and s.item(1).rank == 1:
        sizes: Sequence[Int] = s.ints(1, "split")
        return _parts(s, x, sizes, axis)
    chunk = s.ints(1, "split")[0] if s.has(1) else as_int(1)
    count = ceildiv(size, chunk)
    if not count.is_const or not chunk.is_const or chunk.value < 1:
        raise s.unsupported("how many parts there are depends on sizes that are not known")
    if count.value > MOST_MEMBERS:
        raise s.unsupported(f"{count.value} parts are more than {MOST_MEMBERS}")
    whole = [chunk] * (count.value - 1)
    parts = _parts(s, x, [*whole, size - chunk * len(whole)] if count.value else [], axis)
    if s.has(1) or s.int_attr("keepdims", 1):
        return parts
    squeezed = [s.call("squeeze", s.emitter.tensor(p), axes=(axis,)) for p in parts.members]
    return ItemList.of(tuple(Item(v.dtype, v.shape, v) for v in squeezed))


def _parts(s: Site, x: Value, sizes: Sequence[Int], axis: int) -> ItemList:
    if not sizes:
        return ItemList.of(())
    values = s.call_many("split", x, sizes=tuple(sizes), axis=axis)
    return ItemList.of(tuple(Item(v.dtype, v.shape, v) for v in values))


def lower_concat(s: Site) -> Value:
    """The members along an axis, or along a new one."""
    values = tuple(s.emitter.tensor(m) for m in s.members(0))
    if not values:
        raise InvalidModelError(f"{s.span}: a sequence without members")
    rank = len(values[0].shape)
    if s.int_attr("new_axis", 0):
        return s.call("stack", values, axis=s.axis(rank=rank + 1))
    return s.call("concat", values, axis=s.axis(rank=rank))


def lower_optional(s: Site) -> Item:
    """Its operand, or nothing."""
    return s.anything(0) if s.has(0) else ItemList.of((), absent=True)


def _is_absent(item: Item) -> bool:
    return isinstance(item, ItemList) and item.absent


def lower_has_element(s: Site) -> Item:
    """Whether there is something."""
    there = s.has(0) and not _is_absent(s.anything(0))
    return Item(boolean, (), known=np.asarray(there))


def lower_get_element(s: Site) -> Item:
    """What is there."""
    found = s.anything(0)
    if _is_absent(found):
        raise InvalidModelError(f"{s.span}: there is nothing")
    return found


SEQUENCE: Final[Mapping[str, Lowering]] = {
    "ConcatFromSequence": lower_concat,
    "Optional": lower_optional,
    "OptionalGetElement": lower_get_element,
    "OptionalHasElement": lower_has_element,
    "SequenceAt": lower_at,
    "SequenceConstruct": lower_construct,
    "SequenceEmpty": lower_empty,
    "SequenceErase": lower_erase,
    "SequenceInsert": lower_insert,
    "SequenceLength": lower_length,
    "SplitToSequence": lower_split,
}
