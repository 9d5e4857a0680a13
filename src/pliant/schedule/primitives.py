"""The table of schedule primitives, and the program that a schedule starts from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pliant.loop.stmt import Function
from pliant.schedule.add_unit_loop import add_unit_loop
from pliant.schedule.blockize import blockize
from pliant.schedule.cache_index import cache_index
from pliant.schedule.cache_read import cache_read
from pliant.schedule.cache_write import cache_write
from pliant.schedule.compute_at import compute_at
from pliant.schedule.compute_inline import compute_inline
from pliant.schedule.decompose_reduction import decompose_reduction
from pliant.schedule.fuse import fuse
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.mark import parallel, unroll, vectorize
from pliant.schedule.merge import merge
from pliant.schedule.name_size import name_size
from pliant.schedule.pad_block import pad_block
from pliant.schedule.partition import partition
from pliant.schedule.program import Primitive, Program
from pliant.schedule.reduce_lanes import reduce_lanes
from pliant.schedule.reindex import reindex
from pliant.schedule.reindex_cache_read import reindex_cache_read
from pliant.schedule.reindex_cache_write import reindex_cache_write
from pliant.schedule.reorder import reorder
from pliant.schedule.reverse_compute_at import reverse_compute_at
from pliant.schedule.reverse_compute_inline import reverse_compute_inline
from pliant.schedule.rfactor import rfactor
from pliant.schedule.set_scope import set_scope
from pliant.schedule.shrink_buffer import shrink_buffer
from pliant.schedule.split import split
from pliant.schedule.stage_operand import stage_operand
from pliant.schedule.store_in import store_in
from pliant.schedule.tensorize import tensorize
from pliant.schedule.transform_block_layout import transform_block_layout
from pliant.schedule.transform_layout import transform_layout
from pliant.sym.facts import Facts

PRIMITIVES: Final[Mapping[str, Primitive]] = {
    fn.__name__: fn
    for fn in (
        name_size,
        split,
        fuse,
        transform_block_layout,
        merge,
        reorder,
        parallel,
        vectorize,
        unroll,
        add_unit_loop,
        compute_inline,
        reverse_compute_inline,
        compute_at,
        reverse_compute_at,
        decompose_reduction,
        shrink_buffer,
        set_scope,
        transform_layout,
        cache_read,
        cache_write,
        cache_index,
        reindex,
        reindex_cache_read,
        reindex_cache_write,
        stage_operand,
        store_in,
        rfactor,
        reduce_lanes,
        partition,
        pad_block,
        blockize,
        tensorize,
    )
}


def program(
    function: Function,
    facts: Facts | None = None,
    *,
    primitives: Mapping[str, Primitive] = PRIMITIVES,
    intrinsics: Iterable[Intrinsic] = (),
) -> Program:
    """A program to schedule. `facts` tell about the sizes; without any they are at least 0."""
    if facts is None:
        facts = Facts()
        for size in function.sizes:
            facts.declare(size)
    return Program(function, facts, primitives, {i.name: i for i in intrinsics})
