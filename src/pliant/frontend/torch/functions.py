"""Functions of torch tensors as modules, which is what torch exports.

Weights are the module's that the function is a method of, and of modules that it refers to from
around it: in a closure, in a partial application, among the globals that its code names. Tensors
that it refers to are constants.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch


def as_module(function: Callable[..., Any], count: int) -> torch.nn.Module:
    """A module whose forward is the function, with its parameters' names; of a builtin, which has
    none, takes so many."""
    name = getattr(function, "__name__", type(function).__name__)
    module: torch.nn.Module = type(name, (torch.nn.Module,), {"__module__": __name__})()
    for k, owner in enumerate(dict.fromkeys(_modules(function))):
        module.add_module(f"module{k}", owner)
    try:
        inspect.signature(function)
    except ValueError:
        function = _named(function, count)
    module.forward = function
    return module


def _named(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        return function(*inputs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = (inspect.Parameter(f"input{k}", kind) for k in range(count))
    call.__signature__ = inspect.Signature([*names])  # type: ignore[attr-defined]
    return call


def _modules(function: Any, seen: frozenset[int] = frozenset()) -> Iterator[torch.nn.Module]:
    """Those that a function refers to, or functions in its closure, as decorators leave them; not
    those that other functions which it calls refer to."""
    if id(function) in seen:
        return
    seen |= {id(function)}
    around: list[Any] = []
    values: list[Any] = []
    if isinstance(function, functools.partial):
        around = [function.func, *function.args, *function.keywords.values()]
    elif inspect.ismethod(function):
        around = [function.__func__, function.__self__]
    elif inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        around, values = [*found.nonlocals.values()], [*found.globals.values()]
    for value in around:
        yield from _modules(value, seen)
    yield from (v for v in (function, *values) if isinstance(v, torch.nn.Module))
