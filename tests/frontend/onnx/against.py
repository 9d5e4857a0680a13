"""Models of one node, compared with another implementation: ONNX Runtime or ONNX's reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.node_cases import compiler
from tests.frontend.onnx.run import run


@dataclass(frozen=True)
class Case:
    """A model and its inputs."""

    model: ModelProto
    feeds: dict[str, np.ndarray]


def one_node(
    op: str, operands: Sequence[np.ndarray | TensorProto | None], *, weights: Collection[int] = (),
    outputs: int | Sequence[str] = 1, version: int = 21, domain: str = "",
    known: Collection[tuple[int, int]] = (), **attributes: Any,
) -> Case:  # fmt: skip
    """A node of these operands; those at `weights`, and tensors, are constants of the model.

    The dims of inputs have no name: they may be anything, but for those `known`, (operand, dim).
    Results of no name are not asked for.
    """
    names = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    initializers, inputs, feeds = [], [], {}
    for k, (name, a) in enumerate(zip(names, operands, strict=True)):
        if isinstance(a, TensorProto):
            a.name = name
            initializers.append(a)
        elif a is not None and k in weights:
            initializers.append(numpy_helper.from_array(a, name))
        elif a is not None:
            code = helper.np_dtype_to_tensor_dtype(a.dtype)
            shape = [n if (k, d) in known else None for d, n in enumerate(a.shape)]
            inputs.append(helper.make_tensor_value_info(name, code, shape))
            feeds[name] = a
    results = [f"y{k}" for k in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], op,  inputs, [onnx.ValueInfoProto(name=r) for r in results if r], initializers
    )  # fmt: skip
    imports = [helper.make_opsetid("", version)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    return Case(helper.make_model(graph, opset_imports=imports, ir_version=10), feeds)


def by_runtime(case: Case) -> list[np.ndarray]:
    """What ONNX Runtime computes."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, case.feeds))


def by_reference(case: Case) -> list[np.ndarray]:
    """What ONNX's own evaluator computes."""
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in ReferenceEvaluator(case.model).run(None, case.feeds)]


def check(
    case: Case, wanted: Sequence[np.ndarray], *, rtol: float = 1e-5, atol: float = 1e-5,
    native: bool = False, fixed: Collection[str] = (),
    named: Mapping[str, Sequence[str | int]] | None = None,
    within: int = 0,
) -> None:  # fmt: skip
    """The results with symbolic dims and with those of the inputs, of which `fixed` are constants;
    `named`: what the symbolic dims are called.

    `within`: how much an integer may be off; an infinity or NaN must be one.
    """
    values = {n: case.feeds[n] for n in fixed}
    free = {n: a for n, a in case.feeds.items() if n not in values}
    shapes: Sequence[Mapping[str, Sequence[str | int]]] = (
        named or {},
        {n: a.shape for n, a in free.items()},
    )
    for given in shapes:
        imported = import_onnx(case.model, OPERATORS, input_shapes=given, values=values)
        arrays = [free[n] for n in imported.inputs]
        with np.errstate(all="ignore"):
            have = compiler(imported)(arrays) if native else run(imported, arrays)
        assert len(have) == len(wanted)
        for a, b in zip(have, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if a.dtype.kind in "iu":
                np.testing.assert_allclose(a.astype(np.int64), b.astype(np.int64), 0, within)
            else:
                wide = [np.asarray(t).astype(np.float64) for t in (a, b)]
                np.testing.assert_allclose(*wide, rtol=rtol, atol=atol)
