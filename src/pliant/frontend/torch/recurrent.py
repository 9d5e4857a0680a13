"""Recurrent layers stay whole while a module is traced, and their length a symbol.

torch.export asks what shapes `nn.LSTM` gives by running its decomposition, a step at a time, which
makes the length a constant. While a module is traced they call operators of ours instead, which
know the shapes without that and compute the same by torch's own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

KINDS: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def operator_name(kind: str) -> str:
    """What nodes of an exported program call the operator that stands for `torch._VF.<kind>`."""
    return f"pliant.{kind}.default"


@contextlib.contextmanager
def whole_recurrences() -> Iterator[None]:
    """Meanwhile `nn.LSTM`, `nn.GRU` and `nn.RNN` call operators that no tracer looks into."""
    before = {kind: getattr(torch._VF, kind) for kind in KINDS}
    for kind, original in before.items():
        setattr(torch._VF, kind, functools.partial(_called, kind, original))
    try:
        yield
    finally:
        for kind, original in before.items():
            setattr(torch._VF, kind, original)


def _called(kind: str, original: Callable[..., Any], *args: Any) -> Any:
    """What a layer calls: packed sequences are as they were."""
    if len(args) != 9 or not isinstance(args[2], list | tuple):
        return original(*args)
    x, start, params = args[:3]
    if kind == "lstm":
        return _operator(kind)(x, list(start), list(params), *args[3:])
    return _operator(kind)(x, start, list(params), *args[3:])


@functools.cache
def _operator(kind: str) -> Any:
    """The operator, with the arguments of `torch.ops.aten.<kind>.input`."""
    original = getattr(torch.ops.aten, kind).input
    states = 2 if kind == "lstm" else 1
    start = "Tensor[] start" if kind == "lstm" else "Tensor start"
    results = ", ".join(["Tensor"] * (1 + states))
    schema = (
        f"(Tensor x, {start}, Tensor[] params, bool has_biases, int num_layers, float dropout, "
        f"bool train, bool bidirectional, bool batch_first) -> ({results})"
    )

    def run(*args: Any) -> tuple[torch.Tensor, ...]:
        return tuple(r.clone() for r in original(*args))

    def shapes(x: Any, start: Any, params: Sequence[Any], *args: Any) -> tuple[Any, ...]:
        firsts = start if kind == "lstm" else [start]
        width = params[1].shape[1] * (2 if args[4] else 1)
        y = x.new_empty((*x.shape[:2], width))
        return (y, *(torch.empty_like(s, memory_format=torch.contiguous_format) for s in firsts))

    made = torch.library.custom_op(f"pliant::{kind}", run, mutates_args=(), schema=schema)
    made.register_fake(shapes)
    return made
