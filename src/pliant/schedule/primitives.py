"""The table of schedule primitives, and the program that a schedule starts from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pliant.loop.stmt import Function
from pliant.schedule.add_unit_loop import add_unit_loop
from pliant.schedule.annotate import annotate, unannotate
from pliant.schedule.bind import bind
from pliant.schedule.blockize import blockize
from pliant.schedule.cache_index import cache_index
from pliant.schedule.cache_inplace import cache_inplace
from pliant.schedule.cache_read import cache_read
from pliant.schedule.cache_write import cache_write
from pliant.schedule.compute_at import compute_at
from pliant.schedule.compute_inline import compute_inline
from pliant.schedule.decompose_padding import decompose_padding
from pliant.schedule.decompose_reduction import decompose_reduction
from pliant.schedule.expand_pipeline import expand_pipeline
from pliant.schedule.fuse import fuse
from pliant.schedule.fuse_reduction_epilogue import fuse_reduction_epilogue
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.loop_partition import loop_partition
from pliant.schedule.mark import parallel, unroll, vectorize
from pliant.schedule.merge import merge
from pliant.schedule.name_size import name_size
from pliant.schedule.narrow import narrow
from pliant.schedule.pad_block import pad_block
from pliant.schedule.pad_einsum import pad_einsum
from pliant.schedule.phases_apart import phases_apart
from pliant.schedule.prefetch import prefetch
from pliant.schedule.program import Primitive, Program
from pliant.schedule.reduce_lanes import reduce_lanes
from pliant.schedule.reindex import reindex
from pliant.schedule.reindex_cache_read import reindex_cache_read
from pliant.schedule.reindex_cache_write import reindex_cache_write
from pliant.schedule.reorder import reorder
from pliant.schedule.reorder_block_iter_var import reorder_block_iter_var
from pliant.schedule.reverse_compute_at import reverse_compute_at
from pliant.schedule.reverse_compute_inline import reverse_compute_inline
from pliant.schedule.rfactor import rfactor
from pliant.schedule.rolling_buffer import rolling_buffer
from pliant.schedule.sample import (
    sample_categorical,
    sample_compute_location,
    sample_partitioned_tile,
    sample_perfect_tile,
)
from pliant.schedule.set_scope import set_scope
from pliant.schedule.shrink_buffer import shrink_buffer
from pliant.schedule.software_pipeline import software_pipeline
from pliant.schedule.split import split
from pliant.schedule.stage_operand import stage_operand
from pliant.schedule.start_with_term import start_with_term
from pliant.schedule.storage_align import storage_align
from pliant.schedule.store_in import store_in
from pliant.schedule.stream import stream
from pliant.schedule.sum_apart import sum_apart
from pliant.schedule.tensorize import tensorize
from pliant.schedule.transform_block_layout import transform_block_layout
from pliant.schedule.transform_layout import transform_layout
from pliant.sym.facts import Facts

PRIMITIVES: Final[Mapping[str, Primitive]] = {
    fn.__name__: fn
    for fn in (
        name_size,
        narrow,
        split,
        fuse,
        transform_block_layout,
        merge,
        reorder,
        reorder_block_iter_var,
        parallel,
        vectorize,
        stream,
        prefetch,
        unroll,
        bind,
        software_pipeline,
        expand_pipeline,
        add_unit_loop,
        annotate,
        unannotate,
        compute_inline,
        reverse_compute_inline,
        compute_at,
        reverse_compute_at,
        decompose_padding,
        decompose_reduction,
        fuse_reduction_epilogue,
        start_with_term,
        shrink_buffer,
        set_scope,
        transform_layout,
        storage_align,
        cache_read,
        cache_write,
        cache_inplace,
        cache_index,
        reindex,
        reindex_cache_read,
        reindex_cache_write,
        stage_operand,
        store_in,
        rfactor,
        rolling_buffer,
        reduce_lanes,
        loop_partition,
        pad_block,
        pad_einsum,
        sum_apart,
        phases_apart,
        blockize,
        tensorize,
        sample_categorical,
        sample_perfect_tile,
        sample_partitioned_tile,
        sample_compute_location,
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
