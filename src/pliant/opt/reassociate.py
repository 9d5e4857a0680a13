"""Products over channels run where there is least to multiply.

A product with a matrix is linear in its other factor, so it may change places with what is linear
too and leaves the channels alone (resizing, joining, views), and two products in a row are one with
the product of their matrices:

    y = conv(concat((a, resize(b)), axis=1), w)    ->    y = conv(a, w[:, :A])
                                                             + resize(conv(b, w[:, A:]))
    y = linear(linear(x, u, c), w)                 ->    y = linear(x, w @ u, w @ c)

(OLLIE, Zheng et al., OSDI 2023, section 4: derivation by exchanging and merging iterators; here
only what is never dearer.) Sums are added in another order, so this is for numerics "fast".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pliant.base.dtypes import f32, f64
from pliant.graph.builder import Builder
from pliant.graph.constants import constant_values
from pliant.graph.function import Binding, Function, Value
from pliant.graph.operator import Operators
from pliant.graph.rewrite import Match, Rule, op, rewrite
from pliant.ir.rewrite import NoMatch
from pliant.sym.expr import Int, as_int

PRODUCTS: Final = ("linear", "conv", "matmul")
LEAST_CHANNELS: Final = 16  # of fewer, a product costs no more than resizing its results
REACH: Final = 64  # bindings that a product is moved past: looking takes no longer


def reassociate(function: Function, operators: Operators) -> Function:
    """The function with its products over channels where they cost least. Parameters, results and
    their types stay."""
    known = constant_values(function)
    constants = {v for v, _ in function.weights}
    constants |= {v for b in function.bindings for v in b.outputs if v.name in known}

    def move(match: Match, builder: Builder) -> Value | NoMatch:
        return _Moving(builder, match.maker, constants).replacement(match.root)

    rule = Rule("products move", op(PRODUCTS, any_args=True), move)
    return rewrite(function, (rule,), operators)[0]


@dataclass(frozen=True)
class _Product:
    """What a matrix (outputs x channels, or `turned`), a constant, makes of a value's dimension
    `axis`."""

    value: Value
    axis: int
    matrix: Value
    bias: Value | None = None
    turned: bool = False

    @property
    def outputs(self) -> Int:
        return self.matrix.shape[1 if self.turned else 0]

    @property
    def channels(self) -> Int:
        return self.matrix.shape[0 if self.turned else 1]


@dataclass(frozen=True)
class _Moving:
    builder: Builder
    maker: Callable[[Value], Binding | None]
    constants: set[Value]

    def replacement(self, root: Binding) -> Value | NoMatch:
        product = self._product(root)
        if product is None:
            return NoMatch("it is no product of a value's channels with a constant matrix")
        if not self._pays(product.value, product.axis, product.outputs):
            return NoMatch("nowhere before it is less to multiply")
        made = self._moved(product.value, product.axis, self._matrix(product))
        return made if product.bias is None else self._biased(made, product.bias, product.axis)

    def _call(self, op: str, *args: Any, **attrs: Any) -> Value:
        value = self.builder.call(op, *args, **attrs)
        assert isinstance(value, Value)
        if all(v in self.constants for v in self.builder.bindings[-1].operands()):
            self.constants.add(value)
        return value

    def _product(self, binding: Binding) -> _Product | None:
        """The binding as a product over one dimension, if it is one."""
        if binding.op not in PRODUCTS:
            return None
        x, w, bias = (*binding.args, None)[:3]
        if binding.op == "linear":
            found = _Product(x, len(x.shape) - 1, w, bias)
        elif binding.op == "conv" and _is_pointwise(binding):
            found = _Product(x, 1, w, bias)
        elif binding.op == "matmul" and x.shape and len(w.shape) == 2:
            found = _Product(x, len(x.shape) - 1, w, turned=True)
        else:
            return None
        constant = w in self.constants and x not in self.constants
        return found if constant and x.dtype in (f32, f64) else None

    def _matrix(self, product: _Product) -> Value:
        if product.turned:
            return self._call("transpose", product.matrix, perm=(1, 0))
        return product.matrix

    def _shifted(self, maker: Binding, axis: int) -> tuple[Value, Value] | None:
        """The value and the constant, of one dimension, that are added along `axis`."""
        if maker.op != "add":
            return None
        (out,) = maker.outputs
        for value, other in (maker.args, maker.args[::-1]):
            lead = len(out.shape) - len(other.shape)
            ones = all(
                n == 1 or (d + lead == axis and n == out.shape[axis])
                for d, n in enumerate(other.shape)
            )
            if other in self.constants and ones and len(value.shape) == len(out.shape):
                return value, other
        return None

    def _pays(self, value: Value, axis: int, outputs: Int, reach: int = REACH) -> bool:
        """Whether less is multiplied where a product comes before what makes the value."""
        for left in range(reach, 0, -1):
            maker = self.maker(value)
            if maker is None:
                return False
            inner, shifted = self._view(maker, axis), self._shifted(maker, axis)
            if inner is not None:
                value, axis = inner
            elif shifted is not None:
                value, _ = shifted
            elif self._is_resized(maker, axis):
                source = maker.args[0]
                channels = source.shape[axis]
                if not (channels.is_const and channels.value >= LEAST_CHANNELS):
                    return False
                if self._grows(source, value):
                    return True
                value = source
            elif maker.op == "concat" and maker.attributes()["axis"] == axis:
                return any(self._pays(part, axis, outputs, left - 1) for part in maker.args[0])
            else:
                first = self._product(maker)
                return first is not None and first.axis == axis and _folds(first, outputs)
        return False

    def _moved(self, value: Value, axis: int, matrix: Value) -> Value:
        """The product with the value, as early as it pays."""
        maker = self.maker(value)
        if maker is None or not self._pays(value, axis, matrix.shape[0]):
            return self._applied(value, axis, matrix)
        before = self.builder.origin
        self.builder.origin = tuple(dict.fromkeys((*before, *maker.spans)))
        made = self._exchanged(maker, axis, matrix)
        self.builder.origin = before
        return made

    def _exchanged(self, maker: Binding, axis: int, matrix: Value) -> Value:
        """The product with what `maker` gives, where it pays to have it before."""
        attrs = maker.attributes()
        outputs = matrix.shape[0]
        inner = self._view(maker, axis)
        if inner is not None:
            made = self._moved(*inner, matrix)
            if maker.op == "reshape":
                attrs["shape"] = _replaced(attrs["shape"], axis, outputs)
            return self._call(maker.op, made, **attrs)
        if maker.op == "resize":
            made = self._moved(maker.args[0], axis, matrix)
            attrs["sizes"] = _replaced(attrs["sizes"], axis, outputs)
            return self._call("resize", made, **attrs)
        if maker.op == "concat":
            return self._summed(maker.args[0], axis, matrix)
        shifted = self._shifted(maker, axis)
        if shifted is not None:
            value, constant = shifted
            channels = self._call("expand", constant, shape=_like(value, axis))
            bias = self._call("reshape", channels, shape=(value.shape[axis],))
            bias = self._call("linear", bias, self._flat(matrix), None)
            return self._biased(self._moved(value, axis, matrix), bias, axis)
        first = self._product(maker)
        assert first is not None
        merged = self._call("matmul", self._flat(matrix), self._flat(self._matrix(first)))
        made = self._applied(first.value, axis, merged)
        if first.bias is None:
            return made
        bias = self._call("linear", first.bias, self._flat(matrix), None)
        return self._biased(made, bias, axis)

    def _biased(self, value: Value, bias: Value, axis: int) -> Value:
        shape = (bias.shape[0], *(as_int(1) for _ in range(len(value.shape) - 1 - axis)))
        return self._call("add", value, self._call("reshape", bias, shape=shape))

    def _summed(self, parts: tuple[Value, ...], axis: int, matrix: Value) -> Value:
        """The sum of the products with the joined parts; neighbours that stay are joined still."""
        runs: list[list[Value]] = []
        stays = False
        for part in parts:
            if self._pays(part, axis, matrix.shape[0]):
                runs.append([part])
                stays = False
            elif stays:
                runs[-1].append(part)
            else:
                runs.append([part])
                stays = True
        total: Value | None = None
        begin = as_int(0)
        for run in runs:
            width = sum((part.shape[axis] for part in run), as_int(0))
            columns = self._columns(matrix, begin, width)
            begin += width
            value = run[0] if len(run) == 1 else self._call("concat", tuple(run), axis=axis)
            made = self._moved(value, axis, columns)
            total = made if total is None else self._call("add", total, made)
        assert total is not None
        return total

    def _columns(self, matrix: Value, begin: Int, width: Int) -> Value:
        rank = len(matrix.shape)
        starts = _replaced((as_int(0),) * rank, 1, begin)
        stops = _replaced(matrix.shape, 1, begin + width)
        return self._call("slice", matrix, starts=starts, stops=stops, steps=(1,) * rank)

    def _flat(self, matrix: Value) -> Value:
        """As outputs x channels."""
        return self._call("reshape", matrix, shape=matrix.shape[:2])

    def _applied(self, value: Value, axis: int, matrix: Value) -> Value:
        """The product right here."""
        rank = len(value.shape)
        if axis == rank - 1:
            return self._call("linear", value, self._flat(matrix), None)
        if axis == 1 and rank > 2:
            spatial = rank - 2
            kernel = self._call(
                "reshape", matrix, shape=(*matrix.shape[:2], *(as_int(1),) * spatial)
            )
            return self._call(
                "conv", value, kernel, None, strides=(1,) * spatial, dilations=(1,) * spatial,
                pads=((0, 0),) * spatial, groups=1,
            )  # fmt: skip
        last = [*(d for d in range(rank) if d != axis), axis]
        made = self._call("transpose", value, perm=tuple(last))
        made = self._call("linear", made, self._flat(matrix), None)
        return self._call("transpose", made, perm=tuple(last.index(d) for d in range(rank)))

    def _view(self, maker: Binding, axis: int) -> tuple[Value, int] | None:
        """Of what a value is a view in which `axis` is a dimension as well, and which."""
        if maker.op == "transpose":
            return maker.args[0], maker.attributes()["perm"][axis]
        if maker.op != "reshape":
            return None
        source, (value,) = maker.args[0], maker.outputs
        equal = self.builder.facts.equal
        before = _count(value.shape[:axis])
        for d, extent in enumerate(source.shape):
            if equal(extent, value.shape[axis]) and equal(_count(source.shape[:d]), before):
                return source, d
        return None

    def _is_resized(self, maker: Binding, axis: int) -> bool:
        """Whether a value is another one resized in dimensions other than `axis`."""
        attributes = maker.attributes()
        if maker.op != "resize" or attributes.get("parts") is not None:  # with a number outside
            return False
        scales = attributes.get("scales")
        given = None if scales is None else scales[axis]
        equal = self.builder.facts.equal
        return given in (None, 1) and equal(maker.args[0].shape[axis], maker.outputs[0].shape[axis])

    def _grows(self, source: Value, value: Value) -> bool:
        """Whether resizing makes more of it, at no size less."""
        facts = self.builder.facts
        pairs = list(zip(source.shape, value.shape, strict=True))
        return all(facts.le(a, b) for a, b in pairs) and not all(
            facts.equal(a, b) for a, b in pairs
        )


def _is_pointwise(binding: Binding) -> bool:
    """Whether a convolution looks at one place at a time, at every place."""
    attrs, kernel = binding.attributes(), binding.args[1].shape[2:]
    padded = any(p != 0 for pair in attrs["pads"] for p in pair)
    return (
        attrs["groups"] == 1 and set(attrs["strides"]) <= {1} and not padded
        and all(k == 1 for k in kernel)
    )  # fmt: skip


def _folds(first: _Product, outputs: Int) -> bool:
    """Whether one product with the product of two matrices multiplies less than both do."""
    inputs, middle = first.channels, first.outputs
    if not (middle.is_const and inputs.is_const and outputs.is_const):
        return False
    return inputs.value * outputs.value < middle.value * (inputs.value + outputs.value)


def _count(shape: tuple[Int, ...]) -> Int:
    total = as_int(1)
    for extent in shape:
        total = total * extent
    return total


def _like(value: Value, axis: int) -> tuple[Int, ...]:
    """The value's shape with 1 for all dimensions but `axis`."""
    return tuple(n if d == axis else as_int(1) for d, n in enumerate(value.shape))


def _replaced(values: Any, at: int, value: Int) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
