"""Activation functions of one float, as scalar expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from pliant.base.dtypes import f16
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Binary, Expr, Unary, as_expr
from pliant.ir.tensor import select


def unary(op: str, x: Expr) -> Expr:
    """`op(x)`."""
    return Unary(op, x)


def maximum_of(x: Expr, bound: float) -> Expr:
    """max(x, bound); NaN stays."""
    return Binary("max", x, as_expr(bound, x.dtype))


def minimum_of(x: Expr, bound: float) -> Expr:
    """min(x, bound); NaN stays."""
    return Binary("min", x, as_expr(bound, x.dtype))


def silu(x: Expr) -> Expr:
    """x * sigmoid(x)."""
    return x * unary("sigmoid", x)


def softplus(x: Expr, *, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    """log(1 + exp(beta*x)) / beta; x itself where beta*x > threshold (torch)."""
    scaled = x * beta
    small = unary("log1p", unary("exp", scaled)) / beta
    return select(scaled > threshold, x, small)


def mish(x: Expr) -> Expr:
    """x * tanh(log(1 + exp(x))). With e = exp(x) that is x * n / (n + 2) of n = e * (e + 2): one
    function instead of three. The quotient is 1 long before n overflows, so x is cut off there."""
    e = unary("exp", minimum_of(x, 5.0 if x.dtype is f16 else 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


def softsign(x: Expr) -> Expr:
    """x / (1 + |x|)."""
    return x / (unary("abs", x) + 1.0)


def hardswish(x: Expr) -> Expr:
    """x * clamp(x + 3, 0, 6) / 6."""
    return x * minimum_of(maximum_of(x + 3.0, 0.0), 6.0) / 6.0


def hardsigmoid(x: Expr, *, alpha: float = 1 / 6, beta: float = 0.5) -> Expr:
    """clamp(alpha*x + beta, 0, 1)."""
    return minimum_of(maximum_of(x * alpha + beta, 0.0), 1.0)


def gelu(x: Expr, *, approximate: str = "none") -> Expr:
    """x times the normal distribution function; "tanh" is Hendrycks and Gimpel's approximation."""
    if approximate == "none":
        return x * 0.5 * (unary("erf", x * math.sqrt(0.5)) + 1.0)
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (unary("tanh", inner) + 1.0)
    raise InvalidModelError(f'approximate is "none" or "tanh", not {approximate!r}')


def elu(x: Expr, *, alpha: float = 1.0) -> Expr:
    """x where positive, else alpha * (exp(x) - 1)."""
    return select(x > 0, x, unary("expm1", x) * alpha)


SELU_ALPHA: Final = 1.6732632423543772
SELU_GAMMA: Final = 1.0507009873554805


def selu(x: Expr, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Expr:
    """gamma * elu(x, alpha)."""
    return elu(x, alpha=alpha) * gamma


def celu(x: Expr, *, alpha: float = 1.0) -> Expr:
    """x where positive, else alpha * (exp(x/alpha) - 1)."""
    return select(x > 0, x, unary("expm1", x / alpha) * alpha)


def leaky_relu(x: Expr, *, alpha: float = 0.01) -> Expr:
    """x where positive, else alpha * x."""
    return select(x > 0, x, x * alpha)


def thresholded_relu(x: Expr, *, alpha: float = 1.0) -> Expr:
    """x where above alpha, else 0."""
    return select(x > alpha, x, 0.0)


def shrink(x: Expr, *, lambd: float = 0.5, bias: float = 0.0) -> Expr:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    return select(x < -lambd, x + bias, select(x > lambd, x - bias, 0.0))


ACTIVATIONS: Final[Mapping[str, Callable[..., Expr]]] = {
    "silu": silu, "softplus": softplus, "mish": mish, "softsign": softsign,
    "hardswish": hardswish, "hardsigmoid": hardsigmoid, "gelu": gelu, "elu": elu, "selu": selu,
    "celu": celu, "leaky_relu": leaky_relu, "thresholded_relu": thresholded_relu,
    "shrink": shrink,
}  # fmt: skip
