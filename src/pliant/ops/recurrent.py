"""Recurrent layers in one direction: plain RNN, LSTM, GRU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr, const
from pliant.ir.tensor import OpaqueOutput, Tensor, compute, select
from pliant.ops.activation import (
    elu,
    hardsigmoid,
    leaky_relu,
    maximum_of,
    minimum_of,
    softplus,
    softsign,
    thresholded_relu,
    unary,
)
from pliant.ops.common import check_rank, equal
from pliant.ops.program import TensorProgram
from pliant.ops.recurrence import LANES, Activation, Cell, recurrence
from pliant.ops.shape import concat
from pliant.sym.expr import Int, as_int, ceildiv

ACTIVATIONS: Final[Mapping[str, Callable[..., Expr]]] = {
    "sigmoid": partial(unary, "sigmoid"),
    "tanh": partial(unary, "tanh"),
    "relu": lambda x: maximum_of(x, 0.0),
    "softsign": softsign,
    "softplus": softplus,
    "elu": lambda x, alpha: elu(x, alpha=alpha),
    "leaky_relu": lambda x, alpha: leaky_relu(x, alpha=alpha),
    "thresholded_relu": lambda x, alpha: thresholded_relu(x, alpha=alpha),
    "affine": lambda x, alpha, beta: x * alpha + beta,
    "hardsigmoid": lambda x, alpha, beta: hardsigmoid(x, alpha=alpha, beta=beta),
    "scaled_tanh": lambda x, alpha, beta: unary("tanh", x * beta) * alpha,
}
"""Of an element, and of the numbers that follow the name."""

Named = str | tuple[Any, ...]  # a name, or a name and its numbers


def rnn(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    lengths: Tensor,
    start: Tensor,
    *,
    activations: tuple[Named, ...] = ("tanh",),
    reverse: bool = False,
    clip: float | None = None,
) -> tuple[OpaqueOutput, ...]:
    """h = f(x_t + bias + h . weights): all h [T, B, H], the last [B, H].

    `x` [T, B, G*H] is what the gates get of the input, G their number (here 1); `weights`
    [H, G*H]; `bias` [G*H]; `lengths` i64 [B], each from 0 to T; `start` [B, H]. All h past a
    sequence's length are 0. `reverse`: each sequence from its last step to its first. `clip`: what
    goes into a function is cut to [-clip, clip].
    """
    cell = Cell("rnn", _functions(activations, 1, clip))
    return _define(cell, reverse, x, weights, bias, lengths, start)


def gru(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    lengths: Tensor,
    start: Tensor,
    *,
    activations: tuple[Named, ...] = ("sigmoid", "tanh"),
    reset_first: bool = False,
    reverse: bool = False,
    clip: float | None = None,
) -> tuple[OpaqueOutput, ...]:
    """Gated recurrent unit (Cho et al. 2014): all h [T, B, H], the last [B, H].

    Operands as of `rnn` with the gates reset, update, new. h = (1 - z)*n + z*h with
    n = f(x_n + r*(bias_n + h . w_n)), or with `reset_first` f(x_n + bias_n + (r*h) . w_n).
    """
    cell = Cell("gru", _functions(activations, 2, clip), reset_first=reset_first)
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
    activations: tuple[Named, ...] = ("sigmoid", "tanh", "tanh"),
    reverse: bool = False,
    clip: float | None = None,
    coupled: bool = False,
) -> tuple[OpaqueOutput, ...]:
    """Long short-term memory (Hochreiter and Schmidhuber 1997): all h [T, B, H], the last h and
    the last cell state [B, H].

    Operands as of `rnn` with the gates input, forget, cell, output. `peep` [3*H] (Gers and
    Schmidhuber 2000): what input, forget and output gate see of the cell's state. `coupled`: the
    forget gate is 1 - the input gate. The cell's state itself is not clipped.
    """
    functions = (*_functions(activations[:2], 2, clip), *_functions(activations[2:], 1, None))
    cell = Cell("lstm", functions, peepholes=peep is not None, coupled=coupled)
    more = () if peep is None else (peep,)
    return _define(cell, reverse, x, weights, bias, lengths, start, start_c, *more)


def _functions(named: tuple[Named, ...], count: int, clip: float | None) -> tuple[Activation, ...]:
    pairs = [(n, ()) if isinstance(n, str) else (n[0], n[1:]) for n in named]
    if len(pairs) != count or not {n for n, _ in pairs} <= ACTIVATIONS.keys():
        known = ", ".join(ACTIVATIONS)
        raise InvalidModelError(f"it takes {count} activations out of {known}, not {list(named)}")
    return tuple([_function(n, numbers, clip) for n, numbers in pairs])


def _function(name: str, numbers: tuple[float, ...], clip: float | None) -> Activation:
    fn = ACTIVATIONS[name]
    if clip is None:
        return lambda x: fn(x, *numbers)
    low, high = -abs(clip), abs(clip)
    return lambda x: fn(minimum_of(maximum_of(x, low), high), *numbers)


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
