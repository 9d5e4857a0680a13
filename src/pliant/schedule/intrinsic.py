"""Tensor intrinsics: a hardware instruction or hand-written kernel, and what it computes.

    dot4 = Intrinsic("dot4", semantics)        semantics: a loop function

    def dot4(a[4], b[4], c[1]):
        for i in range(4):
            c[0] = c[0] + a[i] * b[i]

A call passes the address of element 0 of every buffer, then the sizes, in the order of the
semantics' signature. Strides may be sizes too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.ir.expr import Expr, Index
from pliant.loop.rewrite import replace_buffer, subst
from pliant.loop.stmt import BufferRef, Function, Invoke, Stmt
from pliant.sym.expr import Int, IntLike


@dataclass(frozen=True)
class Intrinsic:
    """A callable piece of code: `name` is what `Invoke` calls, `semantics` what it does."""

    name: str
    semantics: Function


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
        along = [_along(step, ref.buffer.strides) for step in here.strides]
        if None in along:
            return None
        target, base = ref.buffer, ref.indices
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
