"""Which recipe a kernel takes."""

from __future__ import annotations

from pliant.ir.tensor import Compute
from pliant.loop.stmt import Function
from pliant.lower.canonical import Spec
from pliant.schedule.recipes.contraction import contraction_recipe
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.schedule.recipes.reduction import reduction_recipe
from pliant.schedule.recipes.row import row_recipe
from pliant.schedule.recipes.serial import serial_recipe


def schedule(spec: Spec, lanes: int, mm: MatmulIntrinsic) -> Function:
    """The loop program of a kernel."""
    if _is_empty(spec):
        return serial_recipe(spec).function  # nothing to do but to start reductions of nothing
    match spec.kind:
        case "map":
            return map_recipe(spec, lanes).function
        case "row":
            return row_recipe(spec, lanes).function
        case "reduction":
            return reduction_recipe(spec, lanes).function
        case "contraction":
            return contraction_recipe(spec, mm).function
        case "serial":
            return serial_recipe(spec).function
    raise AssertionError(spec.kind)


def _is_empty(spec: Spec) -> bool:
    """Whether some stage runs over nothing, whatever the sizes."""
    axes = [a for _, t in spec.members if isinstance(t, Compute) for a in (*t.axes, *t.reduce_axes)]
    return any(a.extent.is_const and a.extent.value == 0 for a in axes)
