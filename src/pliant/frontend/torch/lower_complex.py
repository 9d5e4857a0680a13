"""ATen operators of complex numbers, on their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.complex_parts import (
    Parts,
    has_parts,
    is_complex,
    joined,
    parts_of,
    with_each,
    zeros_like,
)
from pliant.frontend.torch.context import Context, Lowering, Table
from pliant.frontend.torch.lower_elementwise import hypot, is_finite, is_inf, is_nan
from pliant.frontend.torch.lower_shape import expand, movedim, select
from pliant.frontend.torch.promote import from_torch
from pliant.graph.function import Value

APART: Final = frozenset(
    "view reshape _unsafe_view view_copy view_as reshape_as flatten unflatten ravel permute "
    "transpose t numpy_T mT swapaxes swapdims movedim moveaxis squeeze unsqueeze expand expand_as "
    "broadcast_to clone contiguous detach alias lift_fresh lift_fresh_copy slice select narrow "
    "split split_with_sizes chunk tensor_split unbind unsafe_split unsafe_chunk roll flip fliplr "
    "flipud rot90 repeat tile index_select gather take_along_dim diagonal diag_embed index "
    "neg negative positive sum mean cumsum triu tril constant_pad_nd unfold add sub subtract rsub "
    "cat concat concatenate stack hstack vstack dstack where slice_scatter select_scatter "
    "index_put _unsafe_index_put repeat_interleave atleast_1d atleast_2d atleast_3d "
    "broadcast_tensors diff full new_full copy".split()
)
"""What the operators do to a complex number they do to each of its parts."""

WHOLE: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(
        ("add", "sub", "subtract", "rsub", "slice_scatter", "select_scatter", "copy"), (0, 1)
    ),
    **dict.fromkeys(
        ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack",
         "broadcast_tensors"),
        (0,),
    ),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), (0, 2)),
    "where": (1, 2),
    "full": (1,),
    "new_full": (2,),
}  # fmt: skip
"""Operands that are complex where another one of them is."""

BILINEAR: Final = frozenset("mul multiply matmul bmm mm mv dot inner outer einsum kron".split())
"""Products of two operands."""

_CREATED: Final = frozenset("zeros ones empty new_zeros new_ones new_empty".split())


def of_complex(name: str, lower: Lowering | None, args: Any, kwargs: Any, value: Any) -> Any:
    """The rule for an operator whose operands or result are complex, given the one for real
    numbers; that one where none is. Raises UnsupportedError where there is none."""
    if not (has_parts(args) or has_parts(kwargs) or is_complex(value)):
        return lower
    base = name.split(".")[1]
    base = base if base.startswith("__") else base.removesuffix("_")
    if base in _RULES:
        return _RULES[base]
    if base == "pad":
        return _pad(lower)
    if lower is not None and base in APART:
        return _apart(lower, WHOLE.get(base, ()))
    if lower is not None and base in BILINEAR:
        return _bilinear(lower)
    if lower is not None and base in _CREATED:
        return _created(lower)
    raise UnsupportedError("there is no import rule for it with complex numbers")


# ---- rules made of those for real numbers


def _apart(lower: Lowering, whole: Sequence[int]) -> Lowering:
    def rule(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        given = [_whole(ctx, a) if k in whole else a for k, a in enumerate(args)]
        named = {k: _whole(ctx, a) if k in ("values", "src") else a for k, a in kwargs.items()}
        re = lower(ctx, *with_each(given, "re"), **with_each(named, "re"))
        im = lower(ctx, *with_each(given, "im"), **with_each(named, "im"))
        return joined(re, im)

    return rule


def _whole(ctx: Context, x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(_whole(ctx, v) for v in x)
    return parts_of(ctx, x)


def _bilinear(lower: Lowering) -> Lowering:
    def rule(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        at = [k for k, a in enumerate(args) if has_parts(a)]
        if isinstance(args[at[0]], list | tuple):  # einsum
            (k,) = at

            def times(*operands: Any) -> Value:
                return lower(ctx, *args[:k], operands, *args[k + 1 :], **kwargs)  # type: ignore[no-any-return]

            operands = args[k]
        else:

            def times(*operands: Any) -> Value:
                return lower(ctx, *operands, *args[2:], **kwargs)  # type: ignore[no-any-return]

            operands = args[:2]
        if len(operands) != 2:
            raise UnsupportedError("products of more than two complex operands; use several")
        return product(ctx, times, *operands)

    return rule


def product(ctx: Context, times: Lowering, a: Any, b: Any) -> Parts:
    """Of two operands, one of them complex or both, by products of real numbers."""
    if not has_parts((a,)):
        b = parts_of(ctx, b)
        return Parts(times(a, b.re), times(a, b.im))
    a = parts_of(ctx, a)
    if not has_parts((b,)):
        return Parts(times(a.re, b), times(a.im, b))
    b = parts_of(ctx, b)
    re = ctx.call("sub", times(a.re, b.re), times(a.im, b.im))
    im = ctx.call("add", times(a.re, b.im), times(a.im, b.re))
    return Parts(re, im)


def _created(lower: Lowering) -> Lowering:
    """zeros and the like: real numbers."""

    def rule(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        re = lower(ctx, *with_each(args, "re"), **with_each(kwargs, "re"))
        return Parts(re, zeros_like(ctx, re))

    return rule


def _pad(lower: Lowering | None) -> Lowering:
    def rule(ctx: Context, x: Parts, pad: Any, mode: str = "constant", value: Any = None) -> Any:
        assert lower is not None
        if mode != "constant" or not value:
            return x.map(lambda v: lower(ctx, v, pad, mode, value))
        fill = parts_of(ctx, value)
        return Parts(lower(ctx, x.re, pad, mode, fill.re), lower(ctx, x.im, pad, mode, fill.im))

    return rule


# ---- rules of their own


def view_as_complex(ctx: Context, x: Value) -> Parts:
    """Of a last dim of two."""
    return Parts(select(ctx, x, -1, 0), select(ctx, x, -1, 1))


def view_as_real(ctx: Context, x: Parts) -> Value:
    """Both parts in a last dim."""
    return ctx.call("stack", (x.re, x.im), axis=len(x.shape))  # type: ignore[no-any-return]


def polar(ctx: Context, length: Value, angle: Value) -> Parts:
    """By length and angle."""
    return Parts(
        ctx.call("mul", length, ctx.call("cos", angle)),
        ctx.call("mul", length, ctx.call("sin", angle)),
    )


def conj(ctx: Context, x: Parts) -> Parts:
    """The conjugate."""
    return Parts(x.re, ctx.call("neg", x.im))


def adjoint(ctx: Context, x: Parts) -> Parts:
    """The conjugate of the transposed matrices."""
    return conj(ctx, x.map(lambda v: movedim(ctx, v, -1, -2)))


def absolute(ctx: Context, x: Parts) -> Value:
    """Without overflow on the way."""
    return hypot(ctx, x.re, x.im)  # type: ignore[no-any-return]


def angle(ctx: Context, x: Parts) -> Value:
    """In (-pi, pi]."""
    return ctx.call("atan2", x.im, x.re)  # type: ignore[no-any-return]


def div(ctx: Context, a: Any, b: Any, **kwargs: Any) -> Parts:
    """Quotients; of a complex divisor a product with its conjugate, over its square, which is
    scaled to be no infinity: of (b.re, b.im) / max(|b.re|, |b.im|)."""
    if kwargs.get("rounding_mode") is not None:
        raise UnsupportedError("complex quotients cannot be rounded")

    def over(x: Any, y: Any) -> Value:
        return ctx.call("div", *ctx.promoted(x, y))  # type: ignore[no-any-return]

    def times(x: Any, y: Any) -> Value:
        return ctx.call("mul", *ctx.promoted(x, y))  # type: ignore[no-any-return]

    if not has_parts((b,)):
        return parts_of(ctx, a).map(lambda x: over(x, b))
    b = parts_of(ctx, b)
    re, im = ctx.promoted(b.re, b.im)
    largest = ctx.call("max", ctx.call("abs", re), ctx.call("abs", im))
    re, im = over(re, largest), over(im, largest)
    size = times(ctx.call("add", times(re, re), times(im, im)), largest)
    turned = Parts(over(re, size), over(ctx.call("neg", im), size))
    return product(ctx, times, a, turned)


def reciprocal(ctx: Context, x: Parts) -> Parts:
    """One over it."""
    return div(ctx, 1.0, x)


def square(ctx: Context, x: Parts) -> Parts:
    """It times itself."""
    return product(ctx, lambda a, b: ctx.call("mul", a, b), x, x)


def power(ctx: Context, x: Any, exponent: Any) -> Parts:
    """Of small whole exponents, as products."""
    if not (isinstance(exponent, int | float) and exponent == int(exponent) and 1 <= exponent <= 8):
        raise UnsupportedError("complex powers other than the first eight whole ones")
    result = x
    for _ in range(int(exponent) - 1):
        result = product(ctx, lambda a, b: ctx.call("mul", a, b), result, x)
    return result  # type: ignore[no-any-return]


def exp(ctx: Context, x: Parts) -> Parts:
    """Of length exp(re) and angle im."""
    return polar(ctx, ctx.call("exp", x.re), x.im)


def log(ctx: Context, x: Parts) -> Parts:
    """The logarithm of the length, and the angle."""
    return Parts(ctx.call("log", absolute(ctx, x)), angle(ctx, x))


def signs(ctx: Context, x: Parts) -> Parts:
    """Of length one, or zero."""
    length = absolute(ctx, x)
    none = ctx.call("eq", length, ctx.scalar(0, length.dtype))
    safe = ctx.call("where", none, ctx.scalar(1, length.dtype), length)
    return x.map(lambda v: ctx.call("div", v, safe))


def converted(ctx: Context, x: Any, *_: Any, **__: Any) -> Any:
    """To the type that torch says; a real one has no imaginary part."""
    if not is_complex(ctx.meta()):
        return ctx.cast(parts_of(ctx, x).re, from_torch(ctx.meta().dtype))
    return parts_of(ctx, x).map(lambda v: ctx.cast(v, ctx.out_dtype()))


def compared(op: str, both: str) -> Lowering:
    """Both parts are equal, or one is not."""

    def rule(ctx: Context, a: Any, b: Any) -> Any:
        a, b = parts_of(ctx, a), parts_of(ctx, b)
        each = [ctx.call(op, *ctx.promoted(x, y)) for x, y in ((a.re, b.re), (a.im, b.im))]
        return ctx.call(both, *each)

    return rule


def either(lower: Lowering, both: str) -> Lowering:
    """A property of floats, of one part or of both."""

    def rule(ctx: Context, x: Parts) -> Any:
        return ctx.call(both, lower(ctx, x.re), lower(ctx, x.im))

    return rule


def like(number: Any) -> Lowering:
    """zeros_like and the like."""

    def rule(ctx: Context, x: Any, *_: Any, **__: Any) -> Any:
        given = parts_of(ctx, x)
        zero = zeros_like(ctx, ctx.cast(given.re, ctx.out_dtype()))
        if not number:
            return Parts(zero, zero) if is_complex(ctx.meta()) else zero
        one = ctx.call("add", zero, ctx.scalar(number, zero.dtype))
        return Parts(one, zero) if is_complex(ctx.meta()) else one

    return rule


def _same(_: Context, x: Any, *__: Any, **___: Any) -> Any:
    return x


_RULES: Final[dict[str, Lowering]] = {
    "view_as_real": view_as_real,
    "view_as_real_copy": view_as_real,
    "real": lambda ctx, x: parts_of(ctx, x).re,
    "imag": lambda ctx, x: parts_of(ctx, x).im,
    "abs": absolute,
    "absolute": absolute,
    "angle": angle,
    **dict.fromkeys(("conj", "_conj", "conj_physical"), conj),
    **dict.fromkeys(("mH", "adjoint", "matrix_H"), adjoint),
    "resolve_conj": _same,
    "resolve_neg": _same,
    **dict.fromkeys(("div", "divide", "true_divide"), div),
    "reciprocal": reciprocal,
    "square": square,
    "pow": power,
    "exp": exp,
    "log": log,
    "sgn": signs,
    **dict.fromkeys(("to", "_to_copy", "type_as", "float", "cpu"), converted),
    "eq": compared("eq", "and"),
    "ne": compared("ne", "or"),
    "isnan": either(is_nan, "or"),
    "isinf": either(is_inf, "or"),
    "isfinite": either(is_finite, "and"),
    **dict.fromkeys(("zeros_like", "empty_like"), like(0)),
    "ones_like": like(1),
}

COMPLEX: Final[Table] = {
    "aten.view_as_complex.default": view_as_complex,
    "aten.view_as_complex_copy.default": view_as_complex,
    "aten.polar.default": polar,
    "aten.complex.default": lambda ctx, re, im: Parts(re, im).map(
        lambda v: expand(ctx, v, ctx.out_shape())
    ),
}
"""Of real operands, with complex results."""
