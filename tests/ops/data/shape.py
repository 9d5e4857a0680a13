"""Operators that move elements, against torch and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

from tests.ops.case import Case, arg, with_types

SIZES = (
    {"m": 2, "n": 3, "k": 4},
    {"m": 1, "n": 1, "k": 1},
    {"m": 0, "n": 2, "k": 3},
    {"m": 5, "n": 7, "k": 2},
)
X = arg("f32", "m", "n", "k")


def of(op: str, oracle: Any, attrs: Any, note: str = "", x: Any = X, sizes: Any = SIZES) -> Case:
    return Case(op, (x,), oracle, attrs, sizes, note=note)


RESHAPES: tuple[tuple[str, tuple[str | int, ...], tuple[str | int, ...]], ...] = (
    ("merge", ("m", "n", "k"), ("m*n", "k")),
    ("flat", ("m", "n", "k"), ("m*n*k",)),
    ("split", ("m", "12*n", "k"), ("m", "n", 12, "k")),
    ("split-inner", ("m", "n", 12), ("m", "n", 3, 4)),
    ("regroup", ("m", "4*n", 6), ("m", "n", 8, 3)),
    ("ones", ("m", 1, "n", "k"), ("m", "n", 1, 1, "k", 1)),
    ("swap-like", ("m", "n"), ("n", "m")),
    ("unknown", ("m", "n", "k"), ("k", "n", "m")),
    ("scalar", (1, 1), ()),
    ("from-scalar", (), (1, 1)),
    ("both-ends", ("m", 6, "n", "k"), ("m", 2, 3, "n", "k")),
    ("halves", ("m", "n", 12), ("m", "2*n", 6)),
)


def reshape_cases() -> list[Case]:
    def oracle(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return x.reshape(tuple(shape))

    found = []
    for note, have, want in RESHAPES:

        def attrs(d: Any, want: Any = want) -> dict[str, Any]:
            return {"shape": tuple(map(d, want))}

        found.append(of("reshape", oracle, attrs, note, arg("f32", *have)))
    return found


def transpose(x: torch.Tensor, perm: Sequence[int]) -> torch.Tensor:
    return x.permute(tuple(perm))


def sliced(x: np.ndarray, starts: Any, stops: Any, steps: Any) -> np.ndarray:
    at = tuple(
        slice(s, None if step < 0 and e == -1 else e, step)
        for s, e, step in zip(starts, stops, steps, strict=True)
    )
    return x[at]


def slice_cases() -> list[Case]:
    def case(note: str, attrs: Any, sizes: Any = SIZES) -> Case:
        return Case("slice", (X,), sliced, attrs, sizes, note=note, numpy=True)

    return [
        case(
            "all",
            lambda d: {"starts": (0, 0, 0), "stops": (d("m"), d("n"), d("k")), "steps": (1, 1, 1)},
        ),
        case(
            "part",
            lambda d: {
                "starts": (0, 1, 0),
                "stops": (d("m"), d("n"), d("k-1")),
                "steps": (1, 1, 1),
            },
        ),
        case(
            "step",
            lambda d: {"starts": (0, 0, 1), "stops": (d("m"), d("n"), d("k")), "steps": (1, 2, 3)},
        ),
        case(
            "back",
            lambda d: {
                "starts": (0, d("n-1"), d("k-1")),
                "stops": (d("m"), -1, 0),
                "steps": (1, -1, -2),
            },
        ),
        case(
            "none",
            lambda d: {"starts": (0, 1, 0), "stops": (d("m"), 1, d("k")), "steps": (1, 1, 1)},
        ),
        case(
            "back-none",
            lambda d: {"starts": (0, 0, 0), "stops": (d("m"), 0, d("k")), "steps": (1, -1, 1)},
        ),
    ]


def joined(xs: Any, axis: int) -> torch.Tensor:
    return torch.cat(xs, axis)


def concat_cases() -> list[Case]:
    sizes = tuple(s | {"l": e} for s in SIZES for e in (0, 1, 5))
    found = []
    for count in (1, 2, 3, 7):
        xs = tuple(arg("f32", "m", ("n", "l", 3)[j % 3], "k") for j in range(count))
        found.append(Case("concat", (xs,), joined, {"axis": 1}, sizes, note=str(count)))
    mixed = (arg("bf16", "l", "k"), arg("bf16", 2, "k"))
    found.append(Case("concat", (mixed,), joined, {"axis": 0}, sizes, note="first"))
    apart = (arg("f32", "m", "n"), arg("f32", "m", "q"))
    more = tuple(s | {"q": s["n"]} for s in SIZES)
    found.append(Case("concat", (apart,), joined, {"axis": 0}, more, note="named-apart"))
    for axis in range(4):
        xs = (X, X, X)
        found.append(
            Case(
                "stack",
                (xs,),
                lambda xs, axis: torch.stack(xs, axis),
                {"axis": axis},
                SIZES,
                note=str(axis),
            )
        )
    return found


def split(x: torch.Tensor, sizes: Sequence[int], axis: int) -> Any:
    return torch.split(x, list(sizes), axis)


def pad_oracle(x: np.ndarray, pads: Any, mode: str = "constant", value: float = 0) -> np.ndarray:
    for d, (lo, hi) in enumerate(pads):
        at = [slice(None)] * x.ndim
        at[d] = slice(max(-lo, 0), x.shape[d] - max(-hi, 0))
        if mode == "constant":
            x = x[tuple(at)]
    wide = [(max(lo, 0), max(hi, 0)) for lo, hi in pads]
    if mode == "constant":
        return np.pad(x, wide, mode, constant_values=value)
    return np.pad(x, wide, mode)


def pad_cases() -> list[Case]:
    def case(note: str, pads: Any, sizes: Any = SIZES, x: Any = X, **more: Any) -> Case:
        return Case("pad", (x,), pad_oracle, {"pads": pads, **more}, sizes, note=note, numpy=True)

    big = ({"m": 3, "n": 4, "k": 5}, {"m": 0, "n": 9, "k": 4})
    found = [
        case("zero", ((0, 0), (1, 2), (3, 0))),
        case("value", ((2, 0), (0, 0), (0, 1)), value=7),
        case("inf", ((2, 0), (0, 0), (0, 1)), value=float("-inf")),
        case("crop", ((0, 0), (-1, 2), (1, -3)), big),
        case("crop-away", ((0, 0), (-1, -2), (-2, -1)), big[:1]),
        case("int", ((1, 1),), x=arg("i32", "n"), value=3),
        case("bool", ((1, 1),), x=arg("bool", "n"), value=1),
    ]
    found.append(
        Case(
            "pad",
            (X,),
            pad_oracle,
            lambda d: {"pads": ((0, 0), (0, d("k")), (d("n"), 0))},
            SIZES,
            note="sizes",
            numpy=True,
        )
    )
    for mode in ("reflect", "edge", "wrap"):
        found.append(case(mode, ((0, 0), (1, 2), (3, 0)), big, mode=mode))
        found.append(case(mode + "-both", ((0, 0), (3, 3), (0, 2)), big, mode=mode))
    for mode in ("edge", "wrap"):
        found.append(case(mode + "-small", ((0, 0), (5, 4), (3, 7)), SIZES, mode=mode))
    for n in (1, 2, 3):
        found.append(case(f"far{n}", ((7, 5),), ({},), arg("f32", n), mode="reflect"))
    return found


def expand_cases() -> list[Case]:
    def oracle(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        return np.array(np.broadcast_to(x, tuple(shape)))

    def case(note: str, have: Any, want: Any, sizes: Any = SIZES) -> Case:
        return Case(
            "expand",
            (arg("f32", *have),),
            oracle,
            lambda d: {"shape": tuple(map(d, want))},
            sizes,
            note=note,
            numpy=True,
        )

    either = tuple(s | {"a": a} for s in SIZES for a in (1, s["n"]))
    return [
        case("one", ("m", 1, "k"), ("m", "n", "k")),
        case("rank", ("k",), ("m", "n", "k")),
        case("scalar", (), ("m", "n")),
        case("same", ("m", "n"), ("m", "n")),
        case("either", ("m", "a", "k"), ("m", "n", "k"), either),
        case("number", (1, "n"), (4, "n")),
    ]


def axis_cases() -> list[Case]:
    def squeeze(x: torch.Tensor, axes: Any) -> torch.Tensor:
        return torch.squeeze(x, tuple(axes))

    def unsqueeze(x: np.ndarray, axes: Any) -> np.ndarray:
        return np.expand_dims(x, tuple(axes))

    def tile(x: torch.Tensor, repeats: Any) -> torch.Tensor:
        return x.repeat(*repeats)

    one = tuple(s | {"u": 1} for s in SIZES)
    found = [
        of("squeeze", squeeze, {"axes": (1,)}, "one", arg("f32", "m", 1, "k")),
        of("squeeze", squeeze, {"axes": (0, 2)}, "two", arg("f32", 1, "m", 1, "k")),
        of("squeeze", squeeze, {"axes": (1,)}, "symbol", arg("f32", "m", "u", "k"), one),
        of("squeeze", squeeze, {"axes": ()}, "none", arg("f32", 1, "m")),
        of("tile", tile, {"repeats": (2, 1, 3)}),
        of("tile", tile, lambda d: {"repeats": (1, d("k"), 0)}, "sizes"),
        of("flip", lambda x, axes: torch.flip(x, axes), {"axes": (0, 2)}),
        of(
            "roll",
            lambda x, shifts, axes: torch.roll(x, shifts, axes),
            {"shifts": (1, -5), "axes": (0, 2)},
        ),
        of(
            "roll",
            lambda x, shifts, axes: torch.roll(x, shifts, axes),
            lambda d: {"shifts": (d("n"), 1), "axes": (1, 1)},
            "sizes",
        ),
        *(
            of("transpose", transpose, {"perm": p}, "".join(map(str, p)))
            for p in ((0, 1, 2), (2, 0, 1), (2, 1, 0))
        ),
        of("transpose", transpose, {"perm": ()}, "scalar", arg("f32")),
    ]
    for axes in ((0,), (3,), (1, 3), (0, 1, 5)):
        note = "".join(map(str, axes))
        found.append(
            Case("unsqueeze", (X,), unsqueeze, {"axes": axes}, SIZES, note=note, numpy=True)
        )
    return found


def onnx_oracle(op: str) -> Any:
    def oracle(x: np.ndarray, block: int, mode: str | None = None) -> np.ndarray:
        more = {} if mode is None else {"mode": mode}
        node = onnx.helper.make_node(op, ["x"], ["y"], blocksize=block, **more)
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph([node], "g", [info("x", 1, None)], [info("y", 1, None)])
        return np.asarray(ReferenceEvaluator(onnx.helper.make_model(graph)).run(None, {"x": x})[0])

    return oracle


def block_cases() -> list[Case]:
    found = []
    sizes = ({"m": 2, "n": 3, "k": 4}, {"m": 1, "n": 1, "k": 1}, {"m": 5, "n": 2, "k": 3})
    for block in (1, 2, 3):
        x = arg("f32", "m", f"{block * block}*n", "k", 3)
        for mode in ("DCR", "CRD"):
            found.append(
                Case(
                    "depth_to_space",
                    (x,),
                    onnx_oracle("DepthToSpace"),
                    {"block": block, "mode": mode},
                    sizes,
                    note=f"{mode}{block}",
                    numpy=True,
                )
            )
        y = arg("f32", "m", "n", f"{block}*k", 2 * block)
        found.append(
            Case(
                "space_to_depth",
                (y,),
                onnx_oracle("SpaceToDepth"),
                {"block": block},
                sizes,
                note=str(block),
                numpy=True,
            )
        )
        for batch in ((), ("m",), ("m", 2)):
            x = arg("f32", *batch, f"{block * block}*n", "k", 3)
            found.append(
                of(
                    "pixel_shuffle",
                    lambda x, factor: torch.pixel_shuffle(x, factor),
                    {"factor": block},
                    f"{block}{len(batch)}",
                    x,
                    sizes,
                )
            )
    return found


def triangle_cases() -> list[Case]:
    found = []
    for op, fn in (("tril", torch.tril), ("triu", torch.triu)):
        for k in (-2, 0, 1, 9):

            def oracle(x: torch.Tensor, diagonal: int, fn: Any = fn) -> torch.Tensor:
                return fn(x, diagonal)

            found.append(of(op, oracle, {"diagonal": k}, str(k)))
        found += with_types(
            of(op, oracle, {"diagonal": 0}, "", arg("bool", "n", "k")), "bool", "i64"
        )
    for offset in (-1, 0, 2):

        def diagonal(x: torch.Tensor, offset: int, axis1: int, axis2: int) -> torch.Tensor:
            return torch.diagonal(x, offset, axis1, axis2)

        for a, b in ((0, 1), (2, 0), (1, 2)):
            sizes = tuple(s for s in SIZES if s["m"] and min(s["n"], s["k"]) > 1)
            found.append(
                of(
                    "diagonal",
                    diagonal,
                    {"offset": offset, "axis1": a, "axis2": b},
                    f"{offset}{a}{b}",
                    sizes=sizes,
                )
            )
    return found


def unfold_cases() -> list[Case]:
    def oracle(x: torch.Tensor, axis: int, size: int, step: int) -> torch.Tensor:
        return x.unfold(axis, size, step)

    sizes = ({"m": 2, "n": 6, "k": 4}, {"m": 0, "n": 3, "k": 9})
    return [
        of("unfold", oracle, {"axis": 1, "size": 3, "step": 1}, "1", sizes=sizes),
        of("unfold", oracle, {"axis": 2, "size": 2, "step": 3}, "2", sizes=sizes),
        of("unfold", oracle, {"axis": 1, "size": 0, "step": 1}, "0", sizes=sizes),
    ]


def split_cases() -> list[Case]:
    return [
        of("split", split, lambda d: {"sizes": (1, d("n-1")), "axis": 1}, "rest"),
        of("split", split, lambda d: {"sizes": (d("m"), 0), "axis": 0}, "empty"),
        of("split", split, {"sizes": (2, 3, 1), "axis": 1}, "numbers", arg("f32", "m", 6)),
        of("split", split, {"sizes": (2, 1), "axis": 0}, "symbol", arg("f32", "q"), ({"q": 3},)),
    ]


CASES = [
    *reshape_cases(),
    *slice_cases(),
    *concat_cases(),
    *split_cases(),
    *pad_cases(),
    *expand_cases(),
    *axis_cases(),
    *block_cases(),
    *triangle_cases(),
    *unfold_cases(),
]
