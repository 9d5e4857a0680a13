"""Gathers and scatters against torch, NumPy and the ONNX reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

from tests.ops.case import FLOATS, Case, arg, index_of, permutation_of, with_types

SIZES = (
    {"m": 3, "n": 5, "k": 4, "i": 2, "j": 3},
    {"m": 1, "n": 1, "k": 1, "i": 1, "j": 1},
    {"m": 6, "n": 2, "k": 0, "i": 3, "j": 2},
    {"m": 4, "n": 7, "k": 2, "i": 0, "j": 2},
)
X = arg("f32", "m", "n", "k")


def gather_cases() -> list[Case]:
    found = []
    for axis, extent in enumerate("mnk"):
        sizes = tuple(s for s in SIZES if s[extent])
        for shape in ((), ("i",), ("i", "j")):
            at = arg("i64", *shape, fill=index_of(extent, negative=True))
            base = Case(
                "gather",
                (X, at),
                lambda x, i, axis: np.take(x, i, axis),
                {"axis": axis},
                sizes,
                note=f"{axis}{len(shape)}",
                numpy=True,
            )
            found += with_types(base, "f32", "i32", "bool", "bf16") if len(shape) == 1 else [base]
    for kind in ("i32", "i64", "u8", "i16"):
        at = arg(kind, "i", "j", fill=index_of("m"))
        found.append(
            Case(
                "embedding",
                (arg("f32", "m", "k"), at),
                lambda w, i: w[i],
                sizes=SIZES,
                note=kind,
                numpy=True,
            )
        )
    return found


def gather_elements(x: torch.Tensor, i: torch.Tensor, axis: int) -> torch.Tensor:
    n = x.shape[axis]
    return torch.gather(x, axis, torch.where(i < 0, i + n, i).long())


REDUCTIONS = {"none": None, "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_elements(x: Any, i: Any, u: Any, axis: int, reduction: str = "none") -> torch.Tensor:
    i = torch.where(i < 0, i + x.shape[axis], i)
    how = REDUCTIONS[reduction]
    if how is None:
        return torch.scatter(x, axis, i, u)
    return torch.scatter_reduce(x, axis, i, u, how)


def element_cases() -> list[Case]:
    found = []
    for axis, extent in enumerate("mnk"):
        sizes = tuple(s for s in SIZES if s[extent])
        dims: list[Any] = ["m", "n", "k"]
        at = arg("i64", *dims, fill=index_of(extent, negative=True))
        found.append(
            Case("gather_elements", (X, at), gather_elements, {"axis": axis}, sizes, note=str(axis))
        )
        longer = [d if a != axis else "j" for a, d in enumerate(dims)]
        at = arg("i32", *longer, fill=index_of(extent))
        found.append(
            Case(
                "gather_elements",
                (X, at),
                gather_elements,
                {"axis": axis},
                sizes,
                note=f"{axis}-longer",
            )
        )
        at = arg("i64", *dims, fill=index_of(extent))
        for how in ("add", "mul", "max", "min"):
            base = Case(
                "scatter_elements",
                (X, at, X),
                scatter_elements,
                {"axis": axis, "reduction": how},
                sizes,
                8,
                f"{axis}{how}",
            )
            found += with_types(base, *(("f32", "f64", "i64") if axis == 1 else ("f32",)))
    last = arg("i64", "m", "n", fill=permutation_of("n"))
    for update in (arg("f32", "m", "n"), arg("f32", "m", "n + 2")):
        base = Case(
            "scatter_elements",
            (arg("f32", "m", "n"), last, update),
            scatter_elements,
            {"axis": 1},
            SIZES,
            note=f"set{len(str(update.dims))}",
        )
        found += with_types(base, *FLOATS)
    return found


def onnx_oracle(op: str, **fixed: Any) -> Any:
    def oracle(*xs: np.ndarray, **attrs: Any) -> np.ndarray:
        names = [f"x{k}" for k in range(len(xs))]
        node = onnx.helper.make_node(op, names, ["y"], **fixed, **attrs)
        info = onnx.helper.make_tensor_value_info
        kinds = [onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in xs]
        ins = [info(n, k, None) for n, k in zip(names, kinds, strict=True)]
        graph = onnx.helper.make_graph([node], "g", ins, [info("y", kinds[0], None)])
        found = ReferenceEvaluator(onnx.helper.make_model(graph)).run(
            None, dict(zip(names, xs, strict=True))
        )
        return np.asarray(found[0])

    return oracle


def tuples(*extents: str | int) -> Any:
    """Legal index tuples in the last dimension."""

    def fill(rng: Any, shape: Any, dtype: Any, sizes: Any) -> np.ndarray:
        columns = [index_of(e)(rng, shape[:-1], dtype, sizes) for e in extents]
        return np.stack(columns, -1).astype(dtype.numpy)

    return fill


def nd_cases() -> list[Case]:
    some = tuple(s for s in SIZES if s["k"] and s["i"])
    found = [
        Case(
            "gather_nd",
            (X, arg("i64", "i", "j", 1, fill=tuples("m"))),
            onnx_oracle("GatherND"),
            {"batch_dims": 0},
            some,
            note="1",
            numpy=True,
        ),
        Case(
            "gather_nd",
            (X, arg("i64", "i", 2, fill=tuples("m", "n"))),
            onnx_oracle("GatherND"),
            {"batch_dims": 0},
            some,
            note="2",
            numpy=True,
        ),
        Case(
            "gather_nd",
            (X, arg("i64", 3, fill=tuples("m", "n", "k"))),
            onnx_oracle("GatherND"),
            {"batch_dims": 0},
            some,
            note="3",
            numpy=True,
        ),
        Case(
            "gather_nd",
            (X, arg("i64", "m", "j", 1, fill=tuples("n"))),
            onnx_oracle("GatherND"),
            {"batch_dims": 1},
            some,
            note="batch",
            numpy=True,
        ),
    ]
    for how in ("add", "mul", "max", "min"):
        found.append(
            Case(
                "scatter_nd",
                (X, arg("i64", "i", 1, fill=tuples("m")), arg("f32", "i", "n", "k")),
                onnx_oracle("ScatterND"),
                {"reduction": how},
                some,
                4,
                f"1{how}",
                numpy=True,
            )
        )
        found.append(
            Case(
                "scatter_nd",
                (X, arg("i64", "i", "j", 2, fill=tuples("m", "n")), arg("f32", "i", "j", "k")),
                onnx_oracle("ScatterND"),
                {"reduction": how},
                some,
                4,
                f"2{how}",
                numpy=True,
            )
        )
    found.append(
        Case(
            "scatter_nd",
            (X, arg("i64", 1, 1, fill=tuples("m")), arg("f32", 1, "n", "k")),
            onnx_oracle("ScatterND"),
            {"reduction": "none"},
            some,
            note="set",
            numpy=True,
        )
    )
    return found


def index(x: Any, indices: Any) -> Any:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def index_put(x: Any, value: Any, indices: Any, accumulate: bool) -> Any:
    x, at = x.copy(), tuple(slice(None) if i is None else i for i in indices)
    if accumulate:
        np.add.at(x, at, value)
    else:
        x[at] = value
    return x


def index_cases() -> list[Case]:
    def at(extent: str, *dims: Any) -> Any:
        return arg("i64", *dims, fill=index_of(extent, negative=True))

    some = tuple(s for s in SIZES if s["k"])
    choices: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
        "first": ((at("m", "i"),), ("i", "n", "k")),
        "second": ((None, at("n", "i")), ("m", "i", "k")),
        "adjacent": ((None, at("n", "i", 1), at("k", "j")), ("m", "i", "j")),
        "apart": ((at("m", "i"), None, at("k", "i")), ("i", "n")),
        "all": ((at("m", "i", "j"), at("n", "j"), at("k")), ("i", "j")),
        "last": ((None, None, at("k", "i", "j")), ("m", "n", "i", "j")),
    }
    found = []
    for note, (indices, result) in choices.items():
        found.append(Case("index", (X, indices), index, sizes=some, note=note, numpy=True))
        for value, kind in (
            (arg("f32", *result), ""),
            (arg("f32"), "-scalar"),
            (arg("f32", result[-1]), "-row"),
        ):
            args = (X, value, indices)
            found.append(
                Case(
                    "index_put",
                    args,
                    index_put,
                    {"accumulate": True},
                    some,
                    4,
                    note + kind,
                    numpy=True,
                )
            )
        found.append(
            Case(
                "index_put",
                (X, arg("f32"), indices),
                index_put,
                {"accumulate": False},
                some,
                note=note + "-set",
                numpy=True,
            )
        )
    return found


def mask_cases() -> list[Case]:
    found: list[Case] = []
    for k, dims in enumerate((("m", "n", "k"), ("n", 1), ("k",), ())):
        base = Case(
            "masked_fill",
            (X, arg("bool", *dims), arg("f32")),
            torch.masked_fill,
            sizes=SIZES,
            note=str(k),
        )
        found += with_types(base, *FLOATS, "i64", "bool")[: 6 if k == 0 else 1]
    return found


CASES = [*gather_cases(), *element_cases(), *nd_cases(), *index_cases(), *mask_cases()]
