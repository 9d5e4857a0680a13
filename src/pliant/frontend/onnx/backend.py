"""Pliant as a backend for ONNX's own tests.

    Backend = make_backend(operators, compile)
    onnx.backend.test.BackendTest(Backend, __name__)

What is not supported raises `NotImplementedInOnnxError`, which ONNX's runner counts as skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from pliant.base.dtypes import from_numpy
from pliant.base.errors import UnsupportedError
from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx.importer import import_onnx
from pliant.frontend.onnx.inputs import InputShapes
from pliant.frontend.onnx.load import load_model
from pliant.frontend.onnx.site import NeedsValueError
from pliant.frontend.onnx.tensors import element_code
from pliant.graph.operator import Operators

Runner = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
Compile = Callable[[ImportedModel], Runner]


class NotImplementedInOnnxError(UnsupportedError, BackendIsNotSupposedToImplementIt):
    """A test that Pliant does not support."""


class PliantRep(BackendRep):
    """A model ready to run.

    Where inputs decide shapes or modes it is compiled for their values, when these are known.
    """

    def __init__(
        self, model: ModelProto, operators: Operators, compile_model: Compile,
        input_shapes: InputShapes | None = None,
    ) -> None:  # fmt: skip
        self.operators = operators
        self.compile_model = compile_model
        self.shapes = dict(input_shapes or {})
        self.inputs = _input_names(model)
        self.fixed: frozenset[str] = frozenset()
        self._runner: Runner | None = None
        try:
            self.model = load_model(model)
            self._runner = compile_model(
                import_onnx(self.model, operators, input_shapes=self.shapes)
            )
        except NeedsValueError as error:
            self.fixed = error.inputs
        except UnsupportedError as error:
            raise NotImplementedInOnnxError(str(error)) from error

    def run(self, inputs: Any, **_: Any) -> tuple[np.ndarray, ...]:
        """Run on arrays in the model's order, or by name."""
        named = inputs if isinstance(inputs, dict) else dict(zip(self.inputs, inputs, strict=False))
        try:
            runner = self._runner or self._specialised(named)
        except UnsupportedError as error:
            raise NotImplementedInOnnxError(str(error)) from error
        return tuple(runner([np.asarray(named[n]) for n in self.inputs if n not in self.fixed]))

    def _specialised(self, named: dict[str, Any]) -> Runner:
        while True:
            values = {n: np.asarray(named[n]) for n in self.fixed}
            try:
                shapes = {n: d for n, d in self.shapes.items() if n not in values}
                imported = import_onnx(
                    self.model, self.operators, input_shapes=shapes, values=values
                )
            except NeedsValueError as error:
                if error.inputs <= self.fixed:
                    raise
                self.fixed |= error.inputs
                continue
            return self.compile_model(imported)


def make_backend(operators: Operators, compile_model: Compile) -> type[Backend]:
    """A backend that runs imported models by `compile_model`."""

    class PliantBackend(Backend):
        """Pliant."""

        @classmethod
        def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> PliantRep:
            """A model ready to run."""
            return PliantRep(model, operators, compile_model)

        @classmethod
        def run_model(
            cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
        ) -> tuple[np.ndarray, ...]:
            """Run a model once."""
            return cls.prepare(model, device, **kwargs).run(inputs)

        @classmethod
        def run_node(
            cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None,
            **kwargs: Any,
        ) -> tuple[np.ndarray, ...]:  # fmt: skip
            """Run one node."""
            model = node_model(node, inputs, kwargs.get("opset_version"))
            return cls.run_model(model, inputs, device)

        @classmethod
        def supports_device(cls, device: str) -> bool:
            """The processor only."""
            return device.split(":")[0].upper() == "CPU"

    return PliantBackend


def node_model(
    node: NodeProto, inputs: Sequence[np.ndarray], opset: int | None = None
) -> ModelProto:
    """A model of one node for inputs of these types."""
    names = [n for n in node.input if n]
    infos = [
        helper.make_tensor_value_info(n, element_code(from_numpy(a.dtype)), a.shape)
        for n, a in zip(names, map(np.asarray, inputs), strict=True)
    ]
    results = [
        helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in node.output if n
    ]
    graph = helper.make_graph([node], node.op_type, infos, results)
    imports = None if opset is None else [helper.make_opsetid(node.domain, opset)]
    return helper.make_model(graph, opset_imports=imports)


def _input_names(model: ModelProto) -> tuple[str, ...]:
    weights = {t.name for t in model.graph.initializer}
    return tuple(i.name for i in model.graph.input if i.name not in weights)
