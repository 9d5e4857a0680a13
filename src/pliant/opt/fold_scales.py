"""Scales and offsets of a product's output channels go into its weights.

    y = batch_norm(conv(x, w, b), scale, shift, mean, var)    ->    y = conv(x, w * s, b * s + t)
    y = add(mul(linear(x, w, b), scale), shift)               ->    y = linear(x, w * s, b * s + t)
    y = mul(div(x, 6.0), scale)                               ->    y = mul(x, scale / 6)

What is made of weights alone is computed when the model is compiled; the product then has one
operation less for each of its results, and one vector less to read. Scales are one for each channel
or one for all; such as are no product's take up numbers beside them. Products are rounded
differently, so this is for numerics "fast"; and not for floats of 16 bits, whose weights would be
rounded once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pliant.base.dtypes import f32, f64
from pliant.graph.builder import Builder
from pliant.graph.constants import constant_values
from pliant.graph.function import Binding, Function, Value
from pliant.graph.operator import Operators
from pliant.graph.rewrite import Match, Replacement, Rule, any_, op, rewrite
from pliant.ir.rewrite import NoMatch
from pliant.sym.expr import as_int

PRODUCTS: Final = ("conv", "conv_transpose", "linear")


def fold_scales(function: Function, operators: Operators) -> Function:
    """The function with such scales in the weights. Parameters, results and their types stay."""
    constant = set(constant_values(function))
    product = op(PRODUCTS, name="product", any_args=True, once=True)
    affine = tuple(any_(name) for name in ("scale", "shift", "mean", "var"))
    numbered = op(("div", "mul"), any_("x"), any_("number"), name="inner", once=True)

    def normalised(match: Match, builder: Builder) -> Value | NoMatch:
        statistics = [match[n] for n in ("scale", "shift", "mean", "var")]
        made = _Folded(match.bindings["product"], builder, constant)
        reason = made.refused(statistics)
        if reason or made.axis != 1:
            return NoMatch(reason or "the dimension of channels is another")
        return made.normalised(*statistics, eps=match.attrs()["eps"])

    def taken_up(by: Callable[[_Folded, Value], Value]) -> Replacement:
        def replaced(match: Match, builder: Builder) -> Value | NoMatch:
            made = _Folded(match.bindings["product"], builder, constant)
            reason = made.refused([match["other"]])
            if reason or not made.is_of_channels(match["other"]):
                return NoMatch(reason or "the operand is not one a channel, or one for all")
            return by(made, match["other"])

        return replaced

    def joined(match: Match, builder: Builder) -> Value | NoMatch:
        x, number, scale = match["x"], match["number"], match["scale"]
        (y,), maker = match.root.outputs, match.makers.get(number)
        if maker is None or maker.op != "full" or any(n != 1 for n in number.shape):
            return NoMatch("it is no number")
        if scale.name not in constant or y.dtype not in (f32, f64) or x.shape != y.shape:
            return NoMatch("the factor is no constant, or of another shape or type")
        if len(number.shape) > len(scale.shape):
            number = builder.call(
                "full", shape=(), value=maker.attributes()["value"], dtype=y.dtype
            )
        other = builder.call(match.bindings["inner"].op, scale, number)
        assert isinstance(other, Value)
        constant.add(other.name)
        result = builder.call("mul", x, other)
        assert isinstance(result, Value)
        return result

    other, scaled, shifted = any_("other"), taken_up(_Folded.scaled), taken_up(_Folded.shifted)
    rules = (
        Rule("a normalisation goes into weights", op("batch_norm", product, *affine), normalised),
        Rule("a factor goes into weights", op("mul", product, other), scaled),
        Rule("a first factor goes into weights", op("mul", other, product), scaled),
        Rule("a term goes into weights", op("add", product, other), shifted),
        Rule("a first term goes into weights", op("add", other, product), shifted),
        Rule("a number goes into a factor", op("mul", numbered, any_("scale")), joined),
        Rule("a number goes into a first factor", op("mul", any_("scale"), numbered), joined),
    )
    return rewrite(function, rules, operators)[0]


class _Folded:
    """A product with other weights."""

    def __init__(self, binding: Binding, builder: Builder, constant: set[str]) -> None:
        self.binding, self.builder, self.constant = binding, builder, constant
        self.x, self.w, self.bias = (*binding.args, None)[:3]
        (self.out,) = binding.outputs
        self.axis = len(self.out.shape) - 1 if binding.op == "linear" else 1
        self.along = 1 if binding.op == "conv_transpose" else 0
        """The weights' dimension of output channels."""

    def refused(self, more: list[Value | None]) -> str:
        """Why weights stay as they are; nothing if they need not."""
        if self.out.dtype not in (f32, f64):
            return f"{self.out.dtype} would be rounded once more"
        if self.along == 1 and self.binding.attributes()["groups"] != 1:
            return "each group has output channels of its own"
        for v in (self.w, self.bias, *more):
            if v is not None and v.name not in self.constant:
                return f"{v.name} is no constant"
        if self.x.name in self.constant:
            return "the result is a constant"
        return ""

    def is_of_channels(self, factor: Value) -> bool:
        """Whether it has one element, or as many as there are channels, along them."""
        lead = len(self.out.shape) - len(factor.shape)
        channels = self.out.shape[self.axis]
        return (
            factor.dtype is self.out.dtype
            and lead >= 0
            and all(
                n == 1 or (n is channels and d + lead == self.axis)
                for d, n in enumerate(factor.shape)
            )
        )

    def normalised(
        self, scale: Value | None, shift: Value | None, mean: Value, var: Value, *, eps: float
    ) -> Value:
        """The product whose results are normalised: so are its weights, but for the means."""
        zero = self._call("full", shape=mean.shape, value=0.0, dtype=mean.dtype)
        turned = (1, 0, *range(2, len(self.w.shape)))  # output channels second
        weights = self._turned(self.w, turned)
        weights = self._call("batch_norm", weights, scale, None, zero, var, eps=eps)
        weights = self._turned(weights, turned)
        bias = self.bias or self._call("full", shape=mean.shape, value=0.0, dtype=self.w.dtype)
        row = self._call("reshape", bias, shape=(as_int(1), *bias.shape))
        row = self._call("batch_norm", row, scale, shift, mean, var, eps=eps)
        return self._product(weights, self._call("reshape", row, shape=bias.shape))

    def scaled(self, scale: Value) -> Value:
        """The product whose results are scaled."""
        row = self._row(scale)
        places = range(len(self.w.shape))
        spread = tuple(row.shape[0] if d == self.along else as_int(1) for d in places)
        weights = self._call("mul", self.w, self._call("reshape", row, shape=spread))
        return self._product(weights, self.bias and self._call("mul", self.bias, row))

    def shifted(self, shift: Value) -> Value:
        """The product to whose results something is added."""
        channels = (self.out.shape[self.axis],)
        bias = self.bias or self._call("full", shape=channels, value=0.0, dtype=self.w.dtype)
        return self._product(self.w, self._call("add", bias, self._row(shift)))

    def _row(self, factor: Value) -> Value:
        """Its elements in one dimension."""
        count = as_int(1)
        for n in factor.shape:
            count = count * n
        return self._call("reshape", factor, shape=(count,))

    def _turned(self, weights: Value, perm: tuple[int, ...]) -> Value:
        return weights if self.along == 1 else self._call("transpose", weights, perm=perm)

    def _product(self, weights: Value, bias: Value | None) -> Value:
        return self._call(self.binding.op, self.x, weights, bias, **self.binding.attributes())

    def _call(self, name: str, *args: Value | None, **attributes: Any) -> Value:
        made = self.builder.call(name, *args, **attributes)
        assert isinstance(made, Value)
        if all(v is None or v.name in self.constant for v in args):
            self.constant.add(made.name)
        return made
