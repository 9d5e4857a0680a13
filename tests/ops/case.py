"""Operator cases as data, and how to check one by evaluating its definition.

    Case("add", (arg("f32", "m", "n"), arg("f32", "n")), torch.add, sizes=({"m": 3, "n": 5}, …))

A dimension is a number, a name, or an expression of names ("2*n"). Each binding of the names is run
twice: with the numbers in the definition, and with the names as symbols whose values are given only
when it is evaluated. The oracle gets the operands as torch tensors (NumPy arrays with
`numpy=True`) and the attributes as keywords.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from pliant.base.dtypes import DTYPES, DType
from pliant.graph.builder import requirements
from pliant.ir.evaluate import evaluate
from pliant.ir.tensor import Input, Tensor
from pliant.loop.interpret import interpret as run_program
from pliant.ops.table import OPERATORS
from pliant.sym.expr import Int, parse_int

Sizes = Mapping[str, int]
Fill = Callable[[np.random.Generator, tuple[int, ...], DType, Sizes], np.ndarray]
DimOf = Callable[[str | int], Any]

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
TOLERANCE = {"f64": 1e-11, "f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}


@dataclass(frozen=True)
class Arg:
    """One operand: its type, its dims, and what it is filled with."""

    dtype: DType
    dims: tuple[str | int, ...]
    fill: Fill

    def typed(self, dtype: str) -> Arg:
        return replace(self, dtype=DTYPES[dtype])


@dataclass(frozen=True)
class Case:
    """An operator, its operands (None: absent; a tuple: variadic), attributes and an oracle."""

    op: str
    args: tuple[Any, ...]
    oracle: Callable[..., Any]
    attrs: Mapping[str, Any] | Callable[[DimOf], Mapping[str, Any]] = field(default_factory=dict)
    sizes: tuple[Sizes, ...] = ({},)
    tol: float | None = None
    note: str = ""
    numpy: bool = False
    constant: frozenset[str] = frozenset()  # names that never become symbols

    @property
    def id(self) -> str:
        types = dict.fromkeys(a.dtype.name for a in flat(self.args))
        return "-".join(filter(None, (self.op, *types, self.note)))

    def attributes(self, dim: DimOf) -> dict[str, Any]:
        return dict(self.attrs(dim) if callable(self.attrs) else self.attrs)


def flat(args: Sequence[Any]) -> Iterator[Arg]:
    """The operands that are there."""
    for a in args:
        if isinstance(a, tuple):
            yield from flat(a)
        elif a is not None:
            yield a


def arg(dtype: str, *dims: str | int, fill: Fill | None = None) -> Arg:
    """An operand; ordinary numbers unless `fill` says otherwise."""
    return Arg(DTYPES[dtype], dims, fill or numbers)


def with_types(case: Case, *dtypes: str) -> tuple[Case, ...]:
    """The case in several types: every operand that has the first one's type changes."""
    first = next(flat(case.args)).dtype

    def typed(a: Any, dtype: str) -> Any:
        if isinstance(a, tuple):
            return tuple(typed(b, dtype) for b in a)
        return a.typed(dtype) if a is not None and a.dtype is first else a

    return tuple(replace(case, args=typed(case.args, d)) for d in dtypes)


# ---- fills


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, _: Sizes) -> Any:
    """Ordinary values of the type."""
    if dtype.is_float:
        return rng.normal(size=shape).astype(dtype.numpy)
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low = -20 if dtype.is_signed else 0
    return rng.integers(low, 50, shape).astype(dtype.numpy)


def special(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, _: Sizes) -> Any:
    """NaN, infinities, zeros, extremes and ordinary values mixed."""
    if dtype.is_float:
        tiny, huge = np.float64(2.0**-14), 6e4
        odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -1.5, tiny, huge, -huge]
        values = np.where(rng.random(shape) < 0.5, rng.choice(odd, shape), rng.normal(size=shape))
        with np.errstate(over="ignore"):
            return (values * rng.choice([1, 1, 8], shape)).astype(dtype.numpy)
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return extremes(rng, shape, dtype, {})


def extremes(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, _: Sizes) -> Any:
    """Integers of the whole range, and its ends."""
    wide = rng.integers(int(dtype.min), int(dtype.max), shape, dtype.numpy, endpoint=True)
    ends = np.array([dtype.min, dtype.max, 0, 1], dtype.numpy)
    return np.where(rng.random(shape) < 0.3, rng.choice(ends, shape), wide)


def positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, _: Sizes) -> Any:
    """From 0.1 to 2; integers from 1 to 9."""
    if dtype.is_float:
        return rng.uniform(0.1, 2.0, shape).astype(dtype.numpy)
    return rng.integers(1, 10, shape).astype(dtype.numpy)


def between(low: float, high: float) -> Fill:
    """Uniform from `low` to `high`; of integers, below `high`."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, _: Sizes) -> Any:
        if dtype.is_float:
            return rng.uniform(low, high, shape).astype(dtype.numpy)
        return rng.integers(int(low), int(high), shape).astype(dtype.numpy)

    return fill


def few(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, _: Sizes) -> Any:
    """Values with many ties, NaN among the floats."""
    values = rng.integers(0, 4, shape).astype(np.float64)
    if dtype.is_float:
        values[values == 3] = np.nan
    return values.astype(dtype.numpy)


def index_of(extent: str | int, *, negative: bool = False) -> Fill:
    """Legal indices of a dimension."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Any:
        n = parse_int(str(extent)).eval(dict(sizes))
        return rng.integers(-n if negative else 0, max(n, 1), shape).astype(dtype.numpy)

    return fill


