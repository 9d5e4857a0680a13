"""Whether a tensor program computes what an operator's definition says, tried on random numbers.

Both are run on small random arrays at a few random sizes, the definition by NumPy, the program by
the interpreter of loops: a trial, no proof, and slow where the model's own constants are large.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError, PliantError
from pliant.graph.builder import define
from pliant.graph.function import Binding, Function
from pliant.graph.operator import Operators
from pliant.ir.evaluate import check_requirements, evaluate
from pliant.ir.scalars import Array
from pliant.ir.tensor import Input
from pliant.ops.program import TensorProgram, run_program

TRIALS: Final = 4
DRAWS: Final = 200  # of sizes, for one that the function allows
MOST: Final = 9  # of a size, beyond the least that is allowed
TOLERANCE: Final = {64: 1e-9, 32: 1e-3, 16: 5e-2}  # relative to the largest result, by bits


def check_program(
    function: Function, binding: Binding, program: TensorProgram, operators: Operators
) -> None:
    """Raises InvalidModelError, with the sizes and the element, where results differ."""
    rng = random.Random(0)
    operands = binding.operands()
    names = sorted({n for v in operands for d in v.shape for n in d.names})
    tensors = define(operators[binding.op], binding.args, binding.attributes())
    inputs = _inputs(binding.args)
    for _ in range(TRIALS):
        sizes = _sizes(function, rng)
        if sizes is None:
            warnings.warn(
                f"{program.function.name} was not tried: no sizes that {function.name} allows "
                f"were found in {DRAWS} draws",
                stacklevel=2,
            )
            return
        drawn = np.random.default_rng(rng.randrange(1 << 32))
        arrays = [random_array(drawn, v.dtype, [d.eval(sizes) for d in v.shape]) for v in operands]
        shown = ", ".join(f"{n} = {sizes[n]}" for n in names) or "its sizes"
        what = f"{program.function.name} is not {binding.op} at {shown}"
        try:
            want = evaluate(tensors, dict(zip(inputs, arrays, strict=True)), sizes)
        except PliantError:  # indices out of range, say: nothing is defined for these numbers
            continue
        try:
            got = run_program(program, arrays)
        except (PliantError, IndexError) as error:
            raise InvalidModelError(f"{what}: {error}") from error
        got = got if isinstance(got, tuple) else (got,)
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            _compare(f"{what}: result {k}", a, b)


def random_array(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> Array:
    """Numbers around 0 (of unsigned types: small ones)."""
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    low = 0 if not dtype.is_signed else -4
    return np.asarray(rng.integers(low, 5 if dtype.kind != "bool" else 2, shape)).astype(
        dtype.numpy
    )


def _inputs(args: tuple[Any, ...]) -> list[Input]:
    """The placeholders that `define` makes of arguments, in order."""
    out: list[Input] = []
    for k, arg in enumerate(args):
        if isinstance(arg, tuple):
            pairs = [(f"a{k}_{j}", a) for j, a in enumerate(arg) if a is not None]
        else:
            pairs = [] if arg is None else [(f"a{k}", arg)]
        out += [Input(name, v.dtype, v.shape) for name, v in pairs]
    return out


def _sizes(function: Function, rng: random.Random) -> dict[str, int] | None:
    """Sizes that the function allows; None where none were found."""
    for _ in range(DRAWS):
        sizes: dict[str, int] = {}
        for name, dim in function.dims:
            first = -(-dim.min // dim.multiple)
            last = first + MOST
            if dim.max is not None:
                last = min(last, dim.max // dim.multiple)
            sizes[name] = rng.randint(first, last) * dim.multiple
        for a, b, _ in function.equalities:
            for name, other in ((str(a), b), (str(b), a)):
                if name in sizes and name not in other.names:
                    sizes[name] = other.eval(sizes)
        known = dict(function.dims)
        if not all(known[name].allows(size) for name, size in sizes.items()):
            continue
        try:
            check_requirements(function.equalities, sizes)
        except PliantError:
            continue
        return sizes
    return None


def _compare(what: str, got: Array, want: Array) -> None:
    if got.size == 0:
        return
    bits = want.dtype.itemsize * 8
    if want.dtype.kind in "iub":
        wrong = got != want
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        finite = b[np.isfinite(b)]
        limit = TOLERANCE[bits] * max(1.0, float(np.abs(finite).max(initial=0.0)))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            wrong = ~same & ~(np.abs(a - b) <= limit)
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise InvalidModelError(f"{what} at {list(at)} is {got[at]}, not {want[at]}")
