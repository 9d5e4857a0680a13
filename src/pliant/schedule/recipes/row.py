"""Rows: reductions along the columns with maps over columns and rows, in as few passes over each
row as the reductions need (AStitch's row groups). Softmax takes three passes, layer norm two
(`lower.one_pass`).

    parallel over rows, or over groups of a few short ones, each pass of one after the other:
        per pass: columns in blocks of several vectors, then the rest under a mask
            maps that are stored; partial results of reductions, one for each lane and vector
        after it: the partial results to one value; values of the row that follow from it
    a last pass, of maps that are only stored, in whole cache lines (`lines`)

A map over the space is computed again by each reader unless it is an output (readers then read it
back) or dear and wanted more than once (it then gets a buffer of one row).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Final

from pliant.ir.expr import Index, Load
from pliant.ir.mapping import row_major
from pliant.ir.tensor import Compute, own_nodes
from pliant.loop.regions import accesses
from pliant.loop.stmt import Block, Buffer, For, statements
from pliant.lower.access import DEAR, cost_of, takes_long
from pliant.lower.canonical import Spec
from pliant.lower.row_facts import LARGE, NEAR, SHORT
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import LoopRef, Program
from pliant.schedule.recipes.lines import ask_for_ends, in_lines, may_straddle
from pliant.schedule.recipes.nests import grain, in_vectors, localize, read_apart, work_of
from pliant.schedule.recipes.start import start
from pliant.schedule.recipes.stored_late import store_late
from pliant.sym.expr import Int, as_int, maximum, var

UNROLL: Final = 4  # independent accumulators per reduction, to hide latency; without tuning
UNROLL_DEAR: Final = 2  # … where lanes are few, so that constants of exp stay in registers
FEW_LANES: Final = 8
RUN: Final = 256  # columns that are stored late before as many are computed, where lanes are few
UNROLLS: Final = 8  # at most
TOGETHER: Final = (4, 2)  # rows that each pass goes over before the next one
ROOM: Final = 6 << 10  # bytes of such rows, at most
BRIEF: Final = 3 << 8  # bytes of rows that are computed together rather than stored late
ROOM_OF_THREE: Final = 24 << 10  # bytes of rows of which one is read, one computed, one stored
STAGES: Final = 20  # of such rows, at most: each has code of its own
AHEAD: Final = 5 << 10  # bytes between what a pass reads and what it asks for, at least
FURTHER: Final = 8 << 10  # … and where it is the only one
APART: Final = 4 << 10  # … and asks again
ASKED: Final = 3  # times, at least, that it asks for what comes from memory


def row_recipe(spec: Spec, lanes: int, large: int = LARGE, near: int = NEAR) -> Program:
    """A schedule for a group of rows."""
    group = RowGroup(spec, lanes, near)
    p = start(spec, group.in_passes())
    work = as_int(work_of(p, group.members))
    stores: list[str] = []
    for name in group.reductions:
        p, stored = localize(p, name)
        stores += [stored] if stored != name else []
    for name in group.members:
        if group.over_space(name) and name not in group.kept:
            p = p.compute_inline(name)
    for name in group.kept - set(spec.outputs):
        # What goes past the caches is not written twice.
        p = p if spec.known.large or group.stored_late else _in_an_output(p, group, name)
    p, row = _rows(p, group, stores, together := _rows_together(group, lanes))
    over = [n for n in p.blocks if n in group.reductions or n in group.kept]
    columns: dict[str, LoopRef] = {n: p.loops(n)[-1] for n in over}
    work = work * next((p.loop(c).extent for c in columns.values()), as_int(1))
    lines = {n: columns[n] for n in _alone(group, columns) if may_straddle(p, columns[n])}
    others = {n: c for n, c in columns.items() if n not in lines}
    p, runs = passes(p, group, others, lanes, groups=together > 1)
    for buffer in p.allocated:
        if together > 1:
            p = p.transform_layout(buffer, _by_row(spec, p.buffer(buffer)))
        p = p.shrink_buffer(buffer)
    heads: list[str] = []
    ends: list[str] = []
    for name, loop in lines.items():
        p, head, parts = in_lines(p, loop, lanes)
        ends += parts
        heads += [head] * any(n in group.kept for n in group.sources(name))
    part, rest, late, early = row, "", None, ""
    if group.stored_late:
        last, first = max(runs), min(runs)
        dear = group.dear(last - 1)
        beside = last - 1 if dear else first
        early = runs[first] if dear and first == last - 2 and group.runs_early(first) else ""
        in_runs = spec.known.large and lanes <= FEW_LANES and dear
        run = RUN // (lanes * UNROLL_DEAR) if in_runs else 1
        late = store_late(p, row, group.stored_late, runs[last], runs[beside], early, work, run)
    if late is not None:
        p, part, row, runs[beside] = late  # it does the work of both
        del runs[last]
        if early:
            del runs[first]
    elif row:
        if together > 1:
            p, rest = _whole_groups(p, row, spec.rows, group.count // together)
        p = p.parallel(row, grain=grain(work * together))
    for outer in (part, rest) if rest else (part,):
        inner = p.innermost(outer)
        along = [x for x in inner if together == 1 or not _is_over_rows(p.loop(x), spec.rows)]
        p = in_vectors(p, along, lanes, large, ends)
    if not row:
        return p
    p = ask_for_ends(p, row, heads)
    only = len(runs) == 1
    if spec.known.large and (only or (late is not None and beside == first)):
        # Rows that are stored in a pass of their own come by themselves, but for long ones.
        asks = lanes > FEW_LANES and (not lines or spec.known.long)
        behind = 0 if late is None else 1 + bool(early)
        return _further(p, group, row, behind) if asks else p
    if only and late is not None:
        return _next_and_further(p, group, row, *runs.values())
    stored_late = frozenset() if late is None else group.stored_late
    return _next_rows(p, group, row, runs, stored_late, lanes)


def _alone(group: RowGroup, columns: Mapping[str, LoopRef]) -> list[str]:
    """The maps that are stored in a pass of their own, in rows that may straddle cache lines."""
    if group.spec.known.in_lines or group.stored_late:
        return []
    levels = [group.level[n] for n in columns]
    return [n for n in columns if n in group.kept and levels.count(group.level[n]) == 1]


class RowGroup:
    """What the members of a spec are to the rows."""

    def __init__(self, spec: Spec, lanes: int, near: int = NEAR) -> None:
        self.spec, self.lanes, self.near = spec, lanes, near
        self.members: dict[str, Compute] = {}
        for name, tensor in spec.members:
            assert isinstance(tensor, Compute)
            self.members[name] = tensor
        self.reductions = [n for n, t in self.members.items() if t.reduce_axes]
        self.level = self._levels()
        self.kept = self._kept()
        self.stored_late = self._stored_late()

    @property
    def count(self) -> Int:
        """How many rows there are."""
        spec = self.spec
        return prod((spec.space[d] for d in spec.order[: spec.rows]), start=as_int(1))

    @property
    def columns(self) -> Int:
        """How many elements a row has."""
        spec = self.spec
        return prod((spec.space[d] for d in spec.order[spec.rows :]), start=as_int(1))

    def over_space(self, name: str) -> bool:
        """A map over rows and columns; others have a value for each row."""
        t = self.members[name]
        of_row = len(t.axes) == self.spec.rows and self.spec.rows < len(self.spec.space)
        return not t.reduce_axes and not of_row

    def _levels(self) -> dict[str, int]:
        """In which pass a stage is computed; the value of a reduction is there one later."""
        level: dict[str, int] = {}
        for name in self.members:
            own = 0
            for source in self.sources(name):
                own = max(own, level[source] + (source in self.reductions))
            level[name] = own
        return level

    def dear(self, level: int) -> bool:
        """Whether a pass computes for long with every element."""
        here = (n for n in self.members if self.level[n] == level)
        of_elements = (n for n in here if n in self.reductions or self.over_space(n))
        return any(takes_long(self.members[n].body) for n in of_elements)

    def _stored_late(self) -> frozenset[str]:
        """What the last pass stores, where it does nothing else and runs well with the one before:
        that is dear, or `_waits`. Rows that straddle lines are stored late where caches keep them
        (Zen 5: softmax of 1,000 columns takes 0.79 as long, past the caches 1.1 times), unless they
        are so short that several are computed together, or may be long (1.14 times)."""
        spec, last = self.spec, max(self.level.values(), default=0)
        sums = any(self.level[n] == last for n in self.reductions)
        if sums or self.dear(last) or last < 1:
            return frozenset()
        if not spec.known.in_lines and (not spec.known.moderate or spec.known.large):
            return frozenset()
        if not self.dear(last - 1) and not self._waits(last):
            return frozenset()
        return frozenset(n for n in self.kept if self.level[n] == last)

    def runs_early(self, level: int) -> bool:
        """Whether a pass runs with the two after it, for a row of its own. Not where the first
        cache has no room for three rows (Zen 5: softmax of 12 KB takes 1.15 times as long), nor
        where there are few registers (with those of AVX2 1.07 to 1.18 times)."""
        row = self.columns * max(t.dtype.bytes for t in self.members.values())
        fits = row.is_const and row.value <= ROOM_OF_THREE // 3
        return fits and self.lanes > FEW_LANES and not self.dear(level)

    def _waits(self, last: int) -> bool:
        """Whether the first pass waits for what it reads, and can store the row before meanwhile.

        Where memory is the limit it does (Zen 4: layer norm takes 0.6 to 0.8 as long, RMS norm 0.8
        to 0.95). With a pass between the two not where rows are short, for several are computed
        together then (layer norm of 512 bytes 1.25 times as long). Where lanes are few only with
        one pass, of rows that are not long: it does not ask for what it reads (`_further`). Nor
        rows of which four leave no room in a first cache that is larger than others (48 KB, Zen 5:
        layer and RMS norm of 12 to 64 KB take 0.75 to 0.93 as long by themselves, of 10 KB 1.1).

        In the caches where nothing has to come before its sums and there are registers for both
        (Zen 5: RMS norm takes 0.86 to 0.93 as long; layer norm, which has a mean of some elements
        first, 0.95 to 1.1, but of rows that straddle lines 0.9). Not where rows are long (RMS norm
        of 16 KB takes 0.94 as long without, layer norm 0.65), nor where their length is a parameter
        (Zen 4: RMS norm 1.15 to 1.5 times as long, layer norm of rows that straddle lines 1.2 to
        1.4)."""
        known = self.spec.known
        if known.large and self.lanes <= FEW_LANES:
            return last == 1 and not known.long
        if known.large:
            if known.longer and self.near > NEAR:
                return False
            row = self.columns * max(t.dtype.bytes for t in self.members.values())
            brief = row.value <= BRIEF if row.is_const else not (known.long or known.moderate)
            return last == 1 or (last == 2 and not brief)
        if last > 1 or known.long or self.lanes <= FEW_LANES:
            return False
        if not (self.columns.is_const and known.moderate):
            return False
        first = [n for n in self.members if self.level[n] == 0]
        at_once = all(n in self.reductions or self.over_space(n) for n in first)
        return at_once or not known.in_lines

    def sources(self, name: str) -> list[str]:
        """The members that this one reads."""
        loads = (n.source.name for n in own_nodes(self.members[name].body) if isinstance(n, Load))
        return list(dict.fromkeys(n for n in loads if n in self.members))

    def _kept(self) -> set[str]:
        """Maps over the space that are stored: outputs, and dear ones that several read."""
        readers = [source for name in self.members for source in self.sources(name)]
        out = set()
        for name, tensor in self.members.items():
            if self.over_space(name):
                dear = cost_of(tensor.body) >= DEAR and readers.count(name) > 1
                if name in self.spec.outputs or dear:
                    out.add(name)
        return out

    def in_passes(self) -> list[str]:
        """The members, those of a pass together, values of the row first."""
        return sorted(
            self.members,
            key=lambda n: (self.level[n], n in self.reductions or self.over_space(n)),
        )

    def reduced_order(self, name: str) -> list[int]:
        """The axes that a reduction runs over, as the columns lie in memory."""
        tensor = self.members[name]
        names = [a.var for a in tensor.reduce_axes]
        for load in own_nodes(tensor.body):
            if isinstance(load, Load) and load.source.shape == self.spec.space:
                at = [i.int_ if isinstance(i, Index) else as_int(0) for i in load.indices]
                columns = self.spec.order[self.spec.rows :]
                along = [next(iter(at[d].names), "") for d in columns]
                if sorted(along) == sorted(names):
                    return [names.index(n) for n in along]
        return list(range(len(names)))


def _in_an_output(p: Program, group: RowGroup, name: str) -> Program:
    """A row that is kept lies in the row of the output that is made of it, if there is one."""
    for out in group.spec.outputs:
        if group.over_space(out) and name in group.sources(out):
            with suppress(SchedulingError):
                return p.store_in(name, out)
    return p


def _rows_together(group: RowGroup, lanes: int) -> int:
    """How many rows each pass goes over before the next one: several where they are short, so that
    no row waits for what follows from its sums (Zen 4: layer norm of 64 to 384 columns takes 0.7 to
    0.9 as long). Memory is read and written in the order in which it lies; rows side by side would
    be faster by another 0.07 in the caches, and take up to twice as long past them."""
    spec, rows, columns = group.spec, group.count, group.columns
    if group.stored_late or not columns.is_const or list(spec.order) != sorted(spec.order):
        return 1
    if not spec.known.in_lines and columns.value >= SHORT:
        return 1  # rows begin anywhere in lines, each elsewhere
    axes = [d for d in spec.order[: spec.rows] if spec.space[d] != 1]
    each_row = [n for n in spec.outputs if not group.over_space(n)]
    if any(spec.strides_of(n) != row_major(spec.tensor(n)) for n in each_row):
        return 1  # it is not seen that values of rows in one group are not those of others
    if len(axes) > 1 and any(columns.value % w for w in _widths(columns, lanes)[0]):
        return 1  # it is not seen that columns left in one group are not those of others
    each = columns.value * max(t.dtype.bytes for t in group.members.values())
    fits = (k for k in TOGETHER if k * each <= ROOM and k * len(group.members) <= STAGES)
    return next((k for k in fits if not rows.is_const or rows.value >= k), 1)


def _rows(p: Program, group: RowGroup, stores: list[str], together: int) -> tuple[Program, str]:
    """One loop over rows around all blocks, in each at most one over columns; with `together` over
    groups of rows, in which another is around that over columns. Gives the outermost loop; empty
    where there is but one row."""
    spec, row = group.spec, ""
    for name in p.blocks:
        loops: list[str] = list(p.loops(name))
        if name not in stores and group.over_space(name):
            rows = [loops[d] for d in spec.order[: spec.rows]]
            columns = [loops[d] for d in spec.order[spec.rows :]]
        else:
            rows, columns = loops[: spec.rows], loops[spec.rows :]
            if columns:
                columns = [columns[k] for k in group.reduced_order(name)]
        if len(loops) > 1:
            p = p.reorder(*rows, *columns)
        if len(columns) > 1:
            p = p.fuse(*columns)
        if not rows:
            continue
        if len(rows) > 1:
            p = p.fuse(*rows)
        here = p.made[0] if len(rows) > 1 else rows[0]
        if together > 1:
            p = p.split(here, together, tail="clip")
            here = p.made[0]
        if row:
            p = p.merge(row, here)
        row = row or here
    return p, row


def _by_row(spec: Spec, buffer: Buffer) -> list[Int]:
    """A layout in which the rows lie along one axis: then it is seen which ones a group has."""
    place = [var(f"_{d}") for d in range(buffer.rank)]
    row = as_int(0)
    for at, extent in zip(place[: spec.rows], buffer.shape, strict=False):
        row = row * extent + at
    return [row, *place[spec.rows :]]


def passes(
    p: Program, group: RowGroup, columns: dict[str, LoopRef], lanes: int, *, groups: bool = False
) -> tuple[Program, dict[int, str]]:
    """The blocks' loops over the columns of a row, in as few runs as it takes. Gives the loops over
    whole blocks of columns, by pass."""
    runs: dict[int, str] = {}
    for level in sorted(set(group.level.values())):
        here = {n: c for n, c in columns.items() if group.level[n] == level}
        if here:
            p, blocks = _pass(p, group, here, lanes, groups, level)
            runs[level] = blocks
    return p, runs


def _pass(
    p: Program, group: RowGroup, columns: dict[str, LoopRef], lanes: int, groups: bool, level: int
) -> tuple[Program, str]:
    """One run over the columns for all these blocks, in blocks of several vectors, of one row of
    `groups` after the other. Gives the loop over whole blocks."""
    extent = p.loop(next(iter(columns.values()))).extent
    # What is stored late runs with the dear pass, block by block.
    dear = group.dear(level) or (bool(group.stored_late) and group.dear(level - 1))
    widths, width = _widths(extent, lanes, dear)
    name = f"columns_of_pass_{level}"
    p = p.sample_categorical(name, widths, default=width)
    (wide,) = p.numbers
    first, first_rows = "", ""
    partial: dict[str, str] = {}
    for name, loop in columns.items():
        p = p.split(loop, wide)
        outer, lane = p.made
        if groups:
            (several,) = p.loops(name)[1:-2]
            if first_rows:
                p = p.merge(first_rows, several)
            first_rows = first_rows or several
        if name in group.reductions:
            p = p.rfactor(lane)
            partial[name] = p.made[0]
        if first:
            p = p.merge(first, outer)
        first = first or outer
    for name, block in partial.items():
        if any(i.kind == "R" for i in p.block(block).iters):
            p = p.decompose_reduction(block, first)
        p = p.reduce_lanes(name)
    whole = extent // wide
    if p.loop(first).extent is not p.decided(whole):
        p = p.loop_partition(first, whole)
    return p, first


def _widths(extent: Int, lanes: int, dear: bool = False) -> tuple[tuple[int, ...], int]:
    """Columns of a block: from a vector up; no more than the next power of two where there are few.
    And how many without tuning, where what is done with each is `dear` or not."""
    few = lanes * UNROLLS
    while extent.is_const and few >= 2 * max(extent.value, 1):
        few //= 2
    widths = tuple(few >> k for k in range(UNROLLS) if few >> k >= min(lanes, few))
    unroll = UNROLL_DEAR if dear and lanes <= FEW_LANES else UNROLL
    return widths, min(few, lanes * unroll)


def _whole_groups(p: Program, row: str, axes: int, whole: Int) -> tuple[Program, str]:
    """The loop `row` over groups of rows does the whole ones. Gives the loop over the rest; empty
    where none is left."""
    several = [s.var for s in _loops(p, row) if _is_over_rows(s, axes)]
    rest = ""
    if p.loop(row).extent is not whole:
        p = p.loop_partition(row, whole)
        (rest,) = p.made
    for name in several:
        p = p.unroll(name)
    return p, rest


def _loops(p: Program, loop: str) -> list[For]:
    return [s for s in statements(p.loop(loop).body) if isinstance(s, For)]


def _is_over_rows(loop: For, axes: int) -> bool:
    """Whether it goes over the rows of a group, which have so many axes: every block's first."""
    blocks = (s for s in statements(loop.body) if isinstance(s, Block))
    return any(loop.var in x.names for s in blocks for x in s.bindings[:axes])


