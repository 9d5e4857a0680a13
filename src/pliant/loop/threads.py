"""Thread axes and the memory of threads: what a program for many threads may look like.

    for b in blockIdx.x(m):                     blocks of threads; nothing orders one and another
        s = alloc(f32[32], scope="shared")      one for each block
        for t in threadIdx.x(32):               the threads of a block
            s[t] = x[32*b + t]
        for u in threadIdx.x(32):               comes when all threads have done what is before it
            y[32*b + u] = s[31 - u]

As written by a schedule, such a loop is one whose iterations do not depend on each other (or which
a reduction runs over): the next statement begins when all are done. A *launch* is an outermost
bound loop with what is in it: a kernel of the device. In it

    an axis has one extent, known before the launch, so several loops can be the same threads;
    loops of blocks stand in one another with nothing but allocations between, outside of threads;
    a loop of threads is not inside one of the same axis, nor in a block or a `while`;
    `vthread` loops are iterations of a thread that a code generator may interleave.

`lower_threads` makes the *device form* of it (`@device`): a launch has one loop for each axis, z, y
and x of the threads from the outside inwards, all that threads do is inside, and `barrier()` says
where they wait. There the threads run at the same time (`interpret_threads`).

Scopes, and who sees what is in such memory:

    shared                        the threads of a block, when they have met at a barrier since
    warp, wmma.matrix_a, …_b,     the threads of one row, of equal threadIdx.y and .z, which are at
    wmma.accumulator              most a warp (of 32); they meet at `barrier("warp")`
    local, register, scratch      the thread
    global and parameters         all; within a launch only threads of one block can meet
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pliant.loop.outline import outline
from pliant.loop.stmt import Alloc, Barrier, Block, For, Function, Stmt, While
from pliant.sym.expr import Int

BLOCK_AXES: Final = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES: Final = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VIRTUAL: Final = "vthread"
REAL_AXES: Final = (*BLOCK_AXES, *THREAD_AXES)
AXES: Final = (*REAL_AXES, VIRTUAL)
DEVICE_NOTE: Final = ("level", "device")  # first note of a function in device form
WARP: Final = 32
FENCES: Final = ("block", "warp")  # scopes of barriers

WARP_SCOPES: Final = ("warp", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
_THREAD_SCOPES: Final = ("local", "register", "scratch")
# What a schedule can say of a buffer: see above, and loop/stmt.py for register and scratch.
MEMORY_SCOPES: Final = (*_THREAD_SCOPES, "shared", *WARP_SCOPES, "global")


def is_bound(s: Stmt) -> bool:
    """Whether it is a loop over a thread axis."""
    return isinstance(s, For) and s.kind in AXES


def is_device(f: Function) -> bool:
    """Whether the function is in device form: its threads run at the same time."""
    return f.notes[:1] == (DEVICE_NOTE,)


def private_axes(scope: str) -> tuple[str, ...]:
    """The axes along which each iteration has memory of its own."""
    if scope in _THREAD_SCOPES:
        return REAL_AXES
    if scope in WARP_SCOPES:
        return (*BLOCK_AXES, "threadIdx.y", "threadIdx.z")
    return BLOCK_AXES if scope == "shared" else ()


def thread_fault(f: Function) -> tuple[Stmt, str] | None:
    """The first statement that breaks a rule above, and what is wrong; None if there is none."""
    if not any(is_bound(s) or isinstance(s, Barrier) for s in outline(f.body).statements):
        return None
    return _Rules(is_device(f)).fault(f.body, _Here())


@dataclass(frozen=True)
class _Here:
    """What is around a statement."""

    axes: tuple[str, ...] = ()  # of the loops around, in the launch
    inside: frozenset[str] = frozenset()  # variables of the launch
    blocks: bool = True  # whether nothing but loops of blocks (in device form: bound ones) and
    # allocations is around
    never: str = ""  # why no bound loop and no barrier can be here
    extents: dict[str, Int] = field(default_factory=dict)  # by axis, of the launch
    seen: list[str] = field(default_factory=list)  # axes with a loop in the launch


class _Rules:
    def __init__(self, device: bool) -> None:
        self.device = device

    def fault(self, s: Stmt, here: _Here) -> tuple[Stmt, str] | None:
        why = ""
        if isinstance(s, For) and s.kind in AXES:
            if not here.axes:
                here = replace(here, extents={}, seen=[])
            why = self._bound(s, here)
        elif isinstance(s, Barrier):
            why = self._barrier(s, here)
        elif isinstance(s, Alloc) and self.device:
            seen = [a for a in here.axes if a not in private_axes(s.buffer.scope)]
            if seen:
                why = (
                    f"{s.buffer.name}, in {s.buffer.scope} memory, is allocated inside a loop of "
                    f"{seen[0]}, whose threads share it"
                )
        elif isinstance(s, For) and s.kind == "parallel" and here.axes:
            why = f"the parallel loop {s.var} is inside a loop bound to {here.axes[-1]}"
        if why:
            return s, why
        inner = self._enter(s, here)
        for child in s.children():
            found = self.fault(child, inner) if isinstance(child, Stmt) else None
            if found is not None:
                return found
        return None

    def _enter(self, s: Stmt, here: _Here) -> _Here:
        match s:
            case For() if s.kind in AXES:
                here.extents[s.kind] = s.extent
                here.seen.append(s.kind)
                chain = here.blocks and (s.kind in BLOCK_AXES or self.device)
                inside = here.inside | {s.var}
                return replace(here, axes=(*here.axes, s.kind), inside=inside, blocks=chain)
            case For() if s.kind in ("parallel", "vectorized"):
                return replace(here, never=f"inside the {s.kind} loop {s.var}")
            case Block():
                inside = here.inside | {i.var for i in s.iters}
                return replace(here, never=f"inside block {s.name}", inside=inside)
            case While():
                return replace(here, never="inside a while loop", blocks=not here.axes)
        if isinstance(s, Alloc) or not here.axes:
            return here
        inside = here.inside | ({s.var} if isinstance(s, For) else set())
        return replace(here, blocks=False, inside=inside)

    def _bound(self, s: For, here: _Here) -> str:
        what = f"loop {s.var}, bound to {s.kind},"
        if here.never:
            return f"{what} is {here.never}"
        unknown = sorted(s.extent.names & here.inside)
        if unknown:
            return f"the extent {s.extent} of {what} depends on {', '.join(unknown)} in its launch"
        if s.kind == VIRTUAL:
            if self.device:
                return f"{what} is no thread of the device"
            return "" if s.extent.is_const else f"{what} has an extent that is not a number"
        if s.kind in THREAD_AXES and s.extent.is_const and s.extent.value < 1:
            return f"{what} has no threads: others of the launch would not run either"
        if s.kind in here.axes:
            return f"{what} is inside another loop of that axis"
        known = here.extents.get(s.kind, s.extent)
        if known is not s.extent:
            return f"{what} has the extent {s.extent}, and another loop of that axis {known}"
        if (s.kind in BLOCK_AXES or self.device) and here.axes and not here.blocks:
            return f"{what} is not the only thing in the loops of the launch around it"
        if s.kind in here.seen and (self.device or s.kind in BLOCK_AXES):
            return f"{what} is not the only one of that axis in its launch"
        late = THREAD_AXES.index(s.kind) if s.kind in THREAD_AXES else len(THREAD_AXES)
        if self.device and any(x in THREAD_AXES[: late + 1] for x in here.axes):
            return f"{what} is inside one of {here.axes[-1]}"
        return ""

    def _barrier(self, s: Barrier, here: _Here) -> str:
        if s.scope not in FENCES:
            return f"there is no barrier {s.scope!r}"
        if not self.device:
            return "a barrier is only in programs in device form (@device)"
        if here.never:
            return f"a barrier is {here.never}"
        if not any(x in THREAD_AXES for x in here.axes):
            return "a barrier is outside of the loops of threads"
        return ""
