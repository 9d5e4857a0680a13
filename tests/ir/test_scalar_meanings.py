"""One scalar at a time and whole arrays at once: operators mean the same, to the bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pliant.base.dtypes import DTYPES, DType, boolean
from pliant.base.errors import InvalidModelError
from pliant.ir import scalar, scalars
from pliant.ir.check import type_fault
from pliant.ir.expr import BINARY_OPS, UNARY_OPS, Binary, Unary, Var


def edges(dtype: DType) -> list[Any]:
    if dtype is boolean:
        return [np.False_, np.True_]
    values: list[float] = [0, 1, 2, 7, 100]
    if dtype.is_float:
        values += [-0.0, -1.5, np.inf, -np.inf, np.nan, 0.3, -2.5, 2.5]
    else:
        values += [dtype.min, dtype.max, *([-1, -7] if dtype.is_signed else [])]
    return [dtype.numpy.type(v) for v in values]


def same(op: str, a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype:
        return False
    if op in ("fmin", "fmax", "min", "max") and a == 0 and b == 0:
        return True  # of two zeros either may be taken
    if op == "sigmoid" and a.dtype == np.float64:
        return bool(np.isclose(a, b, rtol=1e-15, equal_nan=True))
    return bool(a != a and b != b) or a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_operators_agree(dtype: DType) -> None:
    x, y = Var("x", dtype), Var("y", dtype)
    with np.errstate(all="ignore"):
        for op in sorted(UNARY_OPS):
            try:
                if type_fault(Unary(op, x)):
                    continue
            except InvalidModelError:
                continue
            for a in edges(dtype):
                one = scalar.unary_operation(op, dtype)(a)
                assert same(op, one, scalars.unary(op, np.array([a]), dtype)[0]), (op, a)
        for op in sorted(BINARY_OPS):
            if type_fault(Binary(op, x, y)):
                continue
            for a, b in itertools.product(edges(dtype), repeat=2):
                try:
                    one = scalar.binary_operation(op, dtype)(a, b)
                except ZeroDivisionError:
                    continue
                many = scalars.binary(op, np.array([a]), np.array([b]), dtype)[0]
                assert same(op, one, many), (op, a, b)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_casts_agree(dtype: DType) -> None:
    with np.errstate(all="ignore"):
        for to, a in itertools.product(DTYPES.values(), edges(dtype)):
            one = scalar.cast(a, dtype, to)
            assert same("cast", one, scalars.converted(np.array([a]), dtype, to)[0]), (to, a)
