"""Which targets' code runs on the machine that runs the tests."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.codegen.llvm.target import target
from pliant.runtime.features import forbidden_features, host_machine, missing_features


def runs_here(name: str) -> bool:
    """Whether this processor has what the target's code needs."""
    t = target(name)
    lacks = missing_features(t.features) or forbidden_features(t.features)
    return t.architecture == host_machine() and not lacks


def multiplies_bytes() -> bool:
    """Whether this processor sums products of bytes in 32 bits. Without such an instruction ONNX
    Runtime sums two of them in 16 bits, where they saturate unless one operand is halved."""
    vnni = ("avx512vnni",), ("avxvnni",), ("dotprod",)
    return any(not missing_features(one) for one in vnni)


def skipped_without(name: str) -> pytest.MarkDecorator:
    """For a test of code for that target."""
    return pytest.mark.skipif(not runs_here(name), reason=f"code for {name} does not run here")


def where_it_runs(*names: str) -> list[Any]:
    """Parameters: targets, "native" among them, of which others than this machine's are skipped."""
    marks = {n: [] if n == "native" else [skipped_without(n)] for n in names}
    return [pytest.param(n, marks=marks[n]) for n in names]
