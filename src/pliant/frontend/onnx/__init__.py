"""The ONNX frontend: models become graph functions with symbolic shapes."""

from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx.importer import import_onnx
from pliant.frontend.onnx.load import OnnxModel, load_model
from pliant.frontend.onnx.table import ONNX_OPS

__all__ = ["ONNX_OPS", "ImportedModel", "OnnxModel", "import_onnx", "load_model"]
