"""Write out a pipeline, so that what runs at one time can be scheduled together.

Before:

    @loop
    def squares(x: f32["n", 8], y: f32["n", 8], n: i64):
        for k in grid(n):
            s = alloc(f32[8])
            for a in grid(8):
                with block("s", S(k, n), S(a, 8)) as (i, j):
                    s[j] = x[i, j] * x[i, j]
            for b in grid(8):
                with block("y", S(k, n), S(b, 8)) as (i, j):
                    y[i, j] = s[-j + 7]

Steps:

    p = p.software_pipeline('k', (0, 1), (1, 0))
    p = p.expand_pipeline('k')

After:

    s = alloc(f32[8])
    if 0 < n:
        for a_p in grid(8):
            with block("s_p", S(0, n), S(a_p, 8)) as (i_p, j_p):
                s[j_p] = x[i_p, j_p] * x[i_p, j_p]
    for k in grid(max(0, n - 1)):
        for b in grid(8):
            with block("y", S(k, n), S(b, 8)) as (i, j):
                y[i, j] = s[-j + 7]
        for a in grid(8):
            with block("s", S(k + 1, n), S(a, 8)) as (i, j):
                s[j] = x[i, j] * x[i, j]
    if 0 < n:
        for b_p in grid(8):
            with block("y_p", S(n - 1, n), S(b_p, 8)) as (i_p_1, j_p_1):
                y[i_p_1, j_p_1] = s[-j_p_1 + 7]

The row that is stored and the one that is computed are different ones now: their loops can be
merged, so that stores and arithmetic happen at the same time.
"""

from __future__ import annotations

from pliant.loop.lower_pipeline import PIPELINE, written_out
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import For, Stmt
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive


@primitive
def expand_pipeline(p: Program, loop: str) -> Program:
    """The loop, which `software_pipeline` noted, as prologue, steady state and epilogue. The names
    of what it has stay with the steady state."""
    path = check_expand_pipeline(p, loop)
    target = path[-1]
    assert isinstance(target, For)
    made = written_out(target, p.names(), p.inside(path[:-1]), p.invoked)
    return p.with_body(replace_at(path, made))


def check_expand_pipeline(p: Program, loop: str) -> tuple[Stmt, ...]:
    """The loop has stages. Gives the path to it."""
    path = p.loop_path("expand_pipeline", loop)
    target = path[-1]
    assert isinstance(target, For)
    if PIPELINE not in dict(target.notes):
        reason = "it has no stages; software_pipeline gives it some"
        raise SchedulingError("expand_pipeline", f"loop {loop}", reason)
    return path
