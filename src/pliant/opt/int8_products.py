"""Products with weights are made of 8-bit integers; everything else stays f32.

    y: f32["n", 64] = linear(x, w)
 ->
    w_scale: f32[64] = max_k |w[m, k]| / 127
    w_i8: i8[64, 32] = round(w / w_scale)
    x_low: f32["n"] = min(min_k x[n, k], 0)
    x_scale: f32["n"] = (max(max_k x[n, k], 0) - x_low) / 255
    x_zero: u8["n"] = round(-x_low / x_scale)
    x_u8: u8["n", 32] = round(x / x_scale) + x_zero
    y = f32(i32 sum of (x_u8[n, k] - x_zero[n]) * w_i8[m, k]) * (x_scale[n] * w_scale[m])

Weights have a scale for each place along their own dimensions of the result (output channels), and
are quantised when the model is compiled. Values are quantised in every call, with a scale and a
zero point for each place along theirs (rows of a matrix, pictures of a batch) that the call finds:
no sample decides what a row becomes, and rows do not depend on each other. Where a window is
padded, values become i8 without a zero point, so that 0 stays 0. A row with a NaN or an infinity
gives NaN.

Products of two values (attention) stay f32: they are few, and softmax is sensitive to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pliant.base.dtypes import DType, f32, i8, i32, u8
from pliant.graph.function import Function, Value
from pliant.graph.operator import Operators
from pliant.ir.einsum import split_guard
from pliant.ir.expr import Binary, Expr, Index, Load, Reduce, Select, Unary, const
from pliant.ir.node import Node
from pliant.ir.tensor import Compute, Input, Tensor, compute, reduce
from pliant.opt.narrowing import Narrowing, placeholders
from pliant.sym.expr import Int

MOST_TERMS: Final = (1 << 31) // (255 * 127)  # of a sum that i32 holds whatever the terms are
LEAST: Final = 1e-30  # ranges below are taken for this: its inverse and its 255th part are normal


@dataclass(frozen=True)
class _Quantised:
    """real = scale * (number - zero), for values of an input along its dimensions `kept`."""

    kept: tuple[int, ...]
    number: Value
    scale: Value
    zero: Value | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.number, self.scale) if self.zero is None else (
            self.number, self.scale, self.zero,
        )  # fmt: skip

    def at(self, load: Load) -> Expr:
        """The whole number that stands for what `load` loads, i32."""
        number = Load(placeholders(self.number), load.indices).cast(i32)
        return number if self.zero is None else number - self._of(self.zero, load).cast(i32)

    def scale_at(self, load: Load) -> Expr:
        return self._of(self.scale, load)

    def _of(self, value: Value, load: Load) -> Expr:
        return Load(placeholders(value), tuple(load.indices[d] for d in self.kept))


class Int8Products(Narrowing):
    """Products of u8 or i8 values and i8 weights."""

    def __init__(self, function: Function, operators: Operators) -> None:
        super().__init__(function, operators)
        self.quantised: dict[tuple[str, tuple[int, ...], DType], _Quantised] = {}

    def product(
        self, tensor: Compute, loads: tuple[Load, Load], values: dict[str, Value],
        memo: dict[Node, Any],
    ) -> Compute | str:  # fmt: skip
        """`tensor` by whole numbers, if one factor is a weight."""
        body = tensor.body
        assert isinstance(body, Reduce)
        term, guard = split_guard("sum", body.body)
        assert isinstance(term, Binary)
        sides = [(term.a, loads[0]), (term.b, loads[1])]
        if not all(isinstance(x.source, Input) for x in loads):
            return "a factor is computed by the operator itself"
        if not all(_is_stored(side, load) for side, load in sides):
            return "its terms are no products of two f32 values as they are stored"
        weights = [self.is_constant(x) for x in loads]
        if sum(weights) != 1:
            return "neither factor is a weight" if not any(weights) else "both factors are weights"
        terms = 1
        for axis in tensor.reduce_axes:
            terms *= axis.extent.value if axis.extent.is_const else MOST_TERMS + 1
        if terms > MOST_TERMS:
            return f"a sum of more than {MOST_TERMS} terms may not fit in i32"
        padded = guard is not None or any(isinstance(side, Select) for side, _ in sides)
        outer = {a.var for a in tensor.axes}
        parts: list[_Quantised] = []
        for load, is_weight in zip(loads, weights, strict=True):
            kept = _kept(load, outer)
            made = self.of(values[load.source.name], kept, i8 if is_weight or padded else u8)
            values.update((v.name, v) for v in made.values)
            parts.append(made)
        numbers = [
            _replaced(side, part.at(load)) for (side, load), part in zip(sides, parts, strict=True)
        ]
        whole: Expr = Binary("mul", *numbers)
        whole = whole if guard is None else Select(guard, whole, const(0, i32))
        sums = tensor.replace(body=Reduce("sum", body.axes, whole))
        here = {a.var: k for k, a in enumerate(tensor.axes)}

        def element(*at: Int) -> Expr:
            scales = [
                _moved(part.scale_at(load), here, at)
                for part, load in zip(parts, loads, strict=True)
            ]
            return sums[at].cast(f32) * (scales[0] * scales[1])

        return compute(tensor.shape, element, "scaled")

    def of(self, value: Value, kept: tuple[int, ...], to: DType) -> _Quantised:
        """The value as integers of a type, with a scale for each place along dimensions `kept`."""
        found = self.quantised.get((value.name, kept, to))
        if found is None:
            make = self.unsigned if to is u8 else self.signed
            found = self.quantised[value.name, kept, to] = make(value, kept)
        return found

    def signed(self, value: Value, kept: tuple[int, ...]) -> _Quantised:
        """From -127 to 127, without a zero point."""
        x, read = placeholders(value), {value.name: value}
        most = _over(x, kept, "max", lambda v: Unary("abs", v))
        step = compute(most.shape, lambda *i: _at_least(most[i]) / 127.0)
        scale = self.bind(f"{value.name}_scale", step, read, "quantize")
        by = placeholders(scale)
        number = compute(
            x.shape, lambda *i: Unary("round", x[i] / by[_along(i, kept)]).cast(i8), "quantize"
        )
        read |= {scale.name: scale}
        return _Quantised(kept, self.bind(f"{value.name}_i8", number, read, "quantize"), scale)

    def unsigned(self, value: Value, kept: tuple[int, ...]) -> _Quantised:
        """From 0 to 255, with the range of the values, and 0."""
        x, read = placeholders(value), {value.name: value}
        high, low = (_over(x, kept, how, lambda v: v) for how in ("max", "min"))
        least = compute(low.shape, lambda *i: Binary("min", low[i], const(0.0, f32)))
        below = self.bind(f"{value.name}_low", least, read, "quantize")
        bottom = placeholders(below)

        def width(*i: Int) -> Expr:
            return _at_least(Binary("max", high[i], const(0.0, f32)) - bottom[i]) / 255.0

        read |= {below.name: below}
        scale = self.bind(f"{value.name}_scale", compute(high.shape, width), read, "quantize")
        by = placeholders(scale)
        offset = compute(
            high.shape, lambda *i: Unary("round", (const(0.0, f32) - bottom[i]) / by[i]).cast(u8)
        )
        read |= {scale.name: scale}
        zero = self.bind(f"{value.name}_zero", offset, read, "quantize")
        start = placeholders(zero)

        def number(*i: Int) -> Expr:
            place = _along(i, kept)
            steps: Expr = Unary("round", x[i] / by[place])
            total: Expr = steps + start[place].cast(f32)
            return total.cast(u8)

        read |= {zero.name: zero}
        made = self.bind(f"{value.name}_u8", compute(x.shape, number), read, "quantize")
        return _Quantised(kept, made, scale, zero)


def _is_stored(side: Expr, load: Load) -> bool:
    """Whether a factor is a load, or 0 where a condition does not hold."""
    match side:
        case Select(_, a, other):
            return a is load and other is const(0.0, f32)
    return side is load


def _replaced(side: Expr, number: Expr) -> Expr:
    return Select(side.cond, number, const(0, i32)) if isinstance(side, Select) else number


def _kept(load: Load, outer: set[str]) -> tuple[int, ...]:
    """The dimensions along which a factor has places of the result of its own."""
    found: dict[str, int] = {}
    for d, index in enumerate(load.indices):
        name = str(index.int_) if isinstance(index, Index) else ""
        if name in outer:
            found.setdefault(name, d)
    return tuple(found.values())


def _over(x: Tensor, kept: tuple[int, ...], how: str, value: Callable[[Expr], Expr]) -> Compute:
    """The greatest or least of a function of the elements, along the dimensions kept."""
    others = [d for d in range(x.rank) if d not in kept]

    def element(*at: Int) -> Expr:
        def term(*r: Int) -> Expr:
            place = dict(zip(kept, at, strict=True)) | dict(zip(others, r, strict=True))
            return value(x[tuple(place[d] for d in range(x.rank))])

        return reduce(how, [x.shape[d] for d in others], term)

    return compute([x.shape[d] for d in kept], element, how)


def _at_least(x: Expr) -> Expr:
    """x, or the least range; NaN stays."""
    return Binary("max", x, const(LEAST, f32))


def _along(i: tuple[Int, ...], kept: tuple[int, ...]) -> tuple[Int, ...]:
    return tuple(i[d] for d in kept)


def _moved(x: Expr, here: dict[str, int], at: tuple[Int, ...]) -> Load:
    """A load at iterators, at these places."""
    assert isinstance(x, Load)
    where = {name: at[k] for name, k in here.items()}
    indices = (i.int_.subs(where) for i in x.indices if isinstance(i, Index))
    return Load(x.source, tuple(map(Index, indices)))
