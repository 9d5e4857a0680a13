"""ONNX models, damaged as bytes and as graphs. Their seeds are ONNX's own node tests."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

import pliant
from bench.fuzzing import artifacts

LARGEST_INPUT: Final = 1 << 20  # elements
SIZES: Final = (1, 0, 3)  # that all symbols have in a call


def seeds(few: bool = False) -> list[bytes]:
    """Every node test of ONNX as a model file; `few`: only the models of `artifacts`."""
    models = [artifacts.model_file(text) for text in artifacts.MODELS.values()]
    pliant.compile(models[0], threads=1)  # imports: children share them
    if few:
        return models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return models + [c.model.SerializeToString() for c in load_model_tests(kind="node")]


def compile_and_run(path: Path) -> str:
    """Compile a file; run it at a few sizes where its inputs are small."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        compiled = pliant.compile(path, threads=1)
        compiled.explain()
        refused = 0
        for size in SIZES:
            shapes = artifacts.input_shapes(compiled, size)
            if sum(map(math.prod, shapes.values())) > LARGEST_INPUT:
                return "compiled, not run: large inputs"
            try:
                compiled.run(artifacts.ones(compiled, shapes))
            except pliant.PliantError:
                refused += 1
    return f"compiled, {refused} of 3 calls refused"


