"""Give a buffer another layout.

Unlike `cache_read` and `cache_write` it makes no copy. Elements lie in different places; where that
leaves gaps, nothing reads them, and with `pad_value` whoever writes the buffer writes that there.

Before:

    @loop
    def twice(x: f32["m"], y: f32["m"], m: i64):
        t = alloc(f32[m], scope="scratch")
        for i in grid(m):
            with block("t", S(i, m)) as (a,):
                t[a] = x[a] * 2.0
        for j in grid(m):
            with block("y", S(j, m)) as (b,):
                y[b] = t[m - 1 - b]

Steps:

    p = p.transform_layout('t', (sym('_0//4'), sym('_0%4')))

After:

    t = alloc(f32[(m + 3)//4, 4], scope="scratch")
    for i in grid(m):
        with block("t", S(i, m)) as (a,):
            t[a//4, a%4] = x[a] * 2.0
    for j in grid(m):
        with block("y", S(j, m)) as (b,):
            y[b] = t[(-b + m + 3)//4 - 1, (-b + m + 3)%4]

Steps:

    p = p.transform_layout('t', (sym('_0//4'), sym('_0%4')), 0.0)

After:

    t = alloc(f32[(m + 3)//4, 4], scope="scratch")
    for t_0, t_1 in grid((m + 3)//4, 4):
        with block("t", S(t_0, (m + 3)//4), S(t_1, 4)) as (t_v0, t_v1):
            t[t_v0, t_v1] = select(4*t_v0 + t_v1 < m, x[4*t_v0 + t_v1] * 2.0, 0.0)
    for j in grid(m):
        with block("y", S(j, m)) as (b,):
            y[b] = t[(-b + m + 3)//4 - 1, (-b + m + 3)%4]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pliant.base.dtypes import i64
from pliant.ir.expr import Expr, Index, Select, Unary, const, loads_of
from pliant.loop.regions import accesses
from pliant.loop.rewrite import Names, conjoin, path_to, replace_at, replace_buffer
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    Iter,
    Let,
    Stmt,
    Store,
    compact_strides,
    for_,
    seq,
)
from pliant.loop.threads import MEMORY_SCOPES
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, stores_everywhere
from pliant.schedule.layout import Layout, Packing, known_layout, spread
from pliant.schedule.program import BlockRef, LoopRef, MemoryRef, Program, Ref, primitive
from pliant.schedule.set_scope import fits_registers
from pliant.schedule.transform_block_layout import BlockLayout, check_transform_block_layout
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts

# Memory with addresses that the program alone knows; the fragments of a matrix unit have none.
ADDRESSED: Final = frozenset(s for s in MEMORY_SCOPES if not s.startswith("wmma"))


@primitive
def transform_layout(
    p: Program,
    buffer: str,
    index_map: Layout,
    pad_value: int | float | None = None,
    *,
    parameter: bool = False,
) -> Program:
    """The buffer keeps its name; its dimensions are those of `index_map`, over its indices `_0`,
    `_1`, …. With `parameter` it may be one: callers then pass memory in the new layout, and the
    function's note "layouts" tells them where element (_0, _1, …) lies.

    Gaps are filled with `pad_value` by the one block that writes the buffer, which gets iterators
    that run through them, or, where that cannot be, by a block in front. Makes the buffer, the
    block that fills gaps, if any, and its loops.
    """
    plan = check_transform_layout(p, buffer, index_map, pad_value, parameter)
    old, packed = plan.old, plan.packed
    new = _arranged(old, packed)
    body, refs = p.function.body, list[Ref]([MemoryRef(new.name)])
    if pad_value is not None and plan.gaps:
        pad = const(pad_value, old.dtype)
        block, loops, body = _padded(plan, new, pad, body, p.names())
        refs += [BlockRef(block), *map(LoopRef, loops)]
    q = p.with_body(replace_buffer(body, old, new, packed.place), *refs)
    if old not in p.function.buffers:
        return q
    params = tuple(new if b is old else b for b in p.function.buffers)
    notes = _told(p.function, old.name, packed.forward)
    return replace(q, function=q.function.replace(buffers=params, notes=notes))


@dataclass(frozen=True)
class _Plan:
    old: Buffer
    packed: Packing
    gaps: bool
    producer: BlockLayout | None  # the block that can run through the gaps too


def check_transform_layout(
    p: Program,
    buffer: str,
    index_map: Layout,
    pad_value: int | float | None = None,
    parameter: bool = False,
) -> _Plan:
    """The function allocates the buffer, or that it is a parameter is allowed; no call takes its
    address, and nothing reads it by offset. The map puts different elements in different places,
    from 0 on, and says how much room they need. Gaps need one who writes the buffer, and if it is
    a parameter an inverse, which tells where they are."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("transform_layout", f"buffer {buffer}", reason)

    old = p.buffer(buffer)
    path = path_to(p.function.body, lambda s: isinstance(s, Alloc) and s.buffer is old)
    if path is None and not parameter:
        raise refuse("it is a parameter: with parameter=True the signature changes")
    check_free_layout(p, old, refuse)
    above = () if path is None else path[:-1]
    if not known_layout(index_map, old.rank, _names_at(p.function, above)):
        raise refuse(f"the layout is not one of {old.rank} indices")
    facts = p.facts if path is None else p.inside(above)
    packed = spread(old.shape, index_map, facts)
    if packed is None:
        raise refuse("the layout is not known to be one-to-one, from 0 on")
    if old.scope == "register" and not fits_registers(_arranged(old, packed)):
        raise refuse(f"shape {list(packed.shape)} does not fit into registers")
    gaps = packed.inverse is None or bool(_exists(packed))
    if pad_value is None or not gaps:
        return _Plan(old, packed, gaps, None)
    if not Flow(p).writers(old):
        raise refuse("nothing here writes it, so nothing can fill its gaps")
    if path is None and packed.inverse is None:
        raise refuse("the layout has no inverse, so where its gaps are is not known")
    return _Plan(old, packed, gaps, _producer(p, old, packed, facts))


