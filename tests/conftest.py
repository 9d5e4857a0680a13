"""Options of the test run."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("PLIANT_CHECK", "1")  # every compilation verifies its stages


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--onnx-all", action="store_true", help="all of ONNX's node tests natively, not a sample"
    )
