"""A graph of ATen operators that torch captured for a backend, as a module of tensors alone.

    def forward(w, s0, x):                          class of parameter w
        h = view(x, [s0, s0 * 2])          ->           def forward(x):
        y = mm(h, w)                                        h = view(x, [sym_size(x, 0), ...])
        return y, x, s0                                     return (mm(h, self.w),)

Sizes that torch passes beside the tensors are taken from these; what it fixes (weights), and other
numbers, become constants; results that are inputs, or sizes, are not computed. `Captured.outputs`
says what is what.

Images between a model's way forwards and that backwards lie with their channels last, as
convolutions want them, ours and those of eager PyTorch: such results are permuted by the module,
and such inputs back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sympy
import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.aten import ATEN
from pliant.frontend.torch.decompose import can_decompose
from pliant.graph.function import Dim

Output = Callable[[Sequence[Any], Sequence[torch.Tensor]], Any]
"""A result of the graph, of its inputs and of what the module computes."""

Images = frozenset[tuple[str, ...]]
"""Shapes."""

Input = tuple[int, tuple[int, ...]]
"""Which of the graph's inputs, and the order of its dimensions for the module; () as they are."""

FORMATS: Final = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Channels last, by rank."""

HUGE: Final = 1 << 40  # torch means any size
_CONVOLUTION: Final = torch.ops.aten.convolution.default
_CONVOLUTION_BACKWARD: Final = torch.ops.aten.convolution_backward.default
_PERMUTE: Final = torch.ops.aten.permute.default
_SIZE: Final = torch.ops.aten.sym_size.int
_REFUSED: Final = {
    torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
}  # fmt: skip
_CONVERT: Final = torch.ops.prims.convert_element_type.default
_TO: Final = torch.ops.aten._to_copy.default


@dataclass(frozen=True)
class Captured:
    """`module` computes tensors of those inputs that are said by `inputs`; `dynamic_shapes` and
    `dims` are what the compiler is told of these. `numbers` are places of inputs whose values
    are part of the module. The graph's results are `outputs`."""

    module: torch.nn.Module
    inputs: tuple[Input, ...]
    numbers: tuple[int, ...]
    outputs: tuple[Output, ...]
    dynamic_shapes: tuple[dict[int, str], ...]
    dims: dict[str, Dim]
    computes: bool


