"""Leave room between the rows of a buffer, so that they begin where it suits.

t = alloc(f32[n, 60])   ->   t = alloc(f32[n, 60], strides=(64, 1))

`storage_align("t", 0, 16)`: rows that begin at multiples of a vector's or a line's length. With an
offset, `storage_align("t", 0, 32, 1)`, they begin one element further each, so that what lies below
one another is in different sets of a cache, or banks of a memory.
"""

from __future__ import annotations

from pliant.loop.rewrite import path_to, replace_buffer
from pliant.loop.stmt import Alloc, Buffer
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive
from pliant.schedule.set_scope import fits_registers
from pliant.schedule.transform_layout import check_free_layout
from pliant.sym.expr import Int


@primitive
def storage_align(p: Program, buffer: str, axis: int, factor: int, offset: int = 0) -> Program:
    """The step from element to element along `axis`, in elements, becomes the next one up that is
    a multiple of `factor` and `offset` more. What arranges the buffer anew (`shrink_buffer`,
    `transform_layout`) makes it compact again: do this afterwards."""
    old = check_storage_align(p, buffer, axis, factor, offset)
    new = old.replace(strides=_aligned(old, axis, factor, offset))
    return p.with_body(replace_buffer(p.function.body, old, new, lambda at: at))


def check_storage_align(p: Program, buffer: str, axis: int, factor: int, offset: int) -> Buffer:
    """The function allocates the buffer, whose layout nothing but its indices depends on and
    which is compact from `axis` outwards; where it is in registers it still fits."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("storage_align", f"buffer {buffer}", reason)

    old = p.buffer(buffer)
    if path_to(p.function.body, lambda s: isinstance(s, Alloc) and s.buffer is old) is None:
        raise refuse("it is a parameter")
    check_free_layout(p, old, refuse)
    if not 0 <= axis < old.rank:
        raise refuse(f"it has no dimension {axis}")
    if factor < 1 or not 0 <= offset < factor:
        raise refuse(f"{offset} is no remainder of division by {factor}")
    for d in range(axis):
        if old.strides[d] is not old.strides[d + 1] * old.shape[d + 1]:
            raise refuse(f"dimension {d}, outside of {axis}, has a step of its own already")
    new = old.replace(strides=_aligned(old, axis, factor, offset))
    if old.scope == "register" and not fits_registers(new):
        raise refuse(f"with strides {list(new.strides)} it does not fit into registers")
    return old


def _aligned(memory: Buffer, axis: int, factor: int, offset: int) -> tuple[Int, ...]:
    strides = list(memory.strides)
    strides[axis] = strides[axis] + (offset - strides[axis]) % factor
    for d in reversed(range(axis)):
        strides[d] = strides[d + 1] * memory.shape[d + 1]
    return tuple(strides)
