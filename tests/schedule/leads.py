"""Random steps that lead to primitives that are seldom legal by chance: they make what these want.

Each is a list of steps, of which any may be refused; one is the one that is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from pliant.base.dtypes import f32, i32
from pliant.ir.expr import Binary, Index, Select
from pliant.ir.node import walk
from pliant.loop.lower_pipeline import pipeline_of
from pliant.loop.regions import accesses
from pliant.loop.stmt import Alloc, Block, Buffer, For, Seq, Store, statements
from pliant.schedule.flow import Flow
from pliant.schedule.loop_partition import inner_part, live_part
from pliant.schedule.nest import blocks_in
from pliant.schedule.program import Program
from pliant.sym.atoms import ModAtom
from pliant.sym.expr import Int, as_int, maximum, minimum, var

Move = tuple[str, tuple[Any, ...], dict[str, Any]]
Draw = Callable[[Any], Any]


def pad_block(draw: Draw, p: Program) -> list[Move]:
    """Copies with padding of all that a block uses, then whole tiles of one of its loops."""
    blocks = [s for s in p.statements() if isinstance(s, Block) and any(_spatial(p, s))]
    if not blocks:
        return []
    block = draw(st.sampled_from(blocks))
    loop = draw(st.sampled_from(_spatial(p, block)))
    extent = p.loop(loop).extent
    sizes = [s for s in (4, 2, 3, 5) if not extent.is_const or extent.value % s] or [4]
    size = draw(st.sampled_from(sizes))
    mine = [a for a in accesses(block) if a.indices is not None]
    made = [_move("cache_write", block.name)] if _written(p, block) - _own(p) else []
    for name in dict.fromkeys(a.buffer.name for a in mine if not a.write):
        at = [var(f"_{k}") for k in range(p.buffer(name).rank)]
        if at and draw(st.integers(0, 7)):
            tiles = (*(x // size for x in at), *(x % size for x in at))
            made.append(_move("cache_read", block.name, name, layout=tiles, pad=0.0))
    along = {"along": f"{loop}_0"} if draw(st.booleans()) else {}
    made.append(_move("split", loop, size, tail="mask"))
    return [*made, _move("pad_block", block.name, **along)]


def rolling_buffer(draw: Draw, p: Program) -> list[Move]:
    """What a loop needs, computed in it; then in a ring."""
    flow, found = Flow(p), list[tuple[str, str, str, int]]()
    for buffer, maker, reader in _handed_on(p):
        reads = [a for a in flow.of_block(reader) if a.buffer is buffer and not a.write]
        loops = _spatial(p, p.block(reader))
        for d in range(buffer.rank):
            at = {x for a in reads if (x := a.index(d)) is not None}
            along = [v for v in loops if any(v in x.names for x in at)]
            if len(at) > 1 or any(len(x.names) > 1 for x in at):
                found += [(buffer.name, maker, v, d) for v in along]
    if not found:
        return []
    name, maker, loop, axis = draw(st.sampled_from(found))
    first = [_move("compute_at", maker, loop)] if loop not in p.loops(maker) else []
    return [*first, _move("rolling_buffer", name, axis)]


def factors(p: Program) -> list[Int]:
    """Symbolic numbers of at least 1 to split by."""
    sizes = [var(s) for s in sorted(p.sizes)]
    return [x for s in sizes for x in ([s] if p.facts.positive(s) else [s + 1, s // 2 + 1])]


def split(draw: Draw, p: Program) -> list[Move]:
    """Tiles of symbolic sizes; what is made in them of what is read there."""
    loops = [s.var for s in p.statements() if isinstance(s, For) and s.kind == "serial"]
    if not loops:
        return []
    loop, tail = draw(st.sampled_from(loops)), draw(st.sampled_from(["clip", "clip", "mask"]))
    size = draw(st.sampled_from([2, 3, *factors(p)]))
    outer = p.names().variable(f"{loop}_0")
    moves = [_move("split", loop, size, tail=tail)]
    if not draw(st.integers(0, 3)):
        name = f"tile{len(p.trace)}"
        value = draw(st.sampled_from([minimum(x, 3) for x in factors(p)] or [as_int(2)]))
        moves = [_move("name_size", name, value), _move("split", loop, var(name), tail=tail)]
    near = [
        [_move(name, block, outer), _move("shrink_buffer", b.name)]
        for b, maker, reader in _handed_on(p)
        for name, block, other in (
            ("compute_at", maker, reader),
            ("reverse_compute_at", reader, maker),
        )
        if loop in p.loops(other)
    ]
    return [*moves, *draw(st.sampled_from([[], *near]))]


def name_size(draw: Draw, p: Program) -> list[Move]:
    """A name, and loops in parts of that many."""
    loops = [s.var for s in p.statements() if isinstance(s, For) and s.kind == "serial"]
    if not loops or not factors(p):
        return []
    name, x = f"many{len(p.trace)}", draw(st.sampled_from(factors(p)))
    value = draw(st.sampled_from([x, minimum(x, 4), maximum(x - 2, 1)]))
    tails = st.sampled_from(["mask", "peel", "clip"])
    some = draw(st.lists(st.sampled_from(loops), min_size=1, max_size=2, unique=True))
    moves = [_move("split", loop, var(name), tail=draw(tails)) for loop in some]
    return [_move("name_size", name, value), *moves]


def loop_partition(draw: Draw, p: Program) -> list[Move]:
    """A loop at places that sizes or loops around say; in it no sum starts any more."""
    loops = [s for s in p.statements() if isinstance(s, For) and s.kind == "serial"]
    if not loops:
        return []
    loop = draw(st.sampled_from(loops))
    first = [
        _move("decompose_reduction", b.name, loop.var)
        for b in blocks_in(loop)
        if b.init is not None and loop.var not in _spatial(p, b)
    ]
    path = p.loop_path("loop", loop.var)[:-1]
    around = [var(s.var) for s in path if isinstance(s, For)]
    n = loop.extent
    places = [n // 2, minimum(n, 1), maximum(n - 1, 0), n // 3, n - n // 3]
    places += [minimum(n, x + 1) for x in (*around, *map(var, sorted(p.sizes)))]
    places += [x for x in inner_part(p, loop.var) if x is not n]
    points = draw(st.lists(st.sampled_from(places), min_size=1, max_size=2, unique=True))
    return [*first, _move("loop_partition", loop.var, *points)]


def narrow(draw: Draw, p: Program) -> list[Move]:
    """A sum where its terms are not zero by place."""
    found = [
        (s.var, *live_part(p, s.var))
        for s in p.statements()
        if isinstance(s, For) and isinstance(s.body, Block) and s.kind == "serial"
        if s.var not in _spatial(p, s.body)
    ]
    found = [x for x in found if x[1] is not as_int(0) or x[2] is not p.loop(x[0]).extent] or found
    return [_move("narrow", *draw(st.sampled_from(found)))] if found else []


def expand_pipeline(draw: Draw, p: Program) -> list[Move]:
    """A pipeline, written out; of what runs at one time loops become one."""
    moves = software_pipeline(draw, p)
    if not moves:
        return []
    loop = moves[-1][1][0]
    inner = [s for s in statements(p.loop(loop).body) if isinstance(s, For)]
    pairs = [
        _move("merge", a.var, b.var)
        for a in inner
        for b in inner
        if a is not b and a.extent is b.extent
    ]
    return [*moves, _move("expand_pipeline", loop), *draw(st.permutations(pairs))[:4]]


def merge(draw: Draw, p: Program) -> list[Move]:
    """Two loops that stand side by side, as long as each other."""
    found = [
        (a.var, b.var)
        for s in p.statements()
        if isinstance(s, Seq)
        for k, a in enumerate(s.stmts)
        for b in s.stmts[k + 1 :]
        if isinstance(a, For) and isinstance(b, For) and a.extent is b.extent
    ]
    return [_move("merge", *draw(st.sampled_from(found)))] if found else []


def fuse_reduction_epilogue(draw: Draw, p: Program) -> list[Move]:
    """A reduction, and what is computed of it."""
    found = [(m, r) for _, m, r in _handed_on(p) if any(i.kind == "R" for i in p.block(m).iters)]
    at = draw(st.sampled_from(["after", "last"]))
    return [_move("fuse_reduction_epilogue", *draw(st.sampled_from(found)), at=at)] if found else []


def cache_inplace(draw: Draw, p: Program) -> list[Move]:
    """What a block both reads and writes."""
    found = [
        (s.name, b.name)
        for s in p.statements()
        if isinstance(s, Block)
        for b in dict.fromkeys(a.buffer for a in accesses(s) if a.write)
        if any(a.buffer is b and not a.write for a in accesses(s))
    ]
    return [_move("cache_inplace", *draw(st.sampled_from(found)))] if found else []


def decompose_padding(draw: Draw, p: Program) -> list[Move]:
    """A block that stores a choice; a padded copy is one."""
    blocks = [s for s in p.statements() if isinstance(s, Block)]
    found = [
        s.name for s in blocks if isinstance(s.body, Store) and isinstance(s.body.value, Select)
    ]
    found = [name for name in found if p.loops(name)]
    if found and draw(st.booleans()):
        name = draw(st.sampled_from(found))
        return [_move("decompose_padding", name, draw(st.sampled_from(p.loops(name))))]
    pairs = [(s.name, a.buffer.name) for s in blocks for a in accesses(s) if a.buffer.rank]
    if not pairs:
        return []
    block, name = draw(st.sampled_from(pairs))
    at = [var(f"_{k}") for k in range(p.buffer(name).rank)]
    copy = p.names().buffer(f"{name}_cache")
    loop = p.names().variable(f"{copy}_{draw(st.integers(0, len(at)))}")
    return [
        _move("cache_read", block, name, layout=(*at[:-1], at[-1] // 4, at[-1] % 4), pad=0.0),
        _move("decompose_padding", copy, loop),
    ]


def cache_index(draw: Draw, p: Program) -> list[Move]:
    """What a block reads at one place, under two loops or more."""
    found = list[tuple[str, str]]()
    for s in p.statements():
        if isinstance(s, Block) and len(p.loops(s.name)) > 1:
            reads = Counter(a.buffer.name for a in accesses(s) if not a.write)
            found += [(s.name, name) for name, count in reads.items() if count == 1]
    if not found:
        return []
    block, name = draw(st.sampled_from(found))
    loops = p.loops(block)
    first, along = draw(st.integers(0, len(loops) - 2)), loops[-1]
    inner = tuple(draw(st.permutations(loops[first + 1 : -1])))
    own = draw(st.integers(0, len(inner)))
    return [
        _move("cache_index", block, name, loops[first], along, inner),
        _move("cache_index", block, name, loops[first], along, inner[:own], inner[own:]),
    ]


def pad_einsum(draw: Draw, p: Program) -> list[Move]:
    """A reduction, to multiples of small numbers."""
    found = [s for s in p.statements() if isinstance(s, Block) and s.init is not None]
    if not found:
        return []
    block = draw(st.sampled_from(found))
    steps = tuple(draw(st.sampled_from([1, 2, 4])) for _ in block.iters)
    return [_move("pad_einsum", block.name, steps)]


def reverse_compute_inline(draw: Draw, p: Program) -> list[Move]:
    """What a block makes elementwise of another's output; or of a copy of what it reads."""
    maps = [s for s in p.statements() if isinstance(s, Block) and s.init is None]
    maps = [s for s in maps if all(i.kind == "S" for i in s.iters)]
    names = {s.name for s in maps}
    found = [(r, b.name) for b, m, r in _handed_on(p) if {m, r} <= names]
    if found and draw(st.booleans()):
        block, name = draw(st.sampled_from(found))
        return [_move("reverse_compute_inline", block, buffer=name)]
    if not maps:
        return []
    s = draw(st.sampled_from(maps))
    written = sorted(b.name for b in _written(p, s))
    if written and draw(st.booleans()):
        name = draw(st.sampled_from(written))
        store = p.names().buffer(f"{name}_store")
        return [_move("cache_write", s.name, buffer=name), _move("reverse_compute_inline", store)]
    read = sorted(_read(s))
    if not read:
        return []
    name = draw(st.sampled_from(read))
    copy = p.names().buffer(f"{name}_cache")
    return [
        _move("cache_read", s.name, name),
        _move("reverse_compute_inline", s.name, buffer=copy),
    ]


