"""The structure of arguments and results: which tensors sit where in tuples, lists and dicts."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pliant.base.errors import InvalidModelError, ShapeError

Key = str | int | float | bool | None
"""Of a dict: what a manifest can hold."""

KINDS: Final = frozenset({"leaf", "scalar", "const", "tuple", "list", "dict", "namedtuple"})


@dataclass(frozen=True, slots=True)
class Tree:
    """One node.

    leaf        a tensor
    scalar      a Python number, carried by a tensor of rank 0
    const       `value`, fixed when the model was compiled (None too)
    tuple, list
    dict        under `keys`; with `type_name` "module:Class" an instance of that class where its
                module is loaded, else a plain dict
    namedtuple  the same with fields
    """

    kind: str = "leaf"
    children: tuple[Tree, ...] = ()
    keys: tuple[Key, ...] = ()
    value: str | int | float | bool | None = None
    type_name: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidModelError(f"unknown kind of tree node: {self.kind!r}")
        if self.kind in ("dict", "namedtuple") and len(self.keys) != len(self.children):
            raise InvalidModelError(
                f"a {self.kind} of {len(self.keys)} keys needs as many children"
            )

    @property
    def num_leaves(self) -> int:
        if self.kind in ("leaf", "scalar"):
            return 1
        return sum(c.num_leaves for c in self.children)

    @property
    def is_flat_tuple(self) -> bool:
        """A tuple of tensors and nothing else."""
        return self.kind == "tuple" and all(c.kind == "leaf" for c in self.children)


LEAF: Final = Tree()


def tuple_of(count: int) -> Tree:
    """The tree of a tuple of `count` tensors."""
    return Tree("tuple", (LEAF,) * count)


def flatten(tree: Tree, value: object, name: str) -> list[object]:
    """The leaves of a value that has this structure. Raises ShapeError naming the place."""
    leaves: list[object] = []
    _flatten(tree, value, name, leaves)
    return leaves


def _flatten(tree: Tree, value: Any, at: str, leaves: list[object]) -> None:
    match tree.kind:
        case "leaf" | "scalar":
            leaves.append(value)
        case "const":
            _check_const(tree, value, at)
        case "dict":
            items = _items_of(tree, value, at)
            for key, child in zip(tree.keys, tree.children, strict=True):
                _flatten(child, items[key], f"{at}[{key!r}]", leaves)
        case _:
            if not isinstance(value, Sequence) or len(value) != len(tree.children):
                raise ShapeError(
                    f"{at}: expected a {tree.kind} of {len(tree.children)}, got {_describe(value)}"
                )
            for i, child in enumerate(tree.children):
                _flatten(child, value[i], f"{at}[{i}]", leaves)


def _check_const(tree: Tree, value: object, at: str) -> None:
    # True == 1 and 1.0 == 1, but a model traced with one may differ from the other.
    if type(value) is not type(tree.value) or value != tree.value:
        raise ShapeError(
            f"{at}: the model was compiled for the value {tree.value!r}, got {value!r:.60}; "
            "compile it again for another value"
        )


def _items_of(tree: Tree, value: Any, at: str) -> Mapping[Key, object]:
    if tree.type_name and all(isinstance(k, str) and hasattr(value, k) for k in tree.keys):
        value = {k: getattr(value, str(k)) for k in tree.keys}  # a dataclass, say
    if not isinstance(value, Mapping):
        raise ShapeError(f"{at}: expected a dict with {list(tree.keys)}, got {_describe(value)}")
    # A key whose value was None when compiled may be left out.
    missing = [
        k
        for k, c in zip(tree.keys, tree.children, strict=True)
        if k not in value and (c.kind != "const" or c.value is not None)
    ]
    extra = [k for k in value if k not in tree.keys and value[k] is not None]
    if missing or extra:
        parts = [f"lacks {missing}"] * bool(missing) + [f"has unknown {extra}"] * bool(extra)
        raise ShapeError(f"{at}: the dict {' and '.join(parts)}; expected {list(tree.keys)}")
    return {k: value.get(k) for k in tree.keys}


def _describe(value: object) -> str:
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, list | tuple | dict) else name


def unflatten(tree: Tree, leaves: Sequence[object]) -> object:
    """The value of this structure with these leaves, in order."""
    return _unflatten(tree, iter(leaves))


def _unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    match tree.kind:
        case "leaf":
            return next(leaves)
        case "scalar":
            return next(leaves).item()
        case "const":
            return tree.value
    values = [_unflatten(c, leaves) for c in tree.children]
    match tree.kind:
        case "tuple":
            return tuple(values)
        case "list":
            return values
        case "dict":
            items = dict(zip(tree.keys, values, strict=True))
            return _made(_loaded_class(tree.type_name), items)
        case _:
            cls = _loaded_class(tree.type_name)
            return _made_of_fields(cls or _plain_namedtuple(tree), values)


def _made(cls: Any, items: dict[Key, Any]) -> Any:
    """An object of the class with these fields; the fields alone where it takes no such."""
    named = {k: v for k, v in items.items() if isinstance(k, str)}
    try:
        if cls is None:
            return items
        return cls(**named) if len(named) == len(items) else cls(items)
    except TypeError:
        return items


def _made_of_fields(cls: Any, values: Sequence[Any]) -> Any:
    """A named tuple; classes of C (`torch.return_types.max`) take their values as one."""
    return cls(*values) if hasattr(cls, "_fields") else cls(values)


def _loaded_class(name: str) -> Any:
    """The class "module:Class" if its module is loaded already: nothing is imported for it."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module) if module else None
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found


def _plain_namedtuple(tree: Tree) -> Any:
    name = tree.type_name.rpartition(":")[2].rpartition(".")[2] or "Result"
    return namedtuple(name, list(map(str, tree.keys)))
