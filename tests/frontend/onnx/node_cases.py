"""Runs ONNX's own node tests through the frontend, then the graph interpreter or the compiler."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from pliant.base.errors import UnsupportedError
from pliant.codegen.llvm.target import target
from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx.backend import Compile as Runner
from pliant.frontend.onnx.backend import PliantRep
from pliant.ops.table import OPERATORS
from pliant.pipeline import compile_imported
from tests.frontend.onnx.run import run

PASS, REFUSED, WRONG, CRASH = "pass", "refused", "WRONG", "crash"

_LEFT_OUT_OPS = {
    "strings": {"StringNormalizer", "StringSplit", "StringConcat", "RegexFullMatch",
                "TfIdfVectorizer"},
}  # fmt: skip
_SMALL = {
    code
    for name, code in TensorProto.DataType.items()
    if name.startswith(("FLOAT8", "FLOAT4")) or name in ("INT4", "UINT4", "INT2", "UINT2")
}

# Two units in the last place: what the expected values themselves are rounded to, op by op.
_ULPS = {"bfloat16": 2.0**-6, "float16": 2.0**-9}


@dataclass(frozen=True)
class Outcome:
    """What became of one test."""

    name: str
    op: str
    result: str
    detail: str = ""


def node_tests() -> list[Any]:
    """All of ONNX's node tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return list(load_model_tests(kind="node"))


def operator_of(case: Any) -> str:
    """The operator that a test is about: of an expanded test, the one that was expanded."""
    nodes = case.model.graph.node
    if len(nodes) == 1:
        return str(nodes[0].op_type)
    stem = case.name.removeprefix("test_").split("_expanded")[0]
    return f"{stem.split('_')[0]}… (expanded)"


# Their expected values use a fractional output length; the text of the operator, ONNX Runtime and
# torch use the real one.
_CONTRADICTORY = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}


# What they expect of a zero is how far NumPy's transform is from one, more than they allow.
_ROUNDED = {"test_dft_inverse", "test_dft_inverse_opset19"}


def left_out(model: ModelProto) -> str:
    """Why a test is out of scope; empty where it is in scope."""
    if model.graph.name in _CONTRADICTORY:
        return "contradict the specification"
    if model.graph.name in _ROUNDED:
        return "expect a rounding error"
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind in ("sequence_type", "optional_type"):
            return "sequences and optionals as inputs or results"
        code = value.type.tensor_type.elem_type
        if code in _SMALL:
            return "4- and 8-bit floats and integers"
        if code == TensorProto.STRING:
            return "strings"
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx", "ai.onnx.preview"):
            return "training" if "training" in node.domain else "other domains"
        for why, ops in _LEFT_OUT_OPS.items():
            if node.op_type in ops:
                return why
        if node.op_type == "Cast" and node.attribute[0].i in _SMALL:
            return "4- and 8-bit floats and integers"
    return ""


def interpreter(imported: ImportedModel) -> Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]:
    """Runs an imported model with NumPy."""
    return lambda arrays: run(imported, arrays)


def symbolic_shapes(model: ModelProto) -> dict[str, tuple[None, ...]]:
    """Every dim of every input unknown."""
    tensors = {i.name: i.type.tensor_type for i in model.graph.input}
    return {n: (None,) * len(t.shape.dim) for n, t in tensors.items() if t.HasField("shape")}


def compiler(imported: ImportedModel) -> Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]:
    """Runs an imported model natively."""
    f = compile_imported(imported, target("native"), OPERATORS)

    def run_native(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        results = f(*arrays)
        return results if isinstance(results, tuple) else (results,)

    return run_native


def run_isolated(case: Any, *, dynamic: bool = False, seconds: int = 60) -> Outcome:
    """Compile, run and compare one test in a child process, which may crash or hang."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        outcome = run_case(case, dynamic=dynamic, runner=compiler)
        os.write(write, json.dumps(dataclasses.astuple(outcome)).encode()[:60_000])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if said:
        return Outcome(*json.loads(said))
    return Outcome(case.name, operator_of(case), CRASH, f"the process ended with status {status}")


def run_case(case: Any, *, dynamic: bool = False, runner: Runner = interpreter) -> Outcome:
    """Import, run and compare one test; `dynamic`: with every dim a symbol."""
    op = operator_of(case)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            shapes = symbolic_shapes(case.model) if dynamic else None
            rep = PliantRep(case.model, OPERATORS, runner, shapes)
            for inputs, wanted in case.data_sets:
                have = rep.run([_array(a) for a in inputs])
                difference = _difference(have, [_array(a) for a in wanted], case.rtol, case.atol)
                if difference:
                    return Outcome(case.name, op, WRONG, difference)
    except UnsupportedError as error:
        return Outcome(case.name, op, REFUSED, str(error)[:2000])
    except Exception as error:
        return Outcome(case.name, op, CRASH, f"{type(error).__name__}: {error}"[:2000])
    return Outcome(case.name, op, PASS)


def _array(given: Any) -> np.ndarray:
    """Some tests give arrays, some tensors of ONNX."""
    return np.asarray(numpy_helper.to_array(given) if isinstance(given, TensorProto) else given)


def _difference(have: Sequence[Any], wanted: Sequence[Any], rtol: float, atol: float) -> str:
    if len(have) != len(wanted):
        return f"{len(have)} results, not {len(wanted)}"
    for k, (a, b) in enumerate(zip(have, wanted, strict=True)):
        a = np.asarray(a)
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if a.dtype.kind not in "biu":
            a, b = a.astype(np.float64), b.astype(np.float64)
        rtol = max(rtol, _ULPS.get(have[k].dtype.name, 0.0))
        try:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
        except AssertionError as error:
            return f"result {k}: {str(error).strip()[:300]}"
    return ""


def cases(chosen: Callable[[Any], bool] = lambda case: True) -> Iterator[Any]:
    """The tests in scope."""
    return (c for c in node_tests() if chosen(c) and not left_out(c.model))
