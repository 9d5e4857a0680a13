"""What is said of options that are not what they should be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

import pliant
from pliant import Dim, InvalidModelError, PliantError, ShapeError, UnsupportedError
from pliant.codegen.llvm import target as targets
from pliant.codegen.llvm.target import FEATURE_SETS
from pliant.runtime import features


def relu() -> onnx.ModelProto:
    """y = relu(x), x: f32[batch, 8]."""
    info = [helper.make_tensor_value_info(n, 1, ["batch", 8]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MODEL = relu()
LINEAR = nn.Linear(4, 3).eval()
X = torch.ones(5, 4)
NOT_A_DIM = """\
dims is a dict from a dimension's name to a pliant.Dim, such as {"seq": pliant.Dim(min=1, \
max=4096)}; it has """

DIMS: dict[str, tuple[dict[str, Any], str]] = {
    "min above max": ({"min": 5, "max": 2}, "Dim(min=5, max=2) allows no size"),
    "no multiple": (
        {"min": 5, "max": 7, "multiple": 4}, "Dim(min=5, max=7, multiple=4) allows no size",
    ),
    "negative": ({"min": -5}, "min of a Dim is a number from 0 to 2**63 - 1, not -5"),
    "huge": ({"max": 10**30}, f"max of a Dim is a number from 0 to 2**63 - 1, not {10**30}"),
    "multiple of 0": ({"multiple": 0}, "multiple of a Dim is a number from 1 to 2**63 - 1, not 0"),
    "text": ({"min": "a"}, "min of a Dim is a whole number, not 'a'"),
    "fraction": ({"min": 1.5}, "min of a Dim is a whole number, not 1.5"),
    "bool": ({"max": True}, "max of a Dim is a whole number, not True"),
    "likely": ({"likely": "abc"}, "likely of a Dim is a tuple of sizes, not 'abc'"),
    "likely outside": (
        {"max": 4, "likely": (9,)}, "Dim(max=4, likely=(9,)) does not allow the likely size 9",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DIMS)
def test_impossible_dims(case: str) -> None:
    fields, text = DIMS[case]
    with pytest.raises(ShapeError) as caught:
        Dim(**fields)
    assert str(caught.value) == text


def test_dims_take_numbers_of_other_libraries() -> None:
    assert Dim(max=np.int64(4), likely=[np.int32(2)]) == Dim(max=4, likely=(2,))  # type: ignore


def test_dims_that_contradict_each_other() -> None:
    assert Dim(1, 9, 2).merged(Dim(3, None, 3)) == Dim(3, 9, 6)
    with pytest.raises(ShapeError) as caught:
        Dim(min=5).merged(Dim(max=4))
    text = "Dim(min=5) and Dim(max=4), of one dimension, contradict each other"
    assert str(caught.value) == text


# options of pliant.compile for MODEL, the class and the text of the error
OPTIONS: dict[str, tuple[dict[str, Any], type[PliantError], str]] = {
    "unknown dim": ({"dims": {"q": Dim()}}, ShapeError, "the model has no dim 'q'; it has: batch"),
    "dims as list": (
        {"dims": [("batch", Dim())]}, ShapeError,
        "dims is a dict from a dimension's name to a pliant.Dim, not a list",
    ),
    "dims of ints": ({"dims": {"batch": 4}}, ShapeError, NOT_A_DIM + "'batch': 4"),
    "dims by number": ({"dims": {3: 4}}, ShapeError, NOT_A_DIM + "3: 4"),
    "threads 0": (
        {"threads": 0}, InvalidModelError,
        "threads must be None or a whole number, at least 1, not 0",
    ),
    "threads as text": (
        {"threads": "2"}, InvalidModelError,
        "threads must be None or a whole number, at least 1, not '2'",
    ),
    "memory as text": (
        {"memory_limit": "1GB"}, InvalidModelError,
        "memory_limit must be None or a whole number, at least 1, not '1GB'",
    ),
    "progress": (
        {"progress": "yes"}, InvalidModelError,
        "progress must be a function of (phase, done, of), not 'yes'",
    ),
    "emit": (
        {"emit": "graph"}, InvalidModelError,
        "emit must be a pliant.base.settings.Emit: a folder, and kinds of stages, not 'graph'",
    ),
    "target": (
        {"target": "z80"}, UnsupportedError,
        f"no target 'z80'; there are: native, {', '.join(FEATURE_SETS)}",
    ),
    "numerics": (
        {"numerics": "quick"},
        InvalidModelError,
        "numerics must be one of fast, strict, batch_invariant, not 'quick'",
    ),
    "precision": (
        {"precision": "int4"}, UnsupportedError,
        "precision='int4' is not available; there are: None (as the model says), 'bf16', 'int8'",
    ),
    "args": (
        {"args": (X,)}, InvalidModelError,
        "an ONNX model takes no example inputs: its file says what they are; call "
        "pliant.compile(path)",
    ),
    "args as tensor": (
        {"args": X}, InvalidModelError,
        "args are the example inputs in a tuple, not a torch.Tensor; for one input write (x,)",
    ),
    "kwargs as list": (
        {"kwargs": [1]}, InvalidModelError,
        "kwargs are example inputs in a dict by name, not a list",
    ),
    "programs as list": (
        {"programs": ["relu"]}, InvalidModelError, "programs is a dict by operator, not ['relu']",
    ),
    "shapes as text": (
        {"dynamic_shapes": "batch"}, ShapeError,
        "dynamic_shapes of an ONNX model is a dict by input name",
    ),
    "shapes of no input": (
        {"dynamic_shapes": {"q": {0: "b"}}}, ShapeError, "g has no input 'q'; it has: x",
    ),
    "shapes of an int": (
        {"dynamic_shapes": {"x": 3}}, ShapeError,
        "dynamic_shapes of 'x' is a dict by dimension, such as {0: \"batch\"}, or a tuple with an "
        "entry for each; not 3",
    ),
    "no such axis": (
        {"dynamic_shapes": {"x": {7: "b"}}}, ShapeError, "'x' has rank 2, there is no dim 7",
    ),
    "axis as text": (
        {"dynamic_shapes": {"x": {"0": "b"}}}, ShapeError, "'x' has rank 2, there is no dim '0'",
    ),
    "a dim of no name": (
        {"dynamic_shapes": {"x": {0: "--"}}}, ShapeError, "g: input 'x': '--' cannot name a dim",
    ),
    "a fraction": (
        {"dynamic_shapes": {"x": {0: 1.5}}}, ShapeError, "dynamic_shapes: 1.5 is no dimension",
    ),
    "a huge dim": (
        {"dynamic_shapes": {"x": {0: 2**70}}}, ShapeError,
        f"g: input 'x': dim 0 cannot be {2**70}",
    ),
    "a negative dim": (
        {"dynamic_shapes": {"x": {0: -7}}}, ShapeError, "g: input 'x': dim 0 cannot be -7",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_options(case: str) -> None:
    options, error, text = OPTIONS[case]
    with pytest.raises(error) as caught:
        pliant.compile(MODEL, **options)
    assert str(caught.value) == text


def test_a_range_instead_of_a_name() -> None:
    for dim in (Dim(1, 4), torch.export.Dim("batch", min=1, max=4)):
        f = pliant.compile(MODEL, dynamic_shapes={"x": {0: dim}})
        with pytest.raises(ShapeError, match=r"x: dim 0 \(batch\) must be at most 4, got 5"):
            f(np.ones((5, 8), np.float32))


class Two(nn.Module):
    """Of two arguments."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


TWO = "the example inputs do not fit Two.forward: "
# model, positional arguments of pliant.compile, others
TORCH: dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any], str]] = {
    "too few": (Two(), (X,), {}, TWO + "missing a required argument: 'y'"),
    "too many": (Two(), (X, X, X), {}, TWO + "too many positional arguments"),
    "unknown": (
        Two(), (X, X), {"kwargs": {"z": X}}, TWO + "got an unexpected keyword argument 'z'",
    ),
    "twice": (Two(), (X, X), {"kwargs": {"x": X}}, TWO + "multiple values for argument 'x'"),
    "does not run": (
        LINEAR, (torch.ones(5, 7),), {},
        "the model fails on the example inputs: RuntimeError: mat1 and mat2 shapes cannot be "
        "multiplied (5x7 and 4x3)",
    ),
    "shapes of a name": (
        LINEAR, (X,), {"dynamic_shapes": "batch"},
        "dynamic_shapes is a dict by argument, or a tuple with an entry for each, such as "
        "{\"x\": {0: \"batch\"}}; not 'batch'",
    ),
    "too many shapes": (
        LINEAR, (X,), {"dynamic_shapes": ({0: "a"}, {0: "b"})},
        "dynamic_shapes has 2 entries; there are 1 arguments",
    ),
    "shapes of no argument": (
        LINEAR, (X,), {"dynamic_shapes": {"q": {0: "b"}}},
        "dynamic_shapes names 'q'; the arguments are input",
    ),
    "shapes of an int": (
        LINEAR, (X,), {"dynamic_shapes": (5,)},
        "dynamic_shapes of input is a dict by dimension, such as {0: \"batch\"}, or a tuple with "
        "an entry for each; not 5",
    ),
    "an axis from the end": (
        LINEAR, (X,), {"dynamic_shapes": ({-2: "b"},)},
        "dynamic_shapes of input: no dimension -2 in rank 2",
    ),
    "no dimension": (
        LINEAR, (X,), {"dynamic_shapes": ({0: 1.5},)},
        "dynamic_shapes of input: 1.5 is no dimension",
    ),
    "names that become one": (
        Two(), (X, X), {"dynamic_shapes": ({0: "a-b"}, {0: "a_b"})},
        "dynamic_shapes: 'a_b' and 'a-b' are the same name; rename one of them",
    ),
    "a name of two sizes": (
        Two(), (torch.ones(3, 4), torch.ones(1, 4)), {"dynamic_shapes": ({0: "a"}, {0: "a"})},
        "the dimension 'a' has different sizes: [1, 3]",
    ),
    "an example outside": (
        LINEAR, (X,), {"dynamic_shapes": ({0: "b"},), "dims": {"b": Dim(1, 4)}},
        "the example has the size 5 in the dimension 'b', which Dim(min=1, max=4) does not allow",
    ),
    "an unknown dim": (
        LINEAR, (X,), {"dynamic_shapes": ({0: "b"},), "dims": {"c": Dim(1, 4)}},
        "the model has no dim 'c'; it has: b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TORCH)
def test_wrong_options_of_torch_models(case: str) -> None:
    model, args, options, text = TORCH[case]
    with pytest.raises((InvalidModelError, ShapeError)) as caught:
        pliant.compile(model, args, **options)
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["lambda", "min", "a b", "größe²", "", "7", "_x"])
def test_any_text_may_name_a_dim(name: str) -> None:
    f = pliant.compile(LINEAR, (X,), dynamic_shapes=({0: name},), dims={name: Dim(max=9)})
    (symbol,) = f.function.symbols
    assert symbol.name.isidentifier()
    assert f(torch.ones(7, 4)).shape == (7, 3)
    with pytest.raises(ShapeError, match="must be at most 9, got 10"):
        f(torch.ones(10, 4))


def test_a_narrow_range() -> None:
    f = pliant.compile(
        LINEAR, (torch.ones(2, 4),), dynamic_shapes=({0: "b"},), dims={"b": Dim(1, 2)}
    )
    assert [f(torch.ones(n, 4)).shape[0] for n in (1, 2)] == [1, 2]
    with pytest.raises(ShapeError, match="at most 2"):
        f(torch.ones(3, 4))


NO_MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "cannot compile a NoneType: give a torch module"),
    "a number": (lambda: 3, "cannot compile a int: "),
    "a function": (lambda: relu, "cannot compile a function: "),
    "a tensor": (lambda: X, "cannot compile a torch.Tensor: "),
    "a node": (lambda: MODEL.graph.node[0], "cannot compile a onnx.onnx_ml_pb2.NodeProto: "),
}


@pytest.mark.parametrize("case", NO_MODELS)
def test_what_is_no_model(case: str) -> None:
    make, text = NO_MODELS[case]
    with pytest.raises(UnsupportedError) as caught:
        pliant.compile(make())
    assert str(caught.value).startswith(text)


def test_paths_that_are_none(tmp_path: Path) -> None:
    for path, text in (
        (tmp_path, f"{tmp_path}: Is a directory"),
        (tmp_path / "no.onnx", f"{tmp_path / 'no.onnx'}: No such file or directory"),
        ("a\0b", "'a\\x00b' cannot be the path of a model: embedded null byte"),
    ):
        with pytest.raises(InvalidModelError) as caught:
            pliant.compile(path)
        assert str(caught.value) == text


def test_code_for_another_processor_is_not_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    have = frozenset(features.host_features() or ()) | set(FEATURE_SETS["x86-64-avx512"])
    have -= {"avx512bw"}
    monkeypatch.setattr(features, "host_features", lambda: have)
    with pytest.raises(UnsupportedError, match=r"needs .*avx512bw, which this CPU lacks"):
        pliant.compile(MODEL, target="x86-64-avx512")


def test_tiles_need_permission(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have = frozenset(features.host_features() or ()) | set(FEATURE_SETS["x86-64-amx"])
    monkeypatch.setattr(features, "host_features", lambda: have)
    monkeypatch.setattr(features._native, "request_amx", lambda: False)
    with pytest.raises(UnsupportedError, match=r"needs amx-tile, .* the system does not let this"):
        pliant.compile(MODEL, target="x86-64-amx")
    every = dict.fromkeys(FEATURE_SETS["x86-64-amx"], True)
    monkeypatch.setattr(targets.llvm, "get_host_cpu_features", lambda: every)
    assert targets._native_name.__wrapped__() == "x86-64-avx512-bf16"  # the next best
    monkeypatch.setattr(features._native, "request_amx", lambda: True)
    assert targets._native_name.__wrapped__() == "x86-64-amx"


def test_calls_by_name_take_dicts() -> None:
    f = pliant.compile(MODEL)
    x = np.ones((2, 8), np.float32)
    for call, text in (
        (lambda: f.run([x]), "main.run: inputs must be a dict of tensors by name, not a list"),
        (
            lambda: f.run({"x": x}, [x]),
            "main.run: out must be a dict of tensors by name, not a list",
        ),
        (lambda: f["decode"], "there is no function 'decode'; there are: main"),
    ):  # fmt: skip
        with pytest.raises(ShapeError) as caught:
            call()  # type: ignore[no-untyped-call]
        assert str(caught.value) == text


def test_the_native_target_has_the_first_cache_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux tells it, or of what size targets have by default; named targets never depend on
    the machine."""
    named = targets.target(targets.target("native").name)
    assert named.l1 == targets.Target.l1 == 32 << 10
    told = [("1", "Instruction", "64K"), ("1", "Data", "48K"), ("2", "Unified", "2048K")]
    for k, facts in enumerate(told):
        (tmp_path / f"index{k}").mkdir()
        for name, fact in zip(("level", "type", "size"), facts, strict=True):
            (tmp_path / f"index{k}" / name).write_text(fact + "\n")
    for folder, bytes_ in ((tmp_path, 48 << 10), (tmp_path / "none", 32 << 10)):
        monkeypatch.setattr(targets, "_CACHES", folder)
        targets._first_cache.cache_clear()
        assert targets.target("native") == dataclasses.replace(named, l1=bytes_)
    (tmp_path / "index1" / "size").write_text("strange")
    targets._first_cache.cache_clear()
    assert targets.target("native") == named
    targets._first_cache.cache_clear()
