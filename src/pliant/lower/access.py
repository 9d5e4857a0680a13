"""What a comprehension does, derived from its accesses (Relax §pattern kinds, never a table).

copy         body is one load at affine places: a view of other memory
map          no reduction: elementwise, broadcast, gather, padded …
contraction  sum of products of two operands, each with iterators of its own (`lower.contraction`)
reduction    anything else with a `Reduce`: sums, pools, windows of one or few channels
in order     one that must keep the order of its indices (`lower.groups`)
scan, scatter, opaque
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

from pliant.ir.expr import Binary, Expr, Index, Load, Reduce
from pliant.ir.tensor import Compute, Opaque, OpaqueOutput, Scan, Scatter, Tensor, own_nodes
from pliant.lower.contraction import is_contraction
from pliant.sym.expr import var

Kind = Literal[
    "copy", "map", "contraction", "reduction", "in order", "scan", "scatter", "opaque", "part"
]

DEAR: Final = 8  # operations from which a value that several read is kept rather than made again
LONG: Final = frozenset(
    "exp exp_from_max log tanh erf erfc sin cos pow sigmoid div sqrt rsqrt".split()
)
MANY: Final = 8  # elements of one source for each of a map
ROW_COMBINERS: Final = (  # of values, not their places
    "sum", "prod", "max", "min", "fmax", "fmin", "any", "all",
)  # fmt: skip


def classify(tensor: Tensor) -> Kind:
    """The kind of a stage."""
    match tensor:
        case Scan():
            return "scan"
        case Scatter():
            return "scatter"
        case Opaque():
            return "opaque"
        case OpaqueOutput():
            return "part"
        case Compute():
            if isinstance(tensor.body, Reduce):
                return "contraction" if is_contraction(tensor) else "reduction"
            return "copy" if is_copy(tensor) else "map"
    raise AssertionError(tensor)


def is_copy(tensor: Compute) -> bool:
    """One load, all indices symbolic integers: no arithmetic, nothing data dependent."""
    body = tensor.body
    return isinstance(body, Load) and all(isinstance(i, Index) for i in body.indices)


def is_identity(load: Load, tensor: Compute) -> bool:
    """`load` reads its source at the very place that `tensor` writes."""
    if len(load.indices) != len(tensor.axes) or load.source.shape != tensor.shape:
        return False
    return all(
        isinstance(i, Index) and i.int_ is var(a.var)
        for i, a in zip(load.indices, tensor.axes, strict=True)
    )


def bare_name(index: object) -> str | None:
    """The variable that an index is, if it is one."""
    if isinstance(index, Index) and len(index.int_.names) == 1:
        (name,) = index.int_.names
        if index.int_ is var(name):
            return name
    return None


def reads_many(tensor: Compute, least: int = MANY) -> bool:
    """Whether an element is made of many of one source: it costs less to copy that than to gather
    them."""
    return bool(read_often(tensor, least))


def read_often(tensor: Compute, least: int = MANY) -> list[Load]:
    """The loads of sources of which an element is made of so many."""
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    counts = Counter(n.source for n in loads)
    return [n for n in loads if counts[n.source] >= least]


def slides(tensor: Compute) -> bool:
    """Whether an index mixes an output axis with a reduction axis: a sliding window."""
    return bool(slid_axes(tensor))


def slid_axes(tensor: Compute) -> frozenset[str]:
    """The axes that an index mixes, of the output with others that are reduced."""
    outer = {a.var for a in tensor.axes}
    inner = {a.var for a in tensor.reduce_axes}
    loads = (n for n in own_nodes(tensor.body) if isinstance(n, Load))
    indices = (i.int_.names for n in loads for i in n.indices if isinstance(i, Index))
    mixed = (names for names in indices if names & outer and names & inner)
    return frozenset[str]().union(*mixed) & (outer | inner)


def cost_of(x: Expr) -> int:
    """Rough arithmetic per element: how dear it is to compute twice."""
    return sum(8 if _is_long(n) else 1 for n in own_nodes(x) if isinstance(n, Binary | Expr))


def takes_long(x: Expr) -> bool:
    """Whether there is a function in it that takes as long as several plain operations."""
    return any(_is_long(n) for n in own_nodes(x))


def _is_long(n: object) -> bool:
    return getattr(n, "op", "") in LONG
