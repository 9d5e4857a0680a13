"""Elementwise work over one space: adjacent loops that all accesses run through as one are fused,
the innermost is vectorized, the others are shared between threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pliant.ir.expr import Expr, Index, Load, loads_of
from pliant.loop.stmt import For, Function, Stmt, seq
from pliant.lower.access import cost_of
from pliant.lower.canonical import Spec
from pliant.lower.pack import divisor
from pliant.schedule.recipes.common import Kernel, parallel_for, product, unflatten, vector_loop
from pliant.sym.expr import Int, as_int, ceildiv, minimum, var
from pliant.sym.facts import Facts

TILE: Final = 16  # rows of a block when transposing
CHUNK: Final = 4096  # elements of a one-dimensional loop that go to a thread at once


def map_kernel(spec: Spec, lanes: int) -> Function:
    """A kernel for a group of maps."""
    k = Kernel(spec)
    dims = [f"i{d}" for d in range(len(spec.space))]
    names = [dims[d] for d in spec.order]
    extents = {dims[d]: spec.space[d] for d in spec.order}
    facts = Facts()
    for n in spec.sizes:
        facts.declare(n)
    values = {o: k.value(o, [var(d) for d in dims]) for o in spec.outputs}
    names, extents, where = collapse(k, list(values.values()), names, extents, facts)

    def element(at: dict[str, Int]) -> Stmt:
        full = {d: x.subs(at) for d, x in where.items()}
        place = [full[d] for d in dims]
        return seq(*(k.store(o, place, k.value(o, place)) for o in spec.outputs))

    work = sum(cost_of(v) for v in values.values())
    if len(names) <= 1:
        extent = extents[names[0]] if names else as_int(1)
        name = names[0] if names else "i"
        base = var("chunk") * CHUNK
        inner = vector_loop("v", minimum(CHUNK, extent - base), lanes,
                            lambda v: element({name: base + v}))  # fmt: skip
        return k.function(parallel_for("chunk", ceildiv(extent, CHUNK), CHUNK * work, inner))
    outer, last = names[:-1], names[-1]
    across = _across(k, list(values.values()), where, names, extents)
    if across is not None:
        return k.function(_tiled(element, names, extents, across, lanes, work))
    at = unflatten(var("p"), tuple(outer), extents)
    inner = vector_loop("v", extents[last], lanes, lambda v: element(at | {last: v}))
    rows = product([extents[n] for n in outer])
    return k.function(parallel_for("p", rows, extents[last] * work, inner))


def _across(
    k: Kernel, values: list[Expr], where: dict[str, Int], names: list[str], extents: dict[str, Int]
) -> str | None:
    """The outer loop along which some load is contiguous while it jumps along the innermost: the
    kernel transposes."""
    last = names[-1]
    for value in values:
        for load in loads_of(value):
            offset = _offset(load)
            if offset is None:
                continue
            offset = offset.subs(where)
            inner = offset.linear(last)
            if inner is None or inner[0] == 0 or inner[0] == 1:
                continue
            for name in names[:-1]:
                along = offset.linear(name)
                if along is not None and along[0] == 1:
                    return name
    return None


def _tiled(
    element: Callable[[dict[str, Int]], Stmt], names: list[str], extents: dict[str, Int],
    across: str, lanes: int, work: int,
) -> Stmt:  # fmt: skip
    """Blocks of TILE by `lanes`, so that each cache line that is touched is used whole."""
    last = names[-1]
    outer = [n for n in names[:-1] if n != across]
    blocks = ceildiv(extents[across], TILE)
    p, row = var("p"), var("row")
    at = unflatten(p // blocks, tuple(outer), extents)
    first = p % blocks * TILE
    count = minimum(extents[across] - first, TILE)

    def block(v: Int) -> Stmt:
        return For("row", count, element(at | {across: first + row, last: v}))

    inner = vector_loop("v", extents[last], lanes, block)
    rows = product([extents[n] for n in outer]) * blocks
    return parallel_for("p", rows, extents[last] * work * TILE, inner)


def collapse(
    k: Kernel, values: list[Expr], names: list[str], extents: dict[str, Int], facts: Facts
) -> tuple[list[str], dict[str, Int], dict[str, Int]]:
    """Fuse neighbouring loops (outer p, inner q) where every access moves `extent of q` times as
    far along p as along q. Returns loops, their extents, and the old iterators in the new ones."""
    where = {n: var(n) for n in names}
    accesses = _accesses(k, values)
    names, extents = list(names), dict(extents)
    at = len(names) - 1
    while at > 0:
        p, q = names[at - 1], names[at]
        if all(_fusable(a, p, q, extents[q], facts) for a in accesses):
            both = {p: var(p) // divisor(extents[q]), q: var(p) % divisor(extents[q])}
            size = extents[q]
            accesses = [_merge(a, p, q) for a in accesses]
            where = {n: x.subs(both) for n, x in where.items()}
            extents[p] = extents[p] * size
            del names[at]
        at -= 1
    return names, extents, where


def _accesses(k: Kernel, values: list[Expr]) -> list[Int | None]:
    """The element offset of every load and store; None where it depends on data."""
    out: list[Int | None] = []
    for value in values:
        for load in loads_of(value):
            out.append(_offset(load))
        for node in _index_values(value):
            out.append(node)
    for b in k.outputs.values():
        total = as_int(0)
        for d, stride in enumerate(b.strides):
            total = total + var(f"i{d}") * stride
        out.append(total)
    return out


def _offset(load: Load) -> Int | None:
    total = as_int(0)
    for index, stride in zip(load.indices, load.source.strides, strict=True):
        if not isinstance(index, Index):
            return None
        total = total + index.int_ * stride
    return total


def _index_values(value: Expr) -> list[Int]:
    """Indices used as numbers (masks, iotas), which must keep their separate iterators."""
    found: list[Int] = []
    stack: list[Expr] = [value]
    seen: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Index):
            found.append(node.int_)
        elif isinstance(node, Load):
            if not all(isinstance(i, Index) for i in node.indices):
                stack += node.indices
        else:
            stack += [c for c in node.children() if isinstance(c, Expr)]
    return found


def _fusable(access: Int | None, p: str, q: str, extent: Int, facts: Facts) -> bool:
    if access is None:
        return True  # what it depends on is listed by itself
    if p not in access.names and q not in access.names:
        return True
    along_p, along_q = access.linear(p), access.linear(q)
    if along_p is None or along_q is None:
        return False
    return facts.equal(along_p[0], along_q[0] * extent)


def _merge(access: Int | None, p: str, q: str) -> Int | None:
    """The offset in terms of the fused iterator, which is now called p."""
    if access is None or q not in access.names:
        return access
    along_q = access.linear(q)
    assert along_q is not None
    coefficient, rest = along_q
    return coefficient * var(p) + rest.subs({p: 0})
