"""Operators whose results' sizes are data, and those that are not computations on tensors.

The first are computed while importing where all their operands are constants, by ONNX's own
evaluator; all others are refused, each with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

from pliant.base.dtypes import from_numpy, i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Item, Lowering, Site, product
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def lower_by_value(s: Site) -> tuple[Item | None, ...]:
    """The results for constants."""
    what = f"operands, which say how large the result of {s.op} is"
    arrays = [s.const(k, what) if s.has(k) else None for k in range(len(s.items))]
    if s.op == "NonMaxSuppression":  # the evaluator knows its numbers as vectors only
        arrays = [None if a is None else np.atleast_1d(a) for a in arrays]
    node = NodeProto()
    node.CopyFrom(s.node)
    del node.attribute[:]
    node.attribute.extend(s.attributes.values())
    given = {n: a for n, a in zip(node.input, arrays, strict=True) if a is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    outputs = [ValueInfoProto(name=n) for n in node.output if n]
    graph = helper.make_graph([node], "g", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", s.opset)])
    try:
        with np.errstate(all="ignore"):
            found = iter(ReferenceEvaluator(model).run(None, given))
    except Exception as error:
        raise InvalidModelError(f"{s.span}: it cannot be computed ({error})") from error
    return tuple(_item(np.asarray(next(found))) if n else None for n in node.output)


def lower_non_zero(s: Site) -> tuple[Item | None, ...] | Value:
    """Of what is not zero anywhere all places: older exporters write ranges so."""
    x = s.item(0)
    made = next((b for b in s.builder.bindings if x.value in b.outputs), None)
    if made is None or made.op != "full" or not dict(made.attrs)["value"] or not x.rank:
        return lower_by_value(s)
    rows = []
    for k, size in enumerate(x.shape):
        along = s.call("iota", size=size, start=0, step=1, dtype=i64)
        column = tuple(size if j == k else as_int(1) for j in range(x.rank))
        whole = s.call("expand", s.reshape(along, column), shape=x.shape)
        rows.append(s.reshape(whole, (product(x.shape),)))
    return s.call("stack", tuple(rows), axis=0)


def _item(array: np.ndarray) -> Item:
    return Item(from_numpy(array.dtype), tuple(map(as_int, array.shape)), known=array)


def _refused(reason: str) -> Lowering:
    def lower(s: Site) -> Value:
        raise s.unsupported(reason)

    return lower


_RANDOM = "random numbers are not supported: make them outside, and give them to the model"
_STRINGS = "strings are not supported: do this outside of the model"
_IMAGES = "decoding of image files is not supported: give the model the decoded image"

DATA: Final[Mapping[str, Lowering]] = {
    **dict.fromkeys(("NonMaxSuppression", "Unique"), lower_by_value),
    "NonZero": lower_non_zero,
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
         "RandomUniformLike"),
        _refused(_RANDOM),
    ),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        _refused(_STRINGS),
    ),
    "ImageDecoder": _refused(_IMAGES),
}  # fmt: skip
