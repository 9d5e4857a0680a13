"""Random graph functions, compiled once, against the interpreter at many sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pliant
from pliant.base.errors import ShapeError
from pliant.graph.function import Function
from pliant.graph.interpret import interpret
from pliant.ops.table import OPERATORS
from tests.compiled.graphs import SIZES, arguments, graphs
from tests.share import draws


def check(function: Function, weights: dict[str, np.ndarray], pairs: list[tuple[int, int]]) -> None:
    """The same as the interpreter at all sizes; an error where it gives one."""
    f = pliant.compile((function, weights))
    for n, m in pairs:
        inputs = arguments(function, {"n": n, "m": m}, 31 * n + m)
        try:
            with np.errstate(all="ignore"):
                wanted = interpret(function, weights, inputs, OPERATORS)
        except ShapeError:
            with pytest.raises(ShapeError):
                f(*inputs.values())
            continue
        found = f(*inputs.values())
        found = found if isinstance(found, tuple) else (found,)
        for have, want in zip(found, wanted, strict=True):
            want = np.asarray(want)
            assert have.dtype == want.dtype and have.shape == want.shape, (n, m)
            wide = [np.asarray(a, np.float64) for a in (have, want)]
            limit = 3e-3 if want.dtype == np.float16 else 1e-4
            np.testing.assert_allclose(*wide, rtol=limit, atol=limit, err_msg=f"n={n}, m={m}")


@settings(
    max_examples=draws(25), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(graphs(), st.lists(st.tuples(*[st.sampled_from(SIZES)] * 2), min_size=3, max_size=3))
def test_compiled_graphs_mean_what_they_say(
    program: tuple[Function, dict[str, np.ndarray]], pairs: list[tuple[int, int]]
) -> None:
    check(*program, pairs)
