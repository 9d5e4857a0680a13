"""The value of a scalar expression at every point of a grid, as one array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pliant.base.errors import InvalidModelError, ShapeError
from pliant.ir.expr import Binary, Bitcast, Cast, Const, Expr, Guard, Index, Load, Select, Unary
from pliant.ir.scalars import Array, binary, converted, unary
from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int


class Scope:
    """Values of sizes and axis variables (`grid`), and of the tensors that may be loaded from.

    All arrays broadcast to the grid. A mask `needed` tells where a value is used at all; None means
    everywhere.
    """

    def __init__(self, grid: Mapping[str, Array], tensors: Mapping[Any, Any]) -> None:
        self.grid = grid
        self.tensors = tensors
        self._known: dict[tuple[Expr, int], Array] = {}
        self._integers: dict[Int, Array] = {}
        self._masks: dict[tuple[Expr, int, bool], Array] = {}

    def value(self, expr: Expr, needed: Array | None = None) -> Array:
        """The value of `expr`, meaningless where it is not needed."""
        key = (expr, id(needed))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = np.asarray(self._compute(expr, needed))
        return found

    def _compute(self, expr: Expr, needed: Array | None) -> Array:
        match expr:
            case Const(dtype, bits):
                raw = bits.to_bytes(dtype.bytes, "little")
                return np.frombuffer(raw, dtype.numpy).reshape(())
            case Index(integer):
                return self.integer(integer)
            case Load():
                return self._load(expr, needed)
            case Unary(op, a):
                return unary(op, self.value(a, needed), a.dtype)
            case Binary(op, a, b):
                return binary(op, self.value(a, needed), self.value(b, needed), a.dtype)
            case Cast(to, a):
                return converted(self.value(a, needed), a.dtype, to)
            case Bitcast(to, a):
                return np.asarray(self.value(a, needed), order="C").view(to.numpy)
            case Select(cond, a, b):
                yes = self.value(cond, needed)
                then = self.value(a, self._mask(cond, needed, True))
                return np.where(yes, then, self.value(b, self._mask(cond, needed, False)))
            case Guard():
                return self._guarded(expr, needed)
        raise InvalidModelError(f"no meaning of {type(expr).__name__} in a tensor expression")

    def _mask(self, cond: Expr, needed: Array | None, when: bool) -> Array:
        key = (cond, id(needed), when)
        found = self._masks.get(key)
        if found is None:
            holds = self.value(cond, needed)
            chosen = holds if when else ~holds
            found = self._masks[key] = np.asarray(chosen if needed is None else chosen & needed)
        return found

    def _guarded(self, expr: Guard, needed: Array | None) -> Array:
        if np.any(self._mask(expr.cond, needed, False)):
            raise ShapeError(expr.message)
        return self.value(expr.value, self._mask(expr.cond, needed, True))

    def _load(self, expr: Load, needed: Array | None) -> Array:
        data: Array = self.tensors[expr.source]
        at = [self.value(i, needed) for i in expr.indices]
        for dim, (index, extent) in enumerate(zip(at, data.shape, strict=True)):
            outside = (index < 0) | (index >= extent)
            if not outside.any():
                continue
            if needed is None or np.any(outside & needed):
                raise InvalidModelError(f"{expr.source.name}: index out of bounds in dim {dim}")
            at[dim] = np.clip(index, 0, max(extent - 1, 0))
        if data.size == 0:
            return np.zeros(np.broadcast_shapes(*(i.shape for i in at)), data.dtype)
        return np.asarray(data[tuple(at)])

    def integer(self, x: Int) -> Array:
        """A symbolic integer at every point."""
        found = self._integers.get(x)
        if found is None:
            found = np.asarray(0, np.int64)
            for coefficient, factors in x.terms():
                product = np.asarray(coefficient, np.int64)
                for atom, power in factors:
                    product = product * self._atom(atom) ** power
                found = found + product
            self._integers[x] = found = np.asarray(found, np.int64)
        return found

    def _atom(self, atom: Atom) -> Array:
        match atom:
            case VarAtom(name):
                return self.grid[name]
            case DivAtom(num, den):  # a divisor below 1 occurs only where nothing is needed
                return self.integer(num) // np.maximum(self.integer(den), 1)
            case ModAtom(num, den):
                return self.integer(num) % np.maximum(self.integer(den), 1)
            case MinAtom(args):
                return _fold(np.minimum, [self.integer(a) for a in args])
            case MaxAtom(args):
                return _fold(np.maximum, [self.integer(a) for a in args])


def _fold(ufunc: np.ufunc, arrays: list[Array]) -> Array:
    result = arrays[0]
    for a in arrays[1:]:
        result = ufunc(result, a)
    return result
