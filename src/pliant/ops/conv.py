"""Convolutions of any spatial rank."""
from __future__ import annotations
from typing import Final
from pliant.base.dtypes import f32
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, const
from pliant.ir.tensor import Tensor, all_of, compute, reduce, select, within
from pliant.ops.common import equal
from pliant.sym.expr import Int


def conv(x, w, bias=None, *, strides, pads, dilations, groups):
    n, c, *space = x.shape
    o, cg, *window = w.shape
    wide = f32 if x.dtype.bits == 16 else x.dtype
    out = [(e + lo + hi - d * (k - 1) - 1) // s + 1
           for e, k, s, (lo, hi), d in zip(space, window, strides, pads, dilations, strict=True)]
    og = o // groups
    def body(b, oc, *at):
        def term(ci, *k):
            places = [p * s + kk * d - lo for p, s, kk, d, (lo, _) in zip(at, strides, k, dilations, pads)]
            channel = ci if groups == 1 else oc // og * cg + ci
            value = x[(b, channel, *places)].cast(wide)
            conds = [within(p, e) for p, e, (lo, hi) in zip(places, space, pads) if not (lo == 0 and hi == 0)]
            if conds:
                value = select(all_of(conds), value, const(0, wide))
            return value * w[(oc, ci, *k)].cast(wide)
        return reduce("sum", (cg, *window), term)
    y = compute((n, o, *out), body, "conv", equal(c, cg * groups, "conv: channels"))
    if bias is not None:
        z = y
        y = compute(z.shape, lambda *i: z[i] + bias[i[1]].cast(wide), "biased")
    if wide is x.dtype:
        return y
    return compute(y.shape, lambda *i: y[i].cast(x.dtype))


def conv_transpose(x, w, bias=None, *, strides, pads, output_padding, dilations, groups):
    n, c, *space = x.shape
    _, og, *window = w.shape
    wide = x.dtype
    out = [(e - 1) * s - lo - hi + d * (k - 1) + 1 + op
           for e, k, s, (lo, hi), d, op in zip(space, window, strides, pads, dilations, output_padding)]
    cg = c // groups
    def body(b, oc, *at):
        def term(ci, *k):
            raw = [p + lo - kk * d for p, (lo, _), kk, d in zip(at, pads, k, dilations)]
            conds = [within(r // s, e) for r, s, e in zip(raw, strides, space)]
            conds += [(r % s) for r, s in zip(raw, strides) if s != 1]
            from pliant.ir.expr import Index
            conds = [q if isinstance(q, Expr) else Index(q).eq(Index(q * 0)) for q in conds]
            channel = ci if groups == 1 else oc // og * cg + ci
            value = select(all_of(conds), x[(b, channel, *[r // s for r, s in zip(raw, strides)])], const(0, wide))
            return value * w[(channel, oc % og if groups != 1 else oc, *k)]
        return reduce("sum", (cg, *window), term)
    y = compute((n, og * groups, *out), body, "conv_transpose")
    if bias is not None:
        z = y
        y = compute(z.shape, lambda *i: z[i] + bias[i[1]].cast(wide), "biased")
    return y


def _windows(x, kernel, strides, pads, dilations, ceil_mode):
    out = []
    for e, k, s, (lo, hi), d in zip(x.shape[2:], kernel, strides, pads, dilations):
        span = e + lo + hi - d * (k - 1) - 1
        if ceil_mode:
            o = (span + s - 1) // s + 1
            from pliant.sym.expr import minimum
            o = minimum(o, (e + lo + s - 1) // s)
            out.append(o)
        else:
            out.append(span // s + 1)
    return out


def max_pool(x, *, kernel, strides, pads, dilations, ceil_mode=False):
    out = _windows(x, kernel, strides, pads, dilations, ceil_mode)
    def body(n, c, *at):
        def term(*k):
            places = [p * s + kk * d - lo for p, s, kk, d, (lo, _) in zip(at, strides, k, dilations, pads)]
            return select(all_of([within(p, e) for p, e in zip(places, x.shape[2:])]), x[(n, c, *places)], const(x.dtype.min, x.dtype))
        return reduce("max", kernel, term)
    return compute((*x.shape[:2], *out), body)


def avg_pool(x, *, kernel, strides, pads, dilations, ceil_mode=False, count_include_pad=False):
    out = _windows(x, kernel, strides, pads, dilations, ceil_mode)
    import math
    def body(n, c, *at):
        def term(*k):
            places = [p * s + kk * d - lo for p, s, kk, d, (lo, _) in zip(at, strides, k, dilations, pads)]
            return select(all_of([within(p, e) for p, e in zip(places, x.shape[2:])]), x[(n, c, *places)], const(0, x.dtype))
        return reduce("sum", kernel, term)
    total = compute((*x.shape[:2], *out), body)
    if count_include_pad or all(lo == 0 and hi == 0 for lo, hi in pads):
        f = const(1.0 / math.prod(int(str(k)) for k in kernel), x.dtype)
        return compute(total.shape, lambda *i: total[i] * f)
    from pliant.sym.expr import maximum, minimum
    from pliant.ir.expr import Index
    def count(*at):
        c = None
        for p, s, k, (lo, _), e in zip(at, strides, kernel, pads, x.shape[2:]):
            a = minimum(p * s - lo + k, e) - maximum(p * s - lo, 0)
            c = a if c is None else c * a
        return Index(c).cast(x.dtype)
    return compute(total.shape, lambda n, c, *at: total[(n, c, *at)] / count(*at))


CONV: Final = (Operator("conv", conv), Operator("conv_transpose", conv_transpose), Operator("max_pool", max_pool), Operator("avg_pool", avg_pool))
