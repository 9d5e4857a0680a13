"""LSTM, GRU and RNN: of each layer the input's product for all steps, then the recurrences. Cells,
which are one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.base.dtypes import DType, f32, i64
from pliant.frontend.torch.context import Context, Lowering, Table
from pliant.frontend.torch.lower_shape import select
from pliant.frontend.torch.recurrent import KINDS, operator_name
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def _lowering(kind: str) -> Lowering:
    op = kind.partition("_")[0]
    attrs = {"rnn_relu": {"activations": ("relu",)}}.get(kind, {})

    def lower(
        ctx: Context, x: Value, start: Any, params: Sequence[Value], has_biases: bool, layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        states = tuple(start) if op == "lstm" else (start,)
        if train and dropout:
            raise ctx.unsupported("dropout while training; call model.eval() before exporting")
        ways = 2 if bidirectional else 1
        each = len(params) // (ways * layers)
        dtype = x.dtype
        wide = _wide(dtype)
        y = ctx.cast(x, wide)
        if batch_first:
            y = ctx.call("transpose", y, perm=(1, 0, 2))
        last: list[tuple[Value, ...]] = []  # states, of each direction of each layer
        for layer in range(layers):
            done = []
            for way in range(ways):
                k = layer * ways + way
                mine = [ctx.cast(p, wide) for p in params[k * each : (k + 1) * each]]
                begin = [ctx.cast(select(ctx, s, 0, k), wide) for s in states]
                h, *ends = _direction(ctx, op, y, mine, begin, reverse=way == 1, **attrs)
                done.append(h)
                last.append(tuple(ends))
            y = done[0] if ways == 1 else ctx.call("concat", tuple(done), axis=2)
        if batch_first:
            y = ctx.call("transpose", y, perm=(1, 0, 2))
        ends = [ctx.call("stack", parts, axis=0) for parts in zip(*last, strict=True)]
        return tuple(ctx.cast(v, dtype) for v in (y, *ends))

    return lower


def _direction(
    ctx: Context, op: str, x: Value, params: Sequence[Value], start: Sequence[Value], *,
    reverse: bool, **attrs: Any,
) -> tuple[Value, ...]:  # fmt: skip
    """All h [T, B, H] and the last states [B, H] of `x` [T, B, I]."""
    w, r, *more = params
    projection = more.pop() if len(more) % 2 else None
    given, weights = ctx.call("matmul", x, _turned(ctx, w)), _turned(ctx, r)
    if more:
        given, inner = ctx.call("add", given, more[0]), more[1]
    else:
        inner = ctx.call("expand", ctx.scalar(0, x.dtype), shape=(r.shape[0],))
    if projection is not None:
        p = _turned(ctx, projection)
        h, c = start
        given = _add_to_first(ctx, given, ctx.call("matmul", h, weights), reverse=reverse)
        weights = ctx.call("matmul", p, weights)
        start = (ctx.call("full", shape=c.shape, value=0.0, dtype=c.dtype), c)
    steps, batch = x.shape[:2]
    lengths = ctx.call("expand", ctx.tensor(as_int(steps), i64), shape=(batch,))
    done = ctx.call(op, given, weights, inner, lengths, *start, reverse=reverse, **attrs)
    if projection is None:
        return tuple(done)
    y, last, last_c = done
    return ctx.call("matmul", y, p), ctx.call("matmul", last, p), last_c


def _turned(ctx: Context, w: Value) -> Value:
    return ctx.call("transpose", w, perm=(1, 0))  # type: ignore[no-any-return]


def _add_to_first(ctx: Context, given: Value, more: Value, *, reverse: bool) -> Value:
    """What the step that is taken first gets more: a state h = u . p that is projected is kept as
    u, with the weights p . r, and begins as an h that no u need have."""
    rest = given.shape[0] - 1
    row = ctx.call("unsqueeze", more, axes=(0,))
    before, after = (rest, 0) if reverse else (0, rest)
    pads = ((before, after), (0, 0), (0, 0))
    return ctx.call(  # type: ignore[no-any-return]
        "add", given, ctx.call("pad", row, pads=pads, mode="constant", value=0)
    )


# ---- one step


def lstm_cell(
    ctx: Context, x: Value, hx: Sequence[Value], w: Value, r: Value, b: Value | None = None,
    d: Value | None = None,
) -> Any:  # fmt: skip
    h, c = hx
    given, inner = _gates(ctx, x, h, w, r, b, d)
    c = ctx.cast(c, _wide(x.dtype))
    i, f, g, o = _parts(ctx, ctx.call("add", given, inner), 4)
    i, f, o = (ctx.call("sigmoid", v) for v in (i, f, o))
    kept = ctx.call("mul", f, c)
    c = ctx.call("add", kept, ctx.call("mul", i, ctx.call("tanh", g)))
    h = ctx.call("mul", o, ctx.call("tanh", c))
    return ctx.cast(h, x.dtype), ctx.cast(c, x.dtype)


def gru_cell(
    ctx: Context, x: Value, hx: Value, w: Value, r: Value, b: Value | None = None,
    d: Value | None = None,
) -> Any:  # fmt: skip
    given, inner = _gates(ctx, x, hx, w, r, b, d)
    h = ctx.cast(hx, _wide(x.dtype))
    given, inner = _parts(ctx, given, 3), _parts(ctx, inner, 3)
    reset, update = (
        ctx.call("sigmoid", ctx.call("add", *pair))
        for pair in zip(given[:2], inner[:2], strict=True)
    )
    new = ctx.call("tanh", ctx.call("add", given[2], ctx.call("mul", reset, inner[2])))
    h = ctx.call("add", new, ctx.call("mul", update, ctx.call("sub", h, new)))
    return ctx.cast(h, x.dtype)


def _rnn_cell(activation: str) -> Lowering:
    def lower(
        ctx: Context, x: Value, hx: Value, w: Value, r: Value, b: Value | None = None,
        d: Value | None = None,
    ) -> Any:  # fmt: skip
        given, inner = _gates(ctx, x, hx, w, r, b, d)
        return ctx.cast(ctx.call(activation, ctx.call("add", given, inner)), x.dtype)

    return lower


def _gates(
    ctx: Context, x: Value, h: Value, w: Value, r: Value, b: Value | None, d: Value | None
) -> tuple[Any, Any]:
    """What the input and what the state give to all gates."""
    wide = _wide(x.dtype)

    def product(v: Value, weight: Value, bias: Value | None) -> Any:
        bias = None if bias is None else ctx.cast(bias, wide)
        return ctx.call("linear", ctx.cast(v, wide), ctx.cast(weight, wide), bias)

    return product(x, w, b), product(h, r, d)


def _wide(dtype: DType) -> DType:
    """What is computed in, for 16 bits too."""
    return dtype if dtype.bits >= f32.bits else f32


def _parts(ctx: Context, gates: Value, count: int) -> Sequence[Any]:
    axis = len(gates.shape) - 1
    return ctx.call("split", gates, sizes=(gates.shape[axis] // count,) * count, axis=axis)  # type: ignore[no-any-return]


RECURRENT: Final[Table] = {
    **{n: _lowering(kind) for kind in KINDS for n in (f"aten.{kind}.input", operator_name(kind))},
    "aten.lstm_cell.default": lstm_cell,
    "aten.gru_cell.default": gru_cell,
    "aten.rnn_tanh_cell.default": _rnn_cell("tanh"),
    "aten.rnn_relu_cell.default": _rnn_cell("relu"),
}
