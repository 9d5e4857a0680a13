"""A block's iterators and what it writes, arranged for an intrinsic: one loop for each of its
iterators, which takes all that runs together as that.

for n, o, p in grid(N, O, P):                    for i in grid(N*P), j in grid(O), k in grid(C*K):
    for c, k in grid(C, K):                          y_local[i, j] += …
        y[n, o, p] += …                 ->       for n, o, p in grid(N, O, P):
                                                     y[n, o, p] = y_local[n*P + p, o]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.ir.einsum import Einsum
from pliant.loop.stmt import LINE, PAGE
from pliant.schedule.program import BlockRef, LoopRef, MemoryRef, Program
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, maximum, minimum, var


@dataclass(frozen=True)
class Arranged:
    """The block's loops: those `outside`, data parallel and reduced over, and those of the
    intrinsic's iterators (of which some run once and have none). `space` are the layouts of the
    data parallel ones, over the output's dimensions; `store` copies the `product` to its place."""

    block: str
    outside: tuple[LoopRef, ...]
    summed: tuple[LoopRef, ...]
    loops: Mapping[str, LoopRef]
    space: tuple[Int, ...]
    store: BlockRef
    product: MemoryRef


def arrange(
    p: Program,
    block: str,
    form: Einsum,
    groups: Mapping[str, Sequence[str]],
    outside: Sequence[str],
    dims: Sequence[str],
) -> tuple[Program, Arranged]:
    """The program with the block arranged for an intrinsic of this `form`. `groups` and `outside`
    are as in `ir.mapping.IteratorMap`, in terms of the block's iterators; `dims` says which
    iterator each dimension of its output is."""
    target = p.block(block)
    place: dict[str, Int] = {i.var: var(f"_{d}") for d, i in enumerate(target.iters)}
    extents = {i.var: i.extent for i in target.iters}
    reduced = {i.var for i in target.iters if i.kind == "R"}
    to_dims = {f"_{d}": var(f"_{dims.index(i.var)}") for d, i in enumerate(target.iters)
               if i.var in dims}  # fmt: skip

    def together(names: Sequence[str]) -> Int:
        total = as_int(0)
        for name in names:
            total = total * extents[name] + place[name]
        return total

    batch = [place[v] for v in outside if v not in reduced]
    summed = [place[v] for v in outside if v in reduced]
    outer = [a.var for a in form.outer]
    inner = [a.var for a in form.inner if groups[a.var]]
    space = (*batch, *(together(groups[v]) for v in outer))
    layout = tuple(x.subs(to_dims) for x in space)
    p = p.cache_write(block, layout=layout)
    store, product = p.made
    assert isinstance(store, BlockRef) and isinstance(product, MemoryRef)
    p = p.transform_block_layout(block, (*space, *summed, *(together(groups[v]) for v in inner)))
    made = [LoopRef(x) for x in p.made]
    first, second = len(space), len(space) + len(summed)
    loops = dict(zip(outer, made[len(batch) : first], strict=True))
    loops |= dict(zip(inner, made[second:], strict=True))
    return p, Arranged(
        block, tuple(made[: len(batch)]), tuple(made[first:second]), loops, layout, store, product
    )


@dataclass(frozen=True)
class RowTiles:
    """Loops over blocks of tiles, over a block's tiles, and over the rows of a tile, of which there
    are `height` but in the last one."""

    block: LoopRef
    tile: LoopRef
    row: LoopRef
    height: Int


def row_tiles(
    p: Program, rows: LoopRef, most: IntLike, tiles: IntLike, unit: int = 1
) -> tuple[Program, RowTiles]:
    """The loop over rows split into tiles of at most `most`, which are all about as high, and so
    many `tiles` taken together in blocks, which share what they read. Of 16 rows are made two
    tiles of 8, not of 14 and 2; but all tiles except the last have multiples of `unit` rows. A
    height that is known only at run time gets a name."""
    p, height = tile_height(p, p.loop(rows).extent, most, unit)
    p = p.split(rows, height * tiles, tail="clip")
    block, rest = map(LoopRef, p.made)
    p = p.split(rest, height, tail="clip")
    tile, row = map(LoopRef, p.made)
    return p, RowTiles(block, tile, row, height)


