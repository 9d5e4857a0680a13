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
        each = 4 if has_biases else 2
        ways = 2 if bidirectional else 1
        if len(params) != each * ways * layers:
            raise ctx.unsupported("a projection of the state (proj_size)")
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
    ctx: Context, op: str, x: Value, params: Sequence[Value], start: Sequence[Value], **attrs: Any
) -> tuple[Value, ...]:
    """All h [T, B, H] and the last states [B, H] of `x` [T, B, I]."""
    w, r, *biases = params
    given = ctx.call("matmul", x, ctx.call("transpose", w, perm=(1, 0)))
    if biases:
        given, inner = ctx.call("add", given, biases[0]), biases[1]
    else:
        inner = ctx.call("expand", ctx.scalar(0, x.dtype), shape=(r.shape[0],))
    steps, batch = x.shape[:2]
    lengths = ctx.call("expand", ctx.tensor(as_int(steps), i64), shape=(batch,))
    weights = ctx.call("transpose", r, perm=(1, 0))
    return tuple(ctx.call(op, given, weights, inner, lengths, *start, **attrs))


RECURRENT: Final[Table] = {
    name: _lowering(kind) for kind in KINDS for name in (f"aten.{kind}.input", operator_name(kind))
}
