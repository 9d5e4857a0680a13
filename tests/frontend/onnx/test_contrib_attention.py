"""Attention of com.microsoft, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pliant.base.errors import UnsupportedError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import Case, by_runtime, check, one_node
from tests.frontend.onnx.run import run
from tests.targets import multiplies_bytes

RANDOM = np.random.default_rng(7)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def node(op: str, operands: list[Any], **options: Any) -> Case:
    while operands and operands[-1] is None:
        operands = operands[:-1]
    return one_node(op, operands, domain="com.microsoft", **options)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


MASKS = {
    "none": None, "lengths": ints(3, 5), "raw": ints([1, 1, 0, 1, 1], [0, 0, 1, 1, 1]),
    "each": (RANDOM.random((2, 5, 5)) < 0.7).astype(np.int32) | np.eye(5, dtype=np.int32),
    "ends and starts": ints(4, 5, 1, 0), "nothing": ints([0] * 5, [1] * 5),
}  # fmt: skip


@pytest.mark.parametrize(
    ("mask", "causal"),
    [(m, c) for m in MASKS for c in (0, 1) if (m, c) != ("nothing", 1)],
)
def test_projected_attention(mask: str, causal: int) -> None:
    operands = [floats(2, 5, 7), floats(7, 36), floats(36), MASKS[mask]]
    case = node("Attention", operands, weights=[1, 2], num_heads=3, unidirectional=causal)
    if mask == "ends and starts":
        case.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
        case.model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 4
    check(case, by_runtime(case), **CLOSE)


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("past", [1, 3])
def test_projected_attention_with_a_past(length: int, past: int) -> None:
    new = [floats(2, length, 7), floats(7, 36), floats(36)]
    operands = [*new, None, floats(2, 2, 3, past, 4)]
    case = node("Attention", operands, weights=[1, 2], num_heads=3, unidirectional=1, outputs=2)
    check(case, by_runtime(case), **CLOSE)


def test_projected_attention_of_widths() -> None:
    case = node(
        "Attention", [floats(1, 3, 5), floats(5, 22), floats(22), None, None, floats(1, 1, 3, 3)],
        weights=[1, 2], num_heads=2, qkv_hidden_sizes=[8, 8, 6], scale=0.3,
    )  # fmt: skip
    check(case, by_runtime(case), native=True, **CLOSE)


def test_attention_of_bytes() -> None:
    x = RANDOM.integers(0, 255, (2, 5, 8), np.uint8)
    w = RANDOM.integers(-128, 127, (8, 24), np.int8) // np.int8(1 if multiplies_bytes() else 2)
    case = node(
        "QAttention", [x, w, floats(24), np.float32(0.02), np.float32(0.01), MASKS["raw"],
                       np.uint8(120), np.int8(3)],
        weights=[1, 2, 3, 4, 6, 7], num_heads=2,
    )  # fmt: skip
    check(case, by_runtime(case), **CLOSE)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", ["none", "lengths", "raw", "added"])
def test_many_heads(bias: bool, mask: str) -> None:
    keys = 5
    operands = [floats(2, 3, 8), floats(2, keys, 8), floats(2, keys, 12), None, None, None]
    operands[3] = floats(28) if bias else None
    operands[4] = MASKS[mask] if mask in ("lengths", "raw") else None
    operands[5] = floats(1, 4, 3, keys) if mask == "added" else None
    case = node("MultiHeadAttention", operands, num_heads=4)
    check(case, by_runtime(case), **CLOSE)


def test_many_heads_packed() -> None:
    """ONNX Runtime has no kernel for it: it gets them apart."""
    q, x = floats(2, 2, 12), floats(2, 5, 3, 3, 4)
    alone = [x[:, :, :, k].reshape(2, 5, 12) for k in range(3)]
    want = by_runtime(node("MultiHeadAttention", alone, num_heads=3))
    check(node("MultiHeadAttention", [x], num_heads=3), want, **CLOSE)
    want = by_runtime(node("MultiHeadAttention", [q, *alone[1:]], num_heads=3))
    check(node("MultiHeadAttention", [q, x[:, :, :, 1:]], num_heads=3), want, **CLOSE)


@pytest.mark.parametrize("length", [1, 2])
def test_many_heads_with_a_past(length: int) -> None:
    new, old = [floats(2, length, 8) for _ in range(3)], [floats(2, 4, 5, 2) for _ in range(2)]
    case = node(
        "MultiHeadAttention", [*new, None, None, None, *old], num_heads=4, unidirectional=1,
        outputs=3,
    )  # fmt: skip
    check(case, by_runtime(case), **CLOSE)


def test_heads_of_another_sequence() -> None:
    operands = [floats(2, 3, 8), floats(2, 4, 5, 2), floats(2, 4, 5, 2)]
    case = node("MultiHeadAttention", operands, num_heads=4)
    check(case, by_runtime(case), **CLOSE)


def grouped(
    batch: int, length: int, past: int, *, packed: bool = False, more: dict[int, Any] | None = None,
    **attributes: Any,
) -> Case:  # fmt: skip
    heads, few, size = 6, 2, 16
    total = past + length
    if packed:
        operands: list[Any] = [floats(batch, length, (heads + 2 * few) * size), None, None]
    else:
        operands = [floats(batch, length, h * size) for h in (heads, few, few)]
    operands += [floats(batch, few, past, size) for _ in range(2)] if past else [None, None]
    operands += [ints(*[total - 1] * batch), ints(total)[0]]
    operands += [None] * 10
    for k, a in (more or {}).items():
        operands[k] = a
    operands[6] = np.asarray(operands[6], np.int32)
    return node(
        "GroupQueryAttention", operands, weights=[6], outputs=3, num_heads=heads,
        kv_num_heads=few, **attributes,
    )  # fmt: skip


def names(case: Case) -> dict[str, tuple[str | int, ...]]:
    """The dims as exporters call them."""
    given: dict[str, tuple[str | int, ...]] = {
        f"x{k}": ("batch", "length", case.feeds[f"x{k}"].shape[2])
        for k in range(3) if f"x{k}" in case.feeds
    }  # fmt: skip
    given |= {n: ("batch", 2, "past", 16) for n in ("x3", "x4") if n in case.feeds}
    return given | {"x5": ("batch",)}


@pytest.mark.sweep
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("length", "past"), [(4, 0), (1, 5), (1, 1), (3, 4)])
def test_grouped_heads(packed: bool, length: int, past: int) -> None:
    batch = 1 if length > 1 and past else 2
    case = grouped(batch, length, past, packed=packed)
    want = by_runtime(case)
    check(case, want, **CLOSE)
    check(case, want, native=True, named=names(case), **CLOSE)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("length", "past"), [(4, 0), (1, 5)])
def test_grouped_heads_turned(interleaved: int, length: int, past: int) -> None:
    angles = RANDOM.random((16, 8)).astype(np.float32)
    case = grouped(
        2, length, past, more={7: np.cos(angles), 8: np.sin(angles)}, do_rotary=1,
        rotary_interleaved=interleaved, scale=0.2,
    )  # fmt: skip
    check(case, by_runtime(case), **CLOSE)


@pytest.mark.parametrize(
    ("attributes", "more"),
    [
        ({"softcap": 1.5}, {}), ({"local_window_size": 3}, {}), ({"smooth_softmax": 1}, {}),
        ({"softcap": 0.5, "local_window_size": 2}, {}), ({}, {11: floats(6)}),
        ({}, {10: floats(1, 1, 1, 6)}), ({}, {10: floats(2, 6, 1, 6)}),
    ],
)  # fmt: skip
def test_grouped_heads_otherwise(attributes: dict[str, Any], more: dict[int, Any]) -> None:
    case = grouped(2, 1, 5, more=more, **attributes)
    check(case, by_runtime(case), **CLOSE)
    if 10 not in more:
        case = grouped(2, 5, 0, more=more, **attributes)
        check(case, by_runtime(case), **CLOSE)


def test_sequences_of_a_batch_that_end_at_different_places() -> None:
    """The cache has room for six; what lies behind a sequence's end is not seen."""
    ends = ints(5, 3)
    case = grouped(2, 1, 5, more={5: ends})
    want, got = by_runtime(case), run(import_onnx(case.model, OPERATORS), list(case.feeds.values()))
    np.testing.assert_allclose(got[0], want[0], **CLOSE)
    for a, b in zip(got[1:], want[1:], strict=True):
        for row, end in enumerate(ends):
            np.testing.assert_allclose(a[row, :, : end + 1], b[row, :, : end + 1], **CLOSE)


