"""Function bodies: model-local functions, and standard operators that ONNX defines by others.

A body is imported in place of the node; values inside get names of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.load import opsets_of, plain_domain, schema_of
from pliant.frontend.onnx.site import Item, ItemList
from pliant.frontend.onnx.tensors import element_code


@dataclass(frozen=True)
class Body:
    """Nodes that stand for one node, with the names of their inputs and outputs."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: dict[str, int]
    attributes: dict[str, AttributeProto]


def local_functions(model: onnx.ModelProto) -> dict[tuple[str, str, str], FunctionProto]:
    """The model's own functions by domain, name and overload."""
    return {(plain_domain(f.domain), f.name, f.overload): f for f in model.functions}


def local_body(function: FunctionProto, attributes: Mapping[str, AttributeProto]) -> Body:
    """The body of a model-local function for a node with these attributes."""
    given = {a.name: a for a in function.attribute_proto}
    given |= {k: v for k, v in attributes.items() if k in set(function.attribute) | set(given)}
    return Body(
        tuple(function.node), tuple(function.input), tuple(function.output),
        opsets_of(function.opset_import), given,
    )  # fmt: skip


def standard_body(
    node: NodeProto, items: Sequence[Item | None], opset: int,
    attributes: Mapping[str, AttributeProto],
) -> Body | None:  # fmt: skip
    """The body by which ONNX defines the node's operator; None where it has none."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None:
        return None
    function = FunctionProto()
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if not versions:
            return None
        plain = NodeProto()
        plain.CopyFrom(node)
        del plain.attribute[:]
        plain.attribute.extend(attributes.values())
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                max(versions), plain.SerializeToString(), [_type(i) for i in items]
            )
        except (ValueError, RuntimeError, TypeError) as error:
            raise InvalidModelError(f"{node.op_type} has no definition: {error}") from error
    elif schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        if not versions:
            return None
        data = schema.get_function_with_opset_version(max(versions))
    else:
        return None
    function.ParseFromString(data)
    if not function.node:
        return None
    defaults = {
        name: a.default_value for name, a in schema.attributes.items() if a.default_value.name
    }
    opsets = opsets_of(function.opset_import)
    if not node.domain:
        opsets.setdefault("", max(versions))
    return Body(
        tuple(function.node), tuple(function.input), tuple(function.output), opsets,
        defaults | dict(attributes),
    )  # fmt: skip


def resolved(node: NodeProto, outer: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """A node's attributes, those that refer to the function's replaced by the caller's."""
    out: dict[str, AttributeProto] = {}
    for a in node.attribute:
        if not a.ref_attr_name:
            out[a.name] = a
        elif a.ref_attr_name in outer:
            copy = AttributeProto()
            copy.CopyFrom(outer[a.ref_attr_name])
            copy.name = a.name
            out[a.name] = copy
    return out


def without(node: NodeProto, absent: set[str]) -> NodeProto:
    """The node with operands that the caller left out removed."""
    if not any(name in absent for name in node.input):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    for k, name in enumerate(copy.input):
        if name in absent:
            copy.input[k] = ""
    return copy


def _type(item: Item | None) -> bytes:
    proto = TypeProto()
    if isinstance(item, ItemList):
        tensor = proto.sequence_type.elem_type.tensor_type
        tensor.elem_type = element_code(item.dtype)
    elif item is not None:
        proto.tensor_type.elem_type = element_code(item.dtype)
        shape = proto.tensor_type.shape
        for d in item.shape:
            entry = shape.dim.add()
            if d.is_const:
                entry.dim_value = d.value
            else:
                entry.dim_param = str(d)
    return bytes(proto.SerializeToString())
