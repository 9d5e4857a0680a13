"""Options of the test run."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("PLIANT_CHECK", "1")  # every compilation verifies its stages


@pytest.fixture(autouse=True)
def llvm_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run side by side: processes for LLVM would only add the time that they take to begin.
    Those that are about them ask for them."""
    monkeypatch.setattr("pliant.pipeline.WORTH_PROCESSES", 24)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--onnx-all", action="store_true", help="all of ONNX's node tests natively, not a sample"
    )
