"""Operators that make tensors from attributes and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from onnx import AttributeProto

from pliant.base.dtypes import from_numpy
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Item, Lowering, Site
from pliant.frontend.onnx.symbolic import Ratio
from pliant.frontend.onnx.tensors import dtype_of, small_element
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int, ceildiv


def lower_constant(s: Site) -> Item:
    """A tensor in the file."""
    array = _constant(s)
    shape = tuple(as_int(int(d)) for d in array.shape)
    small = small_element(s.attributes["value"].t) if "value" in s.attributes else 0
    return Item(from_numpy(array.dtype), shape, known=array, small=small)


def _constant(s: Site) -> np.ndarray:
    for name, attribute in s.attributes.items():
        match name:
            case "value":
                return s.tensor_attr("value")
            case "value_int":
                return np.asarray(attribute.i, np.int64)
            case "value_ints":
                return np.asarray(list(attribute.ints), np.int64)
            case "value_float":
                return np.asarray(attribute.f, np.float32)
            case "value_floats":
                return np.asarray(list(attribute.floats), np.float32)
            case "sparse_value" if attribute.type == AttributeProto.SPARSE_TENSOR:
                return s.to_array(attribute.sparse_tensor)
            case "value_string" | "value_strings":
                raise s.unsupported("strings are not supported")
    raise InvalidModelError(f"{s.span}: a constant without a value")


def lower_constant_of_shape(s: Site) -> Value:
    """One value everywhere."""
    value = s.tensor_attr("value") if s.has_attr("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise InvalidModelError(f"{s.span}: the value has {value.size} elements")
    return s.full(s.ints(0, "shape"), value.ravel()[0].item(), from_numpy(value.dtype))


def lower_range(s: Site) -> Value:
    """How many elements there are must follow from shapes."""
    dtype = s.item(0).dtype
    start, limit, delta = (
        s.known(k, n).ravel()[0] for k, n in enumerate(("start", "limit", "delta"))
    )
    if not any(isinstance(v, Int | Ratio) for v in (start, limit, delta)):
        size = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
        return s.call(
            "iota", size=as_int(size), start=_number(start), step=_number(delta), dtype=dtype
        )
    if dtype.is_float:
        start, limit, delta = (_whole(s, v) for v in (start, limit, delta))
    first, last = (as_int(v if isinstance(v, Int) else int(v)) for v in (start, limit))
    step = as_int(delta if isinstance(delta, Int) else int(delta))
    if s.sizes.is_positive(step):
        count = ceildiv(last - first, step)
    elif s.sizes.is_negative(step):
        count = ceildiv(first - last, -step)
    else:
        raise s.unsupported("the sign of its step must be known")
    return s.call(
        "iota", size=s.sizes.greatest(count, as_int(0)), start=first, step=step, dtype=dtype
    )


def _whole(s: Site, value: Any) -> Any:
    if isinstance(value, Ratio):
        if value.den != 1:
            raise s.unsupported("a range of fractions must have constant bounds")
        return value.num
    if float(value) != int(value):
        raise s.unsupported("a range of fractions must have constant bounds")
    return int(value)


def _number(value: Any) -> int | float:
    number: int | float = value.item()
    return number


def lower_eye_like(s: Site) -> Value:
    """Ones on a diagonal."""
    item = s.item(0)
    dtype = dtype_of(s.int_attr("dtype"), "the result") if s.has_attr("dtype") else item.dtype
    if item.rank != 2:
        raise InvalidModelError(f"{s.span}: the operand has rank {item.rank}, not 2")
    rows, cols = item.shape
    return s.call("eye", rows=rows, cols=cols, offset=s.int_attr("k", 0), dtype=dtype)


CREATE: Final[Mapping[str, Lowering]] = {
    "Constant": lower_constant,
    "ConstantOfShape": lower_constant_of_shape,
    "EyeLike": lower_eye_like,
    "Range": lower_range,
}
