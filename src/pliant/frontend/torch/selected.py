"""What a boolean mask selects of a tensor, as all of it: how much that is only the data decide.

x[mask] += y               where(mask, x + y, x)
(x[mask] - y).abs()        the same of all x; where the mask is false nobody reads it
x[mask].sum()              sum(where(mask, x, 0))
F.mse_loss(x[m], y[m])     a sum, as above, over how often the mask is true
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pliant.base.dtypes import f32, i64
from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.context import Context, Lowering, Table, axes_of
from pliant.frontend.torch.lower_elementwise import ELEMENTWISE
from pliant.frontend.torch.mutation import functional_name
from pliant.graph.function import Binding, Value


@dataclass(frozen=True)
class Selected:
    """Of `full` what has `mask`, of some dims of it, true; before these come `before` others. To
    torch the dims of the mask are one."""

    full: Value
    mask: Value
    before: int

    @property
    def after(self) -> int:
        """How many dims come after those of the mask."""
        return len(self.full.shape) - self.before - len(self.mask.shape)

    @property
    def rank(self) -> int:
        """How many dims torch sees."""
        return self.before + 1 + self.after

    def wide(self, ctx: Context) -> Value:
        """The mask, with dims of one for those that it does not have."""
        last = len(self.full.shape)
        axes = (*range(self.before), *range(last - self.after, last))
        wide: Value = ctx.call("unsqueeze", self.mask, axes=axes) if axes else self.mask
        return wide

    def of(self, full: Value) -> Selected:
        """The same of another tensor."""
        return Selected(full, self.mask, self.before)

    def filled(self, ctx: Context, number: int) -> Value:
        """All of it, with a number where the mask is false."""
        filled: Value = ctx.call(
            "where", self.wide(ctx), self.full, ctx.scalar(number, self.full.dtype)
        )
        return filled


def select(ctx: Context, x: Value, mask: Value, before: int) -> Selected:
    """What a mask, whose sizes are those of the dims it stands for, selects of `x`."""
    for k, size in enumerate(mask.shape):
        ctx.builder.equal(size, x.shape[before + k])
    return Selected(x, mask, before)


def selections(args: Any) -> list[Selected]:
    """Those among the arguments."""
    if isinstance(args, Selected):
        return [args]
    if isinstance(args, Mapping):
        args = list(args.values())
    if isinstance(args, list | tuple):
        return [s for a in args for s in selections(a)]
    return []


def refusal(ctx: Context) -> UnsupportedError:
    """The error for anything else that takes a selection."""
    return ctx.unsupported(
        "indexing with a boolean mask gives a size that depends on the data, which elementwise "
        "operators, sums, means and stores to the same mask take; use torch.where"
    )


def of_selected(target: Any, lowering: Lowering | None, table: Table) -> Lowering | None:
    """The rule for an operator some of whose operands are selections."""
    name = str(target)
    if name in ("aten.index_put.default", "aten.index_put_.default"):
        return _put
    if name == "aten.broadcast_tensors.default":
        return _broadcast
    if name in _REDUCTIONS:
        return _reduction(name, table)
    if lowering is None:  # torch may write it with others
        return None
    if name in _ROWS:
        return _of_rows(name, lowering)
    if functional_name(target) in _PLACES:
        return _elementwise(name, lowering)
    return _refuse


def _refuse(ctx: Context, *_: Any, **__: Any) -> Any:
    raise refusal(ctx)


def _elementwise(name: str, lowering: Lowering) -> Lowering:
    def lower(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        first = _common(ctx, (args, kwargs))
        full = lowering(ctx, *(_whole(ctx, a, first) for a in args),
                        **{k: _whole(ctx, a, first) for k, a in kwargs.items()})  # fmt: skip
        if not isinstance(full, Value) or len(full.shape) != len(first.full.shape):
            raise refusal(ctx)
        if full.dtype.is_int and any(word in name for word in _DIVIDES):
            raise refusal(ctx)  # where the mask is false the divisor may be 0
        return first.of(full)

    return lower


def _of_rows(name: str, lowering: Lowering) -> Lowering:
    """Along a dim after those of the mask, or with one more or fewer there."""

    def lower(ctx: Context, x: Any, dim: Any, *others: Any) -> Any:
        first = _common(ctx, (x, others))
        given = dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim
        if not isinstance(x, Selected) or not isinstance(given, int):
            raise refusal(ctx)
        at = given + x.rank + (name == "aten.unsqueeze.default") if given < 0 else given
        if at <= x.before:
            raise refusal(ctx)
        at += len(x.mask.shape) - 1
        if name.startswith("aten.squeeze"):
            one = x.full.shape[at] == 1
            return x.of(ctx.call("squeeze", x.full, axes=(at,))) if one else x
        return x.of(
            lowering(ctx, x.full, at,
                     *(_whole(ctx, a, first) for a in others))
        )  # fmt: skip

    return lower


def _common(ctx: Context, args: Any) -> Selected:
    """One of the selections, which are all of the same places."""
    first, *others = selections(args)
    if any(not _alike(ctx, first, s) for s in others):
        raise refusal(ctx)
    return first


def _alike(ctx: Context, a: Selected, b: Selected) -> bool:
    """Whether two selections are of the same places of tensors that are one another's in shape, but
    for dims after those of the mask."""
    many = len(a.full.shape) - a.after
    return (
        (a.before, a.after) == (b.before, b.after)
        and a.full.shape[:many] == b.full.shape[:many]
        and _same(ctx, a.mask, b.mask)
    )


def _same(ctx: Context, a: Any, b: Any, depth: int = 8) -> bool:
    """Whether two values are computed alike: `x[t == 0] = x[t == 0] * 2` asks twice."""
    if a is b:
        return True
    if not (isinstance(a, Value) and isinstance(b, Value)):
        return not isinstance(a, Value | tuple) and type(a) is type(b) and bool(a == b)
    one, other = _made(ctx, a), _made(ctx, b)
    if one is None or other is None or not depth:
        return False
    return (
        one.op == other.op
        and one.attrs == other.attrs
        and len(one.args) == len(other.args)
        and one.outputs.index(a) == other.outputs.index(b)
        and all(_same(ctx, x, y, depth - 1) for x, y in zip(one.args, other.args, strict=True))
    )


def _made(ctx: Context, value: Value) -> Binding | None:
    bindings = reversed(ctx.builder.bindings)
    return next((b for b in bindings if any(v is value for v in b.outputs)), None)


def _whole(ctx: Context, x: Any, first: Selected) -> Any:
    """An operand as one of all places."""
    if isinstance(x, Selected):
        return x.full
    if isinstance(x, list | tuple) and any(isinstance(v, Value | Selected) for v in x):
        raise refusal(ctx)
    if not isinstance(x, Value) or len(x.shape) <= first.after:
        return x
    # A dim of one may stand for those that are selected.
    if len(x.shape) == first.after + 1 and x.shape[0] == 1:
        return ctx.call("squeeze", x, axes=(0,))
    raise refusal(ctx)


def _put(
    ctx: Context, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any
) -> Any:
    """x[mask] = what was selected by it, or computed of that."""
    at = [k for k, v in enumerate(indices) if v is not None]
    if not isinstance(x, Value) or not isinstance(values, Selected) or len(at) != 1:
        raise refusal(ctx)
    if not isinstance(indices[at[0]], Value):
        raise refusal(ctx)
    place = select(ctx, x, indices[at[0]], at[0])
    if not _alike(ctx, place, values):
        raise refusal(ctx)
    full = ctx.cast(values.full, x.dtype)
    full = ctx.call("add", x, full) if accumulate else full
    return ctx.call("where", place.wide(ctx), full, x)


def _broadcast(ctx: Context, several: Sequence[Any]) -> Any:
    first = _common(ctx, several)
    if any(not isinstance(s, Selected) or s.full.shape != first.full.shape for s in several):
        raise refusal(ctx)
    return tuple(several)


def _reduction(name: str, table: Table) -> Lowering:
    op = name.split(".")[1]

    def lower(
        ctx: Context, x: Selected, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        dims = axes_of(dim, x.rank)
        many = len(x.mask.shape)
        axes = [a for d in dims for a in _axes(d, x.before, many)]
        if x.before not in dims:
            full = table[f"aten.{op}.{_ALONG[op]}"](ctx, x.full, axes, keepdim, *_given(dtype))
            fewer = 0 if keepdim else sum(d < x.before for d in dims)
            return Selected(full, x.mask, x.before - fewer)
        if keepdim and many != 1:
            raise refusal(ctx)
        if op != "mean":
            filled = x.filled(ctx, _NEUTRAL[op])
            return table[f"aten.{op}.{_ALONG[op]}"](ctx, filled, axes, keepdim, *_given(dtype))
        return _mean(ctx, x.of(_cast(ctx, x.full, dtype)), axes, keepdim)

    if name.endswith(".default"):
        return lambda ctx, x, **kwargs: lower(ctx, x, dtype=kwargs.get("dtype"))
    return lower


def _axes(d: int, before: int, many: int) -> Sequence[int]:
    """The dims of the whole tensor that one of the selection is."""
    if d == before:
        return range(before, before + many)
    return (d if d < before else d + many - 1,)


def _given(dtype: Any) -> tuple[Any, ...]:
    return () if dtype is None else (dtype,)


def _cast(ctx: Context, x: Value, dtype: Any) -> Value:
    return x if dtype is None else ctx.cast(x, ctx.out_dtype())


def _mean(ctx: Context, x: Selected, axes: Sequence[int], keepdim: bool) -> Value:
    """A sum over how many there are; as torch, NaN where that is none."""
    kind = x.full.dtype
    wide = f32 if kind.bits < 32 else kind
    filled = x.of(ctx.cast(x.full, wide)).filled(ctx, 0)
    total = ctx.call("sum", filled, axes=tuple(axes), keepdims=keepdim)
    count = ctx.call(
        "sum", ctx.cast(x.mask, i64), axes=tuple(range(len(x.mask.shape))), keepdims=False
    )
    for a in axes:
        if not x.before <= a < x.before + len(x.mask.shape):
            count = ctx.call("mul", count, ctx.tensor(x.full.shape[a], i64))
    return ctx.cast(ctx.call("div", total, ctx.cast(count, wide)), kind)


_NEUTRAL: Final = {"sum": 0, "any": 0, "all": 1}
_ALONG: Final = {"sum": "dim_IntList", "mean": "dim", "any": "dims", "all": "dims"}
_REDUCTIONS: Final = frozenset(
    f"aten.{op}.{overload}"
    for op, along in _ALONG.items()
    for overload in ("default", along, "dim")
)
_ROWS: Final = frozenset(
    f"aten.{n}"
    for n in ("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default",
              "gather.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims")
)  # fmt: skip
_PLACES: Final = ELEMENTWISE.keys() - {
    f"aten.{n}.default" for n in ("glu", "prelu", "_prelu_kernel")
}  # those know dims from one another
_DIVIDES: Final = ("div", "remainder", "fmod")
"""Of integers, words in the names of operators that fail for some divisor."""
