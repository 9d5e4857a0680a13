"""ONNX's node tests: all that is imported is right, with fixed and with symbolic shapes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontend.onnx.node_cases import PASS, REFUSED, cases, operator_of, run_case

# How many tests of an operator may be refused: what the catalogue has no words for, training,
# random numbers, results whose size depends on data, and operator sets older than 7.
REFUSED_BY_OPERATOR = {
    "BatchNormalization": 2, "Bernoulli": 3, "Dropout": 4, "ImageDecoder": 9, "Scan": 1,
    "bernoulli… (expanded)": 3,
}  # fmt: skip

# Where dims are symbolic these want a number: lengths of index tuples, channels, ratios, steps.
ALSO_REFUSED_IF_DYNAMIC = {
    "CausalConvWithState": 13, "ConvTranspose": 3, "DFT": 10, "DeformConv": 4,
    "GatherND": 3, "LinearAttention": 14, "QLinearMatMul": 8, "Resize": 2, "STFT": 2, "Scan": 3,
    "ScatterND": 7, "linear… (expanded)": 14,
}  # fmt: skip

_BY_OPERATOR: dict[str, list[Any]] = {}
for _case in cases():
    _BY_OPERATOR.setdefault(operator_of(_case), []).append(_case)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("op", sorted(_BY_OPERATOR))
def test_nodes(op: str, dynamic: bool) -> None:
    chosen = _BY_OPERATOR[op][:3] if dynamic else _BY_OPERATOR[op]  # bench/ runs all of them
    outcomes = [run_case(case, dynamic=dynamic) for case in chosen]
    failed = [o for o in outcomes if o.result not in (PASS, REFUSED)]
    assert not failed
    refused = [o for o in outcomes if o.result == REFUSED]
    allowed = REFUSED_BY_OPERATOR.get(op, 0)
    if dynamic:
        allowed += ALSO_REFUSED_IF_DYNAMIC.get(op, 0)
    assert len(refused) <= allowed, refused
