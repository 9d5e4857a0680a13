"""Transpositions: squares of what is read across its lines are turned in registers.

    for rest, block of rows, block of columns in parallel:
        for column of squares, square:              along the lines that are written
            t[16, 16] = x[…, …] turned
            for c in unrolled(16): for r in vectorized(16): y[…] = f(t[c, r])
    likewise, element by element: what is left of columns, of rows

Whole lines are read, and whole lines written, also past the caches. Lines that are a power of two
apart share few places in the cache; a line that is used whole at once needs none for long. The next
column of squares is asked for meanwhile. Stores to so many rows at once wait for their lines long
before all of them are too many for the caches: they go past from a part of that on (Zen 4: 1,440
to 2,000 rows as long take 0.35 to 0.6 as long). What is read next does later (3.2 MB before a
convolution take 0.8 as long in the caches).

Where the first cache is large (48 KB, Zen 5) blocks write runs of 256 bytes, and all of the next
block is asked for, a few lines one after the other of a few rows with each square: a processor does
not follow rows by itself whose squares one load reads, and less than 256 bytes at a time go to
memory at half the speed (4096 x 4096 take 0.75 to 0.85 as long, 8 NHWC images of 112 x 112 pixels
and 64 channels 0.7; unrolled squares gain as much, and take twice as long to compile).

Where a line of a square is less than one of the caches (vectors of 256 bits and less, and short
types), what goes past them is written in longer runs, from a buffer:

    for rest, block of rows, block of columns in parallel:
        for square of rows, square of columns: t[…] = a square of x, turned
        for column in the block: y[…] = f(t[…])     in vectors, along the lines that are written

A part of a line past the caches, with others before its rest comes, is written as such, and lines
that are read in parts may be gone from the cache before the next. In the caches the way through `t`
takes longer (up to a fifth), so there is a nest for each. (Zen 3, 4 MB and more: f32 takes 0.4 to
0.7 as long, bf16 0.35 to 1, bytes 0.4 to 1.2.)

Squares of which parts are not in the source (columns of a last panel that are none of its matrix)
are filled first, in nests of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.ir.expr import loads_of
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import subst
from pliant.loop.stmt import LINE, Buffer, Store, offset_of, statements
from pliant.lower.canonical import Spec
from pliant.lower.row_facts import NEAR
from pliant.schedule.arrange import named
from pliant.schedule.errors import SchedulingError
from pliant.schedule.loop_partition import inner_part
from pliant.schedule.program import LoopRef, Program
from pliant.schedule.recipes.nests import grain, in_parallel, vectorize_all, work_of
from pliant.schedule.recipes.square import square_name, square_of
from pliant.sym.expr import Int, as_int, minimum, var

BLOCKS: Final = (1, 2, 4, 8, 16)  # squares along a side of a block
BLOCK: Final = 8  # of them without tuning
RUN: Final = 256  # elements that are written in a row, where parts of lines would go past caches
LONGEST: Final = 4  # bytes of an element for that: longer ones gain nothing (Zen 3, f64)
HIGH: Final = 4  # squares along the sides of a block where the next one is asked for: along what
WIDE: Final = 16  # is written, and along what is read
PAST: Final = 4  # transpositions go past the caches from a fourth of what is large elsewhere,
READ: Final = 2  # those that are read next from a half


def turning(
    p: Program, spec: Spec, loops: tuple[str, ...], lanes: int, large: int, near: int = NEAR
) -> Program:
    """The one block of a program of which some sources lie along the last loop but one, and the
    output along the last. Refused where a dimension is too short for a square, or no source can be
    had in squares."""
    if len(p.blocks) > 1:
        raise SchedulingError("turning", "the program", "it has several blocks")
    (block,) = p.blocks
    steps = _sources(p, block, *loops[-2:])
    sources = list(steps)
    side = _side(p, sources, loops[-2:], lanes)
    work = as_int(side * side * work_of(p, [block]))
    p, (*rest, across, last) = _as_loops(p, spec, block, loops)
    rest.sort(key=lambda x: _edge(p, x) is None)  # outermost, as it will be two loops
    p = p.sample_categorical("squares", BLOCKS, default=BLOCK)
    (many,) = p.numbers
    p = p.reorder(last, across, *rest)
    p = p.split(last, side, tail="peel")
    row, line, *few_rows = p.made
    p = p.reorder(across, row, line, *rest)
    p = p.split(across, side, tail="peel", tail_loop="exact")
    column, element, *few_columns = p.made
    left = p.blocks[1:]

    # Blocks of squares.
    p = p.reorder(*rest, row, column, element, line)
    nest = p.loops(block)
    size = p.buffer(sources[0]).dtype.bytes
    (output,) = map(p.buffer, p.written(block))
    large //= READ if spec.read else PAST
    past = output.room * output.dtype.bytes // large  # 0 in the caches
    alike, lines = _edge(p, nest[0]) is None, list[LoopRef]()
    if alike and size <= LONGEST and side * size < LINE and past != 0:
        p, small = _small_apart(p, block, past)
        p, line = _in_blocks(p, block, nest, sources, work)
        p, lines = _by_squares(p, small, p.loops(small)[1:], sources, many, work)
        lines.append(line)
    else:
        asks = alike and near > NEAR and len(sources) == 1 and side * size == LINE
        step = steps[sources[0]] if asks else None
        p, lines = _by_squares(p, block, nest, sources, many, work, step)

    # What is left of columns, then of rows.
    for name, few in zip(left, filter(None, (few_columns, few_rows)), strict=True):
        nest = p.loops(name)
        end = nest.index(few[-1]) + 1
        inner, (whole, *around) = list(nest[:end]), nest[end:]
        if few is few_columns:
            inner.append(around.pop(0))
        p = p.reorder(*around, whole, *inner)
        p, _ = in_parallel(p, (*around, whole), grain(work))
        lines.append(inner[-1])
    return vectorize_all(p, lines, large)


def _small_apart(p: Program, block: str, past: Int) -> tuple[Program, str]:
    """The nest of the block where `past` is not 0, and another where it is."""
    before = p.blocks
    p = p.add_unit_loop(p.loops(block)[0])
    (once,) = p.made
    p = p.loop_partition(once, minimum(1, past))
    (small,) = (name for name in p.blocks if name not in before)
    return p, small


def _by_squares(
    p: Program, block: str, nest: Sequence[LoopRef], sources: Sequence[str], many: Int, work: Int,
    step: Int | None = None,
) -> tuple[Program, list[LoopRef]]:  # fmt: skip
    """The nest in blocks of squares that are turned in registers; and the loops along what is
    written. With a step, how far lines of the source are apart, blocks ask for the next."""
    *rest, row, column, element, line = nest
    outside = len(p.loops(block)) - len(nest)
    side = p.loop(line).extent.value
    all_columns = p.loop(column).extent
    high, wide = (many, many) if step is None else (HIGH, WIDE)
    p = p.split(row, high, tail="clip")
    rows, row_of_block = p.made
    p = p.split(column, wide, tail="clip")
    columns, column_of_block = p.made
    p = p.reorder(*rest, rows, columns, column_of_block, row_of_block, element, line)
    squares: list[tuple[str, str]] = []
    for source in sources:
        p, copy = _in_squares(p, block, source, row_of_block)
        squares.append((copy, source))
    p, nests, edges = _edge_apart(p, block, squares)
    lines: list[LoopRef] = []
    for copy, source in edges:
        p, filled = _filled(p, copy, source)
        lines.append(filled)
    for copy, source in (*squares, *edges):
        p = _turned_at_once(p, copy, source, asks=step is None)
    strides = () if step is None else _strides(all_columns, step, side)
    for name in nests:
        own = p.loops(name)
        p = p.unroll(own[-2])
        p, blocks = in_parallel(p, own[outside:-4], grain(work * high * wide))
        lines.append(own[-1])
        if step is not None:
            # Each square, in turn, asks for a piece with as many lines of the caches as it has.
            column_of, row_of = (as_int(var(x)) for x in own[-4:-2])
            (count, size), at = _piece(side), as_int(0)
            for of, stride in zip((column_of, row_of, row_of // 2), strides, strict=True):
                p, distance = named(p, "piece", stride)
                at = at + of * distance
            p = p.prefetch(own[-3], sources[0], at, of=blocks, runs=(count, step, size))
    return p, lines


def _piece(side: int) -> tuple[int, int]:
    """How many lines of the source are asked for at a time, and how many elements of each: as many
    lines of the caches as a square has, in all as much as there are squares in a block."""
    return max(1, HIGH * side // WIDE), side * WIDE // HIGH


def _strides(columns: Int, step: Int, side: int) -> tuple[Int, Int, Int]:
    """How far it is from the piece of the next block that a square asks for to that of the next
    column's, the next row's, and how much further every second time: pieces follow one another, 4
    side by side, or 2 or 1 where lines end before. Without a division by what is known when the
    program runs."""
    count, size = _piece(side)
    two, four = (minimum(1, columns // (size * k // side)) for k in (2, 4))  # whether so many are
    lines = count * step
    below = (two - four) * (lines - 2 * size)
    return (HIGH - 2 * two - four) * lines, (1 - two) * lines + two * size, below


def _in_blocks(
    p: Program, block: str, nest: Sequence[LoopRef], sources: Sequence[str], work: Int
) -> tuple[Program, LoopRef]:
    """The nest in blocks of which all squares are turned before any of them is written; and the
    loop along what is written."""
    *rest, row, column, element, line = nest
    side, size = p.loop(line).extent, p.buffer(sources[0]).dtype.bytes
    high, wide = (as_int(n) // side for n in (RUN, LINE // size))
    p = p.split(row, high, tail="clip")
    rows, row_of_block = p.made
    p = p.split(column, wide, tail="clip")
    columns, column_of_block = p.made
    p = p.reorder(*rest, rows, columns, column_of_block, element, row_of_block, line)
    for source in sources:
        p, copy = _copied(p, block, source, columns, _iterators(p, block))
        (memory,) = p.written(copy)
        *_, across, along = p.loops(copy)
        bindings, places = p.block(copy).bindings, _iterators(p, copy)
        (i,) = (x for x, b in zip(places, bindings, strict=True) if across in b.names)
        (j,) = (x for x, b in zip(places, bindings, strict=True) if along in b.names)
        others = [x for x in places if x is not i and x is not j]
        p = p.transform_layout(memory, (*others, i // side, j // side, i % side, j % side))
        p = p.split(across, side)
        squares, there = p.made
        p = p.split(along, side)
        squares_along, here = p.made
        p = p.reorder(squares_along, squares, here, there)
        p = _turned_at_once(p, copy, source)
    p, _ = in_parallel(p, (*rest, rows, columns), grain(work * high * wide))
    return p, line


def _turned_at_once(p: Program, copy: str, source: str, *, asks: bool = True) -> Program:
    """The two innermost loops of the copy as one square."""
    *_, lines, _ = p.loops(copy)
    side = p.loop(lines).extent.value
    return p.tensorize(lines, square_name(p.buffer(source).dtype, side, asks=asks))


def turned(offset: Int, across: str, last: str) -> bool:
    """Contiguous along `across`, and jumping along `last`."""
    along_last, along = offset.linear(last), offset.linear(across)
    if along_last is None or along is None:
        return False
    return along[0] == 1 and along_last[0] != 0 and along_last[0] != 1


def _sources(p: Program, name: str, across: str, last: str) -> dict[str, Int]:
    """What the block reads in one place, across the lines, and how far apart its elements are that
    follow one another in a line."""
    out, block = dict[str, Int](), p.block(name)
    at = bindings_of(block)
    stores = [subst(s, at) for s in statements(block.body) if isinstance(s, Store)]
    loads = dict.fromkeys(x for s in stores for x in loads_of(s.value))
    sources = [x.source for x in loads]
    for load in loads:
        offset = offset_of(load.source, load.indices)
        once = sources.count(load.source) == 1 and isinstance(load.source, Buffer)
        along = None if offset is None else offset.linear(last)
        if once and offset is not None and along is not None and turned(offset, across, last):
            out[load.source.name] = along[0]
    return out


def _side(p: Program, sources: list[str], loops: tuple[str, ...], lanes: int) -> int:
    """Lines of a square of all these sources."""
    types = {p.buffer(s).dtype for s in sources}
    if len(types) != 1:
        raise SchedulingError("turning", "the program", f"it has sources of {len(types)} types")
    side = square_of(types.pop(), lanes)
    for loop in loops:
        extent = p.loop(loop).extent
        if side < 2 or (extent.is_const and extent.value < side):
            raise SchedulingError("turning", f"loop {loop}", "no square fits")
    return side


def read_in_squares(p: Program, block: str, source: str, loop: str) -> Program:
    """Each iteration of the loop reads a turned square of the source."""
    p, copy = _in_squares(p, block, source, loop)
    return _turned_at_once(p, copy, source)


def _in_squares(p: Program, block: str, source: str, loop: str) -> tuple[Program, str]:
    """Each iteration of the loop reads the elements of a turned square of the source, which the
    block that is made copies."""
    p, copy = _copied(p, block, source, loop, _iterators(p, block))
    *_, across, last = p.loops(copy)
    return p.reorder(last, across), copy


def _iterators(p: Program, block: str) -> tuple[Int, ...]:
    """Those of the block, as a layout names them."""
    return tuple(as_int(var(f"_{d}")) for d in range(len(p.block(block).iters)))


def _copied(
    p: Program, block: str, source: str, loop: str, layout: tuple[Int, ...]
) -> tuple[Program, str]:
    """Each iteration of the loop reads a copy of the source, which the block that is made fills."""
    p = p.reindex_cache_read(block, source, layout)
    copy, memory = p.made
    return p.compute_at(copy, loop).shrink_buffer(memory), copy


def _edge(p: Program, loop: str) -> Int | None:
    """The iteration of the loop from which on some condition in it does not hold; None where there
    is no such, or it does not hold before."""
    first, end = inner_part(p, loop)
    return end if first == 0 and end is not p.loop(loop).extent else None


def _edge_apart(
    p: Program, block: str, squares: Sequence[tuple[str, str]]
) -> tuple[Program, list[str], list[tuple[str, str]]]:
    """The nest of the block where conditions on its outermost loop hold, and that of another where
    not, if there are such; and the other's copies of squares, with the sources."""
    outermost = p.loops(block)[0]
    end = _edge(p, outermost)
    if end is None:
        return p, [block], []
    before = p.blocks
    p = p.loop_partition(outermost, end)
    *copies, made = (name for name in p.blocks if name not in before)
    in_order = sorted(squares, key=lambda x: p.blocks.index(x[0]))
    sources = [source for _, source in in_order]
    return p, [block, made], list(zip(copies, sources, strict=True))


def _filled(p: Program, copy: str, source: str) -> tuple[Program, LoopRef]:
    """The copy turns a square that is filled before, with what stands for missing elements; and
    the loop along the lines that are filled."""
    *_, row, _, _ = p.loops(copy)
    *outer, across, last = _iterators(p, copy)
    p, fill = _copied(p, copy, source, row, (*outer, last, across))
    return p, p.loops(fill)[-1]


def _as_loops(
    p: Program, spec: Spec, block: str, loops: tuple[str, ...]
) -> tuple[Program, tuple[LoopRef | str, ...]]:
    """The block with an iterator for each of these loops, that some of its own were fused to; those
    of dimensions of one element, which have no loop, go to the first."""
    own = p.block(block)
    if len(own.iters) == len(loops):
        return p, loops
    entries = list[Int]()
    for loop in loops:
        entry = as_int(0)
        for d in spec.order:
            names = own.bindings[d].names
            if loop in names or (not names and loop == loops[0]):
                entry = entry * own.iters[d].extent + var(f"_{d}")
        entries.append(entry)
    p = p.transform_block_layout(block, tuple(entries))
    return p, p.made