def set_scope(draw: Draw, p: Program) -> list[Move]:
    """Another memory for a buffer of the function's own."""
    own = sorted(b.name for b in _own(p))
    scopes = ["register", "scratch", "local", "shared", "warp", "global"]
    name, scope = draw(st.sampled_from(own or [""])), draw(st.sampled_from(scopes))
    return [_move("set_scope", name, scope)] if own else []


def reverse_compute_at(draw: Draw, p: Program) -> list[Move]:
    """A block to a loop in which something is made that it reads."""
    pairs = [
        (m, r)
        for _, m, r in _handed_on(p)
        if set(p.loops(m)) - set(p.loops(r)) and all(i.kind == "S" for i in p.block(r).iters)
    ]
    if not pairs:
        return []
    maker, reader = draw(st.sampled_from(pairs))
    outside = [x for x in p.loops(maker) if x not in p.loops(reader)]
    return [_move("reverse_compute_at", reader, draw(st.sampled_from(outside)))]


def software_pipeline(draw: Draw, p: Program) -> list[Move]:
    """A loop in which several things are done, and in whose memory one hands on to the next."""
    loops = [s for s in p.statements() if isinstance(s, For) and s.kind == "serial"]
    parts = [(s.var, len(pipeline_of(s, (), ()).parts)) for s in loops]
    found = [(loop, count) for loop, count in parts if count > 1]
    before: list[Move] = []
    if not found or draw(st.booleans()):
        pairs = [
            (b.name, maker, loop)
            for b, maker, reader in _handed_on(p)
            for loop in p.loops(reader)
            if loop not in p.loops(maker)
        ]
        if not pairs:
            return []
        memory, maker, loop = draw(st.sampled_from(pairs))
        before = [_move("compute_at", maker, loop), _move("shrink_buffer", memory)]
        found = [(loop, dict(parts).get(loop, 1) + 1)]
    loop, count = draw(st.sampled_from(found))
    late = draw(st.lists(st.integers(0, 1), min_size=count - 1, max_size=count - 1))
    stages = [0, *(sum(late[: k + 1]) for k in range(count - 1))]
    orders = draw(st.sampled_from([None, list(range(count))[::-1]]))
    return [*before, _move("software_pipeline", loop, stages, orders)]