def permutation_of(extent: str | int) -> Fill:
    """Distinct indices along the last dimension."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, sizes: Sizes) -> Any:
        n = parse_int(str(extent)).eval(dict(sizes))
        rows = [rng.permutation(n)[: shape[-1]] for _ in range(int(np.prod(shape[:-1])))]
        return np.array(rows, dtype.numpy).reshape(shape)

    return fill


# ---- checking


def check(case: Case) -> None:
    """Every binding of the case, with numbers and with symbols, against the oracle."""
    for sizes in case.sizes:
        rng = np.random.default_rng(zlib.crc32(case.id.encode()))
        arrays = _filled(case.args, rng, sizes)
        attributes = case.attributes(_concrete(sizes))
        expected = expected_results(case, arrays, attributes)
        for symbolic in (False, True):
            kept = {n: v for n, v in sizes.items() if not symbolic or n in case.constant}
            actual = evaluated(case, arrays, sizes, kept)
            where = f"{case.id} {dict(sizes)}{' symbolic' if symbolic else ''}"
            compare(actual, expected, case.tol, where)


def evaluated(case: Case, arrays: Any, sizes: Sizes, kept: Sizes) -> list[np.ndarray]:
    """The results of the definition, with the sizes in `kept` as numbers in it."""
    inputs: dict[Input, np.ndarray] = {}
    operands = _placeholders(case.args, arrays, kept, inputs, "a")
    attributes = case.attributes(lambda d: _simple(parse_int(str(d)).subs(dict(kept))))
    result = OPERATORS[case.op].define(*operands, **attributes)
    tensors: tuple[Tensor, ...] = result if isinstance(result, tuple) else (result,)
    requirements(tensors)
    found = evaluate(tensors, inputs, dict(sizes), run_program)
    for t, array in zip(tensors, found, strict=True):
        assert array.dtype == t.dtype.numpy
        assert array.shape == tuple(d.eval(dict(sizes)) for d in t.shape)
    return found


def _simple(value: Int) -> Int | int:
    return value.value if value.is_const else value


def _concrete(sizes: Sizes) -> DimOf:
    return lambda d: parse_int(str(d)).eval(dict(sizes))


def _filled(args: Any, rng: np.random.Generator, sizes: Sizes) -> Any:
    dim = _concrete(sizes)
    if isinstance(args, tuple):
        return tuple(_filled(a, rng, sizes) for a in args)
    if args is None:
        return None
    return np.asarray(args.fill(rng, tuple(map(dim, args.dims)), args.dtype, sizes))


def _placeholders(
    args: Any, arrays: Any, kept: Sizes, inputs: dict[Input, np.ndarray], name: str
) -> Any:
    if isinstance(args, tuple):
        return tuple(
            _placeholders(a, b, kept, inputs, f"{name}_{k}")
            for k, (a, b) in enumerate(zip(args, arrays, strict=True))
        )
    if args is None:
        return None
    shape = tuple(parse_int(str(d)).subs(dict(kept)) for d in args.dims)
    found = Input(name, args.dtype, shape)
    inputs[found] = arrays
    return found


def expected_results(case: Case, arrays: Any, attributes: Mapping[str, Any]) -> list[np.ndarray]:
    """What the oracle says, as arrays."""
    operands = arrays if case.numpy else _map(to_torch, arrays)
    with np.errstate(all="ignore"):
        result = case.oracle(*operands, **attributes)
    many = result if isinstance(result, tuple | list) else (result,)
    return [to_numpy(r) if isinstance(r, torch.Tensor) else np.asarray(r) for r in many]


def _map(fn: Callable[[Any], Any], args: Any) -> Any:
    if isinstance(args, tuple):
        return tuple(_map(fn, a) for a in args)
    return None if args is None else fn(args)


def to_torch(array: np.ndarray) -> torch.Tensor:
    """The same values; bf16 by its bits."""
    if array.dtype == DTYPES["bf16"].numpy:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The same values; bf16 by its bits."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(DTYPES["bf16"].numpy)
    return tensor.numpy()


def compare(
    actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], tol: float | None, where: str
) -> None:
    """Same number, types, shapes and values, floats within a tolerance of their type."""
    assert len(actual) == len(expected), where
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype, f"{where}: {a.dtype} {e.dtype}"
        assert a.shape == e.shape, f"{where}: {a.shape} {e.shape}"
        if a.dtype.kind in "iub":
            np.testing.assert_array_equal(a, e, err_msg=where)
            continue
        name = "bf16" if a.dtype == DTYPES["bf16"].numpy else f"f{a.dtype.itemsize * 8}"
        limit = TOLERANCE[name] * (tol or 1)
        np.testing.assert_allclose(
            a.astype(np.float64), e.astype(np.float64), limit, limit, err_msg=where
        )
