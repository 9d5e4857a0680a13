"""A reduction over a window that slides along images, by columns or by rows: tiles of registers.

    loops over all but the last two dimensions, shared between threads
        the last but one in tiles, the last in blocks of a few vectors; tile by tile, as what lies
        side by side is fetched ahead, or block by block with large windows, whose weights and
        inputs for all blocks would not stay in a cache
            a tile of accumulators starts; each element of the window updates all of it; it is used
            what slides along the tile is the innermost of the window's loops; it, and those of the
            tile, are unrolled: what neighbours share of the input, and the weights, are loaded once
            (along a wide window in steps, of which each is unrolled)

With channels innermost a tile is of columns (of rows, under a window of one column); it is of two
rows, one vector wide, where the window moves by one, so that they share what they read, too. Of
images that come with their channels first a tile is of rows, and vectors lie along them. The tiles
in the middle have no conditions, the whole blocks none on channels or columns; in those at the
ends, where the window is partly outside, each vector is one of the image or of zeros. Of a large
window only the rows that are inside of the image are run through. Where both operands are bf16 and
an instruction adds their products in pairs, the window's rows are taken two at a time
(`codegen.llvm.pairs`), and those of a small one are code; along a large one what slides along the
tile is innermost then: more of the image would have to stay in registers else. Such sums start with
their bias. A tile at the end makes sums that are not stored, or, where what they read would not be
there, those that are, one after another. For convolutions of one or few channels, and of narrow
groups of them, which are unrolled, too (`ir.narrow_groups`): where neighbours share no second
operand (pools), `reduction` is as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import Axis, Index, Reduce, index_names, loads_of
from pliant.ir.few_channels import filters_of
from pliant.ir.narrow_groups import narrow_groups
from pliant.ir.tensor import Compute
from pliant.ir.windows import TILE, is_small
from pliant.loop.regions import accesses
from pliant.loop.stmt import Iter, Store
from pliant.lower.canonical import Spec
from pliant.lower.layout import Order
from pliant.lower.pair_filters import PAIR
from pliant.schedule.errors import SchedulingError
from pliant.schedule.loop_partition import inner_part, live_part
from pliant.schedule.nest import blocks_in
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import grain, read_apart, reduced_nest
from pliant.sym.expr import Int, as_int, ceildiv, var

# TILE times WIDE or LINES accumulators: enough not to wait for sums, few enough to stay
WIDE: Final = 2  # registers of a block, in a tile of one row
LINES: Final = 2  # rows of a tile, where those share what they read
SHARED: Final = 8  # times WIDE, where one element is multiplied by vectors of filters
MOST: Final = 7  # columns of a tile, if none are left, whose sums are of pairs of a large window
STEP: Final = 8  # elements along a window that are unrolled: more would share little more


def windowed_order(spec: Spec) -> Order | None:
    """The order of the loops in which a window slides, over one operand, along the last dimension
    but one (the columns of images with channels innermost, the rows of others), all of which share
    another operand: that of memory, or that with another dimension there (rows, of windows of one
    column); None if there is none."""
    outer, inner = spec.order[:-1], spec.order[-1:]
    for at in range(len(outer) - 1, -1, -1):
        order = (*outer[:at], *outer[at + 1 :], outer[at], *inner)
        if _is_windowed(replace(spec, order=order)):
            return order
    return None


def _is_windowed(spec: Spec) -> bool:
    tensor = spec.members[0][1]
    if not isinstance(tensor, Compute) or not tensor.reduce_axes or len(spec.order) < 3:
        return False
    tiled, inner = (tensor.axes[d] for d in spec.order[-2:])
    if tiled.extent.is_const and tiled.extent.value < TILE:
        return False
    slid = _slid(spec, tensor)
    if slid is None or not slid.extent.is_const or slid.extent.value == 1:
        return False
    operands = [[index_names(i) for i in x.indices] for x in loads_of(tensor.body)]
    window = {a.var for a in tensor.reduce_axes}
    apart = not any(inner.var in names and names & window for o in operands for names in o)
    groups = narrow_groups(tensor)
    if filters_of(tensor) == inner.var or (groups is not None and groups.outer == inner.var):
        return True
    if apart and inner.extent == 1:
        return False
    return any(all(tiled.var not in names for names in operand) for operand in operands)


def _slid(spec: Spec, tensor: Compute) -> Axis | None:
    """The axis of the window that slides along the tiled dimension, the innermost of several. It
    will be innermost, which sums in a strict order do not allow of others."""
    tiled = tensor.axes[spec.order[-2]].var
    indices = [index_names(i) for x in loads_of(tensor.body) for i in x.indices]
    axes = tensor.reduce_axes[-1:] if spec.numerics == "strict" else tensor.reduce_axes[::-1]
    return next((a for a in axes if any({tiled, a.var} <= names for names in indices)), None)


def windowed_recipe(spec: Spec, lanes: int, sums: int, *, pairs: bool = False) -> Program:
    """A schedule for a windowed reduction, whose loops are in `windowed_order`, and the maps that
    follow it; at most so many vectors of `sums` stay in registers. `pairs`: there is an instruction
    that adds products of bf16 in pairs."""
    tensor = spec.members[0][1]
    assert isinstance(tensor, Compute)
    rows, small = _rows(spec, tensor), is_small(tensor)
    left_out = None if small else rows
    if pairs and rows is not None and _in_bf16(spec, tensor):
        with suppress(SchedulingError):  # as below
            return _scheduled(spec, lanes, sums, 1, by_tile=small, rows=left_out, pairs=True)
    heights = (LINES, 1) if _shares_lines(spec) else (1,)
    for height in heights if small else ():
        with suppress(SchedulingError):  # what a last row or tile alone would read may not be there
            return _scheduled(spec, lanes, sums, height, by_tile=True)
    return _scheduled(spec, lanes, sums, 1, by_tile=False, rows=left_out)


def _rows(spec: Spec, tensor: Compute) -> Axis | None:
    """The axis of a window's rows, of which those outside of the image can be left out: that
    beside the one which slides along the tiled dimension."""
    slid = _slid(spec, tensor)
    found = [a for a in tensor.reduce_axes if a is not slid and a.extent.is_const]
    alone = filters_of(tensor) or spec.numerics == "strict"
    return None if alone else next((a for a in reversed(found) if a.extent.value > 1), None)


def _in_bf16(spec: Spec, tensor: Compute) -> bool:
    """Whether products of bf16 are summed, in an order that is free."""
    body = tensor.body
    if spec.numerics != "fast" or not isinstance(body, Reduce) or body.combiner != "sum":
        return False
    return factors_in_bf16(body.body) is not None


def _shares_lines(spec: Spec) -> bool:
    """Whether a small window also slides along the dimension before the tiled one, one by one: what
    a row reads, the next one reads too."""
    tensor = spec.members[0][1]
    assert isinstance(tensor, Compute)
    slid = _slid(spec, tensor)
    if not is_small(tensor) or len(spec.order) < 4 or filters_of(tensor):
        return False
    line = tensor.axes[spec.order[-3]].var
    others = {a.var for a in tensor.reduce_axes if a is not slid}
    indices = [i for x in loads_of(tensor.body) for i in x.indices if isinstance(i, Index)]
    along = [i.int_.linear(line) for i in indices if others & index_names(i)]
    return any(at is not None and at[0] == 1 for at in along)


def _scheduled(
    spec: Spec, lanes: int, sums: int, height: int, *, by_tile: bool, rows: Axis | None = None,
    pairs: bool = False,
) -> Program:  # fmt: skip
    """In tiles of so many rows; each with all blocks, or each block with all tiles of a row."""
    anchor, tensor = spec.members[0]
    assert isinstance(tensor, Compute)
    members, small = _members(spec, tensor), is_small(tensor)
    p, loops, work = reduced_nest(spec)
    if pairs:
        p = _with_bias(p, spec)
    *outer, tiled, inner = loops
    extent, columns = p.loop(inner).extent, p.loop(tiled).extent
    work = work * columns * extent
    few = extent.value if extent.is_const and extent.value < lanes * WIDE else 0
    registers = 1 if height > 1 or 0 < few <= lanes else WIDE
    block = few if lanes < few and height == 1 else registers * lanes
    if not few and members is not None:
        while extent.value % block:  # a vector that reads whole ones has no rest
            block //= 2
        registers = max(block // lanes, 1)
    usual = min(SHARED, sums // WIDE) if filters_of(tensor) else TILE
    most = MOST if pairs and not small else usual * WIDE // (registers * height)
    p = p.split(tiled, _width(columns, usual, most))
    tiles, row = p.made
    whole = p.facts.simplify(columns // p.loop(row).extent)
    rest = extent.value % block if extent.is_const else lanes
    p = p.split(inner, block)
    blocks, lane = p.made
    tile = [row, lane]
    if height > 1:
        p = p.split(outer[-1], height)
        outer[-1], line = p.made
        tile = [line, *tile]
        work = work * height
    nest = (tiles, blocks) if by_tile else (blocks, tiles)
    p = p.reorder(*nest, *tile)
    p = _tile_of_sums(p.compute_at(anchor, nest[1]), spec, nest[1])
    if height > 1 and p.block(anchor).where is not None:
        first, update, *_ = _blocks(p, tiles)
        p = p.pad_block(first, update, along=outer[-1])

    inside = p.loops(_blocks(p, nest[1])[0]).index(nest[1])
    p, parts = _parts(p, nest[0], whole if nest[0] is tiles else None)
    every: list[str] = []
    for part in parts:
        loop = p.loops(_blocks(p, part)[0])[inside]
        p, ends = _parts(p, loop, whole if nest[1] is tiles else None)
        for end in ends:
            if filters_of(tensor) and len(outer) > 1:
                p = _next_row(p, end, outer[-1])
            if rows is not None:
                p = _of_rows(p, end, tensor.reduce_axes.index(rows))
        every += ends
    if len(outer) > 1:
        p = p.fuse(*outer)
        outer = list(p.made)
    slid = _slid(spec, tensor)
    assert slid is not None
    for part in every:
        if pairs:
            p = _in_pairs(p, part, small=small)
        if slid.extent.value > STEP:
            p = _in_steps(p, part)
        p = _in_registers(p, part, len(tile), lanes, rest, more=int(pairs and small))
        if members is not None:
            p = _each_member(p, part, tensor.reduce_axes.index(members))
    return p.parallel(outer[0], grain=grain(work))


def _with_bias(p: Program, spec: Spec) -> Program:
    """Sums start with what each of the innermost dimension has added to it: an instruction less
    after all products (of f32, of which there are more, it makes no difference)."""
    anchor, _ = spec.members[0]
    with suppress(SchedulingError):  # there is none
        found = p.start_with_term(anchor)
        block = found.block(anchor)
        assert isinstance(block.init, Store)
        read = {n for x in loads_of(block.init.value) for i in x.indices for n in index_names(i)}
        if read <= {block.iters[spec.order[-1]].var}:
            return found
    return p


def _width(extent: Int, usual: int, most: int) -> int:
    """Of a tile: what leaves no rest, where that is known."""
    whole = [n for n in range(TILE, most + 1) if extent.is_const and extent.value % n == 0]
    return max(whole, default=usual)


def _tile_of_sums(p: Program, spec: Spec, inside: str) -> Program:
    """The reduction's own loops within `inside`: the window's outermost, then the tile's in the
    order of memory; so lie the sums, too."""
    anchor, tensor = spec.members[0]
    assert isinstance(tensor, Compute)
    around = p.loops(anchor)
    names = around[around.index(inside) + 1 :]
    count = len(tensor.reduce_axes)
    window, tile = list(names[-count:]), names[:-count]
    slid = _slid(spec, tensor)
    assert slid is not None
    members = _members(spec, tensor)
    inside_out = [slid] if members is None or spec.numerics == "strict" else [members, slid]
    for loop in [window[tensor.reduce_axes.index(axis)] for axis in inside_out]:
        window.append(window.pop(window.index(loop)))
    bound = p.block(anchor).bindings
    ordered = [x for d in spec.order for x in tile if x in bound[d].names]
    p = p.reorder(*window, *ordered)
    p = p.decompose_reduction(anchor, window[0])
    for buffer in p.written(anchor):
        p = p.transform_layout(buffer, tuple(var(f"_{d}") for d in spec.order))
        p = p.shrink_buffer(buffer)
    return p


def _of_rows(p: Program, tiles: str, axis: int) -> Program:
    """Only those rows of the window that are inside of the image; `axis`: which of its loops it
    is."""
    update = _blocks(p, tiles)[1]
    loops = p.loops(update)
    reduced = [b for i, b in _iters(p, update) if i.kind == "R"]
    (rows,) = reduced[axis].names
    inner = loops[loops.index(rows) + 1 :]
    with suppress(SchedulingError):  # where it is not known that others add nothing
        found = p.reorder(*inner, rows)
        found = found.narrow(rows, *live_part(found, rows))
        return found.reorder(rows, *inner)
    return p


def _in_pairs(p: Program, tiles: str, *, small: bool) -> Program:
    """The rows of a window, which may be a `small` one, two at a time; a last one by itself."""
    update = _blocks(p, tiles)[1]
    rows, slid, column, lane = p.loops(update)[-4:]
    before = set(p.blocks)
    p = p.split(rows, PAIR, tail="peel", tail_loop="exact")
    if small:
        return p.reorder(slid, column, lane, p.made[1]).reduce_lanes(update)
    p = p.reorder(column, slid, lane, p.made[1])
    for rest in (b for b in p.blocks if b not in before):
        *_, slid, column, _lane = p.loops(rest)
        p = p.reorder(column, slid)
    return p.reduce_lanes(update)


def _last_tile(p: Program, tiles: str, whole: Int) -> Program:
    """That of fewer columns or rows: all its sums are made, of what may be read, or one by one."""
    first, update, *_ = _blocks(p, tiles)
    try:
        return p.pad_block(first, update, along=tiles)
    except SchedulingError:  # some would be out of bounds
        window = [i.kind for i in p.block(update).iters].count("R")
        p = p.loop_partition(tiles, whole)
        return _one_by_one(p, p.made[0], window)


def _parts(p: Program, loop: str, whole: Int | None) -> tuple[Program, list[str]]:
    """The loop in parts as `_inner`; of tiles, of which so many are `whole`, the last by itself."""
    if whole is not None and p.loop(loop).extent is not whole:
        p = _last_tile(p, loop, whole)
    return _inner(p, loop)


def _inner(p: Program, loop: str) -> tuple[Program, list[str]]:
    """The loop in parts: in that in the middle, no conditions are left that hold there."""
    first, end = inner_part(p, loop)
    points = [x for x in (first, end) if x not in (as_int(0), p.loop(loop).extent)]
    if first == end or not points:
        return p, [loop]
    p = p.loop_partition(loop, *points)
    return p, [loop, *map(str, p.made)]


def _in_steps(p: Program, tiles: str) -> Program:
    """What slides along a tile of columns in steps, as equal as may be, of what can be unrolled."""
    for update in (b for b in _blocks(p, tiles) if _is_sum(p, b)):
        *_, outer, inner, _lane = p.loops(update)
        summed = {v for i, b in _iters(p, update) if i.kind == "R" for v in b.names}
        slid, column = (inner, outer) if inner in summed else (outer, inner)
        extent = p.loop(slid).extent.value
        before = set(p.blocks)
        if slid == inner:
            p = p.reorder(slid, column)
        p = p.split(slid, ceildiv(extent, ceildiv(extent, STEP)), tail="peel", tail_loop="exact")
        if slid == inner:
            for part in (update, *(b for b in p.blocks if b not in before)):
                p = p.reorder(*reversed(p.loops(part)[-3:-1]))
    return p


def _is_sum(p: Program, block: str) -> bool:
    """Whether the block updates sums."""
    return any(i.kind == "R" for i, _ in _iters(p, block))


def _iters(p: Program, block: str) -> Iterator[tuple[Iter, Int]]:
    b = p.block(block)
    return zip(b.iters, b.bindings, strict=True)


def _in_registers(
    p: Program, tiles: str, rank: int, lanes: int, rest: int, *, more: int
) -> Program:
    """Each tile of sums, of so many loops, at once, and of no more lanes than a `rest` where it is
    one. Above a tile's loops are those of the window that slide along it, and so many `more` that
    are code."""
    # Results that several outputs keep are stored in one nest.
    nests = {p.loops(block): _is_sum(p, block) for block in _blocks(p, tiles)}
    for loops, sums in nests.items():
        slid = rank - 1 + more if sums else 0
        with suppress(SchedulingError):  # it is none
            p = p.narrow(loops[-1], 0, rest)
        p = _whole_vectors(p, loops[-1], lanes)
        for loop in reversed(loops[-rank - slid : -1]):
            p = p.unroll(loop)
    return p


def _members(spec: Spec, tensor: Compute) -> Axis | None:
    """The axis of a group's channels, if vectors are of outputs in narrow groups."""
    groups = narrow_groups(tensor)
    if groups is None or groups.outer != tensor.axes[spec.order[-1]].var:
        return None
    return next(a for a in tensor.reduce_axes if a.var == groups.inner)


