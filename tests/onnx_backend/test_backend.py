"""ONNX's own backend tests, run as ONNX runs them: nodes, compiled natively.

A sample by default, all with `pytest --onnx-all` (conftest.py). What is refused counts as skipped.
"""

from __future__ import annotations

import warnings

from pliant.frontend.onnx.backend import make_backend
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.node_cases import compiler, left_out, node_tests


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
