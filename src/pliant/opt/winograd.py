"""3 x 3 convolutions by Winograd's minimal filtering (`ops.winograd`), where that is faster.

    y = conv(x, w, b)     ->     m = winograd_products(winograd_patches(x), winograd_filters(w))
                                 y = winograd_results(m) + b

A quarter of the products; by steps of two a little less than half of them, for images of few
patches, and of bf16, where larger steps would lose too much, with less than twice the error. V and
M are some times as large as x and y, but for small images they are never stored (`lower.patches`);
filters, which are made when the model is compiled, are 36/9 or 16/9 of what they were. So images
are not so small that products would wait for filters, and what these take more in all is bounded:
those convolutions get it, and larger steps, that save most products for it, which are those of the
largest images. Rounding errors are larger, and what is not finite spreads to all results of its
patch, so this is for numerics "fast" only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from math import prod
from typing import Final, NamedTuple

from pliant.base.dtypes import DType, bf16, f32
from pliant.graph.builder import Builder
from pliant.graph.constants import constant_values
from pliant.graph.facts import facts_of
from pliant.graph.function import Binding, Function, Value
from pliant.graph.operator import Operators
from pliant.graph.rewrite import Match, Rule, op, rewrite
from pliant.ir.expr import Index, Load
from pliant.ir.mapping import SIDE, likely_value
from pliant.ir.rewrite import NoMatch
from pliant.ir.tensor import Compute, Input, own_nodes, producers
from pliant.ops.winograd import FILTERINGS
from pliant.opt.narrowing import placeholders
from pliant.sym.expr import as_int, ceildiv, var
from pliant.sym.facts import Facts

# Channels of the image, and of results, by steps: with fewer, the transforms cost what they save.
LEAST: Final = {4: (8, 4), 2: (16, 16)}
FEWEST: Final = 16  # with fewer, filters come too slowly from memory
MORE: Final = (1 << 26, 1 << 28)  # bytes of all filters: half of a model's weights, within these


def steps_for(
    precision: str | None, features: Collection[str]
) -> tuple[tuple[int, ...], DType] | None:
    """How far apart patches may be, the best first, and of which type the factors of their products
    are, on a target with these features; None where products are faster than what would be around
    them."""
    if precision is None:
        return (4, 2), f32
    return ((2,), bf16) if precision == "bf16" and "amx-bf16" not in features else None


def winograd(
    function: Function, operators: Operators, steps: Sequence[int] = (4, 2), factor: DType = f32
) -> tuple[Function, tuple[str, ...]]:
    """The function with such convolutions by patches that are apart by one of `steps` that pays,
    whose products will have this type of factors, and why 3 x 3 convolutions stay that do, a
    reason for each. Parameters, results and their types stay."""
    ends = _ends(function, operators)
    chosen, stay = _chosen_steps(function, steps, factor)

    def by_patches(match: Match, builder: Builder) -> Value | NoMatch:
        (y,) = match.root.outputs
        if y.name not in chosen:
            return NoMatch(stay.get(y.name, "it is no convolution of f32 with 3 x 3 filters"))
        return _replacement(match.root, builder, chosen[y.name], ends=y in ends)

    rule = Rule("winograd", op("conv", any_args=True), by_patches)
    return rewrite(function, (rule,), operators)[0], tuple(stay.values())


class _Choice(NamedTuple):
    """A step that pays for a convolution: the products that it saves, the bytes that its filters
    take more."""

    step: int
    saved: int
    more: int


def _chosen_steps(
    function: Function, steps: Sequence[int], factor: DType
) -> tuple[dict[str, int], dict[str, str]]:
    """By name of the result: the step of each 3 x 3 convolution that has one, and why others have
    none. As long as there is memory, one that saves most products for each byte gets a step, or a
    larger one than it has."""
    constants = constant_values(function)
    facts = facts_of(function)
    open_: dict[str, list[_Choice]] = {}
    stay: dict[str, str] = {}
    for binding in function.bindings:
        if not _is_candidate(binding):
            continue
        found = _choices(binding, constants, facts, steps, factor)
        if isinstance(found, NoMatch):
            stay[binding.outputs[0].name] = found.reason
        else:
            open_[binding.outputs[0].name] = found
    weights = sum(_bytes(v) for v, _ in function.weights)
    left = min(max(weights // 2, MORE[0]), MORE[1])
    chosen = {name: _Choice(0, 0, 0) for name in open_}
    while better := [
        ((c.saved - has.saved) / max(c.more - has.more, 1), name, c)
        for name, has in chosen.items()
        for c in open_[name]
        if c.saved > has.saved and c.more - has.more <= left
    ]:
        _, name, choice = max(better, key=lambda x: x[0])
        left -= choice.more - chosen[name].more
        chosen[name] = choice
    full = "filters of other convolutions take as much memory as they may"
    stay |= {name: full for name, choice in chosen.items() if not choice.step}
    return {name: c.step for name, c in chosen.items() if c.step}, stay


def _is_candidate(binding: Binding) -> bool:
    if binding.op != "conv" or binding.args[0].dtype is not f32:
        return False
    return tuple(binding.args[1].shape[2:]) == (3, 3)


def _bytes(weight: Value) -> int:
    return prod((n.value for n in weight.shape), start=weight.dtype.bytes)


def _ends(function: Function, operators: Operators) -> set[Value]:
    """Results, and what nothing but elementwise operators lie between and these."""
    found = set(function.results)
    readers: dict[Value, list[Binding]] = {}
    for binding in function.bindings:
        for value in dict.fromkeys(binding.operands()):
            readers.setdefault(value, []).append(binding)
    for binding in reversed(function.bindings):
        for value in binding.outputs:
            after = readers.get(value, ())
            if after and all(_leads_there(b, value, found, operators) for b in after):
                found.add(value)
    return found


def _leads_there(binding: Binding, value: Value, ends: Set[Value], operators: Operators) -> bool:
    """Whether a binding gives ends, element by element of a value."""
    if not all(v in ends and v.type == value.type for v in binding.outputs):
        return False
    made = operators[binding.op].define(*map(placeholders, binding.args), **binding.attributes())
    return not any(
        not isinstance(t, Compute) or t.reduce_axes or not _at_its_place(t, value.name)
        for t in producers(made if isinstance(made, tuple) else (made,))
        if not isinstance(t, Input)
    )


def _at_its_place(tensor: Compute, name: str) -> bool:
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load) and n.source.name == name]
    return all(n.indices == tuple(Index(var(a.var)) for a in tensor.axes) for n in loads)


def _choices(
    conv: Binding, constants: Collection[str], facts: Facts, steps: Sequence[int], factor: DType
) -> list[_Choice] | NoMatch:
    """The steps that pay for a 3 x 3 convolution, or why none does."""
    w, attrs = conv.args[1], conv.attributes()
    if attrs["groups"] != 1 or {*attrs["strides"], *attrs["dilations"]} != {1}:
        return NoMatch("it has groups, strides or dilations")
    sizes = dict(zip(("outputs", "channels"), w.shape[:2], strict=True))
    if any(not n.is_const for n in sizes.values()):
        return NoMatch("its channels are not known")
    outputs, channels = (n.value for n in sizes.values())
    large = [s for s in steps if channels >= LEAST[s][0] and outputs >= LEAST[s][1]]
    if not large:
        return NoMatch(f"of {channels} channels to {outputs} the transforms cost what they save")
    many = [s for s in large if _patches(conv, facts, s) >= FEWEST]
    if not many:
        return NoMatch("the image is so small that filters would have to be read too often")
    if w.name not in constants:
        return NoMatch("its filters are no constants")
    found = []
    for s in many:
        patch, pairs = FILTERINGS[s].patch ** 2, outputs * channels
        saved = _patches(conv, facts, s) * (9 * s * s - patch) * pairs
        found.append(_Choice(s, saved, pairs * (patch - 9) * factor.bytes))
    return found


def _patches(conv: Binding, facts: Facts, step: int) -> int:
    """How many patches there usually are."""
    images, _, *sides = conv.outputs[0].shape
    image = prod((ceildiv(n, step) for n in sides), start=as_int(1))
    return likely_value(image, facts, SIDE) * likely_value(images, facts, 1)


def _replacement(conv: Binding, builder: Builder, step: int, *, ends: bool) -> Value:
    """With results that lie as a model gives them: these are made with their channels last, too,
    and turned afterwards."""
    x, w, bias = (*conv.args, None)[:3]
    (y,) = conv.outputs
    patches = builder.call("winograd_patches", x, pads=conv.attributes()["pads"], step=step)
    filters = builder.call("winograd_filters", w, step=step)
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
