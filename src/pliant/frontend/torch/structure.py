"""The nesting of a model's arguments and results, as plain data that JSON can hold.

A template is a dictionary with a "kind":

    {"kind": "leaf", "index": 2}                       the tensor of that number
    {"kind": "size", "index": 3}                       a rank-0 tensor, a number to the user
    {"kind": "constant", "value": True}                None, numbers, strings
    {"kind": "tuple", "items": […]}  {"kind": "list", "items": […]}
    {"kind": "dict", "keys": […], "items": […], "type": "…"}       and "namedtuple" likewise
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.base.errors import ShapeError

Template = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """The Python signature of a model and where each tensor sits in the arguments.

    `names` are the parameters of `forward` that can be given by position, in order. `arguments`
    holds a template for each parameter that the model was exported with; `leaves` the access path
    of each tensor in it, as (parameter, key, key, …).
    """

    names: tuple[str, ...]
    arguments: Mapping[str, Template]
    leaves: tuple[tuple[str | int, ...], ...]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call in order. Raises ShapeError when the call does not fit."""
        given = self._bind(args, kwargs)
        out: list[Any] = [None] * len(self.leaves)
        for name, template in self.arguments.items():
            if name in given:
                _collect(template, given.pop(name), name, out)
            elif not _is_constant(template):
                raise ShapeError(f"the argument {name!r} is missing")
        for name, value in given.items():
            if value is not None:
                raise ShapeError(f"{name!r} was not an argument when the model was exported")
        return out

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.names):
            raise ShapeError(f"{len(args)} positional arguments; the model takes {len(self.names)}")
        given = dict(zip(self.names, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise ShapeError(f"{name!r} is given twice")
            given[name] = value
        return given


def path_name(path: Sequence[str | int]) -> str:
    """How a user writes the place of a tensor: `past[0]['key']`."""
    head, *rest = path
    return str(head) + "".join(f"[{part!r}]" for part in rest)


def fill(template: Template, leaves: Sequence[Any]) -> Any:
    """The structure with its leaves in place; unknown containers become tuples and dicts."""
    kind = template["kind"]
    if kind == "leaf":
        return leaves[template["index"]]
    if kind == "size":
        return leaves[template["index"]].item()
    if kind == "constant":
        return template["value"]
    items = [fill(t, leaves) for t in template["items"]]
    if kind == "dict":
        return dict(zip(template["keys"], items, strict=True))
    return items if kind == "list" else tuple(items)


def _is_constant(template: Template) -> bool:
    if template["kind"] == "constant":
        return True
    return "items" in template and all(map(_is_constant, template["items"]))


def _collect(template: Template, value: Any, name: str, out: list[Any]) -> None:
    kind = template["kind"]
    if kind == "leaf":
        out[template["index"]] = value
        return
    if kind == "constant":
        if value != template["value"]:
            raise ShapeError(
                f"{name} is {value!r}; the model was exported with {template['value']!r}, which "
                "is part of the program"
            )
        return
    if kind == "dict":
        children = [_entry(value, key, name) for key in template["keys"]]
    else:
        children = list(value)
    if len(children) != len(template["items"]):
        raise ShapeError(f"{name} has {len(children)} entries, not {len(template['items'])}")
    for k, (child, inner) in enumerate(zip(children, template["items"], strict=True)):
        key = template["keys"][k] if kind == "dict" else k
        _collect(inner, child, f"{name}[{key!r}]", out)


def _entry(value: Any, key: Any, name: str) -> Any:
    try:
        return value[key] if isinstance(value, Mapping) else getattr(value, key)
    except (KeyError, AttributeError) as error:
        raise ShapeError(f"{name} has no entry {key!r}") from error
