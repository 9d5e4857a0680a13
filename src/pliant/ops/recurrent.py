"""Recurrent layers in one direction: plain RNN, LSTM, GRU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr, const
from pliant.ir.tensor import OpaqueOutput, Tensor, compute, select
from pliant.ops.activation import maximum_of, unary
from pliant.ops.common import check_rank, equal
from pliant.ops.program import TensorProgram
from pliant.ops.recurrence import LANES, Activation, Cell, recurrence
from pliant.ops.shape import concat
from pliant.sym.expr import Int, as_int, ceildiv

ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "sigmoid": partial(unary, "sigmoid"),
    "tanh": partial(unary, "tanh"),
    "relu": lambda x: maximum_of(x, 0.0),
}


def rnn(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    lengths: Tensor,
    start: Tensor,
    *,
    activations: tuple[str, ...] = ("tanh",),
    reverse: bool = False,
) -> tuple[OpaqueOutput, ...]:
    """h = f(x_t + bias + h . weights): all h [T, B, H], the last [B, H].

    `x` [T, B, G*H] is what the gates get of the input, G their number (here 1); `weights`
    [H, G*H]; `bias` [G*H]; `lengths` i64 [B], each from 0 to T; `start` [B, H]. All h past a
    sequence's length are 0. `reverse`: each sequence from its last step to its first.
    """
    cell = Cell("rnn", _functions(activations, 1))
    return _define(cell, reverse, x, weights, bias, lengths, start)


def gru(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    lengths: Tensor,
    start: Tensor,
    *,
    activations: tuple[str, ...] = ("sigmoid", "tanh"),
    reset_first: bool = False,
    reverse: bool = False,
) -> tuple[OpaqueOutput, ...]:
    """Gated recurrent unit (Cho et al. 2014): all h [T, B, H], the last [B, H].

    Operands as of `rnn` with the gates reset, update, new. h = (1 - z)*n + z*h with
    n = f(x_n + r*(bias_n + h . w_n)), or with `reset_first` f(x_n + bias_n + (r*h) . w_n).
    """
    cell = Cell("gru", _functions(activations, 2), reset_first=reset_first)
    return _define(cell, reverse, x, weights, bias, lengths, start)


def lstm(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    lengths: Tensor,
    start: Tensor,
    start_c: Tensor,
    peep: Tensor | None = None,
    *,
    activations: tuple[str, ...] = ("sigmoid", "tanh", "tanh"),
    reverse: bool = False,
) -> tuple[OpaqueOutput, ...]:
    """Long short-term memory (Hochreiter and Schmidhuber 1997): all h [T, B, H], the last h and
    the last cell state [B, H].

    Operands as of `rnn` with the gates input, forget, cell, output. `peep` [3*H] (Gers and
    Schmidhuber 2000): what input, forget and output gate see of the cell's state.
    """
    cell = Cell("lstm", _functions(activations, 3), peepholes=peep is not None)
    more = () if peep is None else (peep,)
    return _define(cell, reverse, x, weights, bias, lengths, start, start_c, *more)


def _functions(names: tuple[str, ...], count: int) -> tuple[Activation, ...]:
    if len(names) != count or not set(names) <= ACTIVATIONS.keys():
        known = ", ".join(ACTIVATIONS)
        raise InvalidModelError(f"it takes {count} activations out of {known}, not {list(names)}")
    return tuple([ACTIVATIONS[n] for n in names])


def _define(
    cell: Cell, reverse: bool, x: Tensor, weights: Tensor, bias: Tensor, *more: Tensor
) -> tuple[OpaqueOutput, ...]:
    operands = (x, *_panels(cell, weights, bias), *more)
    dtype = x.dtype
    if not dtype.is_float or dtype.bits < 32:
        raise InvalidModelError(f"a recurrence of {dtype}: cast to f32 first")
    if operands[3].dtype is not i64:
        raise InvalidModelError(f"lengths are i64, not {operands[3].dtype}")
    return TensorProgram(recurrence(cell, dtype, reverse)).define(*operands)


def _panels(cell: Cell, weights: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and bias as the program reads them: (P, H, LANES), (P, LANES)."""
    check_rank(weights, 2, "weights")
    check_rank(bias, 1, "bias")
    h, wide = weights.shape
    requires = equal(wide, cell.gates * h, f"dim 1 of weights must be {cell.gates} * dim 0")
    requires += equal(bias.shape[0], wide, "dim 0 of bias must be dim 1 of weights")

    def panels(of: Tensor) -> Tensor:
        def part(first: Int, count: Int) -> Tensor:
            def element(some: Int, *at: Int) -> Expr:
                column = LANES * some + at[-1]
                there = as_expr(column) < as_expr(count)
                return select(there, of[(*at[:-1], first + column)], const(0, of.dtype))

            shape = (ceildiv(count, LANES), *of.shape[:-1], as_int(LANES))
            return compute(shape, element, "panels", requires)

        first, *rest = [part(*p) for p in cell.products(h)]
        return concat((first, *rest), axis=0) if rest else first

    return panels(weights), panels(bias)


RECURRENT: Final[tuple[Operator, ...]] = (
    Operator("rnn", rnn),
    Operator("gru", gru),
    Operator("lstm", lstm),
)
