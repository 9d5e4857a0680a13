"""Products of 8-bit integers: packed by the target's groups, run by its byte micro-kernels, with zero
points summed apart; exactly what NumPy's int64 gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import pliant
from tests.targets import where_it_runs
from tests.woven import woven

TYPES = {"u8": (TensorProto.UINT8, np.uint8), "i8": (TensorProto.INT8, np.int8)}
TARGETS = ("native", "x86-64-avx512", "x86-64-avx2", "x86-64")
Zero = int | list[int] | None


def every(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Numbers of the whole range of a type, its ends among them."""
    info = np.iinfo(dtype)
    found = np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)
    found.flat[:1], found.flat[-1:] = info.min, info.max
    return found


def model(
    op: str, x: str, shape: list[int | str], w: np.ndarray, zeros: tuple[Zero, Zero], **attrs: Any
) -> bytes:
    """A product of an input and a weight."""
    w_type = "i8" if w.dtype == np.int8 else "u8"
    weights, inputs = [numpy_helper.from_array(w, "w")], ["x", "w"]
    for name, zero, dtype in zip(("xz", "wz"), zeros, (x, w_type), strict=True):
        inputs.append("" if zero is None else name)
        if zero is not None:
            array = np.array(zero, TYPES[dtype][1])
            weights.append(numpy_helper.from_array(array, name))
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **attrs)], "g",
        [helper.make_tensor_value_info("x", TYPES[x][0], shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)], weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def kernels(f: Any) -> str:
    return " ".join(x.split()[1] for x in f.explain().splitlines() if " k_" in x)


# ---- matrix products


def _check_matmul(x: str, w: np.ndarray, zeros: tuple[Zero, Zero], target: str = "native") -> Any:
    f = pliant.compile(model("MatMulInteger", x, ["m", w.shape[0]], w, zeros), target=target)
    a_zero, b_zero = (np.array(0 if z is None else z, np.int64) for z in zeros)
    for m in (0, 1, 13, 31):
        a = every(TYPES[x][1], m, w.shape[0], seed=m)
        want = (a.astype(np.int64) - a_zero) @ (w.astype(np.int64) - b_zero)
        np.testing.assert_array_equal(np.asarray(f(a)), want)
    return f


@pytest.mark.sweep
@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 7), (17, 31), (64, 96), (130, 5)])
@pytest.mark.parametrize("x", TYPES)
@pytest.mark.parametrize("w", TYPES)
def test_matmul_integer(x: str, w: str, k: int, n: int) -> None:
    weight = every(TYPES[w][1], k, n)
    f = _check_matmul(x, weight, (7, None))
    assert k == 1 or "k_contraction" in kernels(f)
    _check_matmul(x, weight, (None, list(range(n))))


@pytest.mark.sweep
@pytest.mark.parametrize("target", where_it_runs(*TARGETS))
@pytest.mark.parametrize("x", TYPES)
@pytest.mark.parametrize("w", TYPES)
def test_every_target(x: str, w: str, target: str) -> None:
    _check_matmul(x, every(TYPES[w][1], 19, 33), (7, 5), target)


