"""Convolutions of images of few channels, as a network's first one.

    y[i, j, o] = sum_c,r,s x[c, 2*i + r - 1, 2*j + s - 1] * w[c, r, s, o]            c < 3

The elements of a window lie in short runs, one for each channel and row: to multiply rows of them,
as of other contractions, they would have to be copied first, which takes longer than the product.
A reduction reads each where it lies and multiplies it with a vector of filters.
"""

from __future__ import annotations

from math import prod
from typing import Final

from pliant.base.dtypes import f32
from pliant.ir.expr import Binary, Expr, Load, Reduce, index_names
from pliant.ir.tensor import Compute
from pliant.ir.windows import loaded

MOST_CHANNELS: Final = 4
WIDEST: Final = 7  # of a window: in wider ones the runs are long
FILTERS: Final = 8  # fewer leave most of a vector empty


def filters_of(tensor: Compute) -> str:
    """The axis of the filters, if the tensor is such a convolution; empty if not."""
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum" or body.dtype is not f32:
        return ""
    match body.body:
        case Binary("mul", a, b):
            return _filters(tensor, a, b) or _filters(tensor, b, a)
    return ""


def _filters(tensor: Compute, image: Expr, weight: Expr) -> str:
    read = loaded(image)
    if read is None or not isinstance(weight, Load) or not read.indices:
        return ""
    outer = {a.var: a.extent for a in tensor.axes}
    summed = {a.var: a.extent for a in tensor.reduce_axes}
    if not all(x.is_const for x in summed.values()):
        return ""
    there = [index_names(i) for i in read.indices]
    own = [index_names(i) & outer.keys() for i in weight.indices]
    filters = frozenset[str]().union(*own)
    if len(filters) != 1 or any(names & filters for names in there):
        return ""
    (axis,) = filters
    if not outer[axis].is_const or outer[axis].value < FILTERS:
        return ""
    window = {v for names in there if names & outer.keys() for v in names & summed.keys()}
    along = there[-1] & summed.keys()
    if not along or not along <= window or len(along) != 1:
        return ""
    extents = {v: x.value for v, x in summed.items()}
    if extents[next(iter(along))] < 2 or max(extents[v] for v in window) > WIDEST:
        return ""
    channels = prod(x for v, x in extents.items() if v not in window)
    return axis if channels <= MOST_CHANNELS else ""
