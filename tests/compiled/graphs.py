"""Random graph functions with symbolic dims, small enough to compile by the dozen."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from pliant.base.dtypes import DType, boolean, f16, f32, i32, i64
from pliant.graph.builder import Builder
from pliant.graph.function import Function, Value
from pliant.ops.table import OPERATORS
from pliant.sym.expr import Int, as_int, var

Draw = Any
UNARY = ("neg", "abs", "relu", "sigmoid", "tanh", "square", "exp", "floor")
BINARY = ("add", "sub", "mul", "max", "min")
SIZES = (0, 1, 2, 5, 16, 17)


@st.composite
def graphs(draw: Draw) -> tuple[Function, dict[str, np.ndarray]]:
    """A function of two or three parameters and up to eight operators."""
    return _Graph(draw).build()


class _Graph:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.b = Builder("main", OPERATORS)
        self.values: list[Value] = []

    def build(self) -> tuple[Function, dict[str, np.ndarray]]:
        for k in range(self.draw(st.integers(2, 3))):
            self.values.append(self.b.param(f"x{k}", self._type(), self._shape()))
        # A symbol must follow from some input.
        self.values.append(self.b.param("sizes", f32, (var("n"), var("m"))))
        steps = (self._unary, self._binary, self._reduce, self._view, self._row, self._product,
                 self._gather, self._scan, self._where)  # fmt: skip
        for _ in range(self.draw(st.integers(1, 8))):
            made = self.draw(st.sampled_from(steps))()
            if made is not None:
                self.values.append(made)
        results = self.draw(st.lists(st.sampled_from(self.values), max_size=2))
        return self.b.finish([*results, self.values[-1]])

    # -- choices

    def _type(self) -> DType:
        return self.draw(st.sampled_from((f32, f32, f32, f16, i32, i64, boolean)))

    def _dim(self) -> Int:
        return self.draw(st.sampled_from((var("n"), var("m"), as_int(1), as_int(3), as_int(20))))

    def _shape(self) -> tuple[Int, ...]:
        return tuple(self._dim() for _ in range(self.draw(st.integers(0, 3))))

    def _pick(self, dtype: DType | None = None, rank: int = 0) -> Value:
        """A value of at least this rank, converted to `dtype`."""
        fits = [v for v in self.values if len(v.shape) >= rank]
        v = self.draw(st.sampled_from(fits))
        return v if dtype is None or v.dtype is dtype else self.b.call("cast", v, to=dtype)

    def _axis(self, v: Value) -> int:
        return self.draw(st.integers(0, len(v.shape) - 1))

    # -- operators

    def _unary(self) -> Value:
        op = self.draw(st.sampled_from(UNARY))
        return self.b.call(op, self._pick(f32))

    def _binary(self) -> Value | None:
        a = self._pick(self.draw(st.sampled_from((f32, i32))))
        fits = [v for v in self.values if _broadcasts(a, v)]
        b = self.draw(st.sampled_from(fits)) if fits else a
        b = b if b.dtype is a.dtype else self.b.call("cast", b, to=a.dtype)
        return self.b.call(self.draw(st.sampled_from(BINARY)), a, b)

    def _where(self) -> Value | None:
        a = self._pick(f32)
        fits = [v for v in self.values if _broadcasts(a, v)]
        mask = self.b.call("lt", a, self.b.scalar(0.25, f32))
        other = self.draw(st.sampled_from(fits)) if fits else a
        return self.b.call("where", mask, a, self.b.call("cast", other, to=f32))

    def _reduce(self) -> Value:
        v = self._pick(f32, 1)
        rank = len(v.shape)
        axes = self.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank))
        op = self.draw(st.sampled_from(("sum", "max", "mean", "min", "argmax", "any")))
        keep = self.draw(st.booleans())
        if op == "argmax":
            return self.b.call(op, v, axis=min(axes), keepdims=keep)
        if op == "any":
            v = self.b.call("lt", v, self.b.scalar(0.0, f32))
        return self.b.call(op, v, axes=tuple(sorted(axes)), keepdims=keep)

    def _row(self) -> Value:
        v = self._pick(f32, 1)
        op = self.draw(st.sampled_from(("softmax", "log_softmax", "layer_norm")))
        if op == "layer_norm":
            return self.b.call(op, v, None, None, axes_from=self._axis(v), eps=1e-3)
        return self.b.call(op, v, axis=self._axis(v))

    def _view(self) -> Value:
        v = self._pick(None, 1)
        axis, rank = self._axis(v), len(v.shape)
        match self.draw(st.sampled_from(("transpose", "flip", "pad", "concat", "slice", "expand"))):
            case "transpose":
                perm = self.draw(st.permutations(range(rank)))
                return self.b.call("transpose", v, perm=tuple(perm))
            case "flip":
                return self.b.call("flip", v, axes=(axis,))
            case "pad":
                pads = tuple((1, 2) if d == axis else (0, 0) for d in range(rank))
                return self.b.call("pad", v, pads=pads, mode="constant", value=0)
            case "concat":
                return self.b.call("concat", (v, v), axis=axis)
            case "slice":
                stops = tuple(d // 2 if k == axis else d for k, d in enumerate(v.shape))
                return self.b.call("slice", v, starts=(0,) * rank, stops=stops, steps=(1,) * rank)
        return self.b.call("expand", v, shape=(2, *v.shape))

    def _product(self) -> Value:
        v = self._pick(self.draw(st.sampled_from((f32, f32, i32))), 2)
        rank = len(v.shape)
        perm = (*range(rank - 2), rank - 1, rank - 2)
        return self.b.call("matmul", v, self.b.call("transpose", v, perm=perm))

    def _gather(self) -> Value:
        v = self._pick(None, 1)
        axis = self._axis(v)
        places = self.b.call("iota", size=v.shape[axis], start=0, step=1, dtype=i64)
        return self.b.call("gather", v, self.b.call("flip", places, axes=(0,)), axis=axis)

    def _scan(self) -> Value:
        v = self._pick(f32, 1)
        reverse = self.draw(st.booleans())
        return self.b.call("cumsum", v, axis=self._axis(v), exclusive=False, reverse=reverse)


def _broadcasts(a: Value, b: Value) -> bool:
    """Whether b surely broadcasts to the shape of a."""
    if len(b.shape) > len(a.shape):
        return False
    tail = a.shape[len(a.shape) - len(b.shape) :]
    return all(y is x or y == 1 for x, y in zip(tail, b.shape, strict=True))


def arguments(function: Function, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Inputs of a function at these sizes."""
    rng = np.random.default_rng(seed)
    out = {}
    for p in function.params:
        shape = tuple(d.eval(sizes) for d in p.shape)
        out[p.name] = rng.integers(-3, 4, shape).astype(p.dtype.numpy)
    return out
