"""Attention: two products and the rows between them, a block of rows at a time.

    parallel over (batch, block of rows):
      where the rows of this block begin in the first operand
      for each panel of keys, for each tile of the block:
        tile[rows, 32] = micro-kernel(rows, panel)
        x[block, keys] = scale, mask, … (tile)                   in the second-level cache
      for each row of the block:
        max, exponentials in place, their sum                    the passes of a row recipe
      for each panel of values, for each tile of the block:
        tile[rows, 32] = micro-kernel(x, panel)
        output = epilogue(tile)                                  divided by the sums

A block has as many tiles as leave room for its rows of x in the second-level cache, so memory grows
with the length, not with its square.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pliant.ir.expr import Load, loads_of
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.canonical import Spec
from pliant.lower.contraction import COLS, DEPTH, POSITIONS, ROWS, tile_product
from pliant.schedule.arrange import Arranged, arrange, rows_by_table
from pliant.schedule.program import LoopRef, Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.schedule.recipes.nests import grain, inline_maps
from pliant.schedule.recipes.row import RowGroup, in_vectors, one_pass
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, as_int, ceildiv, maximum, minimum, var

TILES: Final = 8  # of a block, at most
ROOM: Final = 1 << 17  # elements of a block between the products: half of a second-level cache


def attention_recipe(spec: Spec, lanes: int, mm: MatmulIntrinsic) -> Program:
    """A schedule for two packed contractions, maps and reductions of rows between them, and maps
    that follow."""
    parts = _Parts(spec)
    first, last, group = parts.first, parts.last, parts.group
    p = start(spec, parts.order, intrinsics=mm.intrinsics)
    p = inline_maps(p, spec, parts.epilogue)
    for name in parts.inlined:
        p = p.compute_inline(name)

    p, one = _arranged(p, spec, first, mm)
    p, two = _arranged(p, spec, last, mm)
    scores = one.store if parts.scores == first else parts.scores
    if scores != one.store:
        p = p.compute_inline(one.store)
    p = p.transform_block_layout(scores, one.space)
    score_loops = p.made
    outputs = [two.store if name == last else name for name in spec.outputs]
    if two.store not in outputs or len(outputs) > 1:
        p = p.compute_inline(two.store, keep=two.store in outputs)
    for name in outputs:
        p = p.transform_block_layout(name, two.space)

    # The last product: blocks of rows, panels, tiles.
    batch, rows, columns = two.outside, two.loops[ROWS], two.loops[COLS]
    reduced = _reduced(two)
    total, length = p.loop(rows).extent, p.loop(reduced[-1]).extent
    even = ceildiv(total, maximum(ceildiv(total, mm.rows), 1))
    p = p.name_size("tile_rows", minimum(maximum(even, 1), mm.rows))
    height = var("tile_rows")
    tiles = minimum(maximum(as_int(ROOM) // maximum(height * length, 1), 1), TILES)
    p = p.name_size("block_rows", height * tiles)
    p = p.split(rows, var("block_rows"), tail="clip")
    block, rows = p.made
    p, tile2 = _tiles(p, rows, columns, reduced, height, mm)
    p = p.reorder(*batch, block, *tile2.loops)
    for name in outputs:
        p = p.reverse_compute_at(name, tile2.tile)
    p = p.shrink_buffer(two.product)

    # What a block of it needs, in the order in which it is computed.
    loops: dict[str, tuple[str, ...]] = {}
    for name in (*reversed(parts.rows), scores):
        p = p.compute_at(name, block)
        loops[name] = p.made
    for name in (parts.weights, scores):
        p = p.shrink_buffer(name)
    p = p.store_in(scores, parts.weights)
    p, tile1 = _tiles(p, *loops[scores], [], height, mm)
    p = p.reorder(*tile1.loops)
    p = p.compute_at(first, tile1.tile)
    loops[first] = p.made
    p = p.shrink_buffer(one.product)

    # The rows between the products.
    row = ""
    columns_of: dict[str, LoopRef] = {}
    for name in parts.rows:
        here, *over = loops[name]
        if row:
            p = p.merge(row, here)
        row = row or here
        if over:
            columns_of[name] = over[0]
    for level in sorted(set(group.level.values())):
        now = {n: c for n, c in columns_of.items() if group.level[n] == level}
        if now:
            p = one_pass(p, group, now, lanes, f"columns_of_pass_{level}")
    for name in p.allocated:
        p = p.shrink_buffer(name)
    p = p.storage_align(parts.weights, p.buffer(parts.weights).rank - 2, 2 * lanes, lanes)
    p = in_vectors(p, p.innermost(row), lanes)

    # The rows of the operands, epilogues in vectors, the micro-kernel.
    p, at1 = _operand_rows(p, spec, first, loops[first][2:], block, (tile1.tile, loops[first][0]), mm)
    p, at2 = _operand_rows(p, spec, last, reduced, block, (tile2.tile, tile2.row), mm)
    for name in (scores, *outputs):
        p = p.split(p.loops(name)[-1], mm.lanes)
        vectors, vector = p.made
        p = p.vectorize(vector).unroll(vectors)
    for loop in batch:
        p = p.parallel(loop)
    p = p.parallel(block, grain=grain(as_int(32768))).fuse(*batch, block)
    p = p.decompose_reduction(first, at1.position)
    p = p.tensorize(loops[first][0], mm.named(missing=at1.missing, whole=True))
    p = p.decompose_reduction(last, at2.position)
    return p.tensorize(tile2.row, mm.named(missing=at2.missing, whole=True))


def _operand_rows(p, spec, name, reduced, block, table, mm):
    plan = spec.plan(name)
    source = next(iter(loads_of(plan.a_side))).source.name
    if p.block(name).where is not None:
        p = p.pad_block(name)
    return rows_by_table(
        p, name, source, reduced, block, table, gather=plan.gather,
        dtype=str(mm.a) if mm.a is not mm.c else "",
    )


def _reduced(nest: Arranged) -> list[LoopRef]:
    return [nest.loops[x] for x in (POSITIONS, DEPTH) if x in nest.loops]


class _Tiles:
    def __init__(self, panel: str, tile: str, row: str, column: str, reduced: list[LoopRef]) -> None:
        self.panel, self.tile, self.row, self.column = panel, tile, row, column
        self.reduced = reduced

    @property
    def loops(self):
        return (self.panel, self.tile, self.row, self.column, *self.reduced)


def _tiles(p, rows, columns, reduced, height, mm):
    p = p.split(columns, mm.columns)
    panel, column = p.made
    p = p.split(rows, height, tail="clip")
    tile, row = p.made
    return p, _Tiles(panel, tile, row, column, reduced)


def _arranged(p: Program, spec: Spec, name: str, mm: MatmulIntrinsic) -> tuple[Program, Arranged]:
    """A contraction with the loops of a tile product."""
    plan, tensor = spec.plan(name), spec.tensor(name)
    assert plan is not None and isinstance(tensor, Compute)
    names = {
        a.var: i.var
        for a, i in zip((*tensor.axes, *tensor.reduce_axes), p.block(name).iters, strict=True)
    }
    return arrange(
        p, name, tile_product(mm.columns, mm.a), plan.groups(names),
        [names[v] for v in plan.batch], [names[a.var] for a in tensor.axes],
    )  # fmt: skip


class _Parts:
    """What the members of a spec are."""

    def __init__(self, spec: Spec) -> None:
        names = [name for name, _ in spec.members]
        self.first, self.last = (name for name, _ in spec.plans)
        at = names.index(self.last)
        between, self.epilogue = names[1:at], names[at + 1 :]
        shape = spec.tensor(self.first).shape
        plan = spec.plan(self.last)
        (self.weights,) = {x.source.name for x in loads_of(plan.a_side)}
        # Maps of the scores that need nothing of their rows yet.
        own = set[str]()
        of_rows = set[str]()
        for name in between:
            tensor = spec.tensor(name)
            reads = {x.source.name for x in own_nodes(tensor.body) if isinstance(x, Load)}
            if tensor.reduce_axes or tensor.shape != shape or reads & of_rows:
                of_rows.add(name)
            else:
                own.add(name)
        late = [n for n in between if n in of_rows]
        wanted = {x.source.name for n in late for x in own_nodes(spec.tensor(n).body)
                  if isinstance(x, Load) and x.source.name in {*own, self.first}}
        self.scores = next(iter(wanted)) if len(wanted) == 1 else self.first
        early = [n for n in between if n in own]
        self.inlined = [n for n in early if n != self.scores]
        column = [a.var for a in spec.tensor(self.first).axes].index(spec.plan(self.first).n[0])
        rows = [d for d in range(len(shape)) if d != column]
        self.group = RowGroup(replace(
            spec, kind="row", space=shape, order=(*rows, column), rows=len(rows),
            members=tuple((n, t) for n, t in spec.members if n in late), outputs=(self.weights,),
        ))
        self.inlined += [n for n in late if self.group.over_space(n) and n not in self.group.kept]
        self.rows = [n for n in self.group.in_passes() if n not in self.inlined]
        self.order = [self.first, *early, *self.group.in_passes(), self.last, *self.epilogue]
