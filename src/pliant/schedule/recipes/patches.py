"""A product between maps of patches (Winograd's minimal filtering), some patches at a time.

parallel over (image, row of patches, part of the row):
  patches of the part:      each all at once, in vectors over channels     second-level cache
  for each place of a patch, for each panel of filters, for each tile of the part:
    tile[patches, 32] = micro-kernel(patches, panel)                       second-level cache
  results of the part:      of a patch all at once, in vectors over outputs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from pliant.ir.expr import loads_of
from pliant.ir.tensor import Compute
from pliant.lower.canonical import Spec
from pliant.lower.row_facts import LARGE
from pliant.schedule.arrange import lines_apart, rows_by_table, tile_height
from pliant.schedule.program import LoopRef, Program
from pliant.schedule.recipes.cases import cases_in, periods, unrolled
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic, arranged, by_micro_kernel
from pliant.schedule.recipes.nests import grain, in_memory_order, inline_maps, vectorize_all
from pliant.schedule.recipes.start import start

ROOM: Final = 5 << 17  # bytes of a part's patches and products: not all of a second-level cache


def patches_recipe(spec: Spec, mm: MatmulIntrinsic) -> Program:
    """A schedule for maps that make patches, a packed contraction, and maps of its results."""
    p = start(spec, intrinsics=mm.intrinsics)
    ((anchor, plan),) = spec.plans
    names = [name for name, _ in spec.members]
    (patches,) = {x.source.name for x in loads_of(plan.a_side)}
    p = inline_maps(p, spec, names[names.index(anchor) + 1 :])
    for name in names[: names.index(patches)]:
        p = p.compute_inline(name)
    # Images, rows of patches and places of a patch are outside, patches of a row are its rows.
    tensor = spec.tensor(anchor)
    assert isinstance(tensor, Compute)
    *outside, row, _ = (a.var for a in tensor.axes)
    p, one = arranged(p, spec, anchor, replace(plan, batch=tuple(outside), m=(row,)), mm)
    p = p.transform_block_layout(one.store, one.space)

    # Results: parts of rows of patches, of tiles of about the same height.
    p, loops = in_memory_order(p, spec, spec.outputs)
    *outer, of_results = loops
    p, around, period = periods(p, outer, cases_in(p, loops))
    image, block, along = around
    p, height = tile_height(p, p.loop(along).extent, mm.rows, mm.row_unit)
    tiles = _tiles(spec, anchor, patches, mm)
    work = _work(spec, anchor) * height * tiles
    p = p.split(along, height * tiles, tail="clip")
    part, along = p.made
    p = p.reorder(image, block, part, along, of_results, *period)

    # What a part of them needs: products, tile by tile, and for these patches.
    p = p.compute_at(one.store, part)
    *places, rows, columns = p.made
    p = p.shrink_buffer(anchor)
    p = p.split(columns, mm.columns)
    panel, column = p.made
    p = p.split(rows, height, tail="clip")
    tile, row = p.made
    p = p.reorder(*places, panel, tile, row, column)
    p = p.compute_at(anchor, tile)
    row, column, *reduced = p.made
    p = p.shrink_buffer(one.product)
    if p.loop(column).extent != mm.columns:  # a panel has all of its columns
        p = p.split(column, mm.columns)
        p = p.reorder(p.made[0], row)
    p = p.compute_at(patches, part)
    *before, of_patches = p.made
    p = p.shrink_buffer(patches)
    p, around, place = periods(p, before, cases_in(p, [*before, of_patches]))
    p = p.reorder(*around, of_patches, *place)
    for name in (patches, anchor):  # of which one is written in one go, a vector at each place
        p = lines_apart(p, name, p.buffer(name).rank - 3)
    if p.block(anchor).where is not None:
        p = p.pad_block(anchor)
    p, found = rows_by_table(
        p, anchor, patches, [LoopRef(x) for x in reduced], places[-1], (tile, row), gather=False
    )

    # Vectors, tasks for threads, the micro-kernel.
    p = p.split(p.loops(one.store)[-1], mm.lanes)
    vectors, vector = p.made
    p = p.vectorize(vector).unroll(vectors)
    for written, loop, inside in (
        (spec.outputs, of_results, period),
        ((patches,), of_patches, place),
    ):
        p, _, lane = unrolled(p, loop, inside, _lanes(p, written, loop, mm))
        p = vectorize_all(p, [lane], LARGE)
    p = p.parallel(image).parallel(block).parallel(part, grain=grain(work))
    p = p.fuse(image, block, part)
    return by_micro_kernel(p, anchor, found, tile, row, mm)


def _lanes(p: Program, names: Sequence[str], loop: str, mm: MatmulIntrinsic) -> int:
    """Of results that are half as wide as sums two vectors at a time, if that leaves no rest: they
    are converted together, and where they lie is found out once."""
    halves = all(2 * p.buffer(x).dtype.bytes == mm.c.bytes for x in names)
    whole = p.facts.divisible(p.loop(loop).extent, 2 * mm.lanes)
    return mm.lanes * (1 + (halves and whole))


def _tiles(spec: Spec, anchor: str, patches: str, mm: MatmulIntrinsic) -> int:
    """How many tiles of patches, and of what they are multiplied to, there is room for."""
    each = 0
    for tensor in map(spec.tensor, (anchor, patches)):
        *_, a, b, _, elements = tensor.shape
        each += (a * b * elements).value * tensor.dtype.bytes
    return max(1, ROOM // (each * mm.rows))


def _work(spec: Spec, anchor: str) -> int:
    """Operations for a patch."""
    tensor = spec.tensor(anchor)
    assert isinstance(tensor, Compute)
    *_, a, b, _, outputs = tensor.shape
    depth = prod(x.extent.value for x in tensor.reduce_axes)
    return (a * b * outputs).value * depth // 8
