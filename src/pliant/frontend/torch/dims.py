"""What the user says of dynamic dimensions, in any of the accepted forms.

{"ids": {0: "batch", 1: "seq"}}        names
({0: torch.export.Dim("batch")}, …)    torch's dims, also derived ones (2 * n)
{"x": {2: Dim(max=512, multiple=32)}}  what is known of an unnamed dimension
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim as TorchDim
from torch.utils import _pytree as pytree

from pliant.base.errors import InvalidModelError
from pliant.frontend.names import symbol_name
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
    """A name for a symbol, whatever the user's name is."""
    return symbol_name(name) or "n"


class Forward:
    """The parameters of a model's `forward`. Extra positional arguments are `args_0`, `args_1` …"""

    def __init__(self, forward: Callable[..., Any] | Sequence[str]) -> None:
        self._signature = inspect.signature(forward) if callable(forward) else None
        self._plain: list[str] = [] if callable(forward) else list(forward)
        self._rest: str | None = None
        self._named: str | None = None
        for p in self._signature.parameters.values() if self._signature else ():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                self._plain.append(p.name)
            elif p.kind is p.VAR_POSITIONAL:
                self._rest = p.name
            elif p.kind is p.VAR_KEYWORD:
                self._named = p.name

    def names(self, count: int) -> list[str]:
        """What can be given by position, where there are `count` positional arguments."""
        extra = range(max(count - len(self._plain), 0)) if self._rest else ()
        return [*self._plain, *(f"{self._rest}_{k}" for k in extra)]

    def flat(self, spec: Any, count: int, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The user's spec by argument; torch nests those of `*args` and `**kwargs`, which may also
        be given one by one."""
        if spec is None:
            return {}
        names = self.names(count)
        if isinstance(spec, list | tuple):
            order = [*names[:count], *kwargs]
            if self._is_nested(spec, count, len(kwargs)):
                order[len(self._plain) : count] = [str(self._rest)]
            if len(spec) > len(order):
                raise InvalidModelError(
                    f"dynamic_shapes has {len(spec)} entries; there are {len(order)} arguments"
                )
            spec = dict(zip(order, spec, strict=False))
        if not isinstance(spec, Mapping):
            raise InvalidModelError(
                "dynamic_shapes is a dict by argument, or a tuple with an entry for each, such as "
                f'{{"x": {{0: "batch"}}}}; not {spec!r:.60}'
            )
        found: dict[str, Any] = {}
        for name, item in spec.items():
            if name == self._rest and name not in names:
                if isinstance(item, Mapping):
                    raise InvalidModelError(
                        f"dynamic_shapes of *{name} is a tuple with an entry for each of these "
                        f"arguments, not {item!r:.60}"
                    )
                found |= {f"{name}_{k}": v for k, v in enumerate(item or ())}
            elif name == self._named and isinstance(item, Mapping) and name not in kwargs:
                found |= item
            else:
                found[name] = item
        for name in found:
            if name not in names and name not in kwargs:
                known = ", ".join(sorted({*names, *kwargs}))
                raise InvalidModelError(f"dynamic_shapes names {name!r}; the arguments are {known}")
        return found

    def _is_nested(self, spec: Sequence[Any], count: int, named: int) -> bool:
        """Whether there is one entry for all of `*args`: no entry of one argument is."""
        at = len(self._plain)
        if self._rest is None or count <= at:
            return False
        is_one = at < len(spec) and isinstance(spec[at], Mapping)
        return not is_one and len(spec) <= at + 1 + named

    def nested(
        self, spec: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """The flat spec as torch wants it: an entry for every argument, nested as `forward` is."""
        assert self._signature is not None
        names = self.names(len(args))
        positional = [_arranged(spec.get(n), a) for n, a in zip(names, args, strict=False)]
        named = {k: _arranged(spec.get(k), a) for k, a in kwargs.items()}
        return dict(self._signature.bind(*positional, **named).arguments)


def leaves_of(
    forward: Forward,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    specs: Mapping[str, Any],
    dims: Mapping[str, Dim],
) -> list[Leaf]:
    """The leaves of (args, kwargs) in torch's order, each with what the user said of it."""
    names = forward.names(len(args))
    found: list[Leaf] = []
    _check_names(specs)
    flat, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    for keys, value in flat:
        parts = [_key(k) for k in keys]
        head = names[int(parts[1])] if parts[0] == 0 else str(parts[1])
        path: tuple[str | int, ...] = (head, *parts[2:])
        whole = args[int(parts[1])] if parts[0] == 0 else kwargs[str(parts[1])]
        spec = _descend(specs.get(head), whole, parts[2:])
        found.append(Leaf(path, value, dict(_requests(spec, value, path, dims))))
    return found


def _check_names(specs: Any) -> None:
    """Two names must not become one symbol."""
    seen: dict[str, str] = {}
    todo = [specs]
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            todo += item.values()
        elif isinstance(item, list | tuple):
            todo += item
        name = item if isinstance(item, str) else getattr(item, "__name__", None)
        if isinstance(name, str) and seen.setdefault(sanitise(name), name) != name:
            both = f"{seen[sanitise(name)]!r} and {name!r}"
            raise InvalidModelError(f"dynamic_shapes: {both} are the same name; rename one of them")


def torch_spec(spec: Any, dims: Mapping[str, Dim]) -> Any:
    """The same structure in torch's words.

    Every dim is DYNAMIC, so that relations between dims become guards and not errors; only dims
    that the user derived (2 * n) stay as they are.
    """
    if isinstance(spec, Mapping):
        return {
            k: TorchDim.STATIC if v is None and isinstance(k, int) else torch_spec(v, dims)
            for k, v in spec.items()
        }
    if isinstance(spec, list | tuple):
        entries = [torch_spec(v, dims) for v in spec]
        return type(spec)(*entries) if hasattr(spec, "_fields") else type(spec)(entries)
    if isinstance(spec, str):
        return _hint(dims.get(spec, Dim()))
    if isinstance(spec, Dim):
        return _hint(spec)
    if isinstance(spec, TorchDim) and not _is_derived(spec):
        return _hint(_torch_range(spec).merged(dims.get(spec.__name__)))
    return spec


def _hint(known: Dim) -> Any:
    low = known.min if known.min > 2 else None
    # Torch assumes sizes from 2 up: with an upper end near to that, nothing dynamic is left.
    high = known.max if known.max is not None and known.max > max(known.min, 2) + 1 else None
    return AUTO if low is None and high is None else AUTO(min=low, max=high)


def _is_derived(dim: Any) -> bool:
    return hasattr(dim, "root") and hasattr(dim, "fn")


def _torch_range(dim: Any) -> Dim:
    high = dim.max
    return Dim(int(dim.min), int(high) if isinstance(high, int) else None)


def _key(key: Any) -> str | int:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)  # type: ignore[no-any-return]
    return str(key)


