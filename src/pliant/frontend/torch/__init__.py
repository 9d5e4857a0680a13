"""PyTorch: modules and exported programs to graph functions."""

from pliant.frontend.torch.export import Exported, export
from pliant.frontend.torch.importer import ImportedModel, import_exported, import_torch

__all__ = ["Exported", "ImportedModel", "export", "import_exported", "import_torch"]
