"""PyTorch: modules and exported programs to graph functions."""

from pliant.frontend.torch.export import Exported, export_program
from pliant.frontend.torch.importer import ImportedModel, import_exported, import_torch

__all__ = ["Exported", "ImportedModel", "export_program", "import_exported", "import_torch"]
