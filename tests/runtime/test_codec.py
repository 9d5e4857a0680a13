"""Manifest fields that may be absent keep their structure through a file."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pliant.runtime.codec import DecodeError, decode, encode
from pliant.runtime.manifest import Function, Manifest, Parameter, TensorInfo
from pliant.runtime.tree import LEAF


@dataclass(frozen=True)
class Optional:
    names: tuple[str, ...] | None = None


@pytest.mark.parametrize("value", [Optional(), Optional(()), Optional(("a", "b"))])
def test_a_tuple_or_none(value: Optional) -> None:
    assert decode(Optional, encode(value)) == value


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(DecodeError, match="expected a list"):
        decode(Optional, {"names": "ab"})


def test_a_function_with_parameters_and_a_result() -> None:
    tensor = TensorInfo("x", "f32", ("n",))
    f = Function("f", "f", (tensor,), (tensor,), parameters=(Parameter("x"),), result=LEAF)
    assert Manifest.from_json(Manifest((f,)).to_json()).functions == (f,)