def _each_member(p: Program, tiles: str, axis: int) -> Program:
    """A group's channels, unrolled: which of them is constant in a shuffle. `axis`: which of the
    window's loops they are."""
    for update in (b for b in _blocks(p, tiles) if _is_sum(p, b)):
        (members,) = [b for i, b in _iters(p, update) if i.kind == "R"][axis].names
        if members in p.loops(update) and p.loop(members).kind == "serial":
            p = p.unroll(members)
    return p


def _next_row(p: Program, tiles: str, row: str) -> Program:
    """Each row of a window asks for what it will read of the image for the next row of results. A
    model's first image comes from memory, in pieces too short to be fetched ahead unasked."""
    *_, asks, _along_row, _column, _lane = p.loops(_blocks(p, tiles)[1])
    for a in accesses(p.loop(asks), p.invoked):
        along = read_apart(a, row)
        if along is not None:
            with suppress(SchedulingError):  # then it is no parameter
                return p.prefetch(asks, a.buffer.name, along)
    return p


def _whole_vectors(p: Program, loop: str, lanes: int) -> Program:
    """The loop in vectors: as many lanes as its extent and, where these fill some registers and a
    part of one, that part by itself, as LLVM would take such a vector to pieces."""
    extent = p.loop(loop).extent.value
    if extent > lanes and extent % lanes:
        p = p.loop_partition(loop, extent - extent % lanes)
        p = p.vectorize(*map(str, p.made))
    return p.vectorize(loop)


def _one_by_one(p: Program, tiles: str, window: int) -> Program:
    """One column's or row's sums after another's: too few for a tile."""
    first, update, *_ = nest = _blocks(p, tiles)
    *around, column, lane = p.loops(update)
    p = p.reorder(column, *around[-window:], lane)
    at = len(p.loops(first)) - 2
    for block in nest[1:]:
        if p.loops(block)[at] != p.loops(first)[at]:
            p = p.merge(p.loops(first)[at], p.loops(block)[at])
    for buffer in p.written(update):
        p = p.shrink_buffer(buffer)
    for lane in dict.fromkeys(p.loops(block)[-1] for block in nest):
        p = p.vectorize(lane)
    return p


def _blocks(p: Program, loop: str) -> list[str]:
    """The blocks below: a start of sums, their updates, their uses."""
    return [b.name for b in blocks_in(p.loop(loop))]
