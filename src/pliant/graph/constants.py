"""Which values of a function are constants: they follow from weights alone, at known sizes."""

from __future__ import annotations

from pliant.graph.function import Function


def constant_values(function: Function) -> frozenset[str]:
    """The names of the weights, and of what is computed of constants. Numbers of the model may be
    among their operands; what is made of these alone is computed where it is wanted."""
    known = {v.name for v, _ in function.weights}
    numbers = set[str]()
    for binding in function.bindings:
        operands = {v.name for v in binding.operands()}
        fixed = not any(d.names for v in binding.outputs for d in v.shape)
        if fixed and operands <= known | numbers:
            of_weights = not operands.isdisjoint(known)
            (known if of_weights else numbers).update(v.name for v in binding.outputs)
    return frozenset(known)
