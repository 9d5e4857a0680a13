"""ONNX's own backend tests, run as ONNX runs them: nodes, compiled natively.

A sample by default, all with `pytest --onnx-all`. What is refused counts as skipped.
"""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import pytest

from pliant.frontend.onnx.backend import make_backend
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.node_cases import compiler, left_out, node_tests

SAMPLE = 16  # one test of so many


def _tests() -> type:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest

        suite = BackendTest(make_backend(OPERATORS, compiler), __name__)
        suite.exclude("_cuda$")
        for case in node_tests():
            if left_out(case.model):
                suite.exclude(f"^{case.name}_cpu$")
        return suite.test_cases["OnnxBackendNodeModelTest"]


OnnxNodes = _tests()


def _is_sampled(name: str) -> bool:
    return zlib.crc32(name.encode()) % SAMPLE == 0


@pytest.fixture(autouse=True)
def _sample(request: pytest.FixtureRequest) -> Any:
    if not request.config.getoption("--onnx-all") and not _is_sampled(request.node.name):
        pytest.skip("not in the sample; --onnx-all runs all")
