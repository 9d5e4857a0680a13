"""3 x 3 convolutions by Winograd's minimal filtering (`ops.winograd`), where that is faster.

    y = conv(x, w, b)     ->     m = winograd_products(winograd_patches(x), winograd_filters(w))
                                 y = winograd_results(m) + b

A quarter of the products, and what is around them is moved more often: V and M are 36/16 of x and
y, and filters, which are made when the model is compiled, 36/9 of what they were. So images are not
so small that products would wait for filters, nor so large that V and M would be most of a model's
memory; and what filters take more in all is bounded, first come, first served, as a model's first
images are its largest. Rounding errors are some times larger, and what is not finite spreads to
all results of its patch, so this is for numerics "fast" only.
"""

from __future__ import annotations

from math import prod
from typing import Final

from pliant.base.dtypes import f32
from pliant.graph.builder import Builder
from pliant.graph.constants import constant_values
from pliant.graph.function import Binding, Function, Value
from pliant.graph.operator import Operators
from pliant.graph.rewrite import Match, Rule, op, rewrite
from pliant.ir.mapping import likely_value
from pliant.ir.rewrite import NoMatch
from pliant.ops.winograd import PATCH, STEP
from pliant.sym.expr import ceildiv
from pliant.sym.facts import Facts

CHANNELS: Final = 32  # of the image: with fewer, patches cost as much as they save
OUTPUTS: Final = 16
FEWEST: Final = 16  # with fewer, filters come too slowly from memory
SIDE: Final = 224  # of a model's images, where nothing is said of them
BYTES: Final = 1 << 26  # of patches and products of one image
MORE: Final = (1 << 26, 1 << 28)  # bytes of all filters: half of a model's weights, within these


def winograd(function: Function, operators: Operators) -> Function:
    """The function with such convolutions by patches. Parameters, results and their types stay."""
    constants = constant_values(function)
    ends = _ends(function)
    weights = sum(_bytes(v) for v, _ in function.weights)
    left = [min(max(weights // 2, MORE[0]), MORE[1])]

    def by_patches(match: Match, builder: Builder) -> Value | NoMatch:
        root = match.root
        reason = _why_not(root, builder.facts)
        if not reason and root.args[1].name not in constants:
            reason = "its filters are no constants"
        if reason:
            return NoMatch(reason)
        more = _bytes(root.args[1]) * (PATCH**2 - 9) // 9
        if more > left[0]:
            return NoMatch("filters of other convolutions take as much memory as they may")
        left[0] -= more
        return _replacement(root, builder, ends=root.outputs[0] in ends)

    rule = Rule("winograd", op("conv", any_args=True), by_patches)
    return rewrite(function, (rule,), operators)[0]


def _bytes(weight: Value) -> int:
    return prod((n.value for n in weight.shape), start=weight.dtype.bytes)


def _ends(function: Function) -> set[Value]:
    """Results, and what nothing but elementwise operators lie between and these."""
    found = set(function.results)
    readers: dict[Value, list[Value]] = {}
    for binding in function.bindings:
        for value in binding.operands():
            readers.setdefault(value, []).extend(binding.outputs)
    for binding in reversed(function.bindings):
        for value in binding.outputs:
            after = readers.get(value, ())
            if after and all(v in found and v.type == value.type for v in after):
                found.add(value)
    return found


def _why_not(conv: Binding, facts: Facts) -> str:
    """Why a convolution stays as it is; empty where it does not."""
    x, w = conv.args[:2]
    attrs, (y,) = conv.attributes(), conv.outputs
    if x.dtype is not f32 or tuple(w.shape[2:]) != (3, 3):
        return "it is no convolution of f32 with 3 x 3 filters"
    if attrs["groups"] != 1 or {*attrs["strides"], *attrs["dilations"]} != {1}:
        return "it has groups, or does not go one by one"
    sizes = dict(zip(("outputs", "channels"), w.shape[:2], strict=True))
    if any(not n.is_const for n in sizes.values()):
        return "its channels are not known"
    outputs, channels = (n.value for n in sizes.values())
    if channels < CHANNELS or outputs < OUTPUTS:
        return f"of {channels} channels to {outputs} the transforms cost what they save"
    image = likely_value(ceildiv(y.shape[2], STEP) * ceildiv(y.shape[3], STEP), facts, SIDE)
    if image * likely_value(y.shape[0], facts, 1) < FEWEST:
        return "the image is so small that filters would have to be read too often"
    if image * PATCH**2 * (channels + outputs) * f32.bytes > BYTES:
        return "the image is so large that its patches take too much memory"
    return ""


def _replacement(conv: Binding, builder: Builder, *, ends: bool) -> Value:
    """With results that lie as a model gives them: these are made with their channels last, too,
    and turned afterwards."""
    x, w, bias = (*conv.args, None)[:3]
    (y,) = conv.outputs
    patches = builder.call("winograd_patches", x, pads=conv.attributes()["pads"])
    filters = builder.call("winograd_filters", w)
    products = builder.call("winograd_products", patches, filters)
    made = builder.call(
        "winograd_results", products, height=y.shape[2], width=y.shape[3], last=ends
    )
    if ends:
        made = builder.call("transpose", made, perm=(0, 3, 1, 2))
    if bias is not None:
        made = builder.call("add", made, builder.call("reshape", bias, shape=(bias.shape[0], 1, 1)))
    assert isinstance(made, Value)
    return made
