"""Matrix products against torch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pliant.base.dtypes import DType
from tests.ops.case import FLOATS, INTS, Case, arg, extremes, with_types
from tests.sizes import Sizes

SIZES = (
    {"b": 2, "m": 3, "n": 5, "k": 7},
    {"b": 1, "m": 1, "n": 1, "k": 1},
    {"b": 3, "m": 0, "n": 2, "k": 4},
    {"b": 3, "m": 2, "n": 4, "k": 0},
    {"b": 1, "m": 17, "n": 31, "k": 64},
)
BATCHES = tuple(s | {"c": c} for s in SIZES for c in ((s["b"], 1) if s["b"] > 1 else (1, 3)))


def in_f64(fn: Any) -> Any:
    """The oracle in f64, rounded to the first operand's type."""

    def oracle(*xs: Any, **attrs: Any) -> torch.Tensor:
        wide = [x if x is None or not x.is_floating_point() else x.double() for x in xs]
        return fn(*wide, **attrs).to(xs[0].dtype)

    return oracle


def matmul_cases() -> list[Case]:
    shapes: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...] = (
        (("m", "k"), ("k", "n")),
        (("k",), ("k",)),
        (("k",), ("b", "k", "n")),
        (("b", "m", "k"), ("k",)),
        (("b", "m", "k"), ("b", "k", "n")),
        (("b", 1, "m", "k"), (4, "k", "n")),
        (("b", "m", "k"), ("c", "k", "n")),
    )
    found: list[Case] = []
    for i, (a, b) in enumerate(shapes):
        sizes = BATCHES if "c" in b else SIZES
        base = Case(
            "matmul",
            (arg("f32", *a), arg("f32", *b)),
            in_f64(torch.matmul),
            sizes=sizes,
            note=str(i),
            tol=4,
        )
        found += with_types(base, *(FLOATS if i in (0, 5) else ("f32",)))
    ints = Case(
        "matmul",
        (arg("i64", "b", "m", "k", fill=extremes), arg("i64", "k", "n", fill=extremes)),
        np.matmul,
        sizes=SIZES,
        numpy=True,
    )
    found += with_types(ints, *INTS)
    unequal = (arg("f32", "m", "k"), arg("f32", "l", "n"))
    found.append(
        Case(
            "matmul",
            unequal,
            torch.matmul,
            sizes=tuple(s | {"l": s["k"]} for s in SIZES),
            note="named-apart",
            tol=4,
        )
    )
    return found


def linear_cases() -> list[Case]:
    found: list[Case] = []
    for x in (("k",), ("m", "k"), ("b", "m", "k")):
        for bias in (None, arg("f32", "n")):
            note = f"{len(x)}{'b' if bias else ''}"
            base = Case(
                "linear",
                (arg("f32", *x), arg("f32", "n", "k"), bias),
                in_f64(functional.linear),
                sizes=SIZES,
                note=note,
                tol=4,
            )
            found += with_types(base, *FLOATS)
    return found


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> torch.Tensor:
    result = alpha * (a.T if trans_a else a) @ (b.T if trans_b else b)
    return result if c is None else result + beta * c


def gemm_cases() -> list[Case]:
    found: list[Case] = []
    for k, c in enumerate(
        (None, arg("f32", "n"), arg("f32", "m", 1), arg("f32"), arg("f32", 1, "n"))
    ):
        for ta in (False, True):
            for tb in (False, True):
                a = arg("f32", *(("k", "m") if ta else ("m", "k")))
                b = arg("f32", *(("n", "k") if tb else ("k", "n")))
                attrs = (
                    {"alpha": 0.5, "beta": 2.0, "trans_a": ta, "trans_b": tb}
                    if k
                    else {"trans_a": ta, "trans_b": tb}
                )
                base = Case("gemm", (a, b, c), in_f64(gemm), attrs, SIZES, 4, f"{k}{ta:d}{tb:d}")
                found += with_types(base, *(("f32", "f16", "bf16") if k == 1 else ("f32",)))
    factors = {"alpha": 0.5, "beta": 2.0}
    for a, b, c in (
        (arg("f32", 2, "m", "k"), arg("f32", 2, "k", "n"), arg("f32", "m", "n")),
        (arg("f32", "m", "k"), arg("f32", "k"), arg("f32", "m")),
    ):
        note = f"rank{len(a.dims)}"
        base = Case("gemm", (a, b, c), in_f64(gemm), factors, SIZES, 4, note)
        found += with_types(base, "f32", "bf16")
    return found


