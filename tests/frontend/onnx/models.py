"""Small ONNX models as text, imported."""

from __future__ import annotations

from typing import Any

import onnx
import onnx.parser

from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS


def parsed(text: str, opset: int = 17, domains: str = "") -> onnx.ModelProto:
    """A model from ONNX's text format: the graph, its header made here."""
    more = f", {domains}" if domains else ""
    header = f'<ir_version: 9, opset_import: ["" : {opset}{more}]>'
    return onnx.parser.parse_model(f"{header}\n{text}")


def imported(text: str, opset: int = 17, **options: Any) -> ImportedModel:
    """The graph function of a model in text."""
    return import_onnx(parsed(text, opset), OPERATORS, **options)


def ops_of(model: ImportedModel) -> list[str]:
    """The operators used, in order."""
    return [b.op for b in model.function.bindings]


def shapes_of(model: ImportedModel) -> list[str]:
    """The results' types as text."""
    return [str(r.type) for r in model.function.results]