def tile_height(p: Program, total: Int, most: IntLike, unit: int = 1) -> tuple[Program, Int]:
    """How high tiles of at most `most` are that share `total` rows, or `unit`s of them, evenly."""
    even = ceildiv(total, unit * maximum(ceildiv(total, most), 1)) * unit
    return named(p, "tile_rows", minimum(maximum(even, 1), most))


def named(p: Program, name: str, value: Int) -> tuple[Program, Int]:
    """The value: by a name of its own, with which it is computed once, where it is known only at
    run time."""
    least, greatest = p.facts.bounds(p.decided(value))
    if least is None or least != greatest:
        name = p.names().variable(name)
        return p.name_size(name, value), var(name)
    return p, value if p.decided(value).is_const else as_int(least)


@dataclass(frozen=True)
class Rows:
    """How a block finds the rows of an operand: `position` and `along` are the loops over parts of
    a row, and over the elements of a part, `table` is the block that fills the table; `missing`:
    some rows are not there."""

    position: LoopRef
    along: LoopRef
    table: BlockRef
    missing: bool
    copies: tuple[BlockRef, ...] = ()


def rows_by_table(
    p: Program,
    block: str,
    source: str,
    reduced: Sequence[LoopRef],
    at: str,
    table: tuple[str, str],
    *,
    gather: bool,
    dtype: str = "",
    shared: Sequence[LoopRef] = (),
) -> tuple[Program, Rows]:
    """The block finds the rows of an operand, made of `source`, in a table that is made in loop
    `at`: for each iteration of the first of the loops `table`, of the first of `reduced`, which
    are at most two, and of the second of `table`. With `gather` rows are copied together there;
    as elements of a type that the block converts, if `dtype` names one; else they lie element
    after element along the last of `reduced`. The loops `shared` share the table."""
    along = reduced[-1]
    copies: tuple[BlockRef, ...] = ()
    if gather:
        p = p.stage_operand(block, source, dtype=dtype) if dtype else p.stage_operand(block, source)
        copy, source = p.made
        copies = (BlockRef(copy),)
        p = p.compute_at(copy, at).shrink_buffer(source)
        p = rows_apart(p, source, len(reduced))
        if len(reduced) > 1:
            p = p.fuse(*reduced)
            along = LoopRef(p.made[0])
    position = LoopRef(reduced[0])
    if gather or len(reduced) < 2:
        p = p.add_unit_loop(along)
        position = LoopRef(p.made[0])
    p = p.cache_index(block, source, at, along, (table[0], position, table[1]), tuple(shared))
    return p, Rows(position, along, BlockRef(p.made[0]), len(p.made) > 2, copies)


def rows_apart(p: Program, rows: str, inner: int) -> Program:
    """Long rows, whose elements are the last `inner` dimensions, begin a line further than two
    lines would have it: whatever their length, they do not all lie in one set of a cache."""
    memory = p.buffer(rows)
    axis = memory.rank - inner - 1
    if axis < 0:  # one row
        return p
    step = memory.strides[axis] * memory.dtype.bytes
    if step.is_const and step.value % PAGE:
        return p
    return lines_apart(p, rows, axis)


def lines_apart(p: Program, rows: str, axis: int) -> Program:
    """What the positions of dimension `axis` hold begins an odd number of lines after one another:
    as many of them as a cache has sets lie in as many sets."""
    memory = p.buffer(rows)
    line = LINE // memory.dtype.bytes
    if memory.scope == "register":  # of which there are few, and lines that are apart take more
        p = p.set_scope(rows, "scratch")
    return p.storage_align(rows, axis, 2 * line, line)
