"""Scalars of a model that are numbers such as a definition itself might hold are part of it.

    weights: c = [6.0]                              c = full(shape=(1,), value=6.0, dtype=f32)
    y = clamp(x, None, c)                 ->        y = clamp(x, None, c)

Code that knows a bound, a scale or an exponent is simpler: what is not NaN need not be compared, a
product with 0.5 is exact. Kernels are made anew for each number, so only those count that several
layers are likely to share, and of many the most frequent; what was learned, or measured for a
quantisation (a scale, a zero point of 8 bits), stays a weight. What masks are made of is
plain, too: infinities, the extremes of a type, powers of ten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType
from pliant.graph.function import Binding, Function, Value

LARGEST: Final = 1024  # of plain numbers
FRACTION: Final = 64  # they are multiples of 1/64
WIDE: Final = 32  # bits of integers that are no zero points
MOST: Final = 64  # different numbers of a model


def plain_numbers(function: Function, weights: Mapping[str, Any]) -> Function:
    """The function with its plain scalars made by `full`. `weights` are the arrays by key."""
    bindings: list[Binding] = []
    kept: list[tuple[Value, str]] = []
    plain = [_plain(value, weights[key]) for value, key in function.weights]
    uses = Counter(x.name for b in function.bindings for x in b.operands())
    total: Counter[int | float] = Counter()
    for (value, _), number in zip(function.weights, plain, strict=True):
        if number is not None:
            total[number] += uses[value.name]
    often = {number for number, _ in total.most_common(MOST)}
    for (value, key), number in zip(function.weights, plain, strict=True):
        if number is None or number not in often:
            kept.append((value, key))
            continue
        attrs = (("dtype", value.dtype), ("shape", value.shape), ("value", number))
        bindings.append(Binding((value,), "full", (), attrs))
    return function.replace(bindings=(*bindings, *function.bindings), weights=tuple(kept))


def _plain(value: Value, array: Any) -> int | float | None:
    if any(n != 1 for n in value.shape):
        return None
    array = np.asarray(array).reshape(())
    if value.dtype.is_int:
        whole = int(array)
        return whole if value.dtype.bits >= WIDE and abs(whole) <= LARGEST else None
    if not value.dtype.is_float:
        return None
    number = float(array)
    if number == 0 and np.signbit(number):
        return None
    if abs(number) <= LARGEST:
        return number if (number * FRACTION).is_integer() else None
    return number if _of_masks(abs(number), value.dtype) else None


def _of_masks(number: float, dtype: DType) -> bool:
    """Whether a number above LARGEST is an infinity, the type's greatest, or a power of ten."""
    with np.errstate(over="ignore"):
        powers = np.asarray([10.0**k for k in range(4, 39)]).astype(dtype.numpy)
    greatest = np.nextafter(np.asarray(inf, dtype.numpy), np.zeros((), dtype.numpy))
    return number in (inf, float(greatest), *powers.astype(np.float64))
