"""Sizes of example arguments: such that tracing takes nothing for a constant by accident.

a batch of 1                    becomes 3: torch takes sizes 0 and 1 for constants
height and width both 224       become 224 and 448: else the trace would hold for squares only
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.base.errors import InvalidModelError
from pliant.frontend.torch.dims import Leaf
from pliant.graph.function import Dim

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79)


def key_of(leaf: Leaf, axis: int) -> str:
    """Which dims are one: those of a name, or just this one."""
    return leaf.requests[axis].name or f"{leaf.name}/{axis}"


def groups(leaves: Iterable[Leaf]) -> dict[str, tuple[Dim, set[int]]]:
    """Per dimension (its name, or its place): what is known, the example's sizes."""
    found: dict[str, tuple[Dim, set[int]]] = {}
    for leaf in leaves:
        for axis, request in leaf.requests.items():
            key = key_of(leaf, axis)
            known, sizes = found.get(key, (request.known, set()))
            found[key] = known.merged(request.known), sizes | {leaf.value.shape[axis]}
    return found


def example_sizes(leaves: Sequence[Leaf]) -> dict[str, int]:
    """New sizes for the dims whose example is 0 or 1."""
    taken = {
        int(d) for leaf in leaves if isinstance(leaf.value, torch.Tensor) for d in leaf.value.shape
    }
    chosen: dict[str, int] = {}
    for key, (known, sizes) in groups(leaves).items():
        if len(sizes) > 1:
            raise InvalidModelError(f"the dimension {key!r} has different sizes: {sorted(sizes)}")
        if max(sizes) > known.multiple:
            (size,) = sizes
            if not known.allows(size):
                raise InvalidModelError(
                    f"the example has the size {size} in the dimension {key!r}, which {known} "
                    "does not allow"
                )
            continue
        if known.max is not None and known.max <= known.multiple:
            continue
        options = [p * known.multiple for p in _PRIMES] + [2 * known.multiple]
        fitting = [n for n in options if n >= known.min and (known.max is None or n <= known.max)]
        if not fitting and known.max is not None:
            fitting = [known.max // known.multiple * known.multiple]
        chosen[key] = next((n for n in fitting if n not in taken), fitting[0])
        taken.add(chosen[key])
    return chosen


def set_apart(leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> dict[str, int]:
    """Different sizes for different dims, multiples of what the example has.

    Dims without a name that are of different tensors may well be one: they are left alone.
    """
    found, taken = dict(sizes), set(sizes.values())
    named = {r.name for leaf in leaves for r in leaf.requests.values() if r.name}
    places = [
        {key_of(leaf, axis) for axis, r in leaf.requests.items() if not r.derived}
        for leaf in leaves
    ]
    for key, (known, (size,)) in groups(leaves).items():
        others = named.union(*(p for p in places if key in p))
        used = {found[k] for k in others if k in found and k != key}
        if key not in sizes and (key in named or any(key in p for p in places)):
            options = [size * k for k in range(1, len(taken) + 3)]
            fitting = [n for n in options if n not in used and _allows(known, n)]
            found[key] = fitting[0] if fitting else size
        taken.add(size)
    return {k: n for k, n in found.items() if k in sizes or n != _size_of(leaves, k)}


def _size_of(leaves: Sequence[Leaf], key: str) -> int:
    return next(
        int(leaf.value.shape[axis])
        for leaf in leaves
        for axis in leaf.requests
        if key_of(leaf, axis) == key
    )


def _allows(known: Dim, size: int) -> bool:
    return known.max is None or size <= known.max


def resized(
    args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Leaf], sizes: Mapping[str, int]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example with these dims resized."""
    flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    for k, leaf in enumerate(leaves):
        for axis in leaf.requests:
            size = sizes.get(key_of(leaf, axis))
            if size is not None and flat[k].shape[axis] != size:
                flat[k] = _with_size(flat[k], axis, size)
    new_args, new_kwargs = pytree.tree_unflatten(flat, spec)
    return tuple(new_args), dict(new_kwargs)


def _with_size(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    shape = list(x.shape)
    shape[axis] = size
    if x.numel() == 0 or x.shape[axis] == 0:
        return x.new_zeros(shape)
    if size < x.shape[axis]:
        return x.narrow(axis, 0, size).contiguous()
    return x.narrow(axis, 0, 1).expand(shape).contiguous()


def grown_sizes(
    leaves: Sequence[Leaf], sizes: Mapping[str, int], places: frozenset[tuple[int, int]] | None
) -> dict[str, int]:
    """Twice the size for the dims at these places (leaf, axis); for all of them without."""
    grown = dict(sizes)
    for k, leaf in enumerate(leaves):
        for axis, request in leaf.requests.items():
            key = key_of(leaf, axis)
            now = sizes.get(key, leaf.value.shape[axis])
            fits = request.known.max is None or 2 * now <= request.known.max
            if fits and (places is None or (k, axis) in places):
                grown[key] = 2 * now
    return grown