def captured(
    graph: GraphModule, weights: Collection[int], given: Sequence[Any],
    images: Collection[int] = (),
) -> Captured:  # fmt: skip
    """The graph with some inputs, by place, as constants that have the values `given`; the results
    `images`, by place, lie with their channels last. Raises UnsupportedError where there are
    results that are neither tensors nor sizes."""
    copied = GraphModule(graph, _copy(graph.graph))
    nodes = [n for n in copied.graph.nodes if n.op == "placeholder"]
    known = _known_sizes(nodes)
    outputs = _outputs(copied.graph, nodes, known, images)
    inputs: list[int] = []
    for place, node in enumerate(nodes):
        if place in weights:
            _fix(copied, node, given[place])
        elif isinstance(node.meta.get("val"), torch.Tensor) and given[place] is not None:
            inputs.append(place)  # an order of effects, as of checks, is given as None
    tensors = [nodes[place] for place in inputs]
    numbers: list[int] = []
    for place, node in enumerate(nodes):
        if place in weights or place in inputs:
            continue
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr in known:
            at, axis = known[value.node.expr]
            _replace_size(copied.graph, node, tensors[-1], nodes[at], axis)
            continue
        if node.users:
            numbers.append(place)
        node.replace_all_uses_with(given[place])
        copied.graph.erase_node(node)
    for node in copied.graph.nodes:
        if node.target is _CONVERT:
            node.target, node.args, dtype = _TO, node.args[:1], node.args[1]
            node.kwargs = {"dtype": dtype}
    copied.graph.eliminate_dead_code()
    places: list[Input] = []
    for k, place in enumerate(inputs):
        order: tuple[int, ...] = ()
        if is_channels_last(given[place]):
            order = _channels_last(given[place].dim())
            _permute_back(copied.graph, tensors[k], tensors[-1], order)
        places.append((place, order))
    copied.recompile()
    (end,) = (n for n in copied.graph.nodes if n.op == "output")
    shapes, dims = _dynamic(tensors)
    return Captured(copied, tuple(places), tuple(numbers), outputs, shapes, dims, bool(end.args[0]))


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether images lie with their channels last, and in no other way, too."""
    form = FORMATS.get(x.dim())
    return form is not None and x.is_contiguous(memory_format=form) and not x.is_contiguous()


def images_of(graph: GraphModule) -> Images:
    """The shapes of what convolutions over two and three dimensions read and make."""
    found: set[tuple[str, ...]] = set()
    for node in graph.graph.nodes:
        if node.target is _CONVOLUTION:
            found |= {_shape_of(node.args[0]), _shape_of(node)}
        elif node.target is _CONVOLUTION_BACKWARD:
            found |= {_shape_of(x) for x in node.args[:2]}
    return frozenset(shape for shape in found if len(shape) in FORMATS)


def image_results(graph: GraphModule, images: Images) -> frozenset[int]:
    """Which results of the graph, by place, have shapes of `images`."""
    (end,) = (n for n in graph.graph.nodes if n.op == "output")
    results = end.args[0] if isinstance(end.args[0], tuple | list) else end.args
    return frozenset(k for k, x in enumerate(results) if _shape_of(x) in images)


def supported_parts(graph: GraphModule) -> GraphModule | None:
    """The graph with what has import rules as submodules, `fused_*`; None where nothing is left to
    compile."""
    own = GraphModule(graph, _copy(graph.graph))  # which is changed
    parts = CapabilityBasedPartitioner(own, _Supported(), allows_single_node_partition=False)
    proposed = parts.propose_partitions()
    whole = sum(n.op == "call_function" for n in graph.graph.nodes)
    if not proposed or any(len(p.nodes) == whole for p in proposed):
        return None
    fused: GraphModule = parts.fuse_partitions(proposed)
    return fused


class _Supported(OperatorSupportBase):  # type: ignore[misc]
    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        if node.op != "call_function":
            return False
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            return False
        if not isinstance(target, torch._ops.OpOverload) or target is _CONVERT:
            return True  # arithmetic on sizes, parts of a tuple
        if not _REFUSED.isdisjoint(target.tags):
            return False
        return str(target) in ATEN or can_decompose(target)


def _copy(graph: Graph) -> Graph:
    """The graph with its inputs first, whatever lies between them."""
    made = Graph()
    values = {n: made.node_copy(n) for n in graph.nodes if n.op == "placeholder"}
    made.output(made.graph_copy(graph, values))
    return made


def _fix(module: GraphModule, node: Node, value: torch.Tensor) -> None:
    name = f"constant_{node.name}"
    module.register_buffer(name, value.detach())
    with module.graph.inserting_before(node):
        constant = module.graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
    module.graph.erase_node(node)


def _known_sizes(nodes: Sequence[Node]) -> dict[Any, tuple[int, int]]:
    """Where a size, an expression, is the extent of a dimension: of which input, which one."""
    known: dict[Any, tuple[int, int]] = {}
    for place, node in enumerate(nodes):
        value = node.meta.get("val")
        shape: Sequence[Any] = value.shape if isinstance(value, torch.Tensor) else ()
        for axis, size in enumerate(shape):
            if isinstance(size, torch.SymInt):
                known.setdefault(size.node.expr, (place, axis))
    return known


def _replace_size(graph: Graph, node: Node, last: Node, tensor: Node, axis: int) -> None:
    """A size that is passed, by the extent that it is, behind the `last` of the inputs."""
    with graph.inserting_after(last):
        made = graph.call_function(_SIZE, (tensor, axis))
    made.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _back(order: Sequence[int]) -> tuple[int, ...]:
    """The inverse of a permutation."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _permuted(graph: Graph, x: Node, order: Sequence[int]) -> Node:
    made = graph.call_function(_PERMUTE, (x, list(order)))
    made.meta["val"] = x.meta["val"].permute(order)
    return made


def _permute_back(graph: Graph, given: Node, last: Node, order: tuple[int, ...]) -> None:
    """An input whose dimensions will be given in that order, as who reads it knows it; `last` is
    the last of the inputs."""
    given.meta["val"] = given.meta["val"].permute(order)
    with graph.inserting_after(last):
        made = _permuted(graph, given, _back(order))
    given.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)


def _shape_of(x: Any) -> tuple[str, ...]:
    """Sizes as text: torch's symbols are equal only while it traces."""
    value = x.meta.get("val") if isinstance(x, Node) else None
    return tuple(map(str, value.shape)) if isinstance(value, torch.Tensor) else ()