def check_free_layout(p: Program, memory: Buffer, refuse: Refuse) -> None:
    """Only the program's loads and stores, by index, know how the buffer lies in memory."""
    if memory.scope != "param" and memory.scope not in ADDRESSED:
        raise refuse(f"its scope is {memory.scope}: others know its layout")
    if any(a.buffer is memory and a.indices is None for a in accesses(p.function.body)):
        raise refuse("a call takes its address, or it is read by offset")


def _arranged(old: Buffer, packed: Packing) -> Buffer:
    return old.replace(shape=packed.shape, strides=compact_strides(packed.shape))


def _names_at(function: Function, above: Sequence[Stmt]) -> set[str]:
    """Integers that are known below these statements."""
    names = set(function.sizes)
    for s in above:
        match s:
            case For():
                names.add(s.var)
            case Let() if s.var.type is i64:
                names.add(s.var.name)
            case Block():
                names |= {i.var for i in s.iters}
    return names


def _exists(packed: Packing) -> list[Expr]:
    """What must hold of `_0`, `_1`, … for a place to hold an element."""
    return packed.back([var(f"_{d}") for d in range(len(packed.shape))])[1]


def _producer(p: Program, old: Buffer, packed: Packing, facts: Facts) -> BlockLayout | None:
    """The only writer, if it is one store of a block with an iterator for each dimension, whose
    loops can be those of the new dimensions."""
    writers = Flow(p).writers(old)
    if len(writers) != 1 or not writers[0].block or packed.inverse is None:
        return None
    block = p.block(writers[0].block)
    store, names = block.body, [i.var for i in block.iters]
    if not isinstance(store, Store) or block.init is not None:
        return None
    at = [str(i.int_) if isinstance(i, Index) else "" for i in store.indices]
    if sorted(at) != sorted(names) or any(x.source is old for x in loads_of(store)):
        return None
    if not stores_everywhere(block, old, p.around(p.block_path("transform_layout", block.name))):
        return None
    moved = {f"_{d}": var(f"_{names.index(v)}") for d, v in enumerate(at)}
    try:
        found = check_transform_block_layout(
            p, block.name, tuple(x.subs(moved) for x in packed.forward)
        )
    except SchedulingError:
        return None
    same = zip(found.packed.shape, packed.shape, strict=True)
    return None if found.where or not all(facts.equal(a, b) for a, b in same) else found


def _padded(
    plan: _Plan, new: Buffer, pad: Expr, body: Stmt, names: Names
) -> tuple[str, list[str], Stmt]:
    """The block that fills the gaps, its loops, and the program with it."""
    found = plan.producer
    if found is None:
        block, loops, nest = _filling(plan.packed, new, pad, names)
        home = path_to(body, lambda s: isinstance(s, Alloc) and s.buffer is plan.old)
        if home is None:
            return block, loops, _first(body, nest)
        alloc = home[-1]
        assert isinstance(alloc, Alloc)
        return block, loops, replace_at(home, alloc.replace(body=_first(alloc.body, nest)))
    made, loops, _ = found.transformed(names)
    assert isinstance(made.body, Store)
    at = [var(i.var) for i in made.iters]
    exists = conjoin(found.packed.back(at)[1])
    assert exists is not None
    stored = Store(new, tuple(map(Index, at)), Select(exists, made.body.value, pad))
    nest = for_(list(zip(loops, found.packed.shape, strict=True)), made.replace(body=stored))
    return made.name, loops, replace_at(found.path[: found.at + 1], nest)


def _filling(packed: Packing, new: Buffer, pad: Expr, names: Names) -> tuple[str, list[str], Stmt]:
    """A block that fills the gaps alone, or where they are not known everything."""
    block = names.block(f"{new.name}_pad")
    loops = [names.variable(f"{block}_{d}") for d in range(new.rank)]
    iters = [names.variable(f"{block}_v{d}") for d in range(new.rank)]
    at = [var(i) for i in iters]
    exists = None if packed.inverse is None else conjoin(packed.back(at)[1])
    made = Block(
        block,
        tuple(Iter(i, d, "S") for i, d in zip(iters, new.shape, strict=True)),
        tuple(map(var, loops)),
        Store(new, tuple(map(Index, at)), pad),
        where=None if exists is None else Unary("not", exists),
    )
    return block, loops, for_(list(zip(loops, new.shape, strict=True)), made)


def _first(root: Stmt, nest: Stmt) -> Stmt:
    """The nest in front, after the allocations and sizes at the beginning."""
    if isinstance(root, Alloc | Let):
        return root.replace(body=_first(root.body, nest))
    return seq(nest, root)


def _told(function: Function, name: str, forward: tuple[Int, ...]) -> tuple[tuple[str, Any], ...]:
    """The function's notes, with the new layout in terms of what the parameter was at first."""
    notes = dict(function.notes)
    layouts = dict(notes.get("layouts", ()))
    before = layouts.get(name)
    if before is not None:
        forward = tuple(x.subs({f"_{d}": b for d, b in enumerate(before)}) for x in forward)
    layouts[name] = tuple(map(as_int, forward))
    return tuple((notes | {"layouts": tuple(layouts.items())}).items())
