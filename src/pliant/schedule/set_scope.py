"""Say where a buffer of the function's own lives.

Before:

    @loop
    def two(x: f32[16, "n"], u: f32["n"], n: i64):
        for j in grid(n):
            t = alloc(f32[16], scope="scratch")
            for i in grid(16):
                with block("t", S(i, 16)) as (a,):
                    t[a] = x[a, j] * 2.0
            with block("u", S(j, n)) as (b,):
                u[b] = t[0] + t[1]

Steps:

    p = p.set_scope('t', 'register')

After:

    for j in grid(n):
        t = alloc(f32[16])
        for i in grid(16):
            with block("t", S(i, 16)) as (a,):
                t[a] = x[a, j] * 2.0
        with block("u", S(j, n)) as (b,):
            u[b] = t[0] + t[1]
"""

from __future__ import annotations

from typing import Final, Literal

from pliant.loop.rewrite import replace_buffer
from pliant.loop.stmt import Alloc, Buffer
from pliant.loop.threads import MEMORY_SCOPES
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive

# A register tile of 14 x 32 floats takes 1792 bytes, one of matrix units 4096.
REGISTER_BYTES: Final = 8192

InnerScope = Literal[
    "register", "scratch", "local", "warp", "shared", "global",
    "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator",
]  # fmt: skip


@primitive
def set_scope(p: Program, buffer: str, scope: InnerScope) -> Program:
    """The buffer is kept in registers, where that can be done, in memory of the thread, or in
    memory that the threads of a launch share (loop/threads.py)."""
    old = check_set_scope(p, buffer, scope)
    body = replace_buffer(p.function.body, old, old.replace(scope=scope), lambda at: at)
    return p.with_body(body)


def check_set_scope(p: Program, buffer: str, scope: str) -> Buffer:
    """The function allocates the buffer; registers need a constant shape and few bytes."""
    old = p.buffer(buffer)
    place = f"buffer {buffer}"
    if not any(isinstance(s, Alloc) and s.buffer is old for s in p.statements()):
        raise SchedulingError("set_scope", place, "it is a parameter")
    require_scope("set_scope", old.replace(scope=scope))
    return old


def require_scope(primitive: str, made: Buffer) -> None:
    """Refuses a buffer of a scope that there is not, or in registers that it does not fit."""
    place = f"buffer {made.name}"
    if made.scope not in MEMORY_SCOPES:
        raise SchedulingError(primitive, place, f"there is no scope {made.scope!r}")
    if made.scope == "register" and not fits_registers(made):
        size = f"its shape {list(made.shape)} is not constant or takes over {REGISTER_BYTES} bytes"
        raise SchedulingError(primitive, place, size)


def fits_registers(buffer: Buffer) -> bool:
    """Whether shape and strides are constant, and the bytes that they take few."""
    fixed = all(x.is_const for x in (*buffer.shape, *buffer.strides))
    return fixed and buffer.room.value * buffer.dtype.bytes <= REGISTER_BYTES
