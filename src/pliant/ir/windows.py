"""Windows of a reduction: how many elements they have, and which are small.

All elements of a small window on one channel are code, and what results side by side share of it
stays in registers (`schedule.recipes.windowed`).
"""

from __future__ import annotations

from math import prod
from typing import Final

from pliant.ir.expr import Cast, Const, Expr, Load, Select
from pliant.ir.tensor import Compute
from pliant.sym.expr import Int, as_int

SMALL: Final = 9  # elements
TILE: Final = 4  # results side by side, of which what they share stays in registers


def area(tensor: Compute) -> Int:
    """How many elements the tensor's reduction runs over."""
    return prod((a.extent for a in tensor.reduce_axes), start=as_int(1))


def loaded(image: Expr) -> Load | None:
    """What an element of a window is, also where it is a number beside the image, or converted."""
    match image:
        case Cast(_, a):
            return loaded(a)
        case Load():
            return image
        case Select(_, a, Const()):
            return None if isinstance(a, Select) else loaded(a)
    return None


def is_small(tensor: Compute) -> bool:
    """Whether they are known to be few."""
    elements = area(tensor)
    return elements.is_const and elements.value <= SMALL
