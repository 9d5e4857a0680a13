"""What the user says of dynamic dimensions, in any of the accepted forms.

    {"ids": {0: "batch", 1: "seq"}}        names
    ({0: torch.export.Dim("batch")}, …)    torch's dims, also derived ones (2 * n)
    {"x": {2: Dim(max=512, multiple=32)}}  what is known of an unnamed dimension
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim as TorchDim
from torch.utils import _pytree as pytree

from pliant.base.errors import InvalidModelError
from pliant.frontend.torch.structure import path_name
from pliant.graph.function import Dim

AUTO = TorchDim.DYNAMIC
"""Torch's "find out": relations between dims become guards, not errors."""


@dataclass(frozen=True)
class Request:
    """One dynamic dimension of one input. `root` names the symbol under a derived torch dim."""

    name: str | None
    known: Dim
    derived: Any = None

    @property
    def root(self) -> str | None:
        return None if self.derived is None else sanitise(self.derived.root.__name__)


@dataclass(frozen=True)
class Leaf:
    """One leaf of the arguments: where it is, its value, its dynamic dims by axis."""

    path: tuple[str | int, ...]
    value: Any
    requests: Mapping[int, Request] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return path_name(self.path)


def sanitise(name: str) -> str:
    """A name for a symbol: an identifier, no keyword, without a leading underscore."""
    clean = "".join(c if c.isalnum() or c == "_" else "_" for c in name).lstrip("_") or "n"
    if clean[0].isdigit():
        clean = "n" + clean
    return clean + "_" if keyword.iskeyword(clean) or clean in ("min", "max") else clean


def leaves_of(
    forward: Callable[..., Any] | Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    dims: Mapping[str, Dim],
) -> list[Leaf]:
    """The leaves of (args, kwargs) in torch's order, each with what the user said of it."""
    names = positional_names(forward, len(args))
    specs = _by_argument(dynamic_shapes, names, kwargs)
    found: list[Leaf] = []
    flat, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    for keys, value in flat:
        parts = [_key(k) for k in keys]
        head = names[int(parts[1])] if parts[0] == 0 else str(parts[1])
        path: tuple[str | int, ...] = (head, *parts[2:])
        spec = _descend(specs.get(head), parts[2:], keys[2:])
        found.append(Leaf(path, value, dict(_requests(spec, value, path, dims))))
    return found


def positional_names(forward: Callable[..., Any] | Sequence[str], count: int) -> list[str]:
    """The names of the parameters that take positional arguments (at least `count`)."""
    if not callable(forward):
        return list(forward)
    names: list[str] = []
    for p in inspect.signature(forward).parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
        elif p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}_{k}" for k in range(max(count - len(names), 0))]
    return names


def torch_spec(spec: Any, names: Mapping[str, Dim]) -> Any:
    """The same structure in torch's words."""
    if isinstance(spec, Mapping):
        return {
            k: TorchDim.STATIC if v is None and isinstance(k, int) else torch_spec(v, names)
            for k, v in spec.items()
        }
    if isinstance(spec, list | tuple):
        return type(spec)(torch_spec(v, names) for v in spec)
    if isinstance(spec, str):
        return _hint(names.get(spec, Dim()))
    if isinstance(spec, Dim):
        return _hint(spec)
    if isinstance(spec, TorchDim) and not _is_derived(spec):
        return _hint(_torch_range(spec))
    return spec


def merged(known: Dim, more: Dim | None) -> Dim:
    """Both are true."""
    if more is None:
        return known
    ends = [m for m in (known.max, more.max) if m is not None]
    multiple = known.multiple if more.multiple == 1 else more.multiple
    return Dim(
        max(known.min, more.min), min(ends) if ends else None, multiple, more.likely or known.likely
    )


def _hint(known: Dim) -> Any:
    low = known.min if known.min > 2 else None
    if low is None and known.max is None:
        return AUTO
    return AUTO(min=low, max=known.max)


def _is_derived(dim: Any) -> bool:
    return hasattr(dim, "root") and hasattr(dim, "fn")


def _torch_range(dim: Any) -> Dim:
    high = dim.max
    return Dim(int(dim.min), int(high) if isinstance(high, int) else None)


def _by_argument(spec: Any, names: Sequence[str], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if spec is None:
        return {}
    if isinstance(spec, Mapping):
        known = {*names, *kwargs}
        for name in spec:
            if name not in known:
                raise InvalidModelError(
                    f"dynamic_shapes names {name!r}; the arguments are {', '.join(sorted(known))}"
                )
        return dict(spec)
    order = [*names[: len(spec)], *kwargs]
    return dict(zip(order, spec, strict=False))


def complete(spec: Any, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The user's spec with an entry for every argument, as torch wants it."""
    if spec is None:
        return None
    found = _by_argument(spec, names, kwargs)
    given = [*names[: len(args)], *kwargs]
    return {name: found.get(name) for name in given}


def _key(key: Any) -> str | int:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)  # type: ignore[no-any-return]
    return str(key)


def _descend(spec: Any, parts: Sequence[str | int], keys: Sequence[Any]) -> Any:
    for part in parts:
        if spec is None:
            return None
        if isinstance(spec, Mapping):
            spec = spec.get(part)
        elif isinstance(part, int) and part < len(spec):
            spec = spec[part]
        else:
            return None
    return spec


def _requests(
    spec: Any, value: Any, path: tuple[str | int, ...], dims: Mapping[str, Dim]
) -> Iterator[tuple[int, Request]]:
    if spec is None or not isinstance(value, torch.Tensor):
        return
    pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
    for axis, item in pairs:
        if not isinstance(axis, int) or not -value.ndim <= axis < value.ndim:
            raise InvalidModelError(
                f"dynamic_shapes of {path_name(path)}: no dimension {axis!r} in rank {value.ndim}"
            )
        request = _request(item, dims, path)
        if request is not None:
            yield axis % value.ndim, request


def _request(item: Any, dims: Mapping[str, Dim], path: tuple[str | int, ...]) -> Request | None:
    if item is None or isinstance(item, int) or item is TorchDim.STATIC:
        return None
    if isinstance(item, str):
        return Request(sanitise(item), dims.get(item, Dim()))
    if isinstance(item, Dim):
        return Request(None, item)
    if isinstance(item, TorchDim) and not _is_derived(item):
        name = item.__name__
        return Request(sanitise(name), merged(_torch_range(item), dims.get(name)))
    if _is_derived(item):
        return Request(None, Dim(), item)
    low, high = getattr(item, "min", None), getattr(item, "max", None)
    if hasattr(item, "type"):  # torch's DimHint: AUTO or DYNAMIC, with or without a range
        return Request(None, replace(Dim(), min=low or 0, max=high))
    raise InvalidModelError(f"dynamic_shapes of {path_name(path)}: {item!r} is no dimension")
