"""The NumPy meaning of tensor expressions.

    evaluate((softmax(x, axis=1),), {x: array}, {"n": 3})  ->  [array]

A comprehension becomes one array expression over a grid: every axis variable is an index array
that varies along its own dimension, reduction axes come last. What a `Select` leaves out is
computed too, with its indices clipped, and thrown away; the mask of needed elements says where an
access out of bounds or a violated `Guard` counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from pliant.base.errors import InvalidModelError, ShapeError
from pliant.ir.expr import Axis, Binary, Expr, Reduce
from pliant.ir.scalars import Array, combine, identity, rounded, running
from pliant.ir.scope import Scope
from pliant.ir.tensor import Compute, Input, Opaque, OpaqueOutput, Scan, Scatter, Tensor, producers
from pliant.sym.expr import as_int
from pliant.sym.extents import solve_extents

RunProgram = Callable[[Any, list[Array], Mapping[str, int]], None]
"""Runs a loop program on the operands' arrays and then the outputs', which it fills, for the sizes
that its buffers' extents name."""

MAX_CELLS: Final = 1 << 24
"""Larger grids are evaluated in slices along their longest output axis."""


def evaluate(
    tensors: Sequence[Tensor],
    inputs: Mapping[Input, npt.ArrayLike],
    sizes: Mapping[str, int],
    run_program: RunProgram | None = None,
) -> list[Array]:
    """The values of `tensors`, given those of their inputs and of the symbolic sizes.

    `run_program` is needed where there are opaque programs. Raises ShapeError where an input has
    the wrong shape or type, the sizes break a requirement, or a guard is violated.
    """
    values: dict[Tensor, Any] = {}
    with np.errstate(all="ignore"):
        for tensor in producers(tensors):
            values[tensor] = _value(tensor, values, inputs, sizes, run_program)
    return [values[t] for t in tensors]


def _value(
    tensor: Tensor,
    values: Mapping[Tensor, Any],
    inputs: Mapping[Input, npt.ArrayLike],
    sizes: Mapping[str, int],
    run_program: RunProgram | None,
) -> Any:
    match tensor:
        case Input():
            return _checked_input(tensor, inputs, sizes)
        case Compute():
            check_requirements(tensor.requires, sizes)
            return _computed(tensor, values, sizes)
        case Scan():
            body = _over_grid(tensor.axes, tensor.body, values, sizes)
            return running(
                tensor.combiner, body, tensor.along, tensor.dtype,
                exclusive=tensor.exclusive, reverse=tensor.reverse,
            )  # fmt: skip
        case Scatter():
            check_requirements(tensor.requires, sizes)
            return _scattered(tensor, values, sizes)
        case Opaque():
            if run_program is None:
                raise InvalidModelError(f"{tensor.name}: no interpreter of loop programs was given")
            check_requirements(tensor.requires, sizes)
            outputs = [
                np.zeros([d.eval(sizes) for d in shape], dtype.numpy)
                for dtype, shape in tensor.results
            ]
            # The program's buffers are compact; what was transposed is a view.
            arrays = [np.asarray(values[o], order="C") for o in tensor.operands] + outputs
            run_program(tensor.program, arrays, _program_sizes(tensor.program, arrays))
            return outputs
        case OpaqueOutput():
            return values[tensor.of][tensor.index]
    raise InvalidModelError(f"no meaning of {type(tensor).__name__}")


def _program_sizes(program: Any, arrays: Sequence[Array]) -> dict[str, int]:
    """A program's sizes, which follow from its buffers' extents."""
    pairs = [
        (extent, as_int(n))
        for formal, actual in zip(program.buffers, arrays, strict=True)
        for extent, n in zip(formal.shape, actual.shape, strict=True)
    ]
    return {name: value.value for name, value in solve_extents(pairs).items()}


def check_requirements(requires: Sequence[tuple[Any, Any, str]], sizes: Mapping[str, int]) -> None:
    """Raise ShapeError, with its message, for the first requirement that these sizes break."""
    for a, b, message in requires:
        if a.eval(sizes) != b.eval(sizes):
            raise ShapeError(f"{message} (here {a.eval(sizes)} and {b.eval(sizes)})")


def _checked_input(
    tensor: Input, inputs: Mapping[Input, npt.ArrayLike], sizes: Mapping[str, int]
) -> Array:
    array = np.asarray(inputs[tensor])
    shape = tuple(d.eval(sizes) for d in tensor.shape)
    if array.shape != shape or array.dtype != tensor.dtype.numpy:
        raise ShapeError(
            f"{tensor.name} is {array.dtype}{list(array.shape)}, not {tensor.dtype}{list(shape)}"
        )
    return array


def _computed(tensor: Compute, values: Mapping[Tensor, Any], sizes: Mapping[str, int]) -> Array:
    if not isinstance(tensor.body, Reduce):
        return _over_grid(tensor.axes, tensor.body, values, sizes)
    shape = tuple(a.extent.eval(sizes) for a in tensor.axes)
    within = tuple(a.extent.eval(sizes) for a in tensor.body.axes)
    if math.prod(shape) * math.prod(within) == 0:
        return np.full(shape, identity(tensor.body.combiner, tensor.dtype), tensor.dtype.numpy)
    reduction = tensor.body

    def one_slice(scope: Scope, cells: tuple[int, ...]) -> Array:
        return _reduced(reduction, scope, cells + within)

    return _sliced(tensor.axes, reduction.axes, one_slice, values, sizes)


