"""Contractions: what maps to a register-tiled product, by `ir.mapping`.

    out[batch, m, n] = sum over k of a[batch, m, k] * b[batch, n, k]

Rows of a are found through a table, b lies in panels of so many columns: which operand is which,
which axes run together, and in which order, is the best of all mappings to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pliant.base.dtypes import DType, f32, f64, i8, i32, i64, u8
from pliant.ir.einsum import Einsum, einsum_of, split_guard
from pliant.ir.expr import Binary, Expr, Index, Load, Reduce
from pliant.ir.few_channels import filters_of
from pliant.ir.mapping import IteratorMap, Strides, match_iterators, row_major
from pliant.ir.narrow_groups import narrow_groups
from pliant.ir.tensor import Compute, compute, placeholder, reduce, sources
from pliant.lower.conditions import conjuncts
from pliant.sym.expr import Int, as_int, maximum, minimum, var
from pliant.sym.facts import Facts

COLUMNS: Final = 32  # of a panel, where it does not matter
ROWS, COLS, POSITIONS, DEPTH = "_i0", "_i1", "_r0", "_r1"  # iterators of `tile_product`
Order = tuple[int, ...]


@dataclass(frozen=True)
class Factors:
    """Types of the factors of products that are added up in `sums`: those of the first operand and
    of the packed one. So many neighbours along the reduction as `group` are multiplied at once.

    Rows of the first operand that begin a multiple of `apart` bytes after one another would lie in
    one set of the first cache, which has fewer lines than a tile has rows; 0: it has enough.

    Panels of weights may have other widths and groups: `fitting` (`lower.panel_width`).
    """

    a: DType = f32
    b: DType = f32
    sums: DType = f32
    group: int = 1
    apart: int = 0
    fitting: tuple[tuple[int, int], ...] = ()


F32: Final = Factors()
KINDS: Final = (
    F32,
    Factors(f64, f64, f64),
    *(Factors(a, b, i32) for b in (i8, u8) for a in (u8, i8)),
)
"""What is a product on every target, whatever its groups are."""


@dataclass(frozen=True)
class Contraction:
    """Axes of `out[batch, m, n] = sum_k a[batch, m, k] * b[batch, n, k]`, by variable name.

    `a_side` and `b_side` are the factors as written. `in_place`: rows of a lie element after
    element along the last axis of k. `bounds`: of these axes of k only so many exist, which batch
    axes decide.
    """

    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    a: Load
    b: Load
    a_side: Expr
    b_side: Expr
    in_place: bool
    bounds: tuple[tuple[str, Int], ...] = ()


@lru_cache(8)
def tile_product(
    columns: int, a_type: DType = f32, b_type: DType = f32, sums: DType = f32
) -> Einsum:
    """c[i, j] = sum over q, k of a[at[q, i] + k] * b[q*K + k, j], for a panel of `columns`:
    products of factors of these types, which are converted to that of the sums before."""
    m, positions, depth = var("m"), var("P"), var("K")
    a, at = placeholder("a", (1 << 60,), a_type), placeholder("at", (positions, m), i64)
    b = placeholder("b", (positions * depth, columns), b_type)
    product = compute(
        (m, columns),
        lambda i, j: reduce(
            "sum",
            (positions, depth),
            lambda q, k: a[at[q, i] + Index(k)].cast(sums) * b[q * depth + k, j].cast(sums),
        ),
        "c",
    )
    return einsum_of(product)


def is_contraction(tensor: Compute) -> bool:
    """Whether a tensor expression is one."""
    return contraction(tensor) is not None


def contraction(tensor: Compute, constants: Set[str] = frozenset()) -> Contraction | None:
    """`tensor` as a contraction, or None; all axes that can be are in m and n, which is for who
    asks what depends on what. Which operand is packed depends on which values are `constants`.
    A convolution of few channels is none (`ir.few_channels`), nor one in narrow groups of them
    (`ir.narrow_groups`)."""
    if not tensor.reduce_axes or filters_of(tensor) or narrow_groups(tensor):
        return None
    return _whole(tensor, frozenset(s.name for s in sources(tensor) if s.name in constants))


def placed_contraction(
    tensor: Compute,
    constants: Set[str],
    order: Order,
    strides: Strides,
    facts: Facts,
    columns: int,
    factors: Sequence[Factors] = (F32,),
) -> tuple[Contraction, Factors]:
    """A contraction as it is run, for panels of `columns`: n are columns that are stored as they
    lie where that fills panels, what could be of n or m besides is of batch, and so is what has one
    element where no factor is a constant; the last of k is the axis along which rows of a are
    contiguous, if there is one. `order` is that of the value's dimensions, `strides` tells those of
    the operands; the factors are of those of the types `factors` for which it is mapped best, of
    equal ones the first."""
    mapped = [
        (m, f)
        for f in factors
        if (m := _best(tensor, constants, order, strides, facts, columns, f))
    ]
    best, kind = min(mapped, key=lambda x: x[0].rank)
    found = _contraction(tensor, best, _without_units(tensor, best, constants))
    assert found is not None
    return found, kind


def _without_units(
    tensor: Compute, best: IteratorMap, constants: Set[str]
) -> Mapping[str, tuple[str, ...]]:
    """The groups, of rows and columns without axes of one element in a product that may be one of
    attention's: both have the same rows then."""
    groups = dict(best.groups)
    values = {o.load.source.name for o in best.operands}
    if values & constants:
        return groups
    units = {a.var for a in tensor.axes if a.extent == 1}
    for name in (ROWS, COLS):
        groups[name] = tuple(v for v in groups[name] if v not in units) or groups[name]
    return groups


