"""Which recipe a kernel takes."""

from __future__ import annotations

from pliant.loop.stmt import Function
from pliant.lower.canonical import Spec
from pliant.schedule.recipes.contraction import contraction_recipe
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.schedule.recipes.reduction import reduction_kernel
from pliant.schedule.recipes.row import row_kernel
from pliant.schedule.recipes.serial import serial_recipe


def schedule(spec: Spec, lanes: int, mm: MatmulIntrinsic) -> Function:
    """The loop program of a kernel."""
    match spec.kind:
        case "map":
            return map_recipe(spec, lanes).function
        case "row":
            return row_kernel(spec, lanes)
        case "reduction":
            return reduction_kernel(spec, lanes)
        case "contraction":
            return contraction_recipe(spec, mm).function
        case "serial":
            return serial_recipe(spec).function
    raise AssertionError(spec.kind)
