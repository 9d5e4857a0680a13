"""Products: packed panels, register tiles, epilogue in the tile.

    parallel over (batch, chunk of panels, block of rows):
      where the rows of this block begin in the first operand    (or: the rows, one after another)
      for each group of the chunk (of a grouped convolution's: they share that table),
      for each panel of the chunk, for each tile of the block:
        tile[rows, 32] = micro-kernel(rows, panel)               all of the reduction, in registers
        output = epilogue(tile)

A panel (K x 32) stays in L1/L2 while the block's tiles pass over it; the rows of a block stay in L2
over all panels. Rows are shared out evenly: 16 rows are two tiles of 8, not 14 and 2. Where rows
are few, so are the panels of a chunk: there are tasks for all threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pliant.ir.tensor import Compute
from pliant.loop.stmt import LINE
from pliant.lower.canonical import Spec
from pliant.lower.contraction import COLS, DEPTH, POSITIONS, ROWS
from pliant.schedule.arrange import named, row_tiles, rows_by_table
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import BlockRef, LoopRef, Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic, arranged, by_micro_kernel
from pliant.schedule.recipes.nests import grain, inline_maps, vectors
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, maximum, minimum

SHARES: Final = (1, 2, 4, 8, 16, 32)  # tiles of a block, panels of a chunk
TASKS: Final = 32  # pieces that a product is in, where it has so many panels and blocks,
FEWEST: Final = 8  # or so many, if they were less than
WORK: Final = 1 << 20  # products each: where rows begin is found out in every piece
ROWS_READ: Final = 64  # fewer are multiplied by weights in less time than it takes to read these
SHARE: Final = 8  # of them without tuning; of panels twice as many where rows are copied


def contraction_recipe(spec: Spec, mm: MatmulIntrinsic) -> Program:
    """A schedule for a packed contraction and the maps that follow it."""
    (anchor, _), *_ = spec.members
    plan = spec.plan(anchor)
    assert plan is not None
    if plan.batch and plan.positions and not plan.gather:
        with suppress(SchedulingError):  # what is there of an image may be another in each group
            return _scheduled(spec, mm, TASKS, together=True)
    try:
        return _scheduled(spec, mm, TASKS)
    except SchedulingError:
        # Where columns are of several dimensions, chunks of a size that is known only at run time
        # are not always known to be independent.
        return _scheduled(spec, mm, 1)


def _scheduled(spec: Spec, mm: MatmulIntrinsic, tasks: int, *, together: bool = False) -> Program:
    """In at least so many tasks, if there is as much to share. `together`: the table of where rows
    begin is for several groups of channels."""
    p = start(spec, intrinsics=mm.intrinsics)
    (anchor, tensor), *maps = spec.members
    plan = spec.plan(anchor)
    assert plan is not None and isinstance(tensor, Compute)
    p = inline_maps(p, spec, [name for name, _ in maps])
    # The epilogue reads the product from a buffer of its own, in which rows and columns are one
    # dimension each, and goes over rows and columns too.
    p, nest = arranged(p, spec, anchor, plan, mm)
    store, product = nest.store, nest.product
    outputs = [store if name == anchor else name for name in spec.outputs]
    if store not in outputs or len(outputs) > 1:
        p = p.compute_inline(store, keep=store in outputs)
    for name in outputs:
        p = p.transform_block_layout(name, nest.space)
    batch, rows, columns = [*nest.outside], nest.loops[ROWS], nest.loops[COLS]
    reduced = [nest.loops[x] for x in (POSITIONS, DEPTH) if x in nest.loops]

    # Tiles of rows, and panels of columns.
    p = p.sample_categorical("most_rows", tuple(range(1, mm.rows + 1)), default=mm.rows)
    (most_rows,) = p.numbers
    p = p.sample_categorical("block_tiles", SHARES, default=SHARE)
    (tiles,) = p.numbers
    p = p.sample_categorical("chunk_panels", SHARES, default=SHARE * (1 + plan.gather))
    (most,) = p.numbers
    panels, groups = as_int(most), as_int(1)  # of a chunk
    wide = p.loop(columns).extent != 1
    p, of = row_tiles(p, rows, most_rows, tiles, mm.row_unit)
    block, tile, row = of.block, of.tile, of.row
    p = p.split(columns, mm.columns)
    panel, column = p.made
    if tasks > 1 and not plan.gather:
        each = maximum(of.height * tiles, ROWS_READ) * mm.columns
        for loop in reduced:
            each = each * p.loop(loop).extent
        p, panels = _shared(p, "chunk", LoopRef(panel), panels, [*batch, block], tasks, each)
    p = p.split(panel, panels, tail="clip")
    chunk, panel = map(LoopRef, p.made)
    within: list[LoopRef] = []  # loops over the groups of a chunk
    if together:
        group, around = batch.pop(), [*batch, chunk, block]
        fit = maximum(most // panels, 1)
        p, groups = _shared(p, "groups", group, fit, around, tasks, each * panels)
        p = p.split(group, groups, tail="clip")
        batch.append(LoopRef(p.made[0]))
        within.append(LoopRef(p.made[1]))
    p = p.reorder(*batch, chunk, block, *within, panel, tile, row, column, *reduced)

    # The epilogue runs on a tile that is just done.
    for name in outputs:
        p = p.reverse_compute_at(name, tile)
    p = p.shrink_buffer(product)
    if p.block(anchor).where is not None:
        p = p.pad_block(anchor)

    # The rows of the first operand: copied together, or found through a table of where they begin.
    source = plan.source
    p, found = rows_by_table(
        p, anchor, source, reduced, block, (tile, row), gather=plan.gather,
        dtype=mm.copied, shared=within,
    )  # fmt: skip

    # Marks: tasks for threads, vectors for the epilogue, the micro-kernel for the rest.
    depth = p.loop(found.position).extent * p.loop(found.along).extent
    parts = [a.extent for x in plan.positions for a in tensor.reduce_axes if a.var == x]
    if parts and not plan.gather:
        p = _by_places(p, found.table, parts, mm.lanes)
    for name in found.copies:
        p = _apart(p, p.loops(name)[-2], parts)
        p, _, made = vectors(p, p.loops(name)[-1], mm.lanes)
        for vector in made:
            p = p.vectorize(vector)
    work = of.height * tiles * groups * panels * mm.columns * depth // 8
    p = _in_tasks(p, (*batch, chunk, block), work)
    for name in outputs if wide else ():  # one column has no loop
        p = _in_vectors(p, name, tile, mm)
    return by_micro_kernel(p, anchor, found, tile, row, mm)


def _in_tasks(p: Program, loops: Sequence[str], work: Int) -> Program:
    """These loops as one of tasks, without the last where its iterations are not known to be
    independent: rows of three dimensions and more, of known sizes, are told apart by digits that
    no longer look like those of one number."""
    *outer, last = loops
    try:
        p = p.parallel(last, grain=grain(work))
    except SchedulingError:
        *outer, last = outer
        p = p.parallel(last, grain=grain(work))
    for loop in outer:
        p = p.parallel(loop)
    return p.fuse(*outer, last) if outer else p


def _in_vectors(p: Program, name: str, tile: LoopRef, mm: MatmulIntrinsic) -> Program:
    """Columns of a panel in whole vectors, of results that are half as wide as sums in two at once;
    what is left of them in shorter ones. One that fills a line of the cache goes through all rows:
    what is the same in them is read once, and once it is asked whether there is such a column.
    Shorter ones would write a line in parts, far apart."""
    loops = p.loops(name)
    *rows, columns = loops[loops.index(tile) + 1 :]  # of one row there is no loop
    least = min(p.buffer(x).dtype.bytes for x in p.written(name))
    lanes = mm.lanes
    if 2 * least == mm.c.bytes and mm.lanes * mm.c.bytes == LINE and mm.columns > mm.lanes:
        lanes *= 2
    if rows and lanes * least >= LINE:
        p = p.reorder(columns, *rows)
    ends = {mm.columns >> bit << bit for bit in range(lanes.bit_length())}
    parts = [columns]
    if points := sorted(ends - {0, mm.columns}):
        p = p.loop_partition(columns, *points)
        parts += map(LoopRef, p.made)
    for part in parts:
        if p.loop(part).extent.value > lanes:
            p = p.split(part, lanes)
            several, part = map(LoopRef, p.made)
            p = p.unroll(several)
        p = p.vectorize(part)
    return p


def _shared(
    p: Program,
    name: str,
    loop: LoopRef,
    most: IntLike,
    around: Sequence[LoopRef],
    tasks: int,
    each: Int,
) -> tuple[Program, Int]:
    """How many iterations of a loop (over panels), at most so many, are a chunk: fewer where rows
    are too few to keep threads busy; one, in one of all loops around, is worth so many products
    `each`. It gets a name where that is known only at run time."""
    several, extent = as_int(1), p.loop(loop).extent
    for other in around:
        several = several * p.loop(other).extent
    worth = maximum(minimum(several * extent * each // WORK, tasks), min(FEWEST, tasks))
    chunks = maximum(ceildiv(worth, maximum(several, 1)), 1)
    return named(p, name, maximum(minimum(ceildiv(extent, chunks), most), 1))


def _by_places(p: Program, table: BlockRef, parts: Sequence[Int], lanes: int) -> Program:
    """The table of a window by its rows, columns …, one after the other, of the rows of a tile in
    vectors: which pixels these are is found out once for all of it, and not for each place in the
    window (16 to 3 channels, 9 x 9: 0.7 times as long)."""
    p = _apart(p, p.loops(table)[-1], parts)
    *_, rows = p.loops(table)[: -len(parts)]
    with suppress(SchedulingError):
        turned = p.reorder(*p.loops(table)[-len(parts) :], rows)
        turned = turned.split(rows, lanes, tail="mask")
        return turned.vectorize(turned.made[1])
    return p


def _apart(p: Program, loop: LoopRef, extents: Sequence[Int]) -> Program:
    """A loop over positions in several axes of these extents is one for each again: no division
    is left in an address, but by extents that are not known to be more than 0."""
    with suppress(SchedulingError):
        for extent in reversed(extents[1:]):
            p = p.split(loop, extent, tail="exact")
            loop = LoopRef(p.made[0])
    return p