@lru_cache(8192)
def _whole(tensor: Compute, constants: frozenset[str]) -> Contraction | None:
    mapped = [m for kind in KINDS if (m := _best(tensor, constants, kind=kind))]
    if not mapped:
        return None
    best = min(mapped, key=lambda m: m.rank)
    return _contraction(
        tensor, best, dict(best.groups) | {x: best.fitting[x] for x in (ROWS, COLS)}
    )


def _best(
    tensor: Compute,
    constants: Set[str],
    order: Order | None = None,
    strides: Strides = row_major,
    facts: Facts | None = None,
    columns: int = COLUMNS,
    kind: Factors = F32,
) -> IteratorMap | None:
    form = einsum_of(tensor, order)
    if form.term.dtype is not kind.sums:
        return None
    product = tile_product(columns, kind.a, kind.b, kind.sums)
    found = match_iterators(
        form, product, strides=strides, facts=facts, constants=constants, lies=order is not None
    ).maps
    return next((m for m in found if all(o.zero is None for o in m.operands)), None)


def _contraction(
    tensor: Compute, best: IteratorMap, groups: Mapping[str, tuple[str, ...]]
) -> Contraction | None:
    """In terms of batch, m, n and k; None for a guard that is not about how many elements of an
    axis there are."""
    body = tensor.body
    assert isinstance(body, Reduce)
    bounds = _bounds(tensor, body)
    if bounds is None:
        return None
    inside = {v for name in (ROWS, COLS) for v in groups[name]}
    a, b = best.operands
    return Contraction(
        tuple(v for v in best.outer if v not in inside), groups[ROWS], groups[COLS],
        (*groups[POSITIONS], *groups[DEPTH]), a.load, b.load, a.value, b.value,
        DEPTH in best.runs, bounds,
    )  # fmt: skip


def _bounds(tensor: Compute, body: Reduce) -> tuple[tuple[str, Int], ...] | None:
    """How many elements of its axes a sum's guard says that there are; None where it says
    something else."""
    _, guard = split_guard(body.combiner, body.body)
    if guard is None:
        return ()
    axes = {var(a.var): a for a in reversed(body.axes)}
    bounds: dict[str, Int] = {}
    whole = as_int(1)  # of axes with one element, which are gone: all of the sum or nothing
    for part in conjuncts(guard):
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
        return None
    if whole != 1:
        last = body.axes[-1]
        bounds[last.var] = bounds.get(last.var, last.extent) * whole
    return tuple(bounds.items())


def _clamped(count: Int, tensor: Compute, extent: Int) -> Int:
    """`count`, from 0 to `extent`."""
    facts = Facts()
    for axis in tensor.axes:
        facts.declare_index(axis.var, axis.extent)
    if not facts.le(count, extent):
        count = minimum(count, extent)
    return count if facts.nonneg(count) else maximum(count, 0)
