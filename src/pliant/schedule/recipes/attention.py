"""Attention: two products and the rows between them, a block of rows at a time.

    parallel over (batch, block of rows):
      where the rows of this block begin in the first operand
      for each panel of keys, for each tile of the block:
        tile[rows, 32] = micro-kernel(rows, panel)
        x[block, keys] = scale, mask, … (tile)                   in the second-level cache
      for each row of the block:
        max, exponentials in place, their sum                    the passes of a row recipe
        of narrow factors: the weights, beside them
      for each panel of values, for each tile of the block:
        tile[rows, 32] = micro-kernel(x, panel)
        output = epilogue(tile)                                  divided by the sums

Of the keys, a block has those that a mask of minus infinity leaves to any of its rows, if what it
leaves follows from places alone: half of them where it is causal, a band of those that are near.

A block has as many tiles as leave room for its rows of x in the second-level cache, so memory grows
with the length, not with its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from pliant.ir.expr import Load, loads_of
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.access import DEAR, cost_of
from pliant.lower.canonical import Spec
from pliant.lower.contraction import COLS, DEPTH, POSITIONS, ROWS
from pliant.lower.pack import Plan
from pliant.lower.row_facts import LARGE
from pliant.schedule.arrange import Rows, rows_apart, rows_by_table, tile_height
from pliant.schedule.errors import SchedulingError
from pliant.schedule.loop_partition import live_part
from pliant.schedule.program import LoopRef, Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic, arranged, by_micro_kernel
from pliant.schedule.recipes.nests import grain, in_vectors, inline_maps
from pliant.schedule.recipes.row import RowGroup, passes
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, as_int, ceildiv, maximum, minimum, var

_Placed = tuple[Program, dict[str, tuple[str, ...]]]  # and the loops of each block

TILES: Final = 2  # of a block, at most: more gain nothing, and rows under a mask need more keys
ROOM: Final = 1 << 17  # elements of a block between the products: half of a second-level cache


def attention_recipe(spec: Spec, lanes: int, mm: MatmulIntrinsic) -> Program:
    """A schedule for two packed contractions, maps and reductions of rows between them, and maps
    that follow."""
    try:
        return _scheduled(spec, lanes, mm, hidden=False)
    except SchedulingError:  # what a mask leaves may be too involved for a later step
        return _scheduled(spec, lanes, mm, hidden=True)


def _scheduled(spec: Spec, lanes: int, mm: MatmulIntrinsic, *, hidden: bool) -> Program:
    """The schedule, perhaps with the keys, too, that a mask hides from a block of rows."""
    parts = _Parts(spec, lanes)
    first, last, group = parts.first, parts.last, parts.group
    p = start(spec, parts.order, intrinsics=mm.intrinsics)
    p = inline_maps(p, spec, parts.epilogue)
    for name in parts.inlined:
        p = p.compute_inline(name)
    p, one = arranged(p, spec, first, _plan(spec, first), mm)
    p, two = arranged(p, spec, last, _plan(spec, last), mm)
    scores = one.store if parts.scores == first else parts.scores
    if scores != one.store:
        p = p.compute_inline(one.store)
    p = p.transform_block_layout(scores, one.space)
    p = _flat_rows(p, parts, scores, one.space)
    outputs = [two.store if name == last else name for name in spec.outputs]
    if two.store not in outputs or len(outputs) > 1:
        p = p.compute_inline(two.store, keep=two.store in outputs)
    for name in outputs:
        p = p.transform_block_layout(name, two.space)

    # The last product: blocks of rows, panels, tiles of about the same height.
    batch, rows = two.outside, two.loops[ROWS]
    reduced = [two.loops[x] for x in (POSITIONS, DEPTH) if x in two.loops]
    total, length = p.loop(rows).extent, p.loop(reduced[-1]).extent
    p, height, block_rows = _heights(p, total, length, mm)
    work = block_rows * length * p.loop(two.loops[COLS]).extent // 4
    p = p.split(rows, block_rows, tail="clip")
    block, here = p.made
    p, lower = _tiles(p, here, two.loops[COLS], height, mm)
    p = p.reorder(*batch, block, lower.panel, lower.tile, lower.row, lower.column, *reduced)
    for name in outputs:
        p = p.reverse_compute_at(name, lower.tile)
    p = p.shrink_buffer(two.product)

    # What a block of it needs: rows of scores, which become weights in their place.
    names = [*reversed(parts.rows), scores]
    placed = _placed(p, names, block)
    p, loops = placed if hidden else _seen_only(p, placed, names, block, reduced[-1], mm.columns)
    for name in dict.fromkeys((parts.kept, parts.scores)):
        p = p.shrink_buffer(name)
    if parts.scores != parts.kept:
        p = p.store_in(parts.scores, parts.kept)
    of_scores, keys = loops[scores]
    p, upper = _tiles(p, of_scores, keys, height, mm)
    p = p.reorder(upper.panel, upper.tile, upper.row, upper.column)
    p = p.compute_at(first, upper.tile)
    row_of_first, _, *reduced_first = p.made
    p = p.shrink_buffer(one.product)
    if parts.rows:
        p, row = _merged(p, [loops[name][0] for name in parts.rows])
        if parts.weights != parts.kept:
            p = p.shrink_buffer(parts.weights)
        over = {n: LoopRef(loops[n][1]) for n in parts.rows if len(loops[n]) > 1}
        p, _ = passes(p, group, over, lanes)
        for name in p.allocated:
            p = p.shrink_buffer(name)
        p = in_vectors(p, p.innermost(row), lanes, LARGE)
    p = rows_apart(p, parts.weights, 1)

    # The rows of the operands, epilogues in vectors, tasks for threads, the micro-kernel.
    for name in (scores, *outputs):
        p = p.split(p.loops(name)[-1], mm.lanes)
        vectors, vector = p.made
        p = p.vectorize(vector).unroll(vectors)
    p, above = _by_table(p, spec, first, block, (upper.tile, row_of_first), reduced_first, mm)
    p, below = _by_table(p, spec, last, block, (lower.tile, lower.row), reduced, mm)
    for name in (*above.copies, *below.copies):
        p = p.split(p.loops(name)[-1], mm.lanes)
        p = p.vectorize(p.made[1])
    for loop in batch:
        p = p.parallel(loop)
    p = p.parallel(block, grain=grain(work)).fuse(*batch, block)
    p = by_micro_kernel(p, first, above, upper.tile, row_of_first, mm)
    return by_micro_kernel(p, last, below, lower.tile, lower.row, mm)


def _heights(p: Program, total: Int, length: Int, mm: MatmulIntrinsic) -> tuple[Program, Int, Int]:
    """The rows of a tile and of a block, of `total` rows of a `length`. Few rows are one block."""
    p, height = tile_height(p, total, mm.rows, mm.row_unit)
    if total.is_const:
        return p, height, ceildiv(total, height) * height
    tiles = minimum(maximum(as_int(ROOM) // maximum(height * length, 1), 1), TILES)
    p = p.name_size("block_tiles", tiles)
    return p, height, height * var("block_tiles")  # whole tiles, which a name would hide


def _seen_only(
    p: Program,
    placed: _Placed,
    names: Sequence[str],
    block: str,
    summed: str,
    columns: int,
) -> _Placed:
    """The same as `placed` for those keys only that a mask leaves to any row of a block, from the
    beginning of a panel on, where the mask is one of minus infinity, by place."""
    whole, loops = placed
    row, keys = loops[names[-1]]
    first, end = live_part(whole.reorder(keys, row), keys)
    loop, facts = whole.loop(keys), whole.inside(whole.loop_path("narrow", keys))
    if first == 0 and end == loop.extent:
        return placed
    # A row without any key is one of NaN, of which it takes a key to come.
    if not facts.lt(first, loop.extent):
        first = minimum(first, maximum(loop.extent - 1, 0))
    first = first // columns * columns
    if not facts.lt(first, end):
        end = minimum(loop.extent, maximum(end, first + 1))
    with suppress(SchedulingError):  # a finite mask may be the greatest of a row
        return _placed(p.narrow(summed, first, end), names, block, (first, end))
    return placed


def _placed(
    p: Program, names: Sequence[str], block: str, seen: tuple[Int, Int] | None = None
) -> _Placed:
    """What a block of rows needs computed in it, of all keys or of those `seen`; `names` are the
    last first."""
    loops: dict[str, tuple[str, ...]] = {}
    for name in names:
        p = p.compute_at(name, block, early=True)
        loops[name] = p.made
        if seen and any(i.kind == "R" for i in p.block(name).iters):
            p = p.narrow(p.made[-1], *seen)
    return p, loops


class _Parts:
    """What the members of a spec are."""

    def __init__(self, spec: Spec, lanes: int) -> None:
        names = [name for name, _ in spec.members]
        self.first, self.last = (name for name, _ in spec.plans)
        between = names[1 : names.index(self.last)]
        self.epilogue = names[names.index(self.last) + 1 :]
        (self.weights,) = {x.source.name for x in loads_of(_plan(spec, self.last).a_side)}
        shape = spec.tensor(self.first).shape
        tensors = {n: t for n, t in spec.members if isinstance(t, Compute)}
        reads = {
            n: {x.source.name for x in own_nodes(t.body) if isinstance(x, Load)}
            for n, t in tensors.items()
        }
        # Maps of the scores come first that need nothing of their rows yet. The last of them is
        # computed in the tile, if it is all that is wanted of them.
        late: list[str] = []
        for n in between:
            of_rows = tensors[n].reduce_axes or tensors[n].shape != shape
            if of_rows or not reads[n].isdisjoint(late):
                late.append(n)
        early = [n for n in between if n not in late]
        wanted = {x for n in late for x in reads[n] if x == self.first or x in early}
        wanted |= {self.weights} - {*late}
        for n in reversed(early):  # what follows from another at once is computed where it is read
            made_of = reads[n] & {self.first, *early}
            if n in wanted and len(wanted) > 1 and cost_of(tensors[n].body) < DEAR:
                wanted = wanted - {n} | made_of
        self.scores = wanted.pop()
        if wanted:
            self.scores, late, early = self.first, between, []
        column = [a.var for a in tensors[self.first].axes].index(_plan(spec, self.first).n[0])
        rows = [d for d in range(len(shape)) if d != column]
        self.group = group = RowGroup(
            replace(
                spec, kind="row", space=shape, order=(*rows, column), rows=len(rows),
                members=tuple((n, tensors[n]) for n in late), outputs=(self.weights,),
            ),
            lanes,
        )  # fmt: skip
        again = [n for n in late if group.over_space(n) and n not in group.kept]
        # What lies where the scores did: what is kept of their type, if anything is.
        alike = [n for n in group.kept if tensors[n].dtype is tensors[self.scores].dtype]
        self.kept = alike[0] if alike else self.scores
        self.inlined = [*(n for n in early if n != self.scores), *again]
        self.rows = [n for n in group.in_passes() if n not in again]
        self.order = [self.first, *early, *group.in_passes(), self.last, *self.epilogue]


def _plan(spec: Spec, name: str) -> Plan:
    plan = spec.plan(name)
    assert plan is not None
    return plan


def _flat_rows(p: Program, parts: _Parts, scores: str, space: Sequence[Int]) -> Program:
    """What lies between the products has the rows of a product too: where heads share keys, rows
    are all of their queries. `space` is the layout of what has columns."""
    column = space[-1]
    (name,) = column.names
    place = int(name[1:])  # of the dimension
    rank = len(parts.group.spec.space)
    rows = [d for d in range(rank) if d != place]
    of_rows = {f"_{d}": var(f"_{k}") for k, d in enumerate(rows)}
    flat = tuple(x.subs(of_rows) for x in space[:-1])
    for buffer in dict.fromkeys((*parts.rows, parts.scores, parts.weights)):
        wide = buffer in (parts.scores, parts.weights) or parts.group.over_space(buffer)
        p = p.transform_layout(buffer, space if wide else flat)
    for block in parts.rows:
        if parts.group.over_space(block):
            p = p.transform_block_layout(block, space)
        elif parts.group.members[block].reduce_axes:
            p = p.transform_block_layout(block, (*flat, var(f"_{len(rows)}")))
        else:
            p = p.transform_block_layout(block, flat)
    return p


@dataclass(frozen=True)
class _Tiles:
    panel: str
    column: str
    tile: str
    row: str


def _tiles(
    p: Program, rows: str, columns: str, height: Int, mm: MatmulIntrinsic
) -> tuple[Program, _Tiles]:
    p = p.split(columns, mm.columns)
    panel, column = p.made
    p = p.split(rows, height, tail="clip")
    tile, row = p.made
    return p, _Tiles(panel, column, tile, row)


def _merged(p: Program, loops: Sequence[str]) -> tuple[Program, str]:
    """One loop for all."""
    first, *others = loops
    for other in others:
        p = p.merge(first, other)
    return p, first


def _by_table(
    p: Program,
    spec: Spec,
    name: str,
    block: str,
    table: tuple[str, str],
    reduced: Sequence[str],
    mm: MatmulIntrinsic,
) -> tuple[Program, Rows]:
    """A contraction finds the rows of its first operand in a table made for a block of them."""
    plan = _plan(spec, name)
    source = plan.source
    if p.block(name).where is not None:
        p = p.pad_block(name)
    along = [LoopRef(x) for x in reduced]
    own = source in dict(spec.members)  # what this kernel makes lies in rows, whatever was planned
    return rows_by_table(
        p, name, source, along, block, table,
        gather=plan.gather and not own,
        dtype=mm.copied,
    )  # fmt: skip
