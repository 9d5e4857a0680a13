"""Random steps on small programs: each is refused, or keeps the meaning."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.loop.stmt import Alloc, For
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.program import Program
from pliant.schedule.sample import INLINE, STAY
from pliant.sym.expr import Int, var
from tests.schedule.programs import PROGRAMS, same

SMALL = {
    1: [(0,), (1,), (6,), (9,)],
    2: [(0, 3), (3, 0), (1, 1), (5, 6), (2, 9)],
    3: [(0, 2, 3), (2, 3, 0), (1, 1, 1), (5, 6, 3)],
}
PACKED = layout(lambda i, j: (j // 4, i, j % 4))
NAMES = (
    "split split split reorder reorder fuse parallel vectorize unroll compute_inline "
    "reverse_compute_inline compute_at compute_at reverse_compute_at shrink_buffer cache_read "
    "cache_write decompose_reduction rfactor reduce_lanes partition blockize add_unit_loop "
    "set_scope pad_block merge merge transform_block stage_operand cache_index "
    "name_size sample_categorical sample_compute_location sample_partitioned_tile "
    "sample_perfect_tile store_in tensorize tensorize"
).split()


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
            size = st.sampled_from([1, 2, 3, 4, 8, var("n") + 1, *sampled])
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
        case "parallel" | "vectorize" | "unroll" | "rfactor" | "blockize" | "add_unit_loop":
            return (loop,), {}
        case "transform_block":
            rank = len(p.block(block).iters) if p.blocks else 0
            at = [var(f"_{d}") for d in range(rank)]
            fused = [at[0] * p.block(block).iters[1].extent + at[1], *at[2:]] if rank > 1 else at
            return (block, draw(st.sampled_from([tuple(reversed(at)), tuple(fused)]))), {}
        case "stage_operand":
            return (block, draw(st.sampled_from(buffers))), {}
        case "cache_index":
            *table, along = around or ["none"]
            first = draw(st.integers(0, max(len(table) - 1, 0)))
            at_loop = table[first] if table else along
            inner = tuple(draw(st.permutations(table[first + 1 :])))
            return (block, draw(st.sampled_from(buffers)), at_loop, along, inner), {}
        case "compute_at" | "reverse_compute_at":
            return (block, loop), {}
        case "decompose_reduction":
            return (block, draw(st.sampled_from(around or ["none"]))), {}
        case "shrink_buffer":
            return (draw(st.sampled_from(inside or ["none"])),), {}
        case "set_scope":
            return (
                draw(st.sampled_from(buffers)),
                draw(st.sampled_from(["register", "scratch"])),
            ), {}
        case "cache_read":
            how = draw(st.sampled_from([None, PACKED]))
            pad = draw(st.sampled_from([None, 0.0]))
            return (block, draw(st.sampled_from(buffers))), {"layout": how, "pad": pad}
        case "name_size":
            size = draw(st.sampled_from(sorted(p.sizes) or ["none"]))
            return (f"{size}_named", draw(st.sampled_from([var(size) // 2, var(size) + 1]))), {}
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
        case "partition":
            return (loop, draw(st.sampled_from([0, 1, var("n") // 4, var("n") // 2]))), {}
    return (block,), {}


@st.composite
def schedules(draw: Any) -> tuple[Program, Program]:
    """A program, and what random steps made of it."""
    start = p = PROGRAMS[draw(st.sampled_from(sorted(PROGRAMS)))]()
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(NAMES))
        args, options = arguments(draw, p, name)
        try:
            p = getattr(p, name)(*args, **options)
        except SchedulingError:
            continue
    return start, p


@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedules())
def test_random_steps_keep_the_meaning(pair: tuple[Program, Program]) -> None:
    start, p = pair
    same(start, p, SMALL[len(start.function.sizes)])
