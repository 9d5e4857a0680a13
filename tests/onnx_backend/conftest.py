"""Which of ONNX's tests are run: those in Pliant's scope, one of 16 of them, or all."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

SAMPLE = 16  # one test of so many


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out of the collection: they are not skipped tests."""
    everything = config.getoption("--onnx-all")
    kept, left = [], []
    for item in items:
        ours = Path(__file__).parent in item.path.parents
        excluded = getattr(getattr(item, "obj", None), "__unittest_skip__", False)
        sampled = everything or zlib.crc32(item.name.encode()) % SAMPLE == 0
        (left if ours and (excluded or not sampled) else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
