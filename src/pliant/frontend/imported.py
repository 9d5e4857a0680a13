"""What every frontend returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pliant.graph.function import Function
from pliant.runtime.manifest import Parameter
from pliant.runtime.tree import Tree


@dataclass(frozen=True)
class ImportedModel:
    """A graph function with its weights by key, and its signature in the user's words.

    `inputs` and `outputs` name the function's parameters and results, in order. `parameters` and
    `result` give the structure of arguments and results; None: plain tensors.
    `notes` are findings that the user should see.
    """

    function: Function
    weights: dict[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[Parameter, ...] | None = None
    result: Tree | None = None
    notes: tuple[str, ...] = ()
