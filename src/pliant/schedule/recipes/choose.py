"""Which recipe a kernel takes."""

from __future__ import annotations

import warnings
from dataclasses import replace

from pliant.base.settings import settings
from pliant.ir.tensor import Compute, Scan, Scatter
from pliant.lower.access import classify
from pliant.lower.canonical import Spec
from pliant.lower.row_facts import LARGE, NEAR
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.schedule.recipes.attention import attention_recipe
from pliant.schedule.recipes.contraction import contraction_recipe
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.schedule.recipes.patches import patches_recipe
from pliant.schedule.recipes.reduction import reduction_recipe
from pliant.schedule.recipes.row import row_recipe
from pliant.schedule.recipes.scan import scan_recipe
from pliant.schedule.recipes.scatter import scatter_recipe
from pliant.schedule.recipes.serial import serial_recipe
from pliant.schedule.recipes.windowed import windowed_order, windowed_recipe
from pliant.sym.expr import Int


def schedule(
    spec: Spec, lanes: int, mm: MatmulIntrinsic, large: int = LARGE, near: int = NEAR,
    *, pairs: bool = False,
) -> Program:  # fmt: skip
    """The schedule of a kernel, whose outputs go past the caches where they have `large` bytes, for
    a first cache of `near` bytes. `pairs`: the target adds up products of bf16 in pairs, lane by
    lane.

    A step whose legality cannot be proved is not taken: then the program runs as it is written,
    right but slow, and a warning says so. With PLIANT_CHECK that is an error.
    """
    try:
        return _by_recipe(spec, lanes, mm, large, near, pairs)
    except SchedulingError as error:
        if settings().check:
            raise
        what = " ".join(name for name, _ in spec.members)
        warnings.warn(
            f"a {spec.kind} kernel ({what}) runs as it is written, which is slow: {error}. "
            "Please report this with the folder that PLIANT_DUMP writes.",
            stacklevel=2,
        )
        return serial_recipe(spec)


def recipe_name(spec: Spec) -> str:
    """The recipe that a kernel takes."""
    if _is_empty(spec):
        return "serial"  # nothing to do but to start reductions of nothing
    if spec.kind == "reduction" and windowed_order(spec):
        return "windowed"
    if spec.kind == "serial" and len(spec.members) == 1:
        kind = classify(spec.members[0][1])
        return kind if kind in ("scan", "scatter") else "serial"
    return spec.kind


def _by_recipe(
    spec: Spec, lanes: int, mm: MatmulIntrinsic, large: int, near: int, pairs: bool
) -> Program:
    match recipe_name(spec):
        case "map":
            return map_recipe(spec, lanes, large, near)
        case "row":
            return row_recipe(spec, lanes, large, near)
        case "windowed":
            order = windowed_order(spec)
            assert order is not None
            spec = replace(spec, order=order)
            return windowed_recipe(spec, lanes, mm.rows * mm.columns // lanes, pairs=pairs)
        case "reduction":
            return reduction_recipe(spec, lanes, large)
        case "contraction":
            return contraction_recipe(spec, mm)
        case "attention":
            return attention_recipe(spec, lanes, mm)
        case "patches":
            return patches_recipe(spec, mm)
        case "scan":
            return scan_recipe(spec, lanes, large)
        case "scatter":
            return scatter_recipe(spec, lanes)
        case "serial":
            return serial_recipe(spec)
        case other:
            raise AssertionError(other)


def _is_empty(spec: Spec) -> bool:
    """Whether some stage runs over nothing, whatever the sizes."""
    extents: list[Int] = []
    for _, tensor in spec.members:
        if isinstance(tensor, Compute | Scan | Scatter):
            extents += [a.extent for a in tensor.axes]
        if isinstance(tensor, Compute):
            extents += [a.extent for a in tensor.reduce_axes]
        if isinstance(tensor, Scatter):
            extents += tensor.shape
    return any(x.is_const and x.value == 0 for x in extents)