def test_a_prompt_padded_at_its_end() -> None:
    ends = ints(4, 2)
    case = grouped(2, 5, 0, more={5: ends})
    want, got = by_runtime(case), run(import_onnx(case.model, OPERATORS), list(case.feeds.values()))
    for row, end in enumerate(ends):
        np.testing.assert_allclose(got[0][row, : end + 1], want[0][row, : end + 1], **CLOSE)


def test_a_total_length_that_is_a_dim_of_the_mask() -> None:
    """As exporters write it; one compilation is for the prompt and for what follows."""
    total_of = [
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["dim"], axis=0),
        helper.make_node("Cast", ["dim"], ["total"], to=TensorProto.INT32),
    ]
    for length, past in ((4, 0), (1, 6)):
        case = grouped(1, length, past)
        if not past:  # an empty cache, not none
            case = grouped(1, length, 0, more={3: floats(1, 2, 0, 16), 4: floats(1, 2, 0, 16)})
        want = by_runtime(case)
        graph = case.model.graph
        del graph.initializer[:]
        graph.initializer.append(helper.make_tensor("one", TensorProto.INT64, [], [1]))
        graph.input.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["b", "t"]))
        graph.node[0].input[6] = "total"
        nodes = [*total_of, graph.node[0]]
        del graph.node[:]
        graph.node.extend(nodes)
        case.feeds["mask"] = np.ones((1, length + past), np.int64)
        named = names(case) | {"mask": ("batch", "total")}
        check(case, want, native=True, named=named, **CLOSE)


