"""Any other reduction: one output element per lane, the reduction loops inside.

Pools and depthwise convolutions with channels innermost, reductions over leading dimensions,
products of types that have no micro-kernel. Several vectors at once share the loops' overhead.
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import DType, boolean, i64
from pliant.ir.expr import Binary, Expr, Index, Load, Reduce, Select, Unary, const
from pliant.ir.tensor import Compute
from pliant.loop.reduction import combine, identity
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Alloc, Buffer, For, Function, If, Stmt, Store, buffer, seq
from pliant.lower.access import cost_of
from pliant.lower.canonical import Spec
from pliant.schedule.recipes.common import Kernel, parallel_for, product, unflatten
from pliant.sym.expr import Int, as_int, var

UNROLL: Final = 4
BEST: Final = ("argmax", "argmin")


def reduction_kernel(spec: Spec, lanes: int) -> Function:
    """A kernel for a reduction and the maps that follow it."""
    return _Reduction(spec, lanes).build()


class _Reduction:
    def __init__(self, spec: Spec, lanes: int) -> None:
        self.spec, self.lanes = spec, lanes if spec.space else 1
        self.k = Kernel(spec)
        self.anchor, tensor = spec.members[0]
        assert isinstance(tensor, Compute) and isinstance(tensor.body, Reduce)
        self.tensor, self.reduce = tensor, tensor.body
        self.dims = [f"i{d}" for d in range(len(spec.space))]
        self.names = [self.dims[d] for d in spec.order]
        self.extents = {self.dims[d]: spec.space[d] for d in spec.order}
        self.index = self.reduce.combiner in BEST

    def build(self) -> Function:
        outer, last = self.names[:-1], self.names[-1:]
        at = unflatten(var("p"), tuple(outer), self.extents)
        extent = self.extents[last[0]] if last else as_int(1)
        trips = product([a.extent for a in self.tensor.reduce_axes])
        work = trips * max(cost_of(self.reduce.body), 1) * extent
        block = self.lanes * UNROLL

        def tile(start: Int, count: Int | None, vectors: int, tag: str) -> Stmt:
            return self._tile(at, last, start, count, vectors, tag)

        if extent.is_const and extent.value <= self.lanes:
            body = tile(as_int(0), None if extent.value == self.lanes else extent, 1, "a")
        else:
            start = extent // block * block
            main = For("jb", extent // block, tile(var("jb") * block, None, UNROLL, "a"))
            # several vectors here too, though some may be off: one waits for its own sums
            rest = If(Index(start) < Index(extent), tile(start, extent, UNROLL, "b"))
            body = seq(main, rest)
        rows = product([self.extents[n] for n in outer])
        return self.k.function(parallel_for("p", rows, work, body))

    def _tile(
        self, at: dict[str, Int], last: list[str], start: Int, count: Int | None, vectors: int,
        tag: str,
    ) -> Stmt:  # fmt: skip
        """`vectors` vectors of outputs from position `start`; lanes from `count` on are off."""
        lane, u = var(f"v{tag}"), var(f"u{tag}")
        column = start + u * self.lanes + lane
        where = at | dict.fromkeys(last, column)
        full = [where[d] for d in self.dims]
        acc = buffer(f"acc{tag}", (vectors,), self._acc_dtype(), scope="register")
        best = buffer(f"best{tag}", (vectors,), i64, scope="register")

        def each(body: Stmt, k: str) -> Stmt:
            if count is not None:
                body = If(Index(column) < Index(count), body)
            body = _rename(body, f"u{tag}", f"u{tag}{k}")
            return For(f"u{tag}{k}", as_int(vectors), body, "unrolled")

        first: Stmt = Store(acc, (Index(u),), self._identity())
        if self.index:
            first = seq(first, Store(best, (Index(u),), const(0, i64)))
        loops: Stmt = each(self._update(acc, best, u, where, tag), "1")
        for k, axis in reversed(list(enumerate(self.tensor.reduce_axes))):
            loops = For(f"r{k}{tag}", axis.extent, loops)
        result = best if self.index else acc
        done = seq(*(
            self.k.store(o, full, self._output(o, full, Load(result, (Index(u),))))
            for o in self.spec.outputs
        ))  # fmt: skip
        body = seq(each(first, "0"), loops, each(done, "2"))
        if self.index:
            body = Alloc(best, body)
        return For(f"v{tag}", as_int(self.lanes), Alloc(acc, body), "vectorized")

    def _acc_dtype(self) -> DType:
        return self.reduce.body.dtype

    def _identity(self) -> Expr:
        combiner = {"argmax": "max", "argmin": "min"}.get(
            self.reduce.combiner, self.reduce.combiner
        )
        return identity(combiner, self._acc_dtype())

    def _update(self, acc: Buffer, best: Buffer, u: Int, where: dict[str, Int], tag: str) -> Stmt:
        at = {a.var: where[d] for a, d in zip(self.tensor.axes, self.dims, strict=True)}
        for k, axis in enumerate(self.tensor.reduce_axes):
            at[axis.var] = var(f"r{k}{tag}")
        value = self.k.body(self.reduce.body, at)
        old = Load(acc, (Index(u),))
        if not self.index:
            return Store(acc, (Index(u),), combine(self.reduce.combiner, old, value))
        position = Index(var(f"r0{tag}"))
        better = self._better(value, old, position)
        chosen = Select(better, position, Load(best, (Index(u),)))
        return seq(
            Store(best, (Index(u),), chosen), Store(acc, (Index(u),), Select(better, value, old))
        )

    def _better(self, value: Expr, old: Expr, position: Expr) -> Expr:
        """Whether a value replaces the best so far: the first of equals stays, NaN beats all, and
        the first element always counts."""
        compare = Binary("lt", old, value) if self.reduce.combiner == "argmax" else value < old
        if value.dtype.is_float:
            fresh = Unary("isnan", value) & ~Unary("isnan", old)
            compare = (compare & ~Unary("isnan", old)) | fresh
        elif value.dtype is boolean:
            less = (old, value) if self.reduce.combiner == "argmax" else (value, old)
            compare = ~less[0] & less[1]
        return compare | position.eq(Index(as_int(0)))

    def _output(self, name: str, at: list[Int], result: Expr) -> Expr:
        def known(source: str, indices: tuple[Expr, ...]) -> Expr:
            if source == self.anchor:
                return result
            raise KeyError(source)

        return result if name == self.anchor else self.k.value(name, at, known)


def _rename(body: Stmt, old: str, new: str) -> Stmt:
    return subst(body, {old: var(new)})
