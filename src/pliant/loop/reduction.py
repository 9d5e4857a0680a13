"""Reductions: combining operators, identities, and recognising a reduction update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, boolean
from pliant.ir.expr import Binary, Const, Expr, Load, const, loads_of
from pliant.loop.stmt import Block, Buffer, Store

# The binary operator of each combiner whose accumulation is one store.
COMBINE_OP: Final = {
    "sum": "add", "prod": "mul", "max": "max", "min": "min", "fmax": "fmax",
    "fmin": "fmin", "any": "or", "all": "and",
}  # fmt: skip
_COMBINER_OF: Final = {op: combiner for combiner, op in COMBINE_OP.items()}


def identity(combiner: str, dtype: DType) -> Const:
    """What the combiner leaves unchanged, and gives when there is nothing to combine."""
    match combiner:
        case "sum":
            return const(0, dtype)
        case "prod":
            return const(1, dtype)
        case "max" | "fmax":
            return const(dtype.min, dtype)
        case "min" | "fmin":
            return const(dtype.max, dtype)
    return const(combiner == "all", dtype)


def combine(combiner: str, a: Expr, b: Expr) -> Expr:
    """`a combiner b`."""
    return Binary(COMBINE_OP[combiner], a, b)


@dataclass(frozen=True)
class Update:
    """`buffer[indices] = buffer[indices] combiner value`."""

    combiner: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    @property
    def identity(self) -> Const:
        return identity(self.combiner, self.buffer.dtype)


def as_update(block: Block) -> Update | None:
    """The update that the block's body is, if it is one by a known combiner."""
    store = block.body
    if not isinstance(store, Store) or not isinstance(store.value, Binary):
        return None
    combiner = _COMBINER_OF.get(store.value.op)
    here = Load(store.buffer, store.indices)
    if combiner is None or store.value.a is not here:
        return None
    if combiner in ("any", "all") and store.buffer.dtype is not boolean:
        return None
    own = (store.buffer, store.buffer.flat)
    if any(load.source in own for load in loads_of(store.value.b)):
        return None
    return Update(combiner, store.buffer, store.indices, store.value.b)


def is_commutative(block: Block) -> bool:
    """Whether the block may meet the values of its "R" iterators in any order.

    Either one update by a known combiner, or a body noted as such (position of the best element).
    """
    if any(key == "reduction" for key, _ in block.notes):
        return True
    return as_update(block) is not None