def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> np.ndarray:
    x, y = a.astype(np.int32), b.astype(np.int32)
    if a_zero is not None:
        z = a_zero.astype(np.int32)
        x = x - (z[:, None] if z.ndim == 1 and a.ndim > 1 else z)
    if b_zero is not None:
        y = y - b_zero.astype(np.int32)
    return np.asarray(x @ y)


def integer_cases() -> list[Case]:
    found: list[Case] = []
    a, b = arg("u8", "b", "m", "k", fill=extremes), arg("i8", "k", "n", fill=extremes)
    zeros: tuple[tuple[Any, Any], ...] = (
        (None, None),
        (arg("u8"), arg("i8")),
        (arg("u8", "m"), arg("i8", "n")),
        (arg("u8", 1), None),
    )
    for k, (za, zb) in enumerate(zeros):
        found.append(
            Case(
                "matmul_integer",
                (a, b, za, zb),
                matmul_integer,
                sizes=SIZES,
                note=str(k),
                numpy=True,
            )
        )
    return found


def groups(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, s: Sizes) -> Any:
    """Any of the groups, in any order."""
    return rng.integers(0, s["b"], shape).astype(dtype.numpy)


def matmul_of_groups(a: torch.Tensor, b: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    return torch.bmm(a[:, None], b[group.long()])[:, 0]


def group_cases() -> list[Case]:
    found: list[Case] = []
    for kind in ("i32", "i64", "u8"):
        args = (arg("f32", "m", "k"), arg("f32", "b", "k", "n"), arg(kind, "m", fill=groups))
        base = Case("matmul_of_groups", args, in_f64(matmul_of_groups), sizes=SIZES, note=kind)
        found += with_types(base, *(("f32", "f64", "bf16") if kind == "i64" else ("f32",)))
    return found


EINSUM: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...] = (
    ("mk,kn->mn", (("m", "k"), ("k", "n"))),
    ("ij,jk", (("m", "k"), ("k", "n"))),
    ("bij->bji", (("b", "m", "k"),)),
    ("ii->i", (("k", "k"),)),
    ("ii", (("k", "k"),)),
    ("i,j->ij", (("m",), ("n",))),
    ("ij->", (("m", "n"),)),
    ("bhid,bhjd->bhij", (("b", 2, "m", "k"), ("b", 2, "n", "k"))),
    ("...ij,...jk->...ik", (("b", 2, "m", "k"), (2, "k", "n"))),
    ("...ij,jk", (("b", "m", "k"), ("k", "n"))),
    ("i...->...", (("m", "n", "k"),)),
    ("ij,jk,kl->il", (("m", "k"), ("k", "n"), ("n", "b"))),
    (" b i j , b j k -> b i k ", (("b", "m", "k"), (1, "k", "n"))),
    ("bii->b", (("b", "k", "k"),)),
    ("ij,kl,jk,lm->im", (("m", "k"), ("n", "b"), ("k", "n"), ("b", 3))),
    ("bi,bj,bk->ijk", (("b", "m"), ("b", "k"), ("b", 2))),
    ("i,ij,j->", (("m",), ("m", "k"), ("k",))),
    ("...i,...j,ijk->...k", (("b", "m"), (1, "n"), ("m", "n", 3))),
)


def einsum(xs: Any, equation: str) -> torch.Tensor:
    return torch.einsum(equation.replace(" ", ""), *[x.double() for x in xs]).to(xs[0].dtype)


def einsum_cases() -> list[Case]:
    found: list[Case] = []
    for k, (equation, shapes) in enumerate(EINSUM):
        args = (tuple(arg("f32", *s) for s in shapes),)
        base = Case("einsum", args, einsum, {"equation": equation}, SIZES, 8, str(k))
        found += with_types(base, *(("f32", "f16", "bf16") if k == 7 else ("f32",)))
    return found


CASES = [
    *matmul_cases(), *linear_cases(), *gemm_cases(), *integer_cases(), *group_cases(),
    *einsum_cases(),
]  # fmt: skip
