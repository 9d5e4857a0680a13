"""LSTM, GRU and RNN: of each layer the input's product for all steps, then the recurrences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.base.dtypes import f32, i64
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
        wide = dtype if dtype.bits >= f32.bits else f32
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


RECURRENT: Final[Table] = {
    name: _lowering(kind) for kind in KINDS for name in (f"aten.{kind}.input", operator_name(kind))
}