def _outputs(
    graph: Graph,
    nodes: Sequence[Node],
    known: Mapping[Any, tuple[int, int]],
    images: Collection[int],
) -> tuple[Output, ...]:
    """What results are; the graph's own are the tensors left to compute."""
    (end,) = (n for n in graph.nodes if n.op == "output")
    given = end.args[0]
    results = (given,) if isinstance(given, Node) else tuple(given)
    places = {node: place for place, node in enumerate(nodes)}
    orders: dict[Node, tuple[int, ...]] = {}
    for k, result in enumerate(results):
        value = result.meta.get("val") if isinstance(result, Node) else None
        if not isinstance(value, torch.Tensor) or result in places:
            continue
        if k not in images:
            orders[result] = _order_of(value)
        else:
            orders.setdefault(result, _channels_last(value.dim()))
    made = list(orders)
    with graph.inserting_before(end):
        end.args = (
            tuple(_permuted(graph, x, order) if order else x for x, order in orders.items()),
        )
    outputs: list[Output] = []
    for result in results:
        if not isinstance(result, Node):
            outputs.append(_same(result))
        elif result in places:
            outputs.append(_input(places[result]))
        elif result in orders:
            outputs.append(_made(made.index(result), orders[result]))
        else:
            outputs.append(_size(result, nodes, known))
    return tuple(outputs)


def _same(value: Any) -> Output:
    return lambda inputs, made: value


def _input(place: int) -> Output:
    return lambda inputs, made: inputs[place]


def _size(result: Node, nodes: Sequence[Node], known: Mapping[Any, tuple[int, int]]) -> Output:
    """A size that is computed of others."""
    value = result.meta.get("val")
    expr = value.node.expr if isinstance(value, torch.SymInt) else None
    if expr is None:
        raise UnsupportedError(f"{result.format_node()} is a result that is no tensor")
    found = {size: _extent_of(*at) for size, at in known.items()}
    for place, node in enumerate(nodes):
        given = node.meta.get("val")
        if isinstance(given, torch.SymInt):
            found[given.node.expr] = _input_of(place)
    if expr.free_symbols - found.keys():
        raise UnsupportedError(f"{value} is a result that follows from no input's size")
    symbols = sorted(expr.free_symbols, key=str)

    @functools.cache
    def value_of(*sizes: int) -> int:
        return int(expr.xreplace(dict(zip(symbols, map(sympy.Integer, sizes)))))

    return lambda inputs, made: value_of(*(found[s](inputs) for s in symbols))


def _input_of(place: int) -> Callable[[Sequence[Any]], int]:
    return lambda inputs: int(inputs[place])


def _extent_of(place: int, axis: int) -> Callable[[Sequence[Any]], int]:
    return lambda inputs: int(inputs[place].shape[axis])


def _made(k: int, order: tuple[int, ...]) -> Output:
    """The tensor, which is made with its dimensions in that order."""
    if not order:
        return lambda inputs, made: made[k]
    back = _back(order)
    return lambda inputs, made: made[k].permute(back)


def _order_of(expected: torch.Tensor) -> tuple[int, ...]:
    """The order of dimensions in the memory format that torch expects, which it may view; () for
    row-major."""
    if expected.is_contiguous():
        return ()
    strides = [s if isinstance(s, int) else s.node.hint for s in expected.stride()]
    sizes = [s if isinstance(s, int) else s.node.hint for s in expected.shape]
    order = tuple(sorted(range(len(sizes)), key=lambda d: (-strides[d], d)))
    plain = all(n <= 1 for n in sizes) or order == tuple(range(len(sizes)))
    return () if plain else order


def _dynamic(tensors: Sequence[Node]) -> tuple[tuple[dict[int, str], ...], dict[str, Dim]]:
    """The names of extents that vary, for each tensor, and their ranges."""
    names: dict[Any, str] = {}
    dims: dict[str, Dim] = {}
    shapes: list[dict[int, str]] = []
    for node in tensors:
        shape: dict[int, str] = {}
        for axis, size in enumerate(node.meta["val"].shape):
            if not isinstance(size, torch.SymInt):
                continue
            expr = size.node.expr
            if expr not in names:
                names[expr] = str(expr) if expr.is_Symbol else f"extent_{len(names)}"
            if expr.is_Symbol:
                dims[names[expr]] = _range(size)
            shape[axis] = names[expr]
        shapes.append(shape)
    return tuple(shapes), dims


def _range(size: torch.SymInt) -> Dim:
    bounds = size.node.shape_env.bound_sympy(size.node.expr)
    least, most = (int(x) if x.is_Integer else None for x in (bounds.lower, bounds.upper))
    return Dim(min=max(least or 0, 0), max=most if most and most < HUGE else None)
