"""Read an ONNX model from a path, bytes or a `ModelProto`, and check that it is one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.onnx.tensors import TensorFolder
from pliant.frontend.select import not_a_model

OLDEST_OPSET: Final = 7

Source = str | os.PathLike[str] | bytes | ModelProto


@dataclass(frozen=True)
class OnnxModel:
    """A checked model, the name to call it by in messages, and where its external data lies."""

    proto: ModelProto
    name: str
    folder: TensorFolder

    @property
    def opsets(self) -> dict[str, int]:
        """Version by domain; the standard domain is ''."""
        return opsets_of(self.proto.opset_import)


def load_model(source: Source | OnnxModel) -> OnnxModel:
    """Read and check a model.

    Raises InvalidModelError (damaged, no ONNX, external data missing or outside of the folder) and
    UnsupportedError (operators that changed before set 7, a set newer than the installed `onnx`).
    """
    match source:
        case OnnxModel():
            return source
        case ModelProto():
            model = OnnxModel(source, source.graph.name or "model", TensorFolder())
        case bytes():
            model = OnnxModel(_parse(source, "the given bytes"), "model", TensorFolder())
        case str() | os.PathLike():
            path = Path(source)
            model = OnnxModel(_read(path), path.name, TensorFolder.of(path))
        case _:
            raise not_a_model(source)
    _check_model(model)
    return model


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain; the standard domain is ''."""
    return {plain_domain(entry.domain): entry.version for entry in imports}


def plain_domain(domain: str) -> str:
    """The standard domain has two names."""
    return "" if domain == "ai.onnx" else domain


def _read(path: Path) -> ModelProto:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise InvalidModelError(f"{str(path)!r} cannot be the path of a model: {error}") from error
    return _parse(data, str(path))


def _parse(data: bytes, what: str) -> ModelProto:
    if not data:
        raise InvalidModelError(f"{what}: empty, not an ONNX model")
    if data.startswith(b"PK"):
        raise InvalidModelError(
            f"{what}: an archive, as torch saves, and no ONNX model: give the torch module itself, "
            "or what torch.export.load reads of a .pt2 file"
        )
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise InvalidModelError(
            f"{what}: truncated, damaged or not an ONNX model ({len(data)} bytes, {error})"
        ) from error
    except ValueError as error:  # text that is no UTF-8
        raise InvalidModelError(f"{what}: damaged or not an ONNX model ({error})") from error
    return proto


def _check_model(model: OnnxModel) -> None:
    proto, name = model.proto, model.name
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise InvalidModelError(f"{name}: not an ONNX model, or one without a graph")
    if not proto.opset_import:
        raise InvalidModelError(f"{name}: the model names no operator set")
    if not proto.graph.output:
        raise InvalidModelError(f"{name}: the graph has no outputs")
    version = model.opsets.get("")
    newest = onnx.defs.onnx_opset_version()
    changed = [] if version is None else _changed_operators(proto.graph, version)
    if changed:
        raise UnsupportedError(
            f"{name}: operator set {version} is older than {OLDEST_OPSET}, and "
            f"{', '.join(changed)} changed since; convert it with "
            "onnx.version_converter.convert_version(model, 13)"
        )
    if version is not None and version > newest:
        raise UnsupportedError(
            f"{name}: operator set {version} is newer than {newest}, the newest that the "
            "installed onnx package knows; upgrade it"
        )
    _check_names(proto.graph, set(), name, function=False)
    for function in proto.functions:
        _check_names(function, set(function.input), f"{name}: function {function.name}", True)


def _changed_operators(graph: GraphProto, version: int) -> list[str]:
    """The standard operators of a graph that are not yet in `version` what they are in 7."""
    if version >= OLDEST_OPSET:
        return []
    found = {n.op_type: None for n in graph.node if not plain_domain(n.domain)}
    for inner in (g for n in graph.node for g in subgraphs(n)):
        found |= dict.fromkeys(_changed_operators(inner, version))
    return [op for op in found if _since(op, version) != _since(op, OLDEST_OPSET)]


def _since(op: str, version: int) -> int | None:
    """The operator set that defines an operator for `version`."""
    schema = schema_of(op, version, "")
    return None if schema is None else int(schema.since_version)


def schema_of(op: str, version: int, domain: str) -> Any:
    """What ONNX says of an operator; None where it does not know it."""
    try:
        return onnx.defs.get_schema(op, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # no such operator, no such number
        return None


def _check_names(
    graph: GraphProto | FunctionProto, outer: set[str], where: str, function: bool
) -> None:
    """Every value is written once, before it is read; outputs exist."""
    known = set(outer)
    if isinstance(graph, GraphProto):
        known |= {i.name for i in graph.input} | {t.name for t in graph.initializer}
        known |= {t.values.name for t in graph.sparse_initializer}
    written: set[str] = set()
    for index, node in enumerate(graph.node):
        here = f"{where}: node {index} {node.name}".rstrip() + f" ({node.op_type})"
        if any(isinstance(text, bytes) for text in _texts(node)):
            raise InvalidModelError(f"{where}: node {index}: a name in it is no text")
        if not node.op_type:
            raise InvalidModelError(f"{here}: has no operator")
        for read in node.input:
            if read and read not in known:
                raise InvalidModelError(
                    f"{here}: reads {read!r}, which nothing before it writes; if it is a weight, "
                    "the file lacks it"
                )
        for sub in subgraphs(node):
            _check_names(sub, known, here, False)
        for out in node.output:
            if out and out in written:
                raise InvalidModelError(f"{here}: {out!r} is written twice")
            written.add(out)
            known.add(out)
    names = graph.output if isinstance(graph, FunctionProto) else [o.name for o in graph.output]
    for out in names:
        if out not in known:
            raise InvalidModelError(f"{where}: the output {out!r} is never written")


def _texts(node: NodeProto) -> Iterator[str]:
    """The strings of a node: where a file is damaged, protobuf gives bytes instead."""
    yield from (node.op_type, node.domain, node.name, node.overload)
    yield from node.input
    yield from node.output
    for attribute in node.attribute:
        yield from (attribute.name, attribute.ref_attr_name)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs
