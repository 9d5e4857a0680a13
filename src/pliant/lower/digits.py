"""A reduction over what was flattened is one over the dimensions that were there.

    m[n, g] = sum_r x[n, 4*g + r//(h*w), r//w%h, r%w]     r < 4*h*w
 ->
    m[n, g] = sum_{c, i, j} x[n, 4*g + c, i, j]           c < 4, i < h, j < w

Only then can it go through x as x lies, whose channels may be last. (ONNX says a group norm so: as
an instance norm of images without dimensions.)
"""

from __future__ import annotations

from dataclasses import replace

from pliant.ir.expr import Axis, Index, Load, Reduce, index_names, substitute
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.access import ROW_COMBINERS, classify
from pliant.lower.inline_copies import simplify_indices
from pliant.lower.stages import Stages
from pliant.sym.divide import exact_quotient
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts


def split_digits(s: Stages) -> None:
    """Rewrite in place."""
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and stage.notes == () and classify(tensor) == "reduction":
            for axis in tensor.reduce_axes:
                tensor = _split(tensor, axis, s.facts) or tensor
            if tensor is not stage.tensor:
                s.stages[name] = replace(stage, tensor=tensor)


def _split(tensor: Compute, axis: Axis, facts: Facts) -> Compute | None:
    """With an axis for each dimension that `axis` runs through; None where it does not so."""
    body = tensor.body
    assert isinstance(body, Reduce)
    if body.combiner not in ROW_COMBINERS:
        return None
    inner = next((x for n in own_nodes(body.body) if (x := _run_through(n, axis.var))), None)
    if inner is None:
        return None
    length = as_int(1)
    for extent in inner:
        length = length * extent
    outer = exact_quotient(axis.extent, length)
    if outer is None or any(len(n.pairs) > 1 for n in (outer, *inner)):
        return None  # of products of sums, such as (h - 2)*(w - 2), too little is seen later
    new = [Axis(f"{axis.var}_{k}", n) for k, n in enumerate((outer, *inner))]
    at = as_int(0)
    for a in new:
        at = at * a.extent + var(a.var)
    axes = [x for a in body.axes for x in (new if a is axis else [a])]
    value = substitute(body.body, {axis.var: at})
    found = simplify_indices(tensor.replace(body=Reduce(body.combiner, tuple(axes), value)), facts)
    names = {a.var for a in new}
    indices = [n for n in own_nodes(found.body) if isinstance(n, Index)]
    plain = all(i.int_.linear(x) is not None for i in indices for x in index_names(i) & names)
    return found if plain else None


def _run_through(node: object, name: str) -> tuple[Int, ...]:
    """The inner ones of the dimensions that an iterator runs through in a load; empty where these
    are not several, one after the other."""
    if not isinstance(node, Load):
        return ()
    dims = [d for d, i in enumerate(node.indices) if name in index_names(i)]
    if len(dims) < 2 or dims != list(range(dims[0], dims[-1] + 1)):
        return ()
    return tuple(node.source.shape[d] for d in dims[1:])
