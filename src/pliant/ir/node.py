"""Interned, immutable, typed nodes.

A node class lists its fields as annotations; everything else (construction, equality, hashing,
walking, rebuilding) is written once, here. Two nodes with equal fields are the same object, so
equality is identity and a dictionary keyed by nodes is a memo table.

    class Binary(Expr):
        op: str
        a: Expr
        b: Expr
"""

from __future__ import annotations

import threading
import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self, dataclass_transform

# As a WeakValueDictionary, which takes a call of Python's for each look.
_Entry = weakref.KeyedRef[tuple[Any, ...], Any]
_TABLE: dict[tuple[Any, ...], _Entry] = {}
_MAKING = threading.Lock()


def _gone(
    entry: _Entry,
    table: dict[tuple[Any, ...], _Entry] = _TABLE,
    forget: Callable[[dict[Any, Any], Any], None] = _remove_dead_weakref,
) -> None:
    """The node is gone: so is its entry, unless an equal node has taken that. Asked and done in one
    step, for between two of them another thread could make that node. Arguments, as names of this
    module may be gone, too, when the process ends."""
    forget(table, entry.key)


@dataclass_transform(frozen_default=True, eq_default=False)
class NodeMeta(type):
    """Collects the fields of a node class and interns its instances."""

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]
    _puts: tuple[Callable[[Any, Any], None], ...]  # set the fields, past `__setattr__`
    _key: Callable[[tuple[Any, ...]], Any] | None = None  # tells apart fields that compare equal

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> NodeMeta:
        fields: list[str] = []
        defaults: dict[str, Any] = {}
        for base in bases:
            fields += [f for f in getattr(base, "_fields", ()) if f not in fields]
            defaults |= getattr(base, "_defaults", {})
        for key, annotation in space.get("__annotations__", {}).items():
            if "ClassVar" in str(annotation):
                continue
            if key in space:
                defaults[key] = space.pop(key)
            if key not in fields:
                fields.append(key)
        own = [f for f in fields if not any(hasattr(b, f) for b in bases)]
        space.setdefault("__slots__", (*own, *space.pop("_extra_slots", ())))
        space["__match_args__"] = tuple(fields)
        cls = super().__new__(mcs, name, bases, space)
        cls._fields, cls._defaults = tuple(fields), defaults
        cls._puts = tuple([getattr(cls, field).__set__ for field in fields])
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        fields = cls._fields
        if kwargs or len(args) != len(fields):
            args = cls._bind(args, kwargs)
        key = (cls, *args) if cls._key is None else (cls, *args, cls._key(args))
        entry = _TABLE.get(key)
        found = None if entry is None else entry()
        if found is None:
            found = object.__new__(cls)  # type: ignore[arg-type]
            for put, value in zip(cls._puts, args, strict=True):
                put(found, value)
            found.__post_init__()
            with _MAKING:  # threads that race agree on one
                entry = _TABLE.get(key)
                first = None if entry is None else entry()
                if first is not None:
                    return first
                _TABLE[key] = weakref.KeyedRef(found, _gone, key)
        return found

    def _bind(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        fields = cls._fields
        if len(args) > len(fields):
            raise TypeError(f"{cls.__name__} takes {len(fields)} fields, got {len(args)}")
        values = list(args)
        for field in fields[len(args) :]:
            if field in kwargs:
                values.append(kwargs.pop(field))
            elif field in cls._defaults:
                values.append(cls._defaults[field])
            else:
                raise TypeError(f"{cls.__name__} needs the field {field!r}")
        if kwargs:
            raise TypeError(f"{cls.__name__} has no field {next(iter(kwargs))!r}")
        return tuple(values)


class Node(metaclass=NodeMeta):
    """Base of all nodes. Fields are nodes, tuples (of nodes), strings, numbers, types or None."""

    __slots__: ClassVar[tuple[str, ...]] = ("__weakref__", "_below", "_names", "_own")
    _fields: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        """Check the fields; raise `InvalidModelError` on a malformed node."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f) for f in self._fields)

    def __repr__(self) -> str:
        inside = ", ".join(f"{f}={getattr(self, f)!r}" for f in self._fields)
        return f"{type(self).__name__}({inside})"

    def replace(self, **changes: Any) -> Self:
        """The same node with some fields changed."""
        values = {f: getattr(self, f) for f in self._fields} | changes
        return type(self)(**values)

    def children(self) -> tuple[Node, ...]:
        """Direct child nodes, in field order, looking into tuples."""
        try:
            found: tuple[Node, ...] = self._below  # type: ignore[attr-defined]
        except AttributeError:  # walked for the first time
            below: list[Node] = []
            _nodes_in([getattr(self, field) for field in self._fields], below)
            found = tuple(below)
            object.__setattr__(self, "_below", found)
        return found

    def map_children(self, fn: Callable[[Any], Any]) -> Self:
        """Rebuild with `fn` applied to each direct child node; the same object if none changed."""
        if not self.children():
            return self
        values = tuple([getattr(self, field) for field in self._fields])
        changed = _map_in(values, fn)
        return self if changed is values else type(self)(*changed)


def _nodes_in(values: Iterable[Any], found: list[Node]) -> None:
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif type(value) is tuple:
            _nodes_in(value, found)


def _map_in(values: tuple[Any, ...], fn: Callable[[Any], Any]) -> tuple[Any, ...]:
    changed, new = False, list(values)
    for k, old in enumerate(values):
        if isinstance(old, Node):
            new[k] = fn(old)
        elif type(old) is tuple:
            new[k] = _map_in(old, fn)
        if new[k] is not old:
            changed = True
    return tuple(new) if changed else values


def exact(value: Any) -> Any:
    """A hashable stand-in for plain data that tells apart what compares equal: 1, 1.0 and True."""
    if type(value) is tuple:
        return tuple([exact(item) for item in value])
    if isinstance(value, float):  # -0.0 and 0.0, and a nan is one value
        return float, repr(value)
    return value if isinstance(value, Node | str) else (type(value), value)


def walk(root: Node) -> Iterator[Node]:
    """Each distinct node reachable from `root` once, parents before children."""
    seen = {root}
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        for child in reversed(node.children()):
            if child not in seen:
                seen.add(child)
                stack.append(child)


def transform(
    root: Node,
    fn: Callable[[Any], Any],
    memo: dict[Node, Any] | None = None,
    stays: Callable[[Node], bool] | None = None,
) -> Any:
    """Rebuild bottom-up: `fn` sees each distinct node once, its children already rebuilt. A node
    that `stays` is kept with all that is below it.

    Iterative, so depth is bounded by memory and not by Python's stack.
    """
    done: dict[Node, Any] = {} if memo is None else memo
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if stays is not None and stays(node):
            done[node] = node
            continue
        below = node.children()
        waiting = [c for c in below if c not in done]
        if waiting:
            waiting.reverse()
            stack += waiting
            continue
        stack.pop()
        rebuilt = node
        for child in below:
            if done[child] is not child:
                rebuilt = node.map_children(done.__getitem__)
                break
        done[node] = fn(rebuilt)
    return done[root]
