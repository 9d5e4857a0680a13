"""Runs an imported model with NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.frontend.imported import ImportedModel
from pliant.graph.interpret import bind_sizes, interpret
from pliant.loop.interpret import interpret as run_program
from pliant.ops.table import OPERATORS


def run(model: ImportedModel, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results for these arguments, which have the inferred shapes and types."""
    function = model.function
    names = [p.name for p in function.params]
    inputs = dict(zip(names, map(np.asarray, arrays), strict=True))
    results = interpret(function, model.weights, inputs, OPERATORS, run_program)
    sizes = bind_sizes(function, {n: a.shape for n, a in inputs.items()})
    for value, array in zip(function.results, results, strict=True):
        assert array.dtype == value.dtype.numpy, (value, array.dtype)
        assert array.shape == tuple(d.eval(sizes) for d in value.shape), (value, array.shape)
    return results
