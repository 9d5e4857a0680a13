"""Filters of small windows in bf16 lie as what multiplies them takes them: rows in pairs.

    y[c, i, j] = sum_r,s x[c, i + r, j + s] * w[c, r, s]
 ->
    p[R, s, C, h, q, k, e] = w[32*C + 8*q + 4*h + k, 2*R + e, s]     (0 beyond what there is)
    y[c, i, j] = sum_r,s x[c, i + r, j + s] * p[r//2, s, c//32, c//4 % 2, c//8 % 4, c % 4, r % 2]

Where an instruction adds two products of neighbours to a sum, a window's rows are taken two at a
time (`schedule.recipes.windowed`), and what two vectors of an image hold is brought together by
unpacking them, which mixes their lanes (`codegen.llvm.unpacked`). Filters that are known when a
model is compiled lie in pairs and in that order: nothing has to be done about them in a call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import (
    Axis,
    Binary,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    const,
    index_names,
    loads_of,
    substitute,
)
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, all_of, compute
from pliant.ir.windows import TILE, is_small, loaded
from pliant.lower.access import is_copy
from pliant.lower.constants import constant_values
from pliant.lower.inline_copies import simplify_indices, through
from pliant.lower.layout import Order
from pliant.lower.stages import Stage, Stages, remove_dead
from pliant.sym.expr import Int, as_int, ceildiv, var
from pliant.sym.facts import Facts

PAIR: Final = 2  # rows of a window, and products that the instruction adds up
PARTS: Final = 4  # of a register, within each of which it is unpacked
PART: Final = 4  # f32 in each
BLOCK: Final = 2 * PARTS * PART  # channels in two registers
LEAST: Final = PARTS * PART  # of a block's rest: fewer are under a mask


class _Window(NamedTuple):
    """What is read of a filter, by the axes of channels, and of a window's rows and columns."""

    filters: Load
    channel: Axis
    row: Axis
    column: Axis


def pair_filters(s: Stages, orders: dict[str, Order]) -> None:
    """Add stages that lay out filters, and have windows read these."""
    tensors = {n: st.tensor for n, st in s.stages.items() if isinstance(st.tensor, Compute)}
    windows = {n: w for n, t in tensors.items() if (w := _window(t, orders[n])) is not None}
    if not windows:
        return
    constants = constant_values(s)
    made: dict[Compute, str] = {}
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        w = windows.get(name)
        if w is not None and w.filters.source.name in constants:
            pairs = _pairs(w, s.facts)
            source = w.filters.source.name
            copied = tensors.get(source)
            if copied is not None and is_copy(copied):
                pairs = simplify_indices(through(pairs, {source: copied}), s.facts)
            if pairs not in made:
                added = s.added(f"{name}.pairs", pairs, "pack", stage.spans)
                made[pairs] = added.name
                stages[added.name] = added
                orders[added.name] = tuple(range(len(pairs.axes)))
            read: dict[Node, Load] = {w.filters: _read(w, s.types[made[pairs]])}
            stage = replace(stage, tensor=transform(stage.tensor, lambda n: n, read))
        stages[name] = stage
    s.stages = stages
    remove_dead(s)


def reads_pairs(tensor: Compute) -> bool:
    """Whether it reads filters that lie so."""
    blocks = {Index(var(a.var) // BLOCK) for a in tensor.axes}
    return any(i in blocks for load in loads_of(tensor.body) for i in load.indices)


def _window(tensor: Compute, order: Order) -> _Window | None:
    """A small window that slides along rows and columns of an image, whose channels, with filters
    of their own, lie innermost; None for anything else."""
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum" or not is_small(tensor):
        return None
    factors = factors_in_bf16(body.body)
    if factors is None or len(order) < 3 or len(tensor.reduce_axes) != 2:
        return None
    columns, channel = (tensor.axes[d] for d in order[-2:])
    narrow = columns.extent.is_const and columns.extent.value < TILE
    if narrow or not _fills_blocks(channel.extent):
        return None
    for image, filters in (factors, factors[::-1]):
        read = loaded(image)
        if read is None or not isinstance(filters, Load):
            continue
        if Index(var(channel.var)) not in read.indices:
            continue
        slid = [names for i in read.indices if columns.var in (names := index_names(i))]
        for row, column in (tensor.reduce_axes, tensor.reduce_axes[::-1]):
            w = _Window(filters, channel, row, column)
            if slid == [{columns.var, column.var}] and row.extent.value > 1 and _is_of_all(w):
                return w
    return None


def _fills_blocks(channels: Int) -> bool:
    """Whether so many channels are known to be blocks, perhaps and a half."""
    return channels.is_const and channels.value >= BLOCK and channels.value % BLOCK in (0, LEAST)


def _is_of_all(w: _Window) -> bool:
    """Whether filters have a place for each channel, row and column, and nothing else."""
    varying = [i for i in w.filters.indices if index_names(i)]
    wanted = {Index(var(a.var)) for a in (w.channel, w.row, w.column)}
    return len(varying) == len(wanted) and set(varying) == wanted


def _pairs(w: _Window, facts: Facts) -> Compute:
    """The filters as they are read."""
    rows, channels = w.row.extent, w.channel.extent
    outer = (ceildiv(rows, PAIR), w.column.extent, ceildiv(channels, BLOCK))
    shape = (*outer, *map(as_int, (2, PARTS, PART, PAIR)))

    def element(*at: Int) -> Expr:
        pair, column, block, half, part, k, e = at
        channel, row = BLOCK * block + 2 * PART * part + PART * half + k, PAIR * pair + e
        where = {w.channel.var: channel, w.row.var: row, w.column.var: column}
        value = substitute(w.filters, where)
        ends = ((channel, channels, BLOCK), (row, rows, PAIR))
        inside = [
            Binary("lt", Index(x), Index(end))
            for x, end, of in ends
            if not facts.divisible(end, of)
        ]
        return Select(all_of(inside), value, const(0, value.dtype)) if inside else value

    return simplify_indices(compute(shape, element), facts)


def _read(w: _Window, pairs: Input) -> Load:
    c, r, s = (var(a.var) for a in (w.channel, w.row, w.column))
    at = (r // PAIR, s, c // BLOCK, c // PART % 2, c // (2 * PART) % PARTS, c % PART, r % PAIR)
    return Load(pairs, tuple(map(Index, at)))
