"""Quotients by numbers of the model are products.

    y[i] = x[i] * min(max(x[i] + 3.0, 0.0), 6.0) / 6.0     ->     y[i] = … * 0.16666667

A processor divides a vector in the time of about ten products, and hard sigmoids and swishes have a
division for each element. Two roundings take the place of one. Numbers whose reciprocals are not
normal stay divisors: multiplied by such, what is finite would not be.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import f32, f64
from pliant.ir.expr import Binary, Const, Expr, const
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute
from pliant.lower.stages import Stages

TYPES: Final = (f32, f64)  # narrower ones would lose a bit that they miss


def multiply_by_reciprocals(s: Stages) -> None:
    """Rewrite in place."""
    for name, stage in s.stages.items():
        if isinstance(stage.tensor, Compute):
            body: Any = transform(stage.tensor.body, _product)
            if body is not stage.tensor.body:
                s.stages[name] = replace(stage, tensor=stage.tensor.replace(body=body))


def _product(node: Node) -> Node:
    match node:
        case Binary("div", a, Const() as b) if b.dtype in TYPES:
            inverse = _reciprocal(b)
            return node if inverse is None else Binary("mul", a, inverse)
    return node


def _reciprocal(number: Const) -> Expr | None:
    value, info = float(number.value), np.finfo(number.dtype.numpy)
    least, most = float(info.tiny), float(info.max)
    if not isfinite(value) or not least <= abs(value) <= most or 1 / abs(value) < least:
        return None
    return const(1 / value, number.dtype)