def store_in(draw: Draw, p: Program) -> list[Move]:
    """A buffer into another of its shape and type, which a reader of it writes."""
    read = {a.buffer for a in accesses(p.function.body) if not a.write}
    pairs = [
        (b.name, new.name)
        for b, _, reader in _handed_on(p)
        for new in sorted(_written(p, p.block(reader)), key=lambda x: x.name)
        if new not in read and (new.shape, new.dtype) == (b.shape, b.dtype)
    ]
    return [_move("store_in", *draw(st.sampled_from(pairs)))] if pairs else []


def stream(draw: Draw, p: Program) -> list[Move]:
    """What a block stores in a parameter, in vectors."""
    found = [s.name for s in p.statements() if isinstance(s, Block) and _written(p, s) - _own(p)]
    loop, moves = _vectors(draw, p, found)
    return [*moves, _move("stream", loop, draw(st.sampled_from([0, 1024])))] if moves else []


def prefetch(draw: Draw, p: Program) -> list[Move]:
    """What a block reads of a parameter, in vectors."""
    pairs = [
        (s.name, a.buffer.name)
        for s in p.statements()
        if isinstance(s, Block)
        for a in accesses(s)
        if a.buffer not in _own(p) and not a.write
    ]
    if not pairs:
        return []
    block, name = draw(st.sampled_from(pairs))
    loop, moves = _vectors(draw, p, [block])
    ahead = draw(st.sampled_from([64, var("n")]))
    cache = draw(st.sampled_from([1, 2]))
    return [*moves, _move("prefetch", loop, name, ahead, cache=cache)] if moves else []


