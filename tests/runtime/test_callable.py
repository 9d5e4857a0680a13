"""`Compiled`: names, structures, counters, several functions."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import types
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from pliant.base.errors import InvalidModelError, ResourceError, ShapeError, UnsupportedError
from pliant.runtime.callable import Program, bytes_of
from pliant.runtime.manifest import Parameter
from pliant.runtime.tree import LEAF, Tree, tuple_of
from tests.runtime import tiny

X = np.arange(6, dtype=np.float32)
Y = X[::-1]


def structured(**changes: Any) -> Any:
    """`add` with other parameters or another result."""
    base = tiny.manifest()
    function = replace(base.function("add"), **changes)
    return tiny.program(manifest=replace(base, functions=(function,))).function("add")


def test_arguments_by_name_and_position():
    g = tiny.program().function("add")
    for s, d in (g(X, Y), g(X, y=Y), g(y=Y, x=X)):
        np.testing.assert_array_equal(s, X + Y)
        np.testing.assert_array_equal(d, X - Y)


@pytest.mark.parametrize(
    ("args", "kwargs", "pattern"),
    [
        ((X,), {"z": Y}, "'y' is missing"),
        ((X, Y), {"z": Y}, "unknown arguments z; it has x, y"),
        ((X, Y), {"x": Y}, "'x' is given twice"),
        ((X, Y, X), {"y": Y}, "takes 2 positional arguments, got 3"),
    ],
)
def test_wrong_arguments(args, kwargs, pattern):
    with pytest.raises(ShapeError, match=pattern):
        tiny.program().function("add")(*args, **kwargs)


def test_run_by_name():
    p = tiny.program()
    results = p.function("add").run({"y": Y, "x": X})
    assert list(results) == ["sum", "difference"]
    np.testing.assert_array_equal(results["sum"], X + Y)
    out = np.empty_like(X)
    results = p.function("add").run({"y": Y, "x": X}, out={"difference": out})
    assert results["difference"] is out
    assert list(p.function("add_one").run({"x": X})) == ["z"]
    with pytest.raises(ShapeError, match="inputs: missing y; unknown why; there are: x, y"):
        p.function("add").run({"x": X, "why": Y})
    with pytest.raises(ShapeError, match="outputs: unknown total"):
        p.function("add").run({"x": X, "y": Y}, out={"total": out})


def test_nested_arguments():
    pair = Parameter("pair", Tree("dict", (LEAF, Tree("list", (LEAF,))), keys=("a", "b")))
    flag = Parameter("flag", Tree("const", value=True), keyword_only=True)
    g = structured(parameters=(pair, flag))
    for s, _ in (g({"a": X, "b": [Y]}), g(pair={"b": (Y,), "a": X}, flag=True)):
        np.testing.assert_array_equal(s, X + Y)
    for args, kwargs, pattern in [
        (({"a": X},), {}, r"pair: the dict lacks \['b'\]"),
        (({"a": X, "b": [Y], "c": X},), {}, r"pair: the dict has unknown \['c'\]"),
        (({"a": X, "b": Y},), {}, r"pair\['b'\]: expected a list of 1, got ndarray"),
        (({"a": X, "b": [Y, Y]},), {}, r"pair\['b'\]: expected a list of 1, got list of 2"),
        ((X,), {}, "pair: expected a dict"),
        (({"a": X, "b": [Y]},), {"flag": 1}, "compiled for the value True, got 1"),
        (({"a": X, "b": [Y]}, True), {}, "takes 1 positional"),
    ]:
        with pytest.raises(ShapeError, match=pattern):
            g(*args, **kwargs)


@dataclass
class Output:
    total: Any
    rest: Any


def test_results_have_the_sources_structure():
    tree = Tree("dict", (LEAF, Tree("list", (LEAF, Tree("const")))), keys=("total", "rest"))
    result = structured(result=tree)(X, Y)
    np.testing.assert_array_equal(result["total"], X + Y)
    assert result["rest"][1] is None
    module = types.ModuleType("some_loaded_module")
    module.Output = Output
    sys.modules["some_loaded_module"] = module
    named = replace(tree, type_name="some_loaded_module:Output")
    assert isinstance(structured(result=named)(X, Y), Output)
    del sys.modules["some_loaded_module"]
    assert isinstance(structured(result=named)(X, Y), dict)
    pair = Tree("namedtuple", (LEAF, LEAF), keys=("s", "d"), type_name="not.loaded:Pair")
    result = structured(result=pair)(X, Y)
    assert type(result).__name__ == "Pair"
    np.testing.assert_array_equal(result.d, X - Y)
    assert isinstance(structured(result=tuple_of(2))(X, Y), tuple)
    assert isinstance(structured(result=Tree("list", (LEAF, LEAF)))(X, Y), list)


def test_out_in_the_results_structure_or_flat():
    tree = Tree("dict", (LEAF, Tree("list", (LEAF,))), keys=("total", "rest"))
    g = structured(result=tree)
    s, d = np.empty_like(X), np.empty_like(X)
    for out in ({"total": s, "rest": [d]}, (s, d), [s, d]):
        s[:] = d[:] = 0
        result = g(X, Y, out=out)
        assert result["total"] is s
        assert result["rest"][0] is d
        np.testing.assert_array_equal(d, X - Y)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_code_is_not_copied(copied):
    with pytest.raises(UnsupportedError, match="save"):
        copied(tiny.program().function("add"))


def test_stats_and_texts():
    p = tiny.program(threads=1)
    f = p.function("add_one")
    f(X)
    f(torch.ones(3))
    f(np.zeros(13, np.uint8)[1:].view(np.float32))  # unaligned: one counted copy
    stats = f.stats()
    assert stats["compiles"] == 1
    assert stats["calls"] == 3
    assert stats["input_copies"] == 1
    assert stats["threads"] == 1
    assert stats["weights_bytes"] == 76
    assert stats["measured_peak_bytes"] == 64
    assert f.explain() == "one loop"
    assert f["add"].explain().startswith("add(x: f32[n], y: f32[m]) -> sum: f32[n]")
    assert repr(f) == "<pliant.Compiled add_one(x: f32[n]) -> z: f32[n]>"
    assert f["add_one"].stats()["calls"] == 3  # the same counters
    with pytest.raises(ShapeError, match="no function 'nope'; there are: add_one, add"):
        f["nope"]


def test_programs_are_checked():
    addresses, _ = tiny.entries()
    with pytest.raises(InvalidModelError, match="lists 1 weights, 0 are given"):
        Program(tiny.manifest(), addresses)
    with pytest.raises(InvalidModelError, match="weight w: 8 bytes, not 12"):
        Program(tiny.manifest(), addresses, weights=[np.zeros(1)])
    with pytest.raises(InvalidModelError, match="at least 1"):
        tiny.program(threads=0)
    p = Program(tiny.manifest(), addresses, weights=[bytes(12)])
    with pytest.raises(ResourceError, match="cannot be saved"):
        p.save("x.so")


def test_programs_go_when_nobody_holds_them():
    class Code:
        pass

    addresses, _ = tiny.entries()
    code = Code()
    gone = weakref.ref(code)
    f = Program(tiny.manifest(), addresses, weights=[bytes(12)], keepalive=code).function("add")
    y = f(X, X)
    code.cycle = f
    del code, f
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(y[0], 2 * X)


def test_weights_are_aligned_without_needless_copies():
    p = tiny.program()
    assert all(w.__array_interface__["data"][0] % 64 == 0 for w in p.weights)
    aligned = p.weights[0]
    assert bytes_of(aligned).__array_interface__["data"] == aligned.__array_interface__["data"]
    scattered = bytes_of(np.arange(10, dtype=np.int16)[::2])
    assert scattered.tobytes() == np.array([0, 2, 4, 6, 8], np.int16).tobytes()
