"""Tensor intrinsics: a hardware instruction or hand-written kernel, and what it computes.

    dot4 = Intrinsic("dot4", semantics)        semantics: a loop function

    def dot4(a[4], b[4], c[1]):
        for i in range(4):
            c[0] = c[0] + a[i] * b[i]

A call passes the address of element 0 of every buffer, then the sizes, in the order of the
semantics' signature. Strides may be sizes too.

Code that can do several things is several intrinsics. The one that has the code's name as its own
says all that it does; others say what it does for certain arguments, and name it as their symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pliant.ir.expr import Expr, Index, Load, loads_of
from pliant.loop.rewrite import replace_buffer, replace_loads, subst
from pliant.loop.stmt import Buffer, BufferRef, Function, Invoke, Stmt, offset_of, stored
from pliant.sym.expr import Int, IntLike


@dataclass(frozen=True)
class Intrinsic:
    """A callable piece of code: `symbol` is what `Invoke` calls, by default `name`; `semantics`
    what it does; `arguments` the buffers, sizes and integers over sizes of the semantics to pass,
    if not all in order; `most` the greatest values of sizes that the code can do;
    `inside`: the code becomes part of who calls it, so that its operands may be registers.
    """

    name: str
    semantics: Function
    symbol: str = ""
    arguments: tuple[str | Int, ...] = ()
    most: tuple[tuple[str, int], ...] = ()
    inside: bool = False

    @property
    def callee(self) -> str:
        return self.symbol or self.name

    @property
    def written(self) -> frozenset[int]:
        """Which arguments of a call in the order of the semantics' signature it writes through."""
        stored_to = _stored(self.semantics.body)
        formals = enumerate(self.semantics.buffers)
        return frozenset(k for k, b in formals if b in stored_to)


def meaning(intrinsic: Intrinsic, call: Invoke) -> Stmt | None:
    """The loops that a call stands for, where every dimension of the intrinsic's buffers lies
    along one of the caller's; None otherwise."""
    formals = intrinsic.semantics.buffers
    refs, scalars = call.args[: len(formals)], call.args[len(formals) :]
    sizes: dict[str, IntLike] = {}
    for name, value in zip(intrinsic.semantics.sizes, scalars, strict=True):
        if not isinstance(value, Index):
            return None
        sizes[name] = value.int_
    body: Stmt = subst(intrinsic.semantics.body, sizes)
    for formal, ref in zip(formals, refs, strict=True):
        assert isinstance(ref, BufferRef)
        here = subst(formal, sizes)
        target, base = ref.buffer, ref.indices
        if _depends_on_data(body, here):
            if here.strides != target.flat.strides or here in _stored(body):
                return None
            start = offset_of(target, base)
            if start is None:
                return None
            body = replace_loads(body, here, _in_memory(target, start))
            continue
        along = [_along(step, target.strides) for step in here.strides]
        if None in along:
            return None
        dims = [d for d in along if d is not None]

        def place(
            indices: tuple[Expr, ...], base: tuple[Expr, ...] = base, dims: list[int] = dims
        ) -> tuple[Expr, ...]:
            moved = list(base)
            for d, i in zip(dims, indices, strict=True):
                moved[d] = moved[d] + i
            return tuple(moved)

        body = replace_buffer(body, here, target, place)
    return body


def _along(step: Int, strides: tuple[Int, ...]) -> int | None:
    for d in reversed(range(len(strides))):
        if strides[d] is step:
            return d
    return None


def _depends_on_data(body: Stmt, formal: Buffer) -> bool:
    return any(
        x.source is formal and not all(isinstance(i, Index) for i in x.indices)
        for x in loads_of(body)
    )


def _stored(body: Stmt) -> set[Buffer]:
    return {x.buffer for x in stored(body)}


def _in_memory(target: Buffer, start: Int) -> Callable[[tuple[Expr, ...]], Expr]:
    return lambda at: Load(target.flat, (at[0] + Index(start),))
