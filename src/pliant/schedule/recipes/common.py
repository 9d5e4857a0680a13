"""What the recipes share: buffers of a kernel, bodies with their loads resolved, vector loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pliant.base.dtypes import i64
from pliant.ir.expr import Axis, Expr, Index, Load, Var
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute
from pliant.loop.stmt import Buffer, For, Function, If, Let, Stmt, Store, seq
from pliant.lower.canonical import Spec
from pliant.lower.pack import flatten, product, unflatten
from pliant.sym.expr import Int, IntLike, as_int, maximum, var

__all__ = [
    "PARALLEL_WORK", "Kernel", "Source", "fused", "let", "parallel_for",
    "product", "unflatten", "vector_loop",
]  # fmt: skip

PARALLEL_WORK: Final = 32768  # elementary operations worth a thread of their own

Source = Callable[[str, tuple[Expr, ...]], Expr]


class Kernel:
    """Buffers and expressions of a spec."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.members = dict(spec.members)
        self.strides = dict(spec.strides)
        self.inputs = {
            i.label: Buffer(i.label, i.dtype, i.dims, self.strides[i.label]) for i in spec.inputs
        }
        self.outputs = {
            name: Buffer(f"y_{name}", t.dtype, t.shape, self.strides[name])
            for name, t in spec.members
            if name in spec.outputs
        }

    def function(self, body: Stmt, name: str = "kernel") -> Function:
        """The finished kernel: inputs, then outputs, then sizes."""
        outputs = [self.outputs[n] for n in self.spec.outputs]
        notes = (("noalias", tuple(b.name for b in outputs)),)
        return Function(name, (*self.inputs.values(), *outputs), self.spec.sizes, body, notes)

    def value(self, name: str, at: Sequence[Int], known: Source | None = None) -> Expr:
        """Element `at` of a member, its in-kernel producers inlined. `known(name, indices)` may
        give members that are already computed; it raises KeyError for others."""
        tensor = self.members[name]
        assert isinstance(tensor, Compute)
        where = {a.var: x for a, x in zip(tensor.axes, at, strict=True)}
        value: Expr = self.body(tensor.body, where, known)
        return value

    def body(self, body: Expr, where: dict[str, Int], known: Source | None = None) -> Any:
        """A body with iterators replaced and loads resolved to buffers."""

        def visit(node: Node) -> Node:
            if isinstance(node, Index):
                return Index(node.int_.subs(where))
            if isinstance(node, Axis):
                return Axis(node.var, node.extent.subs(where))
            if isinstance(node, Load) and not isinstance(node.source, Buffer):
                return self._load(node, known)
            return node

        return transform(body, visit)

    def _load(self, node: Load, known: Source | None) -> Expr:
        name = node.source.name
        if name in self.inputs:
            return Load(self.inputs[name], node.indices)
        if known is not None:
            try:
                return known(name, node.indices)
            except KeyError:
                pass
        at = [i.int_ for i in node.indices if isinstance(i, Index)]
        return self.value(name, at, known)

    def store(self, name: str, at: Sequence[Int], value: Expr) -> Stmt:
        return Store(self.outputs[name], tuple(Index(x) for x in at), value)


def fused(names: Sequence[str], extents: dict[str, Int]) -> Int:
    return flatten(tuple(names), extents)


def parallel_for(name: str, extent: IntLike, work: IntLike, body: Stmt) -> Stmt:
    """A parallel loop whose iterations do about `work` elementary operations each; a thread gets
    no fewer iterations than make `PARALLEL_WORK`."""
    grain = maximum(1, as_int(PARALLEL_WORK) // maximum(1, work))
    return For(name, as_int(extent), body, "parallel", (("grain", grain),))


def vector_loop(
    name: str, extent: IntLike, lanes: int, body: Callable[[Int], Stmt], unroll: int = 1
) -> Stmt:
    """for name in [0, extent): body, `lanes` at a time; the rest under a mask.

    `body` is made for the position as an expression of the loops' variables.
    """
    extent = as_int(extent)
    lane = var(f"{name}_lane")
    if extent.is_const and extent.value < lanes:  # one short vector
        width = 1
        while width < extent.value:
            width *= 2
        one = body(lane)
        if width != extent.value:
            one = If(Index(lane) < Index(extent), one)
        return For(f"{name}_lane", as_int(width), one, "vectorized")
    main = For(
        f"{name}_block",
        extent // lanes,
        For(f"{name}_lane", as_int(lanes), body(var(f"{name}_block") * lanes + lane), "vectorized"),
    )
    rest = extent % lanes
    if rest.is_const and rest.value == 0:
        return main
    tail_lane = var(f"{name}_rest")
    start = extent // lanes * lanes
    tail: Stmt = For(
        f"{name}_rest",
        as_int(lanes),
        If(Index(tail_lane) < Index(rest), body(start + tail_lane)),
        "vectorized",
    )
    return seq(main, If(Index(as_int(0)) < Index(rest), tail))


def let(name: str, value: IntLike, body: Stmt) -> Stmt:
    """A size with a name."""
    return Let(Var(name, i64), Index(as_int(value)), body)