def _vectors(draw: Draw, p: Program, blocks: list[str]) -> tuple[str, list[Move]]:
    """The innermost loop of one of the blocks in vectors of 4, and their loop."""
    inside = [loops[-1] for name in blocks if (loops := p.loops(name))]
    if not inside:
        return "", []
    loop = draw(st.sampled_from(inside))
    lanes = p.names().variable(f"{loop}_1")
    return lanes, [_move("split", loop, 4, tail="peel"), _move("vectorize", lanes)]


def sum_apart(draw: Draw, p: Program) -> list[Move]:
    """A reduction of integers."""
    blocks = [s for s in p.statements() if isinstance(s, Block) and s.init is not None]
    found = [s.name for s in blocks if any(b.dtype is i32 for b in _written(p, s))]
    return [_move("sum_apart", draw(st.sampled_from(found)))] if found else []


def start_with_term(draw: Draw, p: Program) -> list[Move]:
    """A sum in a buffer of the program's own."""
    blocks = [s for s in p.statements() if isinstance(s, Block) and s.init is not None]
    found = [s.name for s in blocks if _written(p, s) <= _own(p)]
    return [_move("start_with_term", draw(st.sampled_from(found)))] if found else []


def phases_apart(draw: Draw, p: Program) -> list[Move]:
    """A sum whose terms are zero but in steps."""
    blocks = [s for s in p.statements() if isinstance(s, Block) and s.init is not None]
    found = [s.name for s in blocks if any(_steps(n) for n in walk(s.body))]
    return [_move("phases_apart", draw(st.sampled_from(found)))] if found else []


