"""What a comprehension does, derived from its accesses (Relax §pattern kinds, never a table).

copy         body is one load at affine places: a view of other memory
map          no reduction: elementwise, broadcast, gather, padded …
contraction  sum of products of two loads, each with iterators of its own
reduction    anything else with a `Reduce`: sums, pools, depthwise windows
in order     one that must keep the order of its indices (`lower.groups`)
scan, scatter, opaque
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from pliant.base.dtypes import f32
from pliant.ir.expr import Binary, Cast, Expr, Index, Load, Reduce, Select, const
from pliant.ir.tensor import Compute, Opaque, OpaqueOutput, Scan, Scatter, Tensor, own_nodes
from pliant.lower.conditions import conjuncts
from pliant.sym.expr import Int, as_int, maximum, minimum, var
from pliant.sym.facts import Facts

Kind = Literal[
    "copy", "map", "contraction", "reduction", "in order", "scan", "scatter", "opaque", "part"
]


@dataclass(frozen=True)
class Contraction:
    """Axes of `out[batch, m, n] = sum_k a[batch, m, k] * b[batch, n, k]`, by variable name.

    `a_side` and `b_side` are the factors as written (with casts or a padding select on a).
    `bounds`: of these axes of k only so many exist, which batch axes decide.
    """

    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    a: Load
    b: Load
    a_side: Expr
    b_side: Expr
    bounds: tuple[tuple[str, Int], ...] = ()


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
                return "contraction" if contraction(tensor) is not None else "reduction"
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


def contraction(tensor: Compute, constants: Set[str] = frozenset()) -> Contraction | None:
    """`tensor` as a contraction, or None. The operand that is best packed is b; it matters to that
    which values are `constants`."""
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum":
        return None
    product, bounds = _bounded(tensor, body)
    if not (isinstance(product, Binary) and product.op == "mul" and product.dtype is f32):
        return None
    sides = (product.a, product.b)
    loads = tuple(_only_load(s) for s in sides)
    if loads[0] is None or loads[1] is None:
        return None
    decide = frozenset[str]().union(*(count.names for _, count in bounds))
    uses = [names_in(s) | decide for s in sides]
    outer = [a.var for a in tensor.axes]
    inner = [a.var for a in body.axes]
    if any(not (v in uses[0] and v in uses[1]) for v in inner):
        return None
    own = [[v for v in outer if v in uses[k] and v not in uses[1 - k]] for k in (0, 1)]
    batch = [v for v in outer if v in uses[0] and v in uses[1]]
    if not own[0] or not own[1]:
        return None
    idle = [v for v in outer if v not in uses[0] and v not in uses[1]]  # of extent 1
    b = _b_operand(sides, own, outer, [x.source.name in constants for x in loads if x is not None])
    if b is None:
        return None
    a = 1 - b
    la, lb = loads[a], loads[b]
    assert la is not None and lb is not None
    return Contraction(
        tuple(batch), (*idle, *own[a]), tuple(own[b]), tuple(inner), la, lb, sides[a], sides[b],
        bounds,
    )  # fmt: skip


def _bounded(tensor: Compute, body: Reduce) -> tuple[Expr, tuple[tuple[str, Int], ...]]:
    """The term of a sum without a guard that only says how many elements of its axes exist, and
    what that says."""
    term, axes = body.body, {var(a.var): a for a in reversed(body.axes)}
    if not (isinstance(term, Select) and term.b is const(0, term.dtype)):
        return term, ()
    bounds: dict[str, Int] = {}
    whole = as_int(1)  # of axes with one element, which are gone: all of the sum or nothing
    for part in conjuncts(term.cond):
        match part:
            case Binary("lt", Index(at), Index(count)) if not count.names & {
                a.var for a in body.axes
            }:
                if at in axes:
                    bounds[axes[at].var] = _clamped(count, tensor, axes[at].extent)
                    continue
                if at == 0:
                    whole = whole * _clamped(count, tensor, as_int(1))
                    continue
        return term, ()
    if whole != 1:
        last = body.axes[-1]
        bounds[last.var] = bounds.get(last.var, last.extent) * whole
    return term.a, tuple(bounds.items())


def _clamped(count: Int, tensor: Compute, extent: Int) -> Int:
    """`count`, from 0 to `extent`."""
    facts = Facts()
    for axis in tensor.axes:
        facts.declare_index(axis.var, axis.extent)
    if not facts.le(count, extent):
        count = minimum(count, extent)
    return count if facts.nonneg(count) else maximum(count, 0)


def _b_operand(
    sides: tuple[Expr, Expr], own: list[list[str]], outer: list[str], constant: list[bool]
) -> int | None:
    """Which factor is to be packed: the constant, else a plain load (perhaps cast), else one with
    a selection around it. Of two alike, that with fewer iterators of its own (activations have
    batch and space); then the one that owns the last output axis, so that stores are contiguous."""
    plain = [_is_plain(s) for s in sides]
    selected = [isinstance(s, Select) and _is_plain(s.a) for s in sides]
    if constant[0] != constant[1] and all(p or q for p, q in zip(plain, selected, strict=True)):
        return constant.index(True)
    if not (plain[0] or plain[1]):
        plain = selected
    if plain[0] and plain[1]:
        if len(own[0]) != len(own[1]):
            return 0 if len(own[0]) < len(own[1]) else 1
        return 0 if outer[-1] in own[0] else 1
    if plain[1]:
        return 1
    return 0 if plain[0] else None


def _is_plain(side: Expr) -> bool:
    while isinstance(side, Cast):
        side = side.a
    return isinstance(side, Load) and all(isinstance(i, Index) for i in side.indices)


def _only_load(side: Expr) -> Load | None:
    while isinstance(side, Cast | Select):
        side = side.a
    return side if isinstance(side, Load) else None


def names_in(x: Expr) -> frozenset[str]:
    """The iterators and sizes in the indices of a body."""
    names: frozenset[str] = frozenset()
    for node in own_nodes(x):
        if isinstance(node, Index):
            names |= node.int_.names
    return names


def cost_of(x: Expr) -> int:
    """Rough arithmetic per element: how dear it is to compute twice."""
    dear = {"exp", "log", "tanh", "erf", "sin", "cos", "pow", "sigmoid", "div", "sqrt", "rsqrt"}
    return sum(
        8 if getattr(n, "op", "") in dear else 1
        for n in own_nodes(x)
        if isinstance(n, Binary | Expr)
    )