@pytest.mark.parametrize("target", where_it_runs(*TARGETS))
def test_sums_do_not_saturate(target: str) -> None:
    """Pairs of 255 * -128 do not fit in 16 bits."""
    w = np.full((1021, 33), -128, np.int8)
    f = pliant.compile(model("MatMulInteger", "u8", ["m", 1021], w, (None, None)), target=target)
    y = np.asarray(f(np.full((3, 1021), 255, np.uint8)))
    assert (y == 255 * -128 * 1021).all()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_two_inputs_of_any_size(left: bool, right: bool) -> None:
    """Products of values: neither is packed before, and the sum is as long as a call says."""
    shapes = [
        ["b", "k", "m"] if left else ["b", "m", "k"],
        ["b", "n", "k"] if right else ["b", "k", "n"],
    ]
    nodes = [
        helper.make_node("Transpose", [v], [f"{v}_t"], perm=[0, 2, 1] if t else [0, 1, 2])
        for v, t in (("x", left), ("w", right))
    ]
    nodes.append(helper.make_node("MatMulInteger", ["x_t", "w_t", "xz", "wz"], ["y"]))
    zeros = [numpy_helper.from_array(np.array(z, np.uint8), n) for z, n in ((9, "xz"), (200, "wz"))]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(v, TensorProto.UINT8, s) for v, s in zip("xw", shapes, strict=True)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)], zeros,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    f = pliant.compile(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    assert "k_contraction" in kernels(f)
    for b, m, k, n in [(1, 1, 1, 1), (2, 5, 3, 37), (3, 17, 64, 33), (1, 4, 0, 3)]:
        a, c = every(np.uint8, b, m, k), every(np.uint8, b, k, n, seed=1)
        want = (a.astype(np.int64) - 9) @ (c.astype(np.int64) - 200)
        args = [a.swapaxes(1, 2) if left else a, c.swapaxes(1, 2) if right else c]
        np.testing.assert_array_equal(np.asarray(f(*map(np.ascontiguousarray, args))), want)


def test_panels_hold_fours_and_sums_of_weights_are_made_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIANT_DUMP", str(tmp_path))
    w = every(np.int8, 71, 50)
    source = model("MatMulInteger", "u8", ["m", 71], w, (3, None))
    f = pliant.compile(source, target="x86-64-avx2")
    assert f.stats()["kernels"] == 1
    assert list(tmp_path.glob("*/*pl_mm_u8i8*"))
    again = pliant.compile(next(tmp_path.glob("*/05_packing.py")), target="x86-64-avx2")
    x = every(np.uint8, 4, 71)
    np.testing.assert_array_equal(again(x), np.asarray(f(x)))


# ---- convolutions

Attrs = dict[str, Any]
CONVS: dict[str, tuple[int, int, tuple[int, ...], Attrs]] = {
    "3x3": (16, 24, (3, 3), {"pads": [1] * 4}),
    "odd": (17, 5, (3, 3), {"strides": [2, 2]}),
    "stem": (3, 32, (3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "1x1": (33, 40, (1, 1), {}),
    "grouped": (32, 64, (3, 3), {"group": 2}),
    "narrow_groups": (64, 64, (3, 3), {"group": 16, "pads": [1] * 4}),
    "depthwise": (12, 12, (3, 3), {"group": 12, "pads": [1] * 4}),
    "dilated": (16, 8, (3, 3), {"dilations": [2, 2], "pads": [2] * 4}),
    "1d": (12, 20, (5,), {}),
    "3d": (8, 9, (2, 2, 2), {"pads": [1] * 6}),
}
CONV_TYPES = {
    "plain": ("u8", "i8", None, None),
    "padded": ("u8", "i8", 9, None),
    "unsigned": ("u8", "u8", 9, 130),
    "signed": ("i8", "i8", -3, None),
    "weight": ("i8", "i8", None, 3),
}


# Groups that share a panel, with zeros for each other's channels: a weight's zero point is no zero.
UNPACKED = [("narrow_groups", "unsigned"), ("narrow_groups", "weight")]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "types"), [*woven([*CONVS], [*CONV_TYPES], each=2), *UNPACKED])
def test_conv_integer(name: str, types: str) -> None:
    channels, outputs, kernel, attrs = CONVS[name]
    x, w, x_zero, w_zero = CONV_TYPES[types]
    groups, rank = attrs.get("group", 1), len(kernel)
    weight = every(TYPES[w][1], outputs, channels // groups, *kernel)
    shape: list[int | str] = ["n", channels, *(f"d{k}" for k in range(rank))]
    f = pliant.compile(model("ConvInteger", x, shape, weight, (x_zero, w_zero), **attrs))
    if name != "depthwise" and (name, types) not in UNPACKED:
        assert "k_contraction" in kernels(f)
    conv = getattr(torch.nn.functional, f"conv{rank}d")
    for n, side in ((1, 9), (2, 7)):
        a = every(TYPES[x][1], n, channels, *(side + k for k in range(rank)), seed=n)
        exact = conv(
            torch.tensor(a.astype(np.float64)) - (x_zero or 0),
            torch.tensor(weight.astype(np.float64)) - (w_zero or 0),
            stride=attrs.get("strides", 1), padding=attrs.get("pads", [0] * rank)[:rank],
            dilation=attrs.get("dilations", 1), groups=groups,
        )  # fmt: skip
        np.testing.assert_array_equal(np.asarray(f(a)), exact.numpy().astype(np.int64))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("zero", [0, 5])
def test_converted_before_it_is_moved(zero: int) -> None:
    """Channels last: what is converted to 32 bits, transposed and padded is read as bytes."""

    class Conv(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            x = (x.to(torch.int32) - zero).permute(0, 3, 1, 2)
            w = w.to(torch.int32).permute(3, 2, 0, 1)
            return torch.nn.functional.conv2d(x, w, padding=1)

    def operands(b: int, n: int, m: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.from_numpy(every(np.uint8, b, n, m, 8, seed=n))
        return x, torch.from_numpy(every(np.int8, 3, 3, 8, 20, seed=1))

    dims = ({0: "b", 1: "n", 2: "m"}, {})
    f = pliant.compile(Conv(), operands(2, 5, 6), dynamic_shapes=dims)
    assert "[contraction" in f.explain(), f.explain()
    for sizes in [(2, 5, 6), (1, 1, 1), (1, 3, 17)]:
        x, w = operands(*sizes)
        exact = torch.nn.functional.conv2d(
            (x.double() - zero).permute(0, 3, 1, 2), w.double().permute(3, 2, 0, 1), padding=1
        )
        torch.testing.assert_close(f(x, w), exact.to(torch.int32), rtol=0, atol=0)
