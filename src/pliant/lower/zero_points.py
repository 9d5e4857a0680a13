"""Products of 8-bit integers are summed as they are stored; their zero points are summed apart.

    y[i, j] = sum_k (i32(x[i, k]) - zx[i]) * (i32(w[k, j]) - zw[j])
 ->
    y.product[i, j] = sum_k i32(x[i, k]) * i32(w[k, j])
    y.sums0[i] = sum_k i32(x[i, k])
    y.sums1[j] = sum_k i32(w[k, j])
    y[i, j] = y.product[i, j] - zx[i] * y.sums1[j] - zw[j] * y.sums0[i] + K * zx[i] * zw[j]

Sums of weights are made when the model is compiled; the last line runs in the product's kernel.
Integers wrap, so the equation is exact. The padding of a window, which is 0 after the zero point
was subtracted, is the zero point before: such an operand is copied with its padding.

Where a target multiplies more signed than unsigned neighbours at once, an unsigned operand that is
packed becomes signed: w is i8(w ^ 128) with a zero point that is 128 less.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from pliant.base.dtypes import DType, i8, i32, u8
from pliant.ir.einsum import names_in, split_guard
from pliant.ir.expr import Binary, Cast, Const, Expr, Index, Load, Reduce, Select, const, substitute
from pliant.ir.mapping import before_cast
from pliant.ir.tensor import Compute, Input, compute, own_nodes, reduce
from pliant.lower.constants import constant_values
from pliant.lower.contraction import Factors, contraction
from pliant.lower.inline_copies import through
from pliant.lower.pad_windows import box_of, moved, padded
from pliant.lower.stages import Stage, Stages, remove_dead
from pliant.sym.expr import Int, as_int

BYTES: Final = (u8, i8)


@dataclass(frozen=True)
class _Factor:
    """An element as it is stored, less a zero point; where there is padding, that is `inside`."""

    value: Expr
    zero: Expr | None = None
    inside: Expr | None = None

    @property
    def term(self) -> Expr:
        return self.value.cast(i32)


def read_bytes(s: Stages) -> None:
    """Let products of 8-bit integers convert them themselves, and subtract their zero points."""
    conversions: dict[str, Compute] = {}
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if not isinstance(tensor, Compute) or tensor.dtype is not i32:
            continue
        made = through(tensor, conversions)
        if not isinstance(tensor.body, Reduce):
            if _factor(made.body) is not None:  # also moved, and less a zero point
                conversions[name] = made
        elif made is not tensor and _factors(made) is not None:
            s.stages[name] = replace(stage, tensor=made)
    remove_dead(s)


def sum_zeros_apart(s: Stages, factors: Sequence[Factors]) -> None:
    """Rewrite products of 8-bit integers, so that they become contractions where they can;
    `factors` are the types that the target multiplies."""
    rewriting = _Rewriting(s, {(f.a, f.b): f.group for f in factors if f.sums is i32})
    for name, stage in list(s.stages.items()):
        rewriting.add(name, stage)
    s.stages = rewriting.stages
    remove_dead(s)


class _Rewriting:
    def __init__(self, s: Stages, groups: dict[tuple[DType, DType], int]) -> None:
        self.s, self.groups = s, groups
        self.constants = constant_values(s)
        self.stages: dict[str, Stage] = {}
        self.made: dict[Compute, Input] = {}

    def add(self, name: str, stage: Stage) -> None:
        tensor = stage.tensor
        found = None
        if isinstance(tensor, Compute) and stage.note("plan") is None:
            found = self.rewritten(name, stage, tensor)
        self.stages[name] = stage if found is None else replace(stage, tensor=found)

    def rewritten(self, name: str, stage: Stage, tensor: Compute) -> Compute | None:
        """What the stage computes, of sums without zero points; None where it stays as it is."""
        sides = _factors(tensor)
        if sides is None:
            return None
        left, right = (self.filled(f, tensor, stage) for f in sides[:2])
        guard = sides[2]
        if left is None or right is None or not _is_product(tensor, left, right, guard):
            return None
        left, right = self.signed(tensor, left, right, guard, stage)
        product = _product(tensor, left, right, guard)
        late = {a.var for a in tensor.reduce_axes}
        zeros = [f.zero for f in (left, right) if f.zero is not None]
        if not zeros:
            return product
        if guard is not None or any(names_in(z) & late for z in zeros):
            return None
        return self.corrected(name, stage, product, left, right)

    def filled(self, f: _Factor, tensor: Compute, stage: Stage) -> _Factor | None:
        """The factor with its padding in a copy; None where that cannot be."""
        if f.inside is None:
            return f
        load, zero = f.value, f.zero
        if not isinstance(load, Load) or not isinstance(load.source, Input):
            return None
        filling = None if zero is None else _as_stored(zero, load.dtype)
        box = box_of(tensor, f.inside, load, self.s.facts)
        if filling is None or box is None:
            return None
        source = self.bound(f"{load.source.name}.padded", padded(load.source, box, filling), stage)
        return _Factor(moved(load, source, box), zero)

    def signed(
        self, tensor: Compute, left: _Factor, right: _Factor, guard: Expr | None, stage: Stage
    ) -> tuple[_Factor, _Factor]:
        """The factors, with signed numbers for unsigned ones that would be packed where that lets
        more be multiplied at once."""
        found = contraction(_product(tensor, left, right, guard), self.constants)
        if found is None or found.b_side.dtype is not u8 or guard is not None:
            return left, right
        a = found.a_side.dtype
        if self.groups.get((a, i8), 0) <= self.groups.get((a, u8), 0):
            return left, right

        def flipped(f: _Factor) -> _Factor:
            load = f.value
            if load is not found.b or not isinstance(load, Load):
                return f
            source = load.source
            copy = compute(
                source.shape, lambda *i: Binary("xor", source[i], const(128, u8)).cast(i8)
            )
            name = source.name if isinstance(source, Input) else "t"
            offset = const(128, i32)
            zero = const(-128, i32) if f.zero is None else f.zero - offset
            return _Factor(Load(self.bound(f"{name}.signed", copy, stage), load.indices), zero)

        return flipped(left), flipped(right)

    def corrected(
        self, name: str, stage: Stage, product: Compute, left: _Factor, right: _Factor
    ) -> Compute:
        """The product of the values, and what zero points take away from it."""
        parts: list[tuple[Expr, Input, list[int]]] = []
        for k, (f, other) in enumerate(((left, right), (right, left))):
            if other.zero is not None:
                sums, axes = _sums(product, f.term)
                parts.append((other.zero, self.bound(f"{name}.sums{k}", sums, stage), axes))
        # Last of the values, so that what follows from all of them joins the kernel of this one.
        made = self.bound(f"{name}.product", product, stage)
        terms = as_int(1)
        for axis in product.reduce_axes:
            terms = terms * axis.extent

        def element(*at: Int) -> Expr:
            here = {a.var: i for a, i in zip(product.axes, at, strict=True)}
            total: Expr = made[at]
            for zero, sums, axes in parts:
                total = total - substitute(zero, here) * sums[tuple(at[d] for d in axes)]
            if left.zero is not None and right.zero is not None:
                both = substitute(left.zero, here) * substitute(right.zero, here)
                total = total + Index(terms).cast(i32) * both
            return total

        return compute(product.shape, element, product.label)

    def bound(self, wish: str, tensor: Compute, stage: Stage) -> Input:
        """The value of a stage that computes `tensor`, a new one where there is none."""
        found = self.made.get(tensor)
        if found is None:
            name = self.s.fresh(wish)
            found = self.made[tensor] = Input(name, tensor.dtype, tensor.shape)
            self.s.types[name] = found
            self.stages[name] = Stage(name, tensor, stage.op, stage.spans)
        return found


def _factors(tensor: Compute) -> tuple[_Factor, _Factor, Expr | None] | None:
    """What a sum of products multiplies, and its guard; None where that are not 8-bit integers."""
    body = tensor.body
    if tensor.dtype is not i32 or not isinstance(body, Reduce) or body.combiner != "sum":
        return None
    term, guard = split_guard("sum", body.body)
    if not isinstance(term, Binary) or term.op != "mul":
        return None
    left, right = _factor(term.a), _factor(term.b)
    return None if left is None or right is None else (left, right, guard)


def _factor(x: Expr) -> _Factor | None:
    """An 8-bit number made 32 bits wide, perhaps less a zero point, perhaps 0 in the padding."""
    match x:
        case Binary("sub", a, zero) if zero is const(0, i32):
            return _factor(a)
        case Binary("sub", a, zero):
            inner = _factor(a)
            return None if inner is None or inner.zero is not None else replace(inner, zero=zero)
        case Select(cond, Binary("sub") as a, other) if other is const(0, i32):
            inner = _factor(a)
            if inner is not None and inner.zero is None:
                return _Factor(Select(cond, inner.value, const(0, inner.value.dtype)))
            return None if inner is None else replace(inner, inside=cond)
    if x.dtype is not i32:
        return None
    found = [v for t in BYTES if (v := before_cast(x, t)) is not None]
    if not found or len([n for n in own_nodes(found[0]) if isinstance(n, Load)]) != 1:
        return None
    return _Factor(found[0])


def _as_stored(zero: Expr, dtype: DType) -> Expr | None:
    """A zero point of all elements, in their type; None where it is not one."""
    match zero:
        case Cast(_, a) if a.dtype is dtype and not names_in(a):
            return a
        case Const():
            with suppress(ValueError):
                return const(zero.value, dtype)
    return None


def _product(tensor: Compute, left: _Factor, right: _Factor, guard: Expr | None) -> Compute:
    body = tensor.body
    assert isinstance(body, Reduce)
    term: Expr = Binary("mul", left.term, right.term)
    term = term if guard is None else Select(guard, term, const(0, i32))
    return tensor.replace(body=Reduce("sum", body.axes, term))


def _is_product(tensor: Compute, left: _Factor, right: _Factor, guard: Expr | None) -> bool:
    return contraction(_product(tensor, left, right, guard)) is not None


def _sums(product: Compute, term: Expr) -> tuple[Compute, list[int]]:
    """The sums of a factor over what the product sums, and which dimensions of that they have."""
    used = names_in(term)
    axes = [d for d, a in enumerate(product.axes) if a.var in used]

    def element(*at: Int) -> Expr:
        here = {product.axes[d].var: i for d, i in zip(axes, at, strict=True)}

        def value(*r: Int) -> Expr:
            inner = {a.var: i for a, i in zip(product.reduce_axes, r, strict=True)}
            return substitute(term, here | inner)  # type: ignore[no-any-return]

        return reduce("sum", [a.extent for a in product.reduce_axes], value)

    return compute([product.axes[d].extent for d in axes], element), axes
