"""Products: packed panels, register tiles, epilogue in the tile.

    parallel over (batch, chunk of panels, block of rows):
      offsets of the rows of this block in the first operand    (or: the rows, gathered)
      for each panel of the chunk, for each tile of the block:
        tile[rows, 32] = micro-kernel(rows, panel)               all of the reduction, in registers
        output = epilogue(tile)

A panel (K x 32) stays in L1/L2 while the block's tiles pass over it; the rows of a block stay in L2
over all panels. Rows are shared out evenly: 16 rows are two tiles of 8, not 14 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import f32, i64
from pliant.ir.expr import Expr, Index, Load, Select, const
from pliant.ir.tensor import Compute
from pliant.loop.stmt import (
    Alloc,
    Buffer,
    BufferRef,
    For,
    Function,
    If,
    Invoke,
    Stmt,
    Store,
    buffer,
    seq,
)  # fmt: skip
from pliant.lower.canonical import Spec
from pliant.schedule.recipes.common import Kernel, let, parallel_for, product, unflatten
from pliant.sym.expr import Int, as_int, ceildiv, maximum, minimum, var
from pliant.sym.facts import Facts

BLOCK_TILES: Final = 8  # tiles of a block
CHUNK_PANELS: Final = 8  # panels of a chunk


@dataclass(frozen=True)
class MatmulIntrinsic:
    """The micro-kernel that a target offers: `rows` x `columns` outputs at a time."""

    symbol: str
    rows: int
    columns: int
    lanes: int


def contraction_kernel(spec: Spec, mm: MatmulIntrinsic) -> Function:
    """A kernel for a packed contraction and the maps that follow it."""
    return _Contraction(spec, mm).build()


class _Contraction:
    def __init__(self, spec: Spec, mm: MatmulIntrinsic) -> None:
        assert spec.plan is not None
        self.spec, self.mm, self.plan = spec, mm, spec.plan
        self.k = Kernel(spec)
        self.anchor, tensor = spec.members[0]
        assert isinstance(tensor, Compute)
        self.tensor = tensor
        self.axes = [a.var for a in tensor.axes]
        self.extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
        self.total_m = self._size(self.plan.m)
        self.total_n = self._size(self.plan.n)
        self.positions = self._size(self.plan.positions)
        self.depth = self.extents[self.plan.inner]
        self.load = _load_of(self.plan.a_side)
        self.source = self.k.inputs[self.load.source.name]
        if self.plan.gather:
            self.positions, self.depth = as_int(1), self.positions * self.depth

    def _size(self, names: tuple[str, ...]) -> Int:
        return product([self.extents[n] for n in names])

    # -- the nest --------------------------------------------------------------------------------

    def build(self) -> Function:
        mm = self.mm
        mr, blocks, chunks = var("mr"), var("blocks"), var("chunks")
        tiles = ceildiv(self.total_m, maximum(mr, 1))
        batch = self._size(self.plan.batch)
        p = var("p")
        body = self._task(p // (blocks * chunks), p // blocks % chunks, p % blocks)
        work = mr * BLOCK_TILES * CHUNK_PANELS * mm.columns * self.positions * self.depth // 8
        nest = parallel_for("p", batch * chunks * blocks, work, body)
        nest = let("chunks", ceildiv(ceildiv(self.total_n, mm.columns), CHUNK_PANELS), nest)
        nest = let("blocks", ceildiv(tiles, BLOCK_TILES), nest)
        # as many tiles as needed, all of about the same height
        need = maximum(ceildiv(self.total_m, mm.rows), 1)
        return self.k.function(let("mr", maximum(ceildiv(self.total_m, need), 1), nest))

    def _task(self, batch: Int, chunk: Int, block: Int) -> Stmt:
        """One chunk of panels for one block of rows."""
        mm = self.mm
        self.batch = unflatten(batch, self.plan.batch, self.extents)
        self.existing = self.plan.existing(self.extents, self.batch)
        self.taken = product([self.existing[n] for n in self.plan.positions])
        self.reach = self.existing[self.plan.inner]
        if self.plan.gather:
            self.taken, self.reach = as_int(1), self.taken * self.reach
        first = block * BLOCK_TILES  # tile
        rows_from = first * var("mr")
        height = minimum(self.total_m - rows_from, var("mr") * BLOCK_TILES)
        panels = ceildiv(self.total_n, mm.columns)
        here = minimum(panels - chunk * CHUNK_PANELS, CHUNK_PANELS)
        tile = buffer("tile", (mm.rows, mm.columns), f32, scope="register", align=64)
        offsets = buffer(
            "offsets", (self.positions * var("mr") * BLOCK_TILES,), i64, scope="scratch"
        )
        rows = self._gathered() if self.plan.gather else None
        inner = self._tile(tile, offsets, rows, chunk * CHUNK_PANELS + var("panel"), rows_from)
        nest = For("panel", here, For("t", ceildiv(height, var("mr")), inner))
        body = seq(self._prepare(offsets, rows, rows_from, height), nest)
        body = Alloc(offsets, Alloc(tile, body))
        if rows is not None:
            body = Alloc(rows, body)
        zeros = self._zeros()
        if zeros is not None:
            clear = For("zk", self.depth, Store(zeros, (Index(var("zk")),), const(0.0, f32)))
            body = Alloc(zeros, seq(clear, body))
        body = let("rows_from", rows_from, let("height", height, body))
        return let("batch", batch, let("chunk", chunk, let("block", block, body)))

    def _zeros(self) -> Buffer | None:
        if self.plan.gather or not isinstance(self.plan.a_side, Select):
            return None
        return buffer("zeros", (self.depth,), f32, scope="scratch")

    def _gathered(self) -> Buffer:
        return buffer("rows", (var("mr") * BLOCK_TILES, self.depth), f32, scope="scratch")

    # -- rows of the first operand ---------------------------------------------------------------

    def _prepare(self, offsets: Buffer, rows: Buffer | None, start: Int, height: Int) -> Stmt:
        """Offsets tile by tile, position by position: what one call of the micro-kernel reads is
        contiguous."""
        i, mr = var("row"), var("mr")
        tile, within = i // mr, i % mr
        at = self._row(start + i)
        tile_rows = minimum(height - tile * mr, mr)
        if rows is not None:
            fill = self._fill(rows, at)
            place = Store(offsets, (Index(i),), Index(i * self.depth))
            return For("row", height, seq(place, fill))
        q = var("q")
        where = at | self._position(q) | {self.plan.inner: as_int(0)}
        offset = self._offset(where)
        slot = tile * mr * self.taken + q * tile_rows + within
        return For("row", height, For("q", self.taken, Store(offsets, (Index(slot),), offset)))

    def _position(self, q: Int) -> dict[str, Int]:
        divisors = {n: maximum(self.existing[n], 1) for n, _ in self.plan.bounds}
        return unflatten(q, self.plan.positions, self.existing | divisors)

    def _row(self, row: Int) -> dict[str, Int]:
        return self.batch | unflatten(row, self.plan.m, self.extents)

    def _offset(self, where: dict[str, Int]) -> Expr:
        """The element offset of a row's first element; -1 where padding takes its place."""
        total = as_int(0)
        for index, stride in zip(self.load.indices, self.source.strides, strict=True):
            assert isinstance(index, Index)
            total = total + index.int_.subs(where) * stride
        if isinstance(self.plan.a_side, Select):
            inside = self.k.body(self.plan.a_side.cond, where)
            return Select(inside, Index(total), Index(as_int(-1)))
        return Index(total)

    def _fill(self, rows: Buffer, at: dict[str, Int]) -> Stmt:
        """Evaluate one row of the first operand into the dense tile."""
        extent = self.existing[self.plan.inner]
        q, r = var("q"), var("r")
        where = at | self._position(q) | {self.plan.inner: r}
        value = self.k.body(self.plan.a_side, where)
        store = Store(rows, (Index(var("row")), Index(q * extent + r)), value)
        trips = product([self.existing[n] for n in self.plan.positions])
        return For("q", trips, For("r", extent, store))

    # -- tiles -----------------------------------------------------------------------------------

    def _tile(
        self, tile: Buffer, offsets: Buffer, rows: Buffer | None, panel: Int, rows_from: Int
    ) -> Stmt:
        mm, mr, t = self.mm, var("mr"), var("t")
        count = minimum(var("height") - t * mr, mr)
        zero = Index(as_int(0))
        packed = self.k.inputs[self.plan.packed]
        at = [self.batch[b] for b in self.plan.batch]
        b_ref = BufferRef(packed, (*(Index(x) for x in at), Index(panel), zero, zero))
        if rows is not None:
            a_ref = BufferRef(rows, (zero, zero))
        else:
            a_ref = BufferRef(self.source, tuple(zero for _ in self.source.shape))
        zeros = self._zeros()
        z_ref = BufferRef(tile, (zero, zero)) if zeros is None else BufferRef(zeros, (zero,))
        o_ref = BufferRef(offsets, (Index(t * mr * self.taken),))
        call = Invoke(
            mm.symbol,
            (a_ref, o_ref, z_ref, b_ref, BufferRef(tile, (zero, zero)), Index(count),
             Index(self.taken), Index(self.reach), Index(as_int(mm.columns))),
        )  # fmt: skip
        return let("count", count, seq(call, self._epilogue(tile, panel, rows_from + t * mr)))

    def _epilogue(self, tile: Buffer, panel: Int, first_row: Int) -> Stmt:
        mm, i = self.mm, var("i")
        j = var("jv") * mm.lanes + var("j")
        column = panel * mm.columns + j
        facts = Facts()  # what is the same for all lanes of a vector shall look it
        facts.declare_index("j", mm.lanes)
        columns = unflatten(column, self.plan.n, self.extents)
        where = self._row(first_row + i) | {n: facts.simplify(x) for n, x in columns.items()}
        at = [where[a] for a in self.axes]
        result = Load(tile, (Index(i), Index(j)))

        def known(source: str, indices: tuple[Expr, ...]) -> Expr:
            if source == self.anchor:
                return result
            raise KeyError(source)

        stores = seq(*(
            self.k.store(o, at, result if o == self.anchor else self.k.value(o, at, known))
            for o in self.spec.outputs
        ))  # fmt: skip
        masked: Stmt = If(Index(column) < Index(self.total_n), stores)
        vectors = For("jv", as_int(mm.columns // mm.lanes),
                      For("j", as_int(mm.lanes), masked, "vectorized"), "unrolled")  # fmt: skip
        return For("i", var("count"), vectors)


def _load_of(side: Expr) -> Load:
    while not isinstance(side, Load):
        side = side.a  # type: ignore[attr-defined]
    return side
