"""Which values of a function are constants: they follow from weights alone, at known sizes."""

from __future__ import annotations

from pliant.graph.function import Function


def constant_values(function: Function) -> frozenset[str]:
    """The names of the weights, and of what is computed of constants, or of nothing."""
    known = {v.name for v, _ in function.weights}
    for binding in function.bindings:
        values = binding.operands()
        fixed = not any(d.names for v in binding.outputs for d in v.shape)
        if fixed and all(v.name in known for v in values):
            known |= {v.name for v in binding.outputs}
    return frozenset(known)
