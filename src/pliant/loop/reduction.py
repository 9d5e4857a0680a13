"""Reductions: combining operators, identities, and recognising a reduction update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, boolean, i64
from pliant.ir.expr import Binary, Const, Expr, Index, Load, Select, Unary, as_expr, const, loads_of
from pliant.ir.scalar import COMBINER_OPS, identity_value
from pliant.loop.reducer import Reducer, Values, reducer
from pliant.loop.stmt import Block, BufferRef, Combine, Flat, Stmt, Store, seq
from pliant.sym.expr import Int

_COMBINER_OF: Final = {op: combiner for combiner, op in COMBINER_OPS.items()}


def identity(combiner: str, dtype: DType) -> Const:
    """What the combiner leaves unchanged, and gives when there is nothing to combine."""
    return const(identity_value(combiner, dtype), dtype)


def combine(combiner: str, a: Expr, b: Expr) -> Expr:
    """`a combiner b`."""
    return Binary(COMBINER_OPS[combiner], a, b)


def best_of(combiner: str, dtype: DType) -> Reducer:
    """(value, position) of the best for "argmax" and "argmin": NaN beats numbers, then the value
    counts, then the lower position. Any order gives the same."""
    largest = combiner == "argmax"
    start = const(dtype.min if largest else dtype.max, dtype)

    def rule(a: Values, b: Values) -> Values:
        better: Expr = Binary("lt", a[0], b[0]) if largest else Binary("lt", b[0], a[0])
        tie: Expr = Binary("eq", a[0], b[0])
        if dtype.is_float:
            old_nan, nan = Unary("isnan", a[0]), Unary("isnan", b[0])
            better = better | (nan & ~old_nan)
            tie = tie | (nan & old_nan)
        first = better | (tie & Binary("lt", b[1], a[1]))
        return Select(first, b[0], a[0]), Select(first, b[1], a[1])

    return reducer(f"{combiner}_{dtype}", (start, as_expr(i64.max)), rule)


def start_of_best(by: Reducer, targets: Sequence[BufferRef], extent: Int) -> Stmt:
    """Before any of the `extent` positions: past the last one, so that the first of all wins even
    when all are -inf."""
    start = by.identity[0], Index(extent)
    return seq(*(Store(t.buffer, t.indices, v) for t, v in zip(targets, start, strict=True)))


@dataclass(frozen=True)
class Update:
    """`places = places combined with values`."""

    combiner: str | Reducer
    places: tuple[BufferRef, ...]
    values: Values

    @property
    def identity(self) -> Values:
        if isinstance(self.combiner, Reducer):
            return self.combiner.identity
        return tuple(identity(self.combiner, v.dtype) for v in self.values)

    @property
    def rounds(self) -> bool:
        """Whether the last bits may depend on the order."""
        if isinstance(self.combiner, Reducer):
            return self.combiner.rounds
        return self.combiner in ("sum", "prod") and self.values[0].dtype.is_float

    def at(self, places: Sequence[BufferRef], values: Sequence[Expr]) -> Stmt:
        """The same update of other places, by other values."""
        if isinstance(self.combiner, Reducer):
            return Combine(self.combiner, tuple(places), tuple(values))
        (place,), (value,) = places, values
        return Store(place.buffer, place.indices, combine(self.combiner, place.load, value))

    def start(self, places: Sequence[BufferRef]) -> Stmt:
        """The identity stored there."""
        pairs = zip(places, self.identity, strict=True)
        return seq(*(Store(place.buffer, place.indices, value) for place, value in pairs))


def as_update(block: Block) -> Update | None:
    """The update that the block's body is: of one element by a known combiner, or of several by a
    reducer. Neither values nor places nor the block's condition depend on what is updated."""
    update = _update(block.body)
    if update is None:
        return None
    own = {place.buffer for place in update.places}
    nodes = [*update.values, *(i for place in update.places for i in place.indices)]
    nodes += [] if block.where is None else [block.where]
    for load in (x for node in nodes for x in loads_of(node)):
        if (load.source.buffer if isinstance(load.source, Flat) else load.source) in own:
            return None
    return update


def _update(body: Stmt) -> Update | None:
    match body:
        case Combine(by, targets, values):
            return Update(by, targets, values)
        case Store(buffer, indices, Binary(op, Load() as old, value)) if op in _COMBINER_OF:
            place, combiner = BufferRef(buffer, indices), _COMBINER_OF[op]
            if old is not place.load:
                return None
            if combiner in ("any", "all") and buffer.dtype is not boolean:
                return None
            return Update(combiner, (place,), (value,))
    return None
