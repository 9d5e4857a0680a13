"""Torch's tree specs as templates of plain data."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from pliant.frontend.torch.structure import Call, Template

_PLAIN = (bool, int, float, str, type(None))


def output_template(spec: Any, places: Sequence[tuple[str, Any]]) -> Template:
    """`places`: for each leaf ("leaf" or "size", index) or ("constant", value)."""
    return _template(spec, iter([_leaf(kind, x) for kind, x in places]))


def call_of(program: ExportedProgram, names: Sequence[str]) -> Call:
    """The signature of the exported program."""
    spec = program.call_spec.in_spec
    assert spec is not None
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    leaves: list[Template] = []
    count = 0
    for item in program.graph_signature.input_specs:
        if item.kind is not InputKind.USER_INPUT:
            continue
        if isinstance(values.get(item.arg.name), torch.Tensor):
            leaves.append(_leaf("leaf", count))
            count += 1
        else:
            constant = item.arg.value if isinstance(item.arg, ConstantArgument) else None
            leaves.append(_leaf("constant", constant))
    whole = _template(spec, iter(leaves))
    positional, named = whole["items"]
    arguments = dict(zip(names, positional["items"], strict=False))
    arguments |= dict(zip(named["keys"], named["items"], strict=True))
    paths: list[tuple[str | int, ...]] = [()] * count
    for name, template in arguments.items():
        for path, index in _paths(template):
            paths[index] = (name, *path)
    return Call(tuple(names), arguments, tuple(paths))


def _leaf(kind: str, x: Any) -> Template:
    if kind != "constant":
        return {"kind": kind, "index": x}
    return {"kind": "constant", "value": x if isinstance(x, _PLAIN) else repr(x)}


def _template(spec: Any, leaves: Iterator[Template]) -> Template:
    if spec.is_leaf():
        return next(leaves)
    items = [_template(child, leaves) for child in spec.children()]
    kind, context = spec.type, spec.context
    kind = context if kind is namedtuple else kind
    if kind is list:
        return {"kind": "list", "items": items}
    keys = _keys(kind, context, len(items))
    if keys is not None:
        type_name = "" if kind is dict else f"{kind.__module__}.{kind.__qualname__}"
        return {"kind": "dict", "keys": keys, "items": items, "type": type_name}
    fields = _fields(kind)
    if len(fields) == len(items) > 0:
        type_name = f"{kind.__module__}.{kind.__qualname__}"
        return {"kind": "namedtuple", "keys": list(fields), "items": items, "type": type_name}
    return {"kind": "tuple", "items": items}


def _fields(kind: Any) -> tuple[str, ...]:
    """The names in a named tuple, and in what torch's operators of several results give."""
    if not (isinstance(kind, type) and issubclass(kind, tuple)) or kind is tuple:
        return ()
    names: Any = getattr(kind, "_fields", None) or getattr(kind, "__match_args__", ())
    return tuple(names)


def _keys(kind: Any, context: Any, count: int) -> list[Any] | None:
    """The names of the children of a container that has names."""
    if isinstance(kind, type) and issubclass(kind, tuple):
        return None
    if kind is dict or kind in (OrderedDict, defaultdict):
        return list(context) if kind is not defaultdict else list(context[1])
    named = context if isinstance(context, list) else []
    if named and isinstance(named[0], list):  # names of the children, and of what is None
        named = named[0]
    fits = len(named) == count and all(isinstance(k, str) for k in named)
    return list(named) if fits else None


def _paths(template: Template) -> Iterator[tuple[tuple[str | int, ...], int]]:
    if template["kind"] == "leaf":
        yield (), template["index"]
    keys = template["keys"] if template["kind"] == "dict" else None
    for k, item in enumerate(template.get("items", ())):
        for path, index in _paths(item):
            yield (keys[k] if keys else k, *path), index