def test_a_total_length_of_run_time_is_refused() -> None:
    case = grouped(1, 1, 3)
    graph = case.model.graph
    del graph.initializer[:]
    graph.input.append(helper.make_tensor_value_info("x6", TensorProto.INT32, []))
    with pytest.raises(
        UnsupportedError, match=r"total_sequence_length \('x6'\) is computed at run"
    ):
        import_onnx(case.model, OPERATORS)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (2, 4, 24)])
@pytest.mark.parametrize("at", [ints([0, 3, 1, 2], [5, 6, 7, 8]), ints(2)])
def test_rotation(interleaved: int, shape: tuple[int, ...], at: np.ndarray) -> None:
    angles = RANDOM.random((9, 4)).astype(np.float32)
    operands = [floats(*shape), at.astype(np.int64), np.cos(angles), np.sin(angles)]
    case = node("RotaryEmbedding", operands, weights=[2, 3], interleaved=interleaved)
    check(case, by_runtime(case), **CLOSE)


def test_rotation_of_a_part_of_each_head() -> None:
    angles = RANDOM.random((9, 2)).astype(np.float32)
    at = np.int64([[0, 3, 1, 2]])
    operands = [floats(1, 4, 24), at, np.cos(angles), np.sin(angles)]
    case = node("RotaryEmbedding", operands, weights=[2, 3], num_heads=3, rotary_embedding_dim=4)
    check(case, by_runtime(case), **CLOSE)
