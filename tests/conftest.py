"""Options of the test run."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Iterator
from zlib import crc32

import numpy as np
import pytest
import torch

from tests import share

os.environ.setdefault("PLIANT_CHECK", "1")  # every compilation verifies its stages
# What torch remembers of its operators pays in models of many layers alike; for a few layers with
# symbolic sizes it takes longer than tracing itself.
os.environ.setdefault("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0")


def pytest_configure(config: pytest.Config) -> None:
    """Whether the run takes everything is known before tests, which ask, are imported."""
    by_name = any("::" in arg or arg.endswith(".py") for arg in config.args)
    share.take(everything=by_name or config.getoption("--all-cases"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of sweeps (`pytest.mark.sweep`) some cases, unless the run takes everything."""
    if share.is_whole():
        return
    seen, left_out = Counter[str](), list[pytest.Item]()
    for item in items:
        if sweep := item.get_closest_marker("sweep"):
            function, one_in = item.nodeid.partition("[")[0], (*sweep.args, share.SWEEP)[0]
            run, place = divmod(seen[function], one_in)
            if place != run % one_in:
                left_out.append(item)
            seen[function] += 1
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look at it
    again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels of a run are kept in a folder of its own, which the run's processes share."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_CACHE_DIR", str(folder / "kernels"))
        yield


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """Random numbers are those of the test, whichever run before it: what fails fails again."""
    seed = crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@pytest.fixture(autouse=True)
def llvm_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run side by side: processes for LLVM would only add the time that they take to begin.
    Those that are about them ask for them."""
    monkeypatch.setattr("pliant.pipeline.WORTH_PROCESSES", 24)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--onnx-all", action="store_true", help="all of ONNX's node tests natively, not a sample"
    )
    parser.addoption(
        "--all-cases", action="store_true", help="all of sweeps and of random examples, not a share"
    )
