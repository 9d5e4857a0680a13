"""RNN, GRU and LSTM with their rarer attributes, against ONNX Runtime and ONNX's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import Case, by_reference, by_runtime, check, one_node

RANDOM = np.random.default_rng(13)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def case(op: str, ways: int = 1, *, batch_first: bool = False, **attributes: Any) -> Case:
    steps, batch, width, inner = 4, 3, 5, 6
    gates = GATES[op]

    def floats(*shape: int) -> np.ndarray:
        return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)

    operands = [
        floats(batch, steps, width) if batch_first else floats(steps, batch, width),
        floats(ways, gates * inner, width), floats(ways, gates * inner, inner),
        floats(ways, 2 * gates * inner), None,
    ]  # fmt: skip
    state = (batch, ways, inner) if batch_first else (ways, batch, inner)
    operands += [floats(*state) for _ in range(2 if op == "LSTM" else 1)]
    if batch_first:
        attributes["layout"] = 1
    return one_node(
        op, operands, weights=[1, 2, 3], outputs=3 if op == "LSTM" else 2, hidden_size=inner,
        direction="bidirectional" if ways == 2 else "forward", **attributes,
    )  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("ways", [1, 2])
def test_what_goes_into_functions_is_cut(op: str, ways: int) -> None:
    clipped = case(op, ways, clip=0.2)
    check(clipped, by_runtime(clipped), native=ways == 1, rtol=1e-4, atol=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    ("names", "alphas", "betas"),
    [
        (["LeakyRelu", "HardSigmoid", "Softsign"], [0.1, 0.3], [0.4]),
        (["Affine", "ScaledTanh", "Elu"], [0.5, 0.8, 0.7], [0.1, 1.2]),
        (["ThresholdedRelu", "Softplus", "Relu"], [0.2], []),
    ],
)
def test_rare_functions(op: str, names: list[str], alphas: list[float], betas: list[float]) -> None:
    chosen = names[: {"RNN": 1, "GRU": 2, "LSTM": 3}[op]]
    with_alpha = [n for n in chosen if n not in ("Softsign", "Softplus", "Relu")]
    with_beta = [n for n in chosen if n in ("HardSigmoid", "Affine", "ScaledTanh")]
    more = {"activation_alpha": alphas[: len(with_alpha)]} if with_alpha else {}
    more |= {"activation_beta": betas[: len(with_beta)]} if with_beta else {}
    rare = case(op, activations=chosen, **more)
    check(rare, by_runtime(rare), rtol=1e-4, atol=1e-4)


def test_names_in_any_case_and_numbers_of_both_directions() -> None:
    names = ["sigmoid", "TANH", "hardsigmoid", "Sigmoid", "leakyrelu", "tanh"]
    rare = case("LSTM", 2, activations=names, activation_alpha=[0.2, 0.3], activation_beta=[0.6])
    check(rare, by_runtime(rare), native=True, rtol=1e-4, atol=1e-4)


def test_what_is_let_in_is_not_kept() -> None:
    coupled = case("LSTM", input_forget=1)
    check(coupled, by_runtime(coupled), native=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", GATES)
def test_the_batch_first(op: str) -> None:
    first = case(op, batch_first=True)
    check(first, by_reference(first), rtol=1e-4, atol=1e-4)


def test_functions_that_do_not_exist() -> None:
    with pytest.raises(UnsupportedError, match="the activation 'Cube' is not supported"):
        import_onnx(case("RNN", activations=["Cube"]).model, OPERATORS)
    with pytest.raises(InvalidModelError, match="1 activations, it has 3"):
        import_onnx(case("LSTM", activations=["Tanh"]).model, OPERATORS)