def damaged(pick: random.Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """A damaged copy of a model, and what was done."""
    if pick.random() < 0.25:
        damage = pick.choice((_flip_bits, _truncate, _splice))
        return damage.__name__.strip("_"), damage(pick, data, other)
    model = ModelProto.FromString(data)
    done = []
    for _i in range(pick.choice((1, 1, 1, 2, 3))):
        change = pick.choice(CHANGES)
        change(pick, model)
        done.append(change.__name__.strip("_"))
    return done[0], model.SerializeToString()


# ---- bytes


def _flip_bits(pick: random.Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    for _i in range(pick.choice((1, 1, 2, 4, 16))):
        out[pick.randrange(len(out))] ^= 1 << pick.randrange(8)
    return bytes(out)


def _truncate(pick: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: pick.randrange(len(data))]


def _splice(pick: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: pick.randrange(len(data))] + other[pick.randrange(len(other)) :]


# ---- the graph

INTEGERS: Final = (
    0, 1, -1, 2, 3, 5, -2, -7, 64, 255, 1 << 31, -(1 << 31), 1 << 40, 1 << 62, (1 << 63) - 1,
    -(1 << 63),
)  # fmt: skip
FLOATS: Final = (0.0, -1.0, 1.5, 1e30, -1e-30, float("inf"), float("nan"))
TYPES: Final = (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 21, 22, 99, -1)
NAMES: Final = ("", "n", "a b", "class", "\u00e9", "x" * 300, "0", "-1", "?", "min", "main", "{0}")


def _dims(pick: random.Random, model: ModelProto) -> None:
    """Another size, or a name, for a dim of an input or a result."""
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    dims = [d for i in infos for d in i.type.tensor_type.shape.dim]
    if not dims:
        return
    dim = pick.choice(dims)
    if pick.random() < 0.4:
        dim.dim_param = pick.choice(NAMES)
    else:
        dim.dim_value = pick.choice(INTEGERS)


def _rank(pick: random.Random, model: ModelProto) -> None:
    """A dim more or fewer, or no shape at all."""
    infos = [*model.graph.input, *model.graph.output]
    if not infos:
        return
    tensor = pick.choice(infos).type.tensor_type
    match pick.randrange(3):
        case 0:
            tensor.ClearField("shape")
        case 1:
            tensor.shape.dim.add().dim_value = pick.choice(INTEGERS)
        case _ if tensor.shape.dim:
            del tensor.shape.dim[pick.randrange(len(tensor.shape.dim))]


def _symbolic(pick: random.Random, model: ModelProto) -> None:
    """All dims of the inputs become names, some of them the same."""
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            dim.dim_param = pick.choice("abcdefgh")


def _element_type(pick: random.Random, model: ModelProto) -> None:
    infos = [*model.graph.input, *model.graph.output]
    if infos:
        pick.choice(infos).type.tensor_type.elem_type = pick.choice(TYPES)


def _drop_field(pick: random.Random, model: ModelProto) -> None:
    """A field of a random message goes."""
    message: Any = model
    while True:
        fields = message.ListFields()
        if not fields:
            return
        field, value = pick.choice(fields)
        is_message = field.message_type is not None
        if is_message and pick.random() < 0.85:
            message = pick.choice(list(value)) if _is_repeated(value) else value
            continue
        if _is_repeated(value) and pick.random() < 0.7:
            del value[pick.randrange(len(value))]
        else:
            message.ClearField(field.name)
        return


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "append")


def _cycle(pick: random.Random, model: ModelProto) -> None:
    """An early node reads what a later one, or itself, writes."""
    nodes = [n for n in model.graph.node if n.input]
    writers = [n for n in model.graph.node if n.output]
    if nodes and writers:
        reader = pick.choice(nodes)
        reader.input[pick.randrange(len(reader.input))] = pick.choice(writers).output[0]


def _rename(pick: random.Random, model: ModelProto) -> None:
    """Two values get one name, or one a strange name."""
    lists = [x for n in model.graph.node for x in (n.input, n.output) if len(x)]
    names = [n for x in lists for n in x] + [i.name for i in model.graph.input] + list(NAMES)
    if lists and pick.random() < 0.7:
        chosen = pick.choice(lists)
        chosen[pick.randrange(len(chosen))] = pick.choice(names)
        return
    infos = [*model.graph.input, *model.graph.output, *model.graph.initializer]
    if infos:
        pick.choice(infos).name = pick.choice(names)


def _operands(pick: random.Random, model: ModelProto) -> None:
    """Operands in another order, one more, one fewer."""
    if not model.graph.node:
        return
    node = pick.choice(model.graph.node)
    names = list(node.input)
    match pick.randrange(3):
        case 0:
            pick.shuffle(names)
        case 1:
            names.insert(pick.randrange(len(names) + 1), pick.choice([*names, ""]))
        case _ if names:
            del names[pick.randrange(len(names))]
    del node.input[:]
    node.input.extend(names)


def _attribute(pick: random.Random, model: ModelProto) -> None:
    """Another value, kind or name for an attribute; or one more."""
    if not model.graph.node:
        return
    node = pick.choice(model.graph.node)
    if not node.attribute or pick.random() < 0.15:
        added = node.attribute.add()
        added.name = pick.choice(("axis", "axes", "perm", "to", "kernel_shape", "mode", "alpha"))
        added.type, added.i = AttributeProto.INT, pick.choice(INTEGERS)
        return
    a = pick.choice(node.attribute)
    match pick.randrange(4):
        case 0:
            a.type = pick.choice(list(AttributeProto.AttributeType.values()))
        case 1:
            a.s = pick.choice((b"", b"linear", b"SAME_UPPER", b"\xff\xfe", b"reflect"))
        case _:
            a.i, a.f = pick.choice(INTEGERS), pick.choice(FLOATS)
            if a.ints:
                at = pick.randrange(len(a.ints))
                if pick.random() < 0.6:
                    a.ints[at] = pick.choice(INTEGERS)
                else:
                    a.ints.append(a.ints[at])


def _operator(pick: random.Random, model: ModelProto) -> None:
    """Another operator, domain or operator set."""
    if model.graph.node and pick.random() < 0.7:
        node = pick.choice(model.graph.node)
        node.op_type = pick.choice(OPERATOR_NAMES)
        if pick.random() < 0.1:
            node.domain = pick.choice(("com.microsoft", "ai.onnx.ml", "x", "ai.onnx"))
    elif model.opset_import:
        pick.choice(model.opset_import).version = pick.choice((-1, 0, 9, 11, 13, 17, 21, 10**9))


def _contents(pick: random.Random, model: ModelProto) -> None:
    """A tensor in the file does not have the bytes, dims or type that it says."""
    tensors = [*model.graph.initializer]
    tensors += [a.t for n in model.graph.node for a in n.attribute if a.HasField("t")]
    if not tensors:  # an input becomes a constant, with what fits least
        if model.graph.input:
            info = pick.choice(model.graph.input)
            tensor = model.graph.initializer.add()
            tensor.name, tensor.data_type = info.name, info.type.tensor_type.elem_type
            tensor.dims.extend(pick.choice(((), (1,), (2, 2), (1 << 40,), (0,))))
            tensor.raw_data = pick.randbytes(pick.choice((0, 4, 8, 16, 32)))
        return
    tensor = pick.choice(tensors)
    match pick.randrange(4):
        case 0:
            tensor.data_type = pick.choice(TYPES) % (1 << 31)
        case 1:
            tensor.dims.append(pick.choice(INTEGERS))
        case 2:
            tensor.raw_data = pick.randbytes(pick.choice((0, 1, 4, 8, 16, 400)))
        case _:
            tensor.data_location = TensorProto.EXTERNAL
            entry = tensor.external_data.add()
            entry.key = pick.choice(("location", "offset", "length"))
            entry.value = pick.choice(("damaged", "../x", "/etc/passwd", "-1", "x", "1e99", ""))


def _nest(pick: random.Random, model: ModelProto) -> None:
    """A node gets a graph: an If whose branches read and write what they like."""
    if not model.graph.node:
        return
    node = pick.choice(model.graph.node)
    body = NodeProto.FromString(node.SerializeToString())  # protobuf cannot copy into itself
    for name in ("then_branch", "else_branch"):
        a = node.attribute.add()
        a.name, a.type = name, AttributeProto.GRAPH
        a.g.node.add().CopyFrom(body)
        a.g.output.add().name = node.output[0] if node.output else "x"
    if pick.random() < 0.5:
        node.op_type = "If"


CHANGES: Final[tuple[Callable[[random.Random, ModelProto], None], ...]] = (
    _dims, _dims, _rank, _symbolic, _element_type, _drop_field, _drop_field, _cycle, _rename,
    _operands, _attribute, _attribute, _operator, _contents, _nest,
)  # fmt: skip

OPERATOR_NAMES: Final = (
    "Add Relu MatMul Gemm Conv ConvTranspose MaxPool AveragePool Reshape Transpose Concat Split"
    " Gather GatherElements GatherND ScatterND ScatterElements Slice Pad Expand Tile Where Cast"
    " ReduceSum ReduceMax ArgMax TopK CumSum Softmax LayerNormalization BatchNormalization Resize"
    " Squeeze Unsqueeze Flatten Shape Size ConstantOfShape Range OneHot NonZero Einsum Loop If"
    " Identity Dropout Mod Div Pow QuantizeLinear DequantizeLinear Trilu EyeLike GridSample Det"
    " Unique Compress DepthToSpace SpaceToDepth LSTM NonMaxSuppression Frobnicate"
).split()
