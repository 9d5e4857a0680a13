"""Every stage of random graphs prints, parses back to itself, is well formed, and means the same:
to the interpreters, and compiled."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pliant
from pliant.base.dtypes import f32
from pliant.base.errors import ShapeError
from pliant.codegen.llvm.target import target
from pliant.graph.builder import Builder
from pliant.graph.function import Function, Module
from pliant.graph.inline import inline
from pliant.graph.verify import verify_module
from pliant.loop.verify import verify_function
from pliant.ops.table import OPERATORS
from pliant.sym.expr import parse_int, var
from pliant.text import parse_module, to_text
from tests.compiled.graphs import SIZES, arguments, graphs
from tests.ops.case import Case
from tests.ops.test_table import FAMILIES
from tests.share import draws
from tests.stages.oracle import Stages, run_graph, run_programs, stages_of

T = target()
QUIET = list(HealthCheck)


@settings(max_examples=draws(25), deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(graphs())
def test_stages_are_text(program: tuple[Function, dict[str, np.ndarray]]) -> None:
    stages = stages_of(*program, T)
    names = list(stages.graph)
    assert names[0] == "fission" and names[-1] == "groups"
    programs = {f.name: f for f in (*stages.kernels.values(), *(p.host for p in stages.parts))}
    for name, module in (*stages.graph.items(), ("programs", Module(programs))):
        text = to_text(module)
        again = parse_module(text, module.weights)
        assert list(again.functions) == list(module.functions)
        for f in module.functions.values():
            assert again.functions[f.name] is f, f"{name}\n{text}"
        verify_module(module, OPERATORS)
    for f in programs.values():
        verify_function(f)
    assert all("@host" in to_text(p.host) for p in stages.parts)


@settings(max_examples=draws(25), deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(graphs(), st.tuples(*[st.sampled_from(SIZES[:4])] * 2))
def test_stages_mean_the_same(
    program: tuple[Function, dict[str, np.ndarray]], pair: tuple[int, int]
) -> None:
    function, weights = program
    inputs = arguments(function, {"n": pair[0], "m": pair[1]}, 7)
    stages = stages_of(function, weights, T)
    compiled = pliant.compile(program)
    try:
        with np.errstate(all="ignore"):
            want = run_graph(function, weights, inputs)
    except ShapeError:
        return  # compiled: tests/compiled
    found = dict(meanings(stages, inputs))
    result = compiled(*inputs.values())
    found["compiled"] = list(result) if isinstance(result, tuple) else [result]
    for name, arrays in found.items():
        for have, wanted in zip(arrays, want, strict=True):
            assert have.dtype == wanted.dtype and have.shape == wanted.shape, name
            wide = [np.asarray(a, np.float64) for a in (have, wanted)]
            limit = 3e-3 if have.dtype == np.float16 else 1e-4
            np.testing.assert_allclose(*wide, rtol=limit, atol=limit, err_msg=name)


def meanings(stages: Stages, inputs: dict[str, np.ndarray]) -> list[tuple[str, list[np.ndarray]]]:
    """The results of each stage by the interpreters."""
    name = stages.function.name
    out = []
    with np.errstate(all="ignore"):
        for stage, module in stages.graph.items():
            out.append((stage, run_graph(inline(module, name), module.weights, inputs)))
        out.append(("programs", run_programs(stages, inputs, T)))
    return out


@pytest.mark.sweep(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_stages_of_every_operator_are_text(family: str) -> None:
    cases = importlib.import_module(f"tests.ops.data.{family}").CASES
    for case in {c.op: c for c in cases}.values():
        function, weights = function_of(case)
        for name, module in stages_of(function, weights, T, programs=False).graph.items():
            text = to_text(module)
            again = parse_module(text, weights).functions
            assert again == module.functions, f"{case.id}: {name}"
            verify_module(module, OPERATORS)


def function_of(case: Case) -> tuple[Function, dict[str, np.ndarray]]:
    """The case as a graph function with symbolic sizes."""
    numbers = {n: k for n, k in case.sizes[0].items() if n in case.constant}
    b = Builder("main", OPERATORS)

    def dim(d: str | int) -> Any:
        size = parse_int(str(d)).subs(numbers)
        return size.value if size.is_const else size

    def operand(a: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(map(operand, a))
        return None if a is None else b.param("x", a.dtype, [dim(d) for d in a.dims])

    args = tuple(map(operand, case.args))
    b.param("sizes", f32, [var(n) for n in case.sizes[0] if n not in numbers])
    made = b.call(case.op, *args, **case.attributes(dim))
    return b.finish(made if isinstance(made, tuple) else [made])