def _further(p: Program, group: RowGroup, row: str, behind: int) -> Program:
    """The pass that reads from memory asks for what it reads further on, past the ends of pages,
    where the processor's own requests end (Zen 4: rows that no cache has are summed in 0.87 of the
    time; others, if they asked, in 1.25 times). What is left of a row behind whole blocks of
    columns asks, too: all that is stored next waits for the sums of it (0.65 as long).

    Requests are few, and dropped where there are more: so it comes to the second cache, which has
    more of them, and is asked for several times, by each who reads it, and for each vector again
    where these are few (layer norm of 4 to 12 KB takes 0.85 to 0.93 as long, RMS norm 0.7 to 0.9).
    Of several buffers each is asked for in turn (layer norm of a sum takes 0.66 to 0.75 as long as
    if only the first was). What is stored late reads so many rows `behind`.

    Not with few lanes, as of older processors, which go on by themselves (Zen 3: rows would be
    summed in 1.14 times), nor of rows that are stored apart, unless they are long (Zen 4: layer
    norm of 1,000 columns would take 1.3 times as long, RMS norm of 4,001 takes 0.83)."""
    found: list[tuple[LoopRef, list[Buffer], str]] = []
    for loop in p.innermost(row):
        every = list(accesses(p.loop(loop), p.invoked))
        made = next((a.buffer.name for a in every if a.write), "")
        reads = list(dict.fromkeys(a.buffer for a in every if read_apart(a, row) is not None))
        found += [(loop, reads, made)] * bool(reads)
    readers = list(dict.fromkeys(made for *_, made in found))
    for loop, reads, made in found:
        lag = group.columns * behind if made in group.stored_late else as_int(0)
        loops = [s for s in p.loop_path("prefetch", loop) if isinstance(s, For)]
        again = len(readers) < ASKED * len(reads) and loops[-2].kind == "unrolled"
        for turn, asks in enumerate((loop, loops[-2].var) if again else (loop,)):
            k = readers.index(made) + turn * len(readers)
            buffer = reads[k % len(reads)]  # a loop asks for one thing
            far = FURTHER + APART * (k // len(reads))
            with suppress(SchedulingError):
                p = p.prefetch(asks, buffer.name, lag + far // buffer.dtype.bytes, cache=2)
    return p


def _next_and_further(p: Program, group: RowGroup, row: str, blocks: str) -> Program:
    """The only pass, over several rows, asks for what it reads of the last one further on, and for
    the lines that the next row is stored to (Zen 5: rows that the last cache just has no room for
    take 0.8 as long)."""
    asked: set[str] = set()
    for loop in reversed(p.innermost(blocks)):  # what is read of the last row comes last
        for a in accesses(p.loop(loop), p.invoked):
            name, reads = a.buffer.name, read_apart(a, row) is not None
            stores = a.write and name in group.stored_late
            if name in asked or not (reads or stores):
                continue
            ahead = as_int((FURTHER if reads else AHEAD) // a.buffer.dtype.bytes)
            with suppress(SchedulingError):
                ahead = maximum(group.columns, ahead) if stores else ahead
                p = p.prefetch(loop, name, ahead)
                asked.add(name)
                break  # a loop asks for one thing
    return p


def _next_rows(
    p: Program, group: RowGroup, row: str, passes: Mapping[int, str], behind: Container[str],
    lanes: int,
) -> Program:  # fmt: skip
    """The passes over a buffer after the first ask for the rows that the first will come to next:
    they have their own in the cache, and memory would rest meanwhile. So for an output that keeps
    what is read again, whose stores would wait for their lines. Long rows come to the second
    cache: in the first they would drive out the row itself, and what else is as long (Zen 4:
    softmax of rows of 16 KB takes 0.8 as long)."""
    seen: set[str] = set()
    again: dict[str, list[tuple[int, LoopRef, Int]]] = {}  # pass, loop, how far apart rows are
    for level, blocks in passes.items():
        here: set[str] = set()
        for loop in p.innermost(blocks):
            found = accesses(p.loop(loop), p.invoked)
            if any(a.write and a.buffer.name in behind for a in found):
                continue  # it is a row behind
            for a in found:
                name, along = a.buffer.name, read_apart(a, row)
                here.add(name)
                if name in seen and along is not None:
                    again.setdefault(name, []).append((level, loop, along))
        seen |= here
    for buffer in p.function.buffers:
        if read := again.get(buffer.name):
            p = _asked(p, group, buffer, read, passes, lanes)
    return p


def _asked(
    p: Program, group: RowGroup, buffer: Buffer, read: Sequence[tuple[int, LoopRef, Int]],
    passes: Mapping[int, str], lanes: int,
) -> Program:  # fmt: skip
    """Where some loop that reads the buffer again, or all these passes, can ask: a loop asks for
    one thing. Where memory is the limit, passes share it, but for short rows where lanes are few:
    there the first of them asks for the next row (Zen 3: layer norm of 1.5 to 4 KB takes 0.7 to
    0.88 as long, of 5 KB and more 1.1 times)."""
    cache = 2 if group.spec.known.long else 1
    levels = list(dict.fromkeys(level for level, *_ in read))
    together = group.spec.known.large and len(levels) > 1 and not any(map(group.dear, levels))
    row = group.columns * buffer.dtype.bytes
    short = lanes <= FEW_LANES and row.is_const and row.value < AHEAD
    for _, loop, along in read:
        ahead = maximum(along, AHEAD // buffer.dtype.bytes)
        with suppress(SchedulingError):
            if together and short:
                return p.prefetch(passes[levels[0]], buffer.name, along, cache=cache)
            if together:
                return _shared(p, buffer.name, [passes[k] for k in levels], along, ahead, cache)
            return p.prefetch(loop, buffer.name, ahead, cache=cache)
    return p


def _shared(
    p: Program, name: str, passes: Sequence[str], along: Int, ahead: Int, cache: int
) -> Program:
    """Each of these passes asks for a part of the row, where memory is the limit: none takes as
    long as a row takes to come (Zen 4: layer norm of rows of 16 KB takes 0.87 as long). From the
    last level it would come in time, and asking twice costs more."""
    for k, blocks in enumerate(passes):
        part = ahead + k * (along // len(passes))
        p = p.prefetch(blocks, name, part, cache=cache, share=len(passes))
    return p
