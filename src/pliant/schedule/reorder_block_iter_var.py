"""Put a block's iterators in another order.

with block("t", S(i, n), S(j, m)) as (a, b):        with block("t", S(j, m), S(i, n)) as (b, a):
    s(a, b)                                    ->       s(a, b)

Nothing runs otherwise than before. It is for what looks at iterators by their place: layouts over
them, the dimensions of copies (`reindex`), what an intrinsic is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import Block, Stmt
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive


@primitive
def reorder_block_iter_var(p: Program, block: str, order: Sequence[int]) -> Program:
    """Iterator `order[k]` becomes the k-th."""
    path = check_reorder_block_iter_var(p, block, order)
    target = path[-1]
    assert isinstance(target, Block)
    made = target.replace(
        iters=tuple(target.iters[d] for d in order),
        bindings=tuple(target.bindings[d] for d in order),
    )
    return p.with_body(replace_at(path, made))


def check_reorder_block_iter_var(p: Program, block: str, order: Sequence[int]) -> tuple[Stmt, ...]:
    """The order names each iterator once. Gives the block's path."""
    path = p.block_path("reorder_block_iter_var", block)
    target = path[-1]
    assert isinstance(target, Block)
    if sorted(order) != list(range(len(target.iters))):
        reason = f"{tuple(order)} is no order of its {len(target.iters)} iterators"
        raise SchedulingError("reorder_block_iter_var", f"block {block}", reason)
    return path