def _over_grid(
    axes: Sequence[Axis], body: Expr, values: Mapping[Tensor, Any], sizes: Mapping[str, int]
) -> Array:
    shape = tuple(a.extent.eval(sizes) for a in axes)
    if math.prod(shape) == 0:
        return np.zeros(shape, body.dtype.numpy)

    def one_slice(scope: Scope, cells: tuple[int, ...]) -> Array:
        return np.array(np.broadcast_to(scope.value(body), cells))

    return _sliced(axes, (), one_slice, values, sizes)


def _sliced(
    axes: Sequence[Axis],
    inner: Sequence[Axis],
    one_slice: Callable[[Scope, tuple[int, ...]], Array],
    values: Mapping[Tensor, Any],
    sizes: Mapping[str, int],
) -> Array:
    shape = [a.extent.eval(sizes) for a in axes]
    cells = math.prod(shape) * math.prod(a.extent.eval(sizes) for a in inner)
    longest = max(range(len(shape)), key=shape.__getitem__, default=0)
    step = shape[longest] if shape else 1
    while cells > MAX_CELLS and step > 1:
        step, cells = -(-step // 2), cells // 2
    parts = []
    for start in range(0, shape[longest] if shape else 1, step):
        part = list(shape)
        grid = _grid([*axes, *inner], sizes)
        if shape:
            name = axes[longest].var
            part[longest] = min(step, shape[longest] - start)
            window = [slice(None)] * grid[name].ndim
            window[longest] = slice(start, start + step)
            grid[name] = grid[name][tuple(window)]
        parts.append(one_slice(Scope(grid, values), tuple(part)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, longest)


def _grid(axes: Sequence[Axis], sizes: Mapping[str, int]) -> dict[str, Array]:
    grid: dict[str, Array] = {n: np.asarray(v, np.int64) for n, v in sizes.items()}
    for k, axis in enumerate(axes):
        along = [1] * len(axes)
        along[k] = -1
        grid[axis.var] = np.arange(axis.extent.eval(sizes), dtype=np.int64).reshape(along)
    return grid


def _reduced(reduction: Reduce, scope: Scope, cells: tuple[int, ...]) -> Array:
    kept = len(cells) - len(reduction.axes)
    body = reduction.body
    if reduction.combiner == "sum" and body.dtype.is_float and _is_product(body):
        a, b = (_spread(scope.value(f), len(cells)) for f in (body.a, body.b))
        return rounded(_contracted(a, b, cells, kept), body.dtype)
    full = np.broadcast_to(scope.value(body), cells)
    return combine(reduction.combiner, full, tuple(range(kept, len(cells))), reduction.dtype)


def _is_product(body: Expr) -> TypeGuard[Binary]:
    return isinstance(body, Binary) and body.op == "mul"


def _spread(a: Array, rank: int) -> Array:
    return a.reshape((1,) * (rank - a.ndim) + a.shape)


def _contracted(a: Array, b: Array, cells: tuple[int, ...], kept: int) -> Array:
    """The sum of a*b over the trailing dimensions, in f64, by a matrix product where possible."""
    letters_a = [d for d, n in enumerate(a.shape) if n != 1]
    letters_b = [d for d, n in enumerate(b.shape) if n != 1]
    out = [d for d in range(kept) if d in letters_a or d in letters_b]
    sum_ = np.einsum(
        a.reshape([a.shape[d] for d in letters_a]).astype(np.float64), letters_a,
        b.reshape([b.shape[d] for d in letters_b]).astype(np.float64), letters_b,
        out, optimize=True,
    )  # fmt: skip
    # A reduction axis that neither factor depends on repeats the same product.
    repeats = math.prod(
        n for d, n in enumerate(cells) if d >= kept and d not in letters_a and d not in letters_b
    )
    shape = [cells[d] if d in out else 1 for d in range(kept)]
    return np.array(np.broadcast_to((sum_ * repeats).reshape(shape), cells[:kept]))


def _scattered(tensor: Scatter, values: Mapping[Tensor, Any], sizes: Mapping[str, int]) -> Array:
    result: Array = np.array(values[tensor.base])
    box = tuple(a.extent.eval(sizes) for a in tensor.axes)
    if math.prod(box) == 0:
        return result
    scope = Scope(_grid(tensor.axes, sizes), values)
    needed: Array | None = None
    if tensor.skip is not None:
        needed = np.broadcast_to(~scope.value(tensor.skip), box)
    keep = np.ones(box, bool) if needed is None else needed
    at = [np.broadcast_to(scope.value(w, needed), box)[keep] for w in tensor.where]
    value = np.broadcast_to(scope.value(tensor.value, needed), box)[keep]
    for place, extent in zip(at, result.shape, strict=True):
        if np.any((place < 0) | (place >= extent)):
            raise InvalidModelError(f"{tensor.name}: stores outside its base")
    _STORES[tensor.combiner](result, tuple(at), value)
    return result


def _set(result: Array, at: tuple[Array, ...], value: Array) -> None:
    result[at] = value


_STORES: Final[Mapping[str, Callable[[Array, tuple[Array, ...], Array], None]]] = {
    "set": _set,
    "add": lambda result, at, value: np.add.at(result, at, value),
    "mul": lambda result, at, value: np.multiply.at(result, at, value),
    "max": lambda result, at, value: np.maximum.at(result, at, value),
    "min": lambda result, at, value: np.minimum.at(result, at, value),
}
