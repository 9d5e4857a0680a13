"""Complex numbers: their real and their imaginary parts, a tensor each.

view_as_real(view_as_complex(x) * f)
->  re, im = x[..., 0], x[..., 1];  stack((re * f.re - im * f.im, re * f.im + im * f.re), -1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pliant.frontend.torch.context import Context
from pliant.frontend.torch.lower_shape import expand
from pliant.frontend.torch.promote import part_of
from pliant.graph.function import Value
from pliant.sym.expr import Int


@dataclass(frozen=True)
class Parts:
    """A complex tensor, or number: parts of one shape and one type."""

    re: Any
    im: Any

    def map(self, function: Callable[[Any], Any]) -> Parts:
        """The same of both."""
        return Parts(function(self.re), function(self.im))

    @property
    def shape(self) -> tuple[Int, ...]:
        """That of either part."""
        return self.re.shape  # type: ignore[no-any-return]


def is_complex(value: Any) -> bool:
    """Whether torch says so of a result."""
    return isinstance(value, torch.Tensor) and value.is_complex()


def has_parts(args: Any) -> bool:
    """Whether there are complex operands."""
    return any(isinstance(x, Parts | complex) for x in _leaves(args))


def parts_of(ctx: Context, x: Any) -> Parts:
    """Any operand as a complex one."""
    match x:
        case Parts():
            return x
        case complex():
            return Parts(x.real, x.imag)
        case Value():
            return Parts(x, zeros_like(ctx, x))
    return Parts(x, 0)


def zeros_like(ctx: Context, x: Value) -> Value:
    """Zeros of its shape."""
    return expand(ctx, ctx.scalar(0, x.dtype), x.shape)  # type: ignore[no-any-return]


def with_each(args: Any, part: str) -> Any:
    """The arguments with one part of what is complex in them, and its type in place of complex."""
    match args:
        case Parts():
            return getattr(args, part)
        case torch.dtype():
            return part_of(args)
        case list() | tuple():
            return type(args)(with_each(x, part) for x in args)
        case Mapping():
            return {k: with_each(x, part) for k, x in args.items()}
    return args


def joined(re: Any, im: Any) -> Any:
    """Results of the real and of the imaginary parts as complex ones."""
    if isinstance(re, tuple | list):
        return tuple(joined(a, b) for a, b in zip(re, im, strict=True))
    return Parts(re, im)


def _leaves(args: Any) -> Iterator[Any]:
    if isinstance(args, list | tuple):
        for x in args:
            yield from _leaves(x)
    elif isinstance(args, Mapping):
        yield from _leaves(tuple(args.values()))
    else:
        yield args