def _steps(node: Any) -> bool:
    """Whether this is a condition of divisibility."""
    return (
        isinstance(node, Binary)
        and node.op == "eq"
        and isinstance(node.a, Index)
        and isinstance(node.a.int_.sole_atom, ModAtom)
    )


def tensorize(draw: Draw, p: Program) -> list[Move]:
    """A row that an intrinsic of random programs can do: of a copy, or of a product's sum."""
    f32s = {b.name for b in p.function.buffers if b.dtype is f32}
    f32s |= {b.name for b in _own(p) if b.dtype is f32}
    blocks = [s for s in p.statements() if isinstance(s, Block) and p.loops(s.name)]
    sums = [s for s in blocks if s.init is not None and len(_read(s)) == 2]
    if sums and draw(st.booleans()):
        block = draw(st.sampled_from(sums))
        loops = p.loops(block.name)
        reduced = [x for x in loops if x not in _spatial(p, block)]
        inner = draw(st.sampled_from(reduced or loops))
        order = [x for x in loops if x != inner]
        return [
            _move("reorder", *order, inner),
            _move("decompose_reduction", block.name, inner),
            _move("tensorize", inner, "dot_row"),
        ]
    pairs = [(s.name, name) for s in blocks for name in sorted(_read(s) & f32s) if _rank(p, name)]
    if not pairs:
        return []
    block_name, name = draw(st.sampled_from(pairs))
    copy = p.names().buffer(f"{name}_cache")
    loop = p.names().variable(f"{copy}_{_rank(p, name) - 1}")
    return [_move("cache_read", block_name, name), _move("tensorize", loop, "copy_row")]


def unannotate(draw: Draw, p: Program) -> list[Move]:
    """A note there is, or was just made."""
    places = [s for s in p.statements() if isinstance(s, For | Block)]
    found = [(_name(s), k) for s in places for k, _ in s.notes]
    if found and draw(st.booleans()):
        return [_move("unannotate", *draw(st.sampled_from(found)))]
    if not places:
        return []
    place = _name(draw(st.sampled_from(places)))
    return [_move("annotate", place, "passing", 1), _move("unannotate", place, "passing")]


LEADS: Final = {
    f.__name__: f
    for f in (
        cache_index,
        cache_inplace,
        decompose_padding,
        expand_pipeline,
        fuse_reduction_epilogue,
        loop_partition,
        merge,
        name_size,
        narrow,
        pad_block,
        pad_einsum,
        phases_apart,
        prefetch,
        reverse_compute_at,
        reverse_compute_inline,
        rolling_buffer,
        set_scope,
        software_pipeline,
        split,
        start_with_term,
        store_in,
        stream,
        sum_apart,
        tensorize,
        unannotate,
    )
}


def _move(name: str, *args: Any, **options: Any) -> Move:
    return name, args, options


def _name(s: For | Block) -> str:
    return s.var if isinstance(s, For) else s.name


def _own(p: Program) -> set[Buffer]:
    return {s.buffer for s in p.statements() if isinstance(s, Alloc)}


def _written(p: Program, block: Block) -> set[Buffer]:
    return {p.buffer(name) for name in p.written(block.name)}


def _read(block: Block) -> set[str]:
    return {a.buffer.name for a in accesses(block) if not a.write} - {
        a.buffer.name for a in accesses(block) if a.write
    }


def _rank(p: Program, name: str) -> int:
    return p.buffer(name).rank


def _spatial(p: Program, block: Block) -> list[str]:
    """The block's loops that its data parallel iterators are bound to."""
    pairs = zip(block.iters, block.bindings, strict=True)
    names = {n for i, b in pairs if i.kind == "S" for n in b.names}
    return [x for x in p.loops(block.name) if x in names]


def _handed_on(p: Program) -> list[tuple[Buffer, str, str]]:
    """(buffer, block that writes it, another that reads it) of the function's own buffers."""
    own = _own(p)
    blocks = [s for s in statements(p.function.body) if isinstance(s, Block)]
    uses = {b.name: [a for a in accesses(b) if a.buffer in own] for b in blocks}
    return [
        (b, maker, reader)
        for maker in uses
        for reader in uses
        if maker != reader
        for b in dict.fromkeys(a.buffer for a in uses[maker] if a.write)
        if any(a.buffer is b and not a.write for a in uses[reader])
    ]
