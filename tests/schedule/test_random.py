"""Random steps on small programs: each is refused, or keeps the meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.base.errors import InvalidModelError
from pliant.loop.stmt import Alloc, For
from pliant.loop.threads import AXES, BLOCK_AXES, THREAD_AXES, is_bound
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.program import Program
from pliant.schedule.sample import INLINE, STAY
from pliant.sym.expr import Int, const, minimum, var
from tests.schedule.by_hand import BY_HAND
from tests.schedule.leads import LEADS, Move, factors
from tests.schedule.programs import PROGRAMS, same
from tests.schedule.threads import STAGED, device, same_on_device, same_pipelined
from tests.schedule.tuples import attention, normals
from tests.schedule.windows import ring, window
from tests.share import draws

SMALL = {
    1: [(0,), (1,), (6,), (9,)],
    2: [(0, 3), (3, 0), (1, 1), (5, 6), (2, 9)],
    3: [(0, 2, 3), (2, 3, 0), (1, 1, 1), (5, 6, 3)],
}
PACKED = layout(lambda i, j: (j // 4, i, j % 4))
STARTS = PROGRAMS | {f.__name__: f for f in (attention, normals, ring, window)} | BY_HAND
NAMES = (
    "split split split reorder reorder fuse parallel vectorize unroll compute_inline "
    "reverse_compute_inline compute_at compute_at reverse_compute_at shrink_buffer cache_read "
    "cache_write decompose_padding decompose_reduction rfactor reduce_lanes loop_partition "
    "blockize add_unit_loop rolling_buffer "
    "fuse_reduction_epilogue fuse_reduction_epilogue set_scope pad_block pad_einsum merge merge "
    "transform_block_layout stage_operand cache_index reindex reindex_cache_read "
    "reindex_cache_write transform_layout bind bind software_pipeline expand_pipeline "
    "cache_inplace stream prefetch narrow "
    "reorder_block_iter_var annotate storage_align name_size sample_categorical "
    "sample_compute_location sample_partitioned_tile sample_perfect_tile store_in tensorize "
    "sum_apart sum_apart phases_apart phases_apart tensorize unannotate start_with_term"
).split()
# Of these, programs for a device are made more often.
DEVICE_NAMES = (
    "split split reorder fuse compute_at reverse_compute_at cache_read cache_write shrink_buffer "
    "decompose_reduction set_scope merge software_pipeline expand_pipeline rfactor"
).split()
SCOPES = ["register", "scratch", "local", "shared", "warp", "global"]


@st.composite
def index_maps(draw: Any, extents: Sequence[Int]) -> tuple[Int, ...]:
    """A layout of indices with these extents: permuted, split or fused."""
    at = list(draw(st.permutations(range(len(extents)))))
    here = [var(f"_{d}") for d in at]
    if not here:
        return draw(st.sampled_from([(), (const(0),)]))
    k = draw(st.integers(0, len(at) - 1))
    match draw(st.sampled_from(["plain", "split", "apart", "fuse"])):
        case "split":
            here[k : k + 1] = [here[k] // 3, here[k] % 3]
        case "apart":
            here = [*here[:k], here[k] % 2, *here[k + 1 :], here[k] // 2]
        case "fuse" if k + 1 < len(at):
            here[k : k + 2] = [here[k] * extents[at[k + 1]] + here[k + 1]]
    return tuple(here)


def arguments(draw: Any, p: Program, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that make sense at first sight."""
    loops = [s.var for s in p.statements() if isinstance(s, For)] or ["none"]
    inside = [s.buffer.name for s in p.statements() if isinstance(s, Alloc)]
    buffers = inside + [b.name for b in p.function.buffers]
    loop, block = draw(st.sampled_from(loops)), draw(st.sampled_from(p.blocks or ("none",)))
    around = list(p.loops(block)) if p.blocks else loops
    match name:
        case "split":
            tail = draw(st.sampled_from(["mask", "mask", "peel", "clip", "exact"]))
            sampled = [x for x in p.chosen if isinstance(x, Int)]
            size = st.sampled_from([1, 2, 3, 4, 8, *factors(p), *sampled])
            return (loop, draw(size)), {"tail": tail}
        case "reorder":
            return tuple(draw(st.permutations(around))), {}
        case "fuse":
            first = draw(st.integers(0, max(len(around) - 2, 0)))
            return tuple(around[first : first + 2]), {}
        case "merge":
            return (loop, draw(st.sampled_from(loops))), {}
        case "compute_inline":
            return (block,), {"keep": draw(st.booleans())}
        case (
            "parallel"
            | "vectorize"
            | "unroll"
            | "rfactor"
            | "blockize"
            | "add_unit_loop"
            | ("expand_pipeline")
        ):
            return (loop,), {}
        case "transform_block_layout":
            extents = [i.extent for i in p.block(block).iters] if p.blocks else []
            return (block, draw(index_maps(extents))), {}
        case "reindex_cache_read" | "reindex_cache_write":
            iters = p.block(block).iters if p.blocks else ()
            some = draw(st.sets(st.integers(0, max(len(iters) - 1, 0))))
            kept = [d for d in range(len(iters)) if d not in some]
            moved = {f"_{d}": var(f"_{at}") for d, at in enumerate(kept)}
            how = draw(index_maps([iters[d].extent for d in kept]))
            return (block, draw(st.sampled_from(buffers)), tuple(x.subs(moved) for x in how)), {}
        case "transform_layout":
            own = draw(st.sampled_from(inside or ["none"]))
            how = draw(index_maps(p.buffer(own).shape if inside else ()))
            spread = draw(st.sampled_from([how, how, how, tuple(2 * x + 1 for x in how)]))
            return (own, spread, draw(st.sampled_from([None, 0.0, 2.0]))), {}
        case "reorder_block_iter_var":
            count = len(p.block(block).iters) if p.blocks else 0
            return (block, draw(st.permutations(range(count)))), {}
        case "storage_align":
            own = draw(st.sampled_from(inside or ["none"]))
            axis = draw(st.integers(0, max(p.buffer(own).rank - 1, 0) if inside else 0))
            return (own, axis, draw(st.sampled_from([1, 4, 8])), draw(st.integers(0, 3))), {}
        case "annotate":
            return (draw(st.sampled_from([loop, block])), "note", draw(st.integers(0, 2))), {}
        case "unannotate":
            return (draw(st.sampled_from([loop, block])), "note"), {}
        case "stage_operand" | "reindex" | "cache_inplace":
            return (block, draw(st.sampled_from(buffers))), {}
        case "cache_index":
            *table, along = around or ["none"]
            first = draw(st.integers(0, max(len(table) - 1, 0)))
            at_loop = table[first] if table else along
            inner = tuple(draw(st.permutations(table[first + 1 :])))
            own = draw(st.integers(0, len(inner)))
            given = (block, draw(st.sampled_from(buffers)), at_loop, along, inner[:own])
            return given, {"shared": inner[own:]}
        case "compute_at":
            return (block, loop), {"early": draw(st.booleans())}
        case "reverse_compute_at":
            return (block, loop), {}
        case "fuse_reduction_epilogue":
            other = draw(st.sampled_from(p.blocks or ("none",)))
            return (block, other), {"at": draw(st.sampled_from(["after", "last"]))}
        case "decompose_reduction" | "decompose_padding":
            return (block, draw(st.sampled_from(around or ["none"]))), {}
        case "shrink_buffer":
            return (draw(st.sampled_from(inside or ["none"])),), {}
        case "rolling_buffer":
            return (draw(st.sampled_from(inside or ["none"])), draw(st.integers(0, 1))), {}
        case "pad_einsum":
            rank = len(p.block(block).iters) if p.blocks else 0
            steps = st.sampled_from([1, 2, 4, 4, var("n") + 1])
            return (block, tuple(draw(steps) for _ in range(rank))), {}
        case "set_scope":
            return (draw(st.sampled_from(buffers)), draw(st.sampled_from(SCOPES))), {}
        case "prefetch":
            ahead = draw(st.sampled_from([1, 16, var("n")]))
            of = draw(st.sampled_from(["", "", *loops]))
            share = draw(st.sampled_from([1, 1, 2]))
            return (loop, draw(st.sampled_from(buffers)), ahead), {
                **({"of": of} if of else {}),
                "share": share,
            }
        case "stream":
            return (loop, draw(st.sampled_from([0, 1024]))), {}
        case "bind":
            return (loop, draw(st.sampled_from(AXES))), {}
        case "software_pipeline":
            count = draw(st.integers(1, 4))
            stages = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
            return (loop, stages, draw(st.permutations(range(count)))), {}
        case "cache_read":
            how = draw(st.sampled_from([None, PACKED]))
            pad = draw(st.sampled_from([None, 0.0]))
            scope = draw(st.sampled_from(["scratch", *SCOPES]))
            return (block, draw(st.sampled_from(buffers)), scope), {"layout": how, "pad": pad}
        case "cache_write":
            return (block, draw(st.sampled_from(["scratch", *SCOPES]))), {}
        case "name_size":
            size = var(draw(st.sampled_from(sorted(p.sizes) or ["none"])))
            value = draw(st.sampled_from([size // 2, size + 1, minimum(size, 3), size % 3 + 1]))
            return (f"size{len(p.trace)}", value), {}
        case "sample_categorical":
            return (f"v{len(p.trace)}", (1, 2, 4, 5)), {"default": draw(st.sampled_from([2, 5]))}
        case "sample_compute_location":
            place = draw(st.sampled_from([STAY, INLINE, *loops]))
            return (f"v{len(p.trace)}", block), {"default": place}
        case "sample_partitioned_tile":
            at, unit = draw(st.integers(0, 2)), draw(st.sampled_from([1, 2, 4]))
            return (f"v{len(p.trace)}", loop, 3, at, unit), {}
        case "sample_perfect_tile":
            return (f"v{len(p.trace)}", loop, draw(st.integers(2, 3)), 4), {}
        case "store_in":
            return (draw(st.sampled_from(inside or ["none"])), draw(st.sampled_from(buffers))), {}
        case "tensorize":
            return (loop, draw(st.sampled_from(sorted(p.intrinsics) or ["none"]))), {}
        case "loop_partition":
            return (loop, draw(st.sampled_from([0, 1, var("n") // 4, var("n") // 2]))), {}
        case "narrow":
            points = st.sampled_from([0, 1, *map(var, [*loops, *sorted(p.sizes)])])
            return (loop, draw(points), draw(points)), {}
    return (block,), {}


def moves(draw: Any, p: Program, name: str) -> list[Move]:
    """A step called `name`; now and then others before it that make it legal."""
    lead = LEADS.get(name)
    found = lead(draw, p) if lead is not None and draw(st.integers(0, 3)) else []
    return found or [(name, *arguments(draw, p, name))]


@st.composite
def schedules(draw: Any) -> tuple[Program, Program]:
    """A program, and what random steps made of it."""
    start = p = STARTS[draw(st.sampled_from(sorted(STARTS)))]()
    for _ in range(draw(st.integers(1, 8))):
        for name, args, options in moves(draw, p, draw(st.sampled_from(NAMES))):
            try:
                p = getattr(p, name)(*args, **options)
            except SchedulingError:
                continue
    return start, p


@settings(max_examples=draws(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(schedules())
def test_random_steps_keep_the_meaning(pair: tuple[Program, Program]) -> None:
    start, p = pair
    same(start, p, SMALL[len(start.function.sizes)])


@st.composite
def device_schedules(draw: Any) -> tuple[Program, Program]:
    """A program, random steps on it, and as many of its loops bound as can be."""
    names = [*sorted(PROGRAMS), *(sorted(STAGED) * 3)]
    name = draw(st.sampled_from(names))
    start, p = (f() for f in STAGED.get(name) or (PROGRAMS[name], PROGRAMS[name]))
    for _ in range(draw(st.integers(0, 6))):
        step = draw(st.sampled_from(DEVICE_NAMES))
        args, options = arguments(draw, p, step)
        try:
            p = getattr(p, step)(*args, **options)
        except SchedulingError:
            continue
    for buffer in p.allocated:
        if p.buffer(buffer).scope == "scratch":
            p = attempt(p, "set_scope", buffer, draw(st.sampled_from(["local", "shared", "warp"])))
            p = attempt(p, "shrink_buffer", buffer)
    for s in draw(st.permutations([s for s in p.statements() if isinstance(s, For)])):
        few = [*THREAD_AXES[:2], "vthread"] if s.extent.is_const else []
        axes = draw(st.permutations([*BLOCK_AXES[:2], *few]))
        for axis in axes[: draw(st.sampled_from([2, 5]))]:
            p = attempt(p, "bind", s.var, axis)
    return start, p


def attempt(p: Program, name: str, *args: Any) -> Program:
    """The program after a step, if it is legal."""
    try:
        return getattr(p, name)(*args)  # type: ignore[no-any-return]
    except SchedulingError:
        return p


@settings(max_examples=draws(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(device_schedules())
def test_random_launches_are_refused_or_keep_the_meaning(pair: tuple[Program, Program]) -> None:
    start, p = pair
    small = SMALL[len(start.function.sizes)]
    same(start, p, small)
    same_pipelined(start, p, small)
    if any(map(is_bound, p.statements())):
        try:
            device(p)
        except InvalidModelError:
            return
        same_on_device(start, p, small)
