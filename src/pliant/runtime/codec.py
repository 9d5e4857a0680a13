"""Frozen dataclasses to JSON values and back, by their field types.

Only what manifests need: `str`, `int`, `float`, `bool`, `None`, unions of these, dataclasses,
`tuple[T, ...]`, `dict[str, T]`, and any of them or None. A value of the wrong type is an error,
never a guess: what is read may be a damaged file.
"""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class DecodeError(ValueError):
    """The value does not have the form that the type asks for."""


def encode(value: Any) -> Any:
    """The JSON value of a dataclass; fields that equal their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: encode(v)
            for f in dataclasses.fields(value)
            if (v := getattr(value, f.name)) != f.default
        }
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {k: encode(v) for k, v in value.items()}
    return value


def decode(cls: type[T], value: Any) -> T:
    """The dataclass of a JSON value. Raises DecodeError."""
    result: T = _decode(cls, value, cls.__name__)
    return result


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _decode(kind: Any, value: Any, at: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, at)
    origin = get_origin(kind)
    if origin is tuple:
        if not isinstance(value, list):
            raise DecodeError(f"{at}: expected a list, got {value!r:.40}")
        return tuple(_decode(get_args(kind)[0], v, f"{at}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise DecodeError(f"{at}: expected an object, got {value!r:.40}")
        return {k: _decode(get_args(kind)[1], v, f"{at}.{k}") for k, v in value.items()}
    allowed = get_args(kind) if origin in (Union, types.UnionType) else (kind,)
    others = [k for k in allowed if k is not types.NoneType]
    if len(others) < len(allowed) and len(others) == 1 and value is not None:
        return _decode(others[0], value, at)
    # bool is an int to isinstance, and 1.0 == 1: compare the exact types.
    if type(value) not in allowed:
        raise DecodeError(f"{at}: expected {kind}, got {value!r:.40}")
    return value


def _decode_dataclass(cls: Any, value: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise DecodeError(f"{at}: expected an object, got {value!r:.40}")
    hints = _hints(cls)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise DecodeError(f"{at}: unknown fields {', '.join(unknown)}")
    fields = {k: _decode(hints[k], v, f"{at}.{k}") for k, v in value.items()}
    try:
        return cls(**fields)
    except TypeError as e:  # a field without default is missing
        raise DecodeError(f"{at}: {e}") from None