def _children(value: Any) -> list[tuple[str | int, Any]]:
    """What a container holds, by key: whatever torch's pytree knows to be one."""
    known = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if known is None:
        return []
    if known.flatten_with_keys_fn is None:
        return list(enumerate(known.flatten_fn(value)[0]))
    return [(_key(key), child) for key, child in known.flatten_with_keys_fn(value)[0]]


def _entry(spec: Any, key: str | int, place: int) -> Any:
    """What the spec of a container says of one child: by its key, or by its place."""
    if isinstance(spec, Mapping):
        return spec.get(key)
    return spec[place] if isinstance(spec, list | tuple) and place < len(spec) else None


def _descend(spec: Any, value: Any, parts: Sequence[str | int]) -> Any:
    for part in parts:
        children = _children(value)
        place = next(k for k, (key, _) in enumerate(children) if key == part)
        spec, value = _entry(spec, part, place), children[place][1]
    return spec


def _arranged(spec: Any, value: Any) -> Any:
    """The spec in the containers that torch expects: lists for classes that are not Python's."""
    children = _children(value)
    if spec is None or not children:
        return spec
    entries = [_arranged(_entry(spec, key, k), v) for k, (key, v) in enumerate(children)]
    if isinstance(value, Mapping):
        return {key: entry for (key, _), entry in zip(children, entries, strict=True)}
    if isinstance(value, tuple):
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    return entries


def _requests(
    spec: Any, value: Any, path: tuple[str | int, ...], dims: Mapping[str, Dim]
) -> Iterator[tuple[int, Request]]:
    if spec is None or not isinstance(value, torch.Tensor):
        return
    if not isinstance(spec, Mapping | list | tuple):
        raise InvalidModelError(
            f"dynamic_shapes of {path_name(path)} is a dict by dimension, such as "
            f'{{0: "batch"}}, or a tuple with an entry for each; not {spec!r:.60}'
        )
    pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
    for axis, item in pairs:
        if not isinstance(axis, int) or not 0 <= axis < value.ndim:
            raise InvalidModelError(
                f"dynamic_shapes of {path_name(path)}: no dimension {axis!r} in rank {value.ndim}"
            )
        request = _request(item, dims, path)
        if request is not None:
            yield axis, request


def _request(item: Any, dims: Mapping[str, Dim], path: tuple[str | int, ...]) -> Request | None:
    if item is None or isinstance(item, int) or item is TorchDim.STATIC:
        return None
    if isinstance(item, str):
        return Request(sanitise(item), dims.get(item, Dim()))
    if isinstance(item, Dim):
        return Request(None, item)
    if isinstance(item, TorchDim) and not _is_derived(item):
        name = item.__name__
        known = _torch_range(item).merged(dims.get(name))
        return Request(sanitise(name), known)
    if _is_derived(item):
        return Request(None, Dim(), item)
    low, high = getattr(item, "min", None), getattr(item, "max", None)
    if hasattr(item, "type"):  # torch's DimHint: AUTO or DYNAMIC, with or without a range
        return Request(None, replace(Dim(), min=low or 0, max=high))
    raise InvalidModelError(f"dynamic_shapes of {path_name(path)}: {item!r} is no dimension")
