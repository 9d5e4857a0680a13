"""Replace a loop nest by a call to the intrinsic that computes the same.

for i, j, k in grid(14, 32, K):
    c[14*o + i, j] = c[14*o + i, j] + a[14*o + i, k] * b[k, j]
                                ->      gemm_14x32(c[14*o, 0], a[14*o, 0], b[0, 0], K, lda, …)
"""

from __future__ import annotations

from pliant.ir.expr import Index
from pliant.ir.node import Node
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import Invoke
from pliant.schedule.errors import SchedulingError
from pliant.schedule.match import Match, NoMatch, match_nest
from pliant.schedule.program import Program, primitive


@primitive
def tensorize(p: Program, loop: str, intrinsic: str) -> Program:
    """The nest from `loop` on becomes a call to one of the program's intrinsics, by name."""
    found = check_tensorize(p, loop, intrinsic)
    path = p.loop_path("tensorize", loop)
    known = p.intrinsics[intrinsic]
    values: dict[str, Node] = {b.name: found.address(b) for b in known.semantics.buffers}
    values |= {s: Index(found.sizes[s]) for s in known.semantics.sizes}
    args = tuple(values[name] for name in known.arguments or values)
    return p.with_body(replace_at(path, Invoke(known.callee, args)))


def check_tensorize(p: Program, loop: str, intrinsic: str) -> Match:
    """The nest computes what the intrinsic's semantics says, for some values of its sizes, which
    it can have, and places of its buffers. Gives these."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("tensorize", f"loop {loop}", reason)

    known = p.intrinsics.get(intrinsic)
    if known is None:
        raise refuse(f"the program has no intrinsic {intrinsic!r}")
    path = p.loop_path("tensorize", loop)
    facts = p.inside(path[:-1])
    try:
        found = match_nest(known.semantics, path[-1], facts, p.sizes)
    except NoMatch as error:
        raise refuse(f"it does not match {intrinsic}: {error}") from error
    for size, most in known.most:
        if not facts.le(found.sizes[size], most):
            raise refuse(f"{size} of {intrinsic} is {found.sizes[size]}, perhaps more than {most}")
    return found
