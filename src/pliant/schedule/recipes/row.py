"""Rows: reductions along the columns with maps over columns and rows, in as few passes over each
row as the reductions need (AStitch's row groups). Softmax takes three passes, layer norm three.

A map over the space is computed again by each reader unless it is an output (readers then read it
back) or dear and wanted more than once (it then gets a buffer of one row).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from pliant.ir.expr import Axis, Expr, Index, Load, Reduce, Var
from pliant.ir.tensor import Compute, own_nodes
from pliant.loop.reduction import combine, identity
from pliant.loop.stmt import Alloc, Buffer, For, Function, If, Let, Stmt, Store, buffer, seq
from pliant.lower.access import cost_of
from pliant.lower.canonical import Spec
from pliant.schedule.recipes.common import Kernel, Source, parallel_for, product, unflatten
from pliant.sym.expr import Int, as_int, var

Then = Callable[[], Stmt]  # what follows a pass

UNROLL: Final = 4  # independent accumulators per reduction, to hide latency
DEAR: Final = 8


def row_kernel(spec: Spec, lanes: int) -> Function:
    """A kernel for a group of rows."""
    return _Rows(spec, lanes).build()


class _Rows:
    def __init__(self, spec: Spec, lanes: int) -> None:
        self.spec, self.lanes = spec, lanes
        self.k = Kernel(spec)
        self.dims = [f"i{d}" for d in range(len(spec.space))]
        self.row_dims = [self.dims[d] for d in spec.order[: spec.rows]]
        self.col_dims = [self.dims[d] for d in spec.order[spec.rows :]]
        self.extents = {self.dims[d]: spec.space[d] for d in spec.order}
        self.columns = product([self.extents[d] for d in self.col_dims])
        self.where = unflatten(var("row"), tuple(self.row_dims), self.extents)
        self.ready: dict[str, Var] = {}  # values of the row
        self.stored: dict[str, Buffer] = {}  # one row of a map, kept
        self.done: frozenset[str] = frozenset()  # maps kept by earlier passes
        self.level = self._levels()
        self.kept = self._kept()

    # -- planning --------------------------------------------------------------------------------

    def is_row(self, name: str) -> bool:
        """A value per row, made between passes or by a reduction."""
        t = self.k.members[name]
        assert isinstance(t, Compute)
        if t.reduce_axes:
            return True
        return len(t.axes) == self.spec.rows and self.spec.rows < len(self.spec.space)

    def _levels(self) -> dict[str, int]:
        """In which pass a stage is computed; the value of a reduction is there one later."""
        level: dict[str, int] = {}
        for name, tensor in self.spec.members:
            assert isinstance(tensor, Compute)
            own = 0
            for source in self._sources(name):
                there = level[source]
                s = self.k.members[source]
                assert isinstance(s, Compute)
                own = max(own, there + 1 if s.reduce_axes else there)
            level[name] = own
        return level

    def _sources(self, name: str) -> list[str]:
        return list(dict.fromkeys(
            n.source.name
            for n in own_nodes(self.k.members[name].body)  # type: ignore[attr-defined]
            if isinstance(n, Load) and n.source.name in self.k.members
        ))  # fmt: skip

    def _kept(self) -> set[str]:
        """Maps over the space that are stored: outputs, and dear ones that several read."""
        readers: dict[str, int] = {}
        for name, _ in self.spec.members:
            for source in self._sources(name):
                readers[source] = readers.get(source, 0) + 1
        out = set()
        for name, tensor in self.spec.members:
            if not self.is_row(name):
                assert isinstance(tensor, Compute)
                dear = cost_of(tensor.body) >= DEAR and readers.get(name, 0) > 1
                if name in self.spec.outputs or dear:
                    out.add(name)
        return out

    # -- code ------------------------------------------------------------------------------------

    def build(self) -> Function:
        body = self._pass(0)
        scratch = [n for n in self.kept if n not in self.spec.outputs]
        for name, _ in self.spec.members:
            if name in scratch:
                body = Alloc(self._row_buffer(name), body)
        rows = product([self.extents[d] for d in self.row_dims])
        bodies = [t.body for _, t in self.spec.members if isinstance(t, Compute)]
        work = self.columns * sum(map(cost_of, bodies))
        return self.k.function(parallel_for("row", rows, work, body))

    def _row_buffer(self, name: str) -> Buffer:
        if name not in self.stored:
            dtype = self.k.members[name].dtype
            self.stored[name] = buffer(f"keep_{name}", (self.columns,), dtype, scope="scratch")
        return self.stored[name]

    def _pass(self, level: int) -> Stmt:
        """This pass over the columns, the row values that follow from it, and later passes."""
        here = [(n, t) for n, t in self.spec.members if self.level[n] == level]
        between = [n for n, t in here if self.is_row(n) and not t.reduce_axes]  # type: ignore[attr-defined]
        reductions = [n for n, t in here if t.reduce_axes]  # type: ignore[attr-defined]
        maps = [n for n, _ in here if n in self.kept]

        def rest() -> Stmt:
            finals = self._row_outputs(reductions)
            later = max(self.level.values()) > level
            return seq(*finals, self._pass(level + 1)) if later else seq(*finals)

        def main() -> Stmt:
            return self._columns(level, maps, reductions, rest)

        return self._between(between, main)

    def _between(self, names: list[str], then: Then) -> Stmt:
        """Row values computed from row values, then the rest."""
        if not names:
            return then()
        name, *more = names
        tensor = self.k.members[name]
        assert isinstance(tensor, Compute)
        at = [self.where[d] for d in self.row_dims]
        value = self.k.value(name, at, self._known(None))
        self.ready[name] = Var(f"r_{name}", tensor.dtype)
        stores = self._row_outputs([name])
        return Let(self.ready[name], value, seq(*stores, self._between(more, then)))

    def _row_outputs(self, names: Sequence[str]) -> list[Stmt]:
        at = [self.where[d] for d in self.row_dims]
        return [
            self.k.store(n, at, self.ready[n])
            for n in names
            if n in self.spec.outputs and n in self.ready
        ]

    def _known(self, column: Int | None, now: Collection[str] = ()) -> Source:
        """How members that are there already are read: row values, rows that were kept (in passes
        before, and `now`, in this very step)."""

        def known(name: str, indices: tuple[Expr, ...]) -> Expr:
            if name in self.ready:
                return self.ready[name]
            if column is not None and (name in self.done or name in now):
                if name in self.k.outputs:
                    return Load(self.k.outputs[name], indices)
                return Load(self._row_buffer(name), (Index(column),))
            raise KeyError(name)

        return known

    def _columns(self, level: int, maps: list[str], reductions: list[str], rest: Then) -> Stmt:
        """One pass over the columns of a row."""
        if not maps and not reductions:
            return rest()
        acc: dict[str, Buffer] = {}
        for name in reductions:
            dtype = self.k.members[name].dtype
            acc[name] = buffer(f"acc_{name}", (UNROLL * self.lanes,), dtype, scope="register")

        def step(column: Int, slot: Int) -> Stmt:
            now: list[str] = []
            known = self._known(column, now)
            where = self.where | unflatten(column, tuple(self.col_dims), self.extents)
            full = [where[d] for d in self.dims]
            out: list[Stmt] = []
            for name in maps:
                value = self.k.value(name, full, known)
                if name in self.k.outputs:
                    out.append(self.k.store(name, full, value))
                else:
                    out.append(Store(self._row_buffer(name), (Index(column),), value))
                now.append(name)
            for name in reductions:
                out.append(self._accumulate(name, acc[name], slot, where, known))
            return seq(*out)

        loops = self._loops(step, acc, reductions)
        self.done = self.done | frozenset(maps)
        after = self._finish(reductions, acc, rest)
        body = seq(loops, after)
        for b in acc.values():
            body = Alloc(b, body)
        return body

    def _loops(
        self, step: Callable[[Int, Int], Stmt], acc: dict[str, Buffer], reductions: list[str]
    ) -> Stmt:
        lanes, n = self.lanes, self.columns
        unroll = UNROLL if acc else 1
        tag = f"{len(self.done)}_{len(self.ready)}"
        slots = [var(f"z{tag}")]
        clear: list[Stmt] = []
        for name in reductions:
            zero = identity(self._combiner(name), acc[name].dtype)
            body: Stmt = Store(acc[name], (Index(var(f"zu{tag}") * lanes + slots[0]),), zero)
            body = For(f"z{tag}", as_int(lanes), body, "vectorized")
            clear.append(For(f"zu{tag}", as_int(UNROLL), body, "unrolled"))
            slots[0] = var(f"z{tag}")
        c, u, v = (var(f"{x}{tag}") for x in ("c", "u", "v"))
        block = lanes * unroll
        main = For(
            f"c{tag}", n // block,
            For(f"u{tag}", as_int(unroll),
                For(f"v{tag}", as_int(lanes), step(c * block + u * lanes + v, u * lanes + v),
                    "vectorized"), "unrolled"),
        )  # fmt: skip
        start = n // block * block
        t, w = var(f"t{tag}"), var(f"w{tag}")
        column = start + t * lanes + w
        left = n - start
        tail = For(
            f"t{tag}", (left + (lanes - 1)) // lanes,
            For(f"w{tag}", as_int(lanes),
                If(Index(t * lanes + w) < Index(left), step(column, w)), "vectorized"),
        )  # fmt: skip
        return seq(*clear, main, tail)

    def _combiner(self, name: str) -> str:
        tensor = self.k.members[name]
        assert isinstance(tensor, Compute) and isinstance(tensor.body, Reduce)
        return tensor.body.combiner

    def _accumulate(
        self, name: str, acc: Buffer, slot: Int, where: dict[str, Int], known: Source
    ) -> Stmt:
        tensor = self.k.members[name]
        assert isinstance(tensor, Compute) and isinstance(tensor.body, Reduce)
        at: dict[str, Int] = {}
        for axis, d in zip(tensor.axes, self.row_dims, strict=True):
            at[axis.var] = where[d]
        for axis, d in zip(tensor.reduce_axes, self._reduced_dims(tensor), strict=True):
            at[axis.var] = where[d]
        value = self.k.body(tensor.body.body, at, known)
        old = Load(acc, (Index(slot),))
        return Store(acc, (Index(slot),), combine(tensor.body.combiner, old, value))

    def _reduced_dims(self, tensor: Compute) -> list[str]:
        """The column dimension that each reduction axis runs along."""
        if len(tensor.reduce_axes) == 1:
            return self.col_dims
        for load in own_nodes(tensor.body.body):  # type: ignore[attr-defined]
            if isinstance(load, Load) and load.source.shape == self.spec.space:
                names = [next(iter(i.int_.names), "") for i in load.indices]  # type: ignore[attr-defined]
                by = dict(zip(names, self.dims, strict=True))
                if all(a.var in by for a in tensor.reduce_axes):
                    return [by[a.var] for a in tensor.reduce_axes]
        return self.col_dims

    def _finish(self, reductions: list[str], acc: dict[str, Buffer], rest: Then) -> Stmt:
        """Fold the accumulators to one value each, then go on."""
        if not reductions:
            return rest()
        name, *more = reductions
        lanes, combiner = self.lanes, self._combiner(name)
        f = var(f"f_{name}")
        parts: list[Expr] = [Load(acc[name], (Index(f + u * lanes),)) for u in range(UNROLL)]
        while len(parts) > 1:
            parts = [combine(combiner, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        folded = Store(acc[name], (Index(f),), parts[0])
        fold = For(f"f_{name}", as_int(lanes), folded, "vectorized")
        axis = Axis(f"_l_{name}", as_int(lanes))
        total = Reduce(combiner, (axis,), Load(acc[name], (Index(var(axis.var)),)))
        self.ready[name] = Var(f"r_{name}", acc[name].dtype)
        inner = self._finish(more, acc, rest)
        return seq(fold, Let(self.ready[name], total, inner))
