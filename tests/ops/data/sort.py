"""Sorting and running reductions against torch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.ops.case import (
    FLOATS,
    INTS,
    Case,
    arg,
    extremes,
    few,
    numbers,
    positive,
    special,
    with_types,
)

SIZES = (
    {"m": 3, "n": 5, "k": 2},
    {"m": 1, "n": 1, "k": 1},
    {"m": 0, "n": 4, "k": 1},
    {"m": 2, "n": 0, "k": 3},
    {"m": 2, "n": 17, "k": 1},
)


def sort(x: np.ndarray, axis: int, descending: bool, stable: bool = True) -> Any:
    """By stable ranks: NumPy puts NaN last; descending reverses the keys, not the result."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    if descending:
        _, ranks = np.unique(wide, return_inverse=True, equal_nan=True)
        wide = -ranks.reshape(wide.shape)
    order = np.argsort(wide, axis=axis, kind="stable")
    return np.take_along_axis(x, order, axis), order


def topk(x: np.ndarray, k: int, axis: int, largest: bool, sorted: bool = True) -> Any:
    values, order = sort(x, axis, largest)
    return np.take(values, range(k), axis), np.take(order, range(k), axis)


def sort_cases() -> list[Case]:
    found: list[Case] = []
    for axis in range(3):
        for descending in (False, True):
            x = arg("f32", "m", "n", "k", fill=few)
            attrs = {"axis": axis, "descending": descending}
            base = Case("sort", (x,), sort, attrs, SIZES, note=f"{axis}{descending:d}", numpy=True)
            found += with_types(base, *((*FLOATS, "i64", "u8") if axis == 1 else ("f32",)))
            wild = arg("f32", "m", "n", "k", fill=special)
            found.append(
                Case(
                    "sort",
                    (wild,),
                    sort,
                    attrs,
                    SIZES,
                    note=f"special{axis}{descending:d}",
                    numpy=True,
                )
            )
    big = tuple(s for s in SIZES if s["n"] >= 4)
    for largest in (False, True):
        for k in (0, 1, 4):
            args = (arg("f32", "m", "n", "k", fill=few),)
            found.append(
                Case(
                    "topk",
                    args,
                    topk,
                    {"k": k, "axis": 1, "largest": largest},
                    big,
                    note=f"{k}{largest:d}",
                    numpy=True,
                )
            )
        args = (arg("i32", "m", "n"),)
        found.append(
            Case(
                "topk",
                args,
                topk,
                lambda d, g=largest: {"k": d("n"), "axis": 1, "largest": g},
                SIZES,
                note=f"all{largest:d}",
                numpy=True,
            )
        )
    return found


RUNNING = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


def running(op: str) -> Any:
    def oracle(x: np.ndarray, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
        wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
        wide = np.moveaxis(wide, axis, 0)
        wide = wide[::-1] if reverse else wide
        first: Any = {"cumsum": 0, "cumprod": 1, "cummax": -np.inf, "cummin": np.inf}[op]
        if x.dtype.kind in "iu" and op in ("cummax", "cummin"):
            limits = np.iinfo(x.dtype)
            first = limits.min if op == "cummax" else limits.max
        total = np.full(wide.shape[1:], first, wide.dtype)
        rows = []
        for row in wide:
            rows.append(total if exclusive else RUNNING[op](total, row))
            total = RUNNING[op](total, row)
        found = np.stack(rows) if rows else wide
        found = found[::-1] if reverse else found
        return np.moveaxis(found, 0, axis).astype(x.dtype)

    return oracle


def running_cases() -> list[Case]:
    found: list[Case] = []
    for op in RUNNING:
        for j in range(4):
            attrs = {"axis": j % 3, "exclusive": j % 2 == 1, "reverse": j > 1}
            fill = positive if op == "cumprod" else numbers
            base = Case(
                op,
                (arg("f32", "m", "n", "k", fill=fill),),
                running(op),
                attrs,
                SIZES,
                4,
                str(j),
                numpy=True,
            )
            found += with_types(base, *FLOATS)
            base = Case(
                op,
                (arg("i64", "m", "n", "k", fill=extremes),),
                running(op),
                attrs,
                SIZES,
                note=str(j),
                numpy=True,
            )
            found += with_types(base, *(INTS if j == 1 else ("i32",)))
    for op, fn in (("cummax", torch.cummax), ("cummin", torch.cummin)):
        args = (arg("f32", "m", "n", "k", fill=special),)
        found.append(
            Case(
                op,
                args,
                lambda x, axis, fn=fn: fn(x, axis).values,
                {"axis": 1},
                SIZES,
                note="special",
            )
        )
    for axis in range(3):
        for fill in (numbers, special):
            args = (arg("f32", "m", "n", "k", fill=fill),)
            note = f"{axis}{fill.__name__}"
            base = Case("logcumsumexp", args, summed, {"axis": axis}, SIZES, 4, note)
            found += with_types(base, *(FLOATS if axis == 1 else ("f32",)))
    return found


def summed(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.logcumsumexp(x.double(), axis).to(x.dtype)


CASES = [*sort_cases(), *running_cases()]
