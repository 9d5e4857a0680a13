"""Recurrences against NumPy: all steps, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.case import Arg, Case, arg

SIZES = (
    {"t": 3, "b": 2, "h": 4},
    {"t": 1, "b": 1, "h": 1},
    {"t": 0, "b": 2, "h": 3},
    {"t": 4, "b": 0, "h": 3},
    {"t": 2, "b": 3, "h": 17},
    {"t": 3, "b": 9, "h": 5},
)
FUNCTIONS = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    ("scaled_tanh", 1.5, 0.7): lambda x: 1.5 * np.tanh(0.7 * x),
}


def lengths(rng: np.random.Generator, shape: Any, dtype: Any, sizes: Any) -> np.ndarray:
    """From nothing to all steps."""
    return rng.integers(0, sizes["t"] + 1, shape).astype(np.int64)


def _walk(
    x: np.ndarray, length: np.ndarray, states: list[np.ndarray], reverse: bool, step: Any
) -> Any:
    """`step(x_t, states)` gives the new states; each sequence of the batch by itself."""
    y = np.zeros((*x.shape[:2], states[0].shape[1]), x.dtype)
    last = [s.copy() for s in states]
    for b in range(x.shape[1]):
        now = [s[b] for s in states]
        steps = range(length[b])
        for t in reversed(steps) if reverse else steps:
            now = step(x[t, b], now)
            y[t, b] = now[0]
        for s, v in zip(last, now, strict=True):
            s[b] = v
    return y, *last


def rnn(
    x: Any,
    w: Any,
    bias: Any,
    length: Any,
    start: Any,
    activations: Any = ("tanh",),
    reverse: bool = False,
    clip: float = np.inf,
) -> Any:
    f = FUNCTIONS[activations[0]]

    def step(x: Any, s: Any) -> Any:
        return [f(np.clip(x + bias + s[0] @ w, -clip, clip))]

    return _walk(x, length, [start], reverse, step)


def gru(
    x: Any,
    w: Any,
    bias: Any,
    length: Any,
    start: Any,
    reset_first: bool = False,
    reverse: bool = False,
) -> Any:
    f, h = FUNCTIONS["sigmoid"], start.shape[1]

    def step(x: Any, s: Any) -> Any:
        sums = bias + s[0] @ w
        r, z = f(x[:h] + sums[:h]), f(x[h : 2 * h] + sums[h : 2 * h])
        inner = r * sums[2 * h :]
        if reset_first:
            inner = bias[2 * h :] + (r * s[0]) @ w[:, 2 * h :]
        return [(1 - z) * np.tanh(x[2 * h :] + inner) + z * s[0]]

    return _walk(x, length, [start], reverse, step)


def lstm(
    x: Any,
    w: Any,
    bias: Any,
    length: Any,
    start: Any,
    start_c: Any,
    peep: Any = None,
    reverse: bool = False,
    clip: float = np.inf,
    coupled: bool = False,
) -> Any:
    f, h = FUNCTIONS["sigmoid"], start.shape[1]
    p = np.zeros(3 * h, x.dtype) if peep is None else peep

    def step(x: Any, s: Any) -> Any:
        i, g, c, o = np.split(x + bias + s[0] @ w, 4)
        let_in = f(cut(i + p[:h] * s[1]))
        kept = 1 - let_in if coupled else f(cut(g + p[h : 2 * h] * s[1]))
        new = kept * s[1] + let_in * np.tanh(cut(c))
        return [f(cut(o + p[2 * h :] * new)) * np.tanh(new), new]

    def cut(x: Any) -> Any:
        return np.clip(x, -clip, clip)

    return _walk(x, length, [start, start_c], reverse, step)


def case(op: str, gates: int, oracle: Any, dtype: str, note: str, **attrs: Any) -> Case:
    wide, state = f"{gates}*h", arg(dtype, "b", "h")
    args: list[Any] = [
        arg(dtype, "t", "b", wide), arg(dtype, "h", wide), arg(dtype, wide),
        Arg(arg("i64", "b").dtype, ("b",), lengths), state,
    ]  # fmt: skip
    args += [state] if op == "lstm" else []
    args += [arg(dtype, "3*h")] if note == "peepholes" else []
    return Case(op, tuple(args), oracle, attrs, SIZES, note=note, numpy=True, tol=10)


CASES = [
    case("rnn", 1, rnn, "f32", ""),
    case("rnn", 1, rnn, "f64", "relu", activations=("relu",)),
    case("rnn", 1, rnn, "f32", "reverse", reverse=True),
    case("rnn", 1, rnn, "f32", "clip", activations=(("scaled_tanh", 1.5, 0.7),), clip=0.5),
    case("gru", 3, gru, "f32", ""),
    case("gru", 3, gru, "f32", "reset_first", reset_first=True, reverse=True),
    case("lstm", 4, lstm, "f32", ""),
    case("lstm", 4, lstm, "f64", "reverse", reverse=True),
    case("lstm", 4, lstm, "f32", "peepholes"),
    case("lstm", 4, lstm, "f32", "coupled", coupled=True, clip=0.5),
]
