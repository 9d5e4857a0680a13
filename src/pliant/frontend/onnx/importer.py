"""ONNX models become graph functions.

    imported = import_onnx("model.onnx", operators)
    imported.function, imported.weights, imported.inputs, imported.outputs

Shapes are symbolic: every `dim_param` is a symbol. Small integer tensors made of shapes are carried
as symbolic integers and consumed where ONNX wants a shape, so that no graph value stands for them.
Everything that cannot be imported is reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto

from pliant.base.dtypes import from_numpy, i64
from pliant.base.errors import InvalidModelError, PliantError, ShapeError, UnsupportedError
from pliant.base.spans import Span
from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx.control import BlockedError, Items, RunGraph, branch, loop, scan
from pliant.frontend.onnx.expand import (
    Body,
    local_body,
    local_functions,
    resolved,
    standard_body,
    without,
)
from pliant.frontend.onnx.fold import LARGEST_KNOWN, fold, is_small_constant
from pliant.frontend.onnx.inputs import DimNames, InputShapes, declared, input_type
from pliant.frontend.onnx.live import live_nodes, pruned, read_in
from pliant.frontend.onnx.load import OnnxModel, Source, load_model, plain_domain, schema_of
from pliant.frontend.onnx.problems import Problems
from pliant.frontend.onnx.scope import Scope
from pliant.frontend.onnx.site import (
    Item,
    ItemList,
    Lowering,
    Lowerings,
    NeedsValueError,
    Results,
    Site,
    product,
)
from pliant.frontend.onnx.symbolic import Sizes, UndecidedError
from pliant.frontend.onnx.table import ONNX_OPS
from pliant.frontend.onnx.tensors import small_element, to_array, to_dense
from pliant.graph.builder import Builder
from pliant.graph.function import Dim, Value
from pliant.graph.interpret import interpret
from pliant.graph.operator import Operators
from pliant.loop.interpret import interpret as run_program
from pliant.sym.expr import as_int

_DEEPEST: Final = 32

_CONTROL: Final = {"If": branch, "Loop": loop, "Scan": scan}

_MOVES: Final = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose results are elements of the first operand: of its type, however it is kept."""


def import_onnx(
    source: Source | OnnxModel,
    operators: Operators,
    *,
    name: str = "main",
    dims: Mapping[str, Dim] | None = None,
    input_shapes: InputShapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    lowerings: Lowerings = ONNX_OPS,
) -> ImportedModel:
    """Import a model.

    `dims` refines what is known of dims (by `dim_param`), `input_shapes` replaces the shapes of
    inputs (sizes, names, None for an unnamed dim), `values` fixes inputs to constants.
    """
    model = load_model(source)
    shapes, fixed = input_shapes or {}, values or {}
    _check_names(model, {**shapes, **fixed})
    importer = Importer(model, Builder(name, operators), lowerings)
    return importer.run(dims or {}, shapes, fixed)


class Importer:
    """Imports one model into one builder."""

    def __init__(self, model: OnnxModel, builder: Builder, lowerings: Lowerings) -> None:
        self.model = model
        self.builder = builder
        self.lowerings = lowerings
        self.sizes = Sizes(builder.facts)
        self.domains = {domain for domain, _ in lowerings}
        self.functions = local_functions(model.proto)
        self.problems = Problems(model.name, len(model.proto.graph.node))

    def run(
        self, dims: Mapping[str, Dim], shapes: InputShapes, values: Mapping[str, np.ndarray]
    ) -> ImportedModel:
        """Import inputs, nodes and outputs."""
        graph = self.model.proto.graph
        scope = Scope(self.model.opsets)
        self._initializers(graph, scope)
        inputs = self._inputs(graph, scope, dims, shapes, values)
        names = [o.name for o in graph.output]
        self._nodes(graph.node, names, scope)
        self.problems.raise_any()
        results = [self._result(scope.find(n)) for n in names]
        function, weights = pruned(*self.builder.finish(results))
        return ImportedModel(function, weights, inputs, tuple(names))

    def tensor(self, item: Item) -> Value:
        """The graph value of an item; made now where only its elements were known."""
        if item.value is None:
            known = item.known
            assert known is not None
            if known.dtype != object:
                item.value = self.builder.weight(item.name or "c", known)
            else:
                item.value = self._symbolic_tensor(item, known)
        return item.value

    def _symbolic_tensor(self, item: Item, known: np.ndarray) -> Value:
        elements = list(known.ravel())
        if item.dtype.is_float:
            over = self._sizes_tensor([r.den for r in elements], item)
            if all(r.den == 1 for r in elements):
                return self._sizes_tensor([r.num for r in elements], item)
            above = self._sizes_tensor([r.num for r in elements], item)
            return self._call("div", above, over)
        return self._sizes_tensor(elements, item)

    def _sizes_tensor(self, sizes: Sequence[Any], item: Item) -> Value:
        if not item.shape:
            value = self._call("size_value", value=sizes[0])
        else:
            value = self._call("size_vector", values=tuple(sizes))
        if len(item.shape) > 1:
            value = self._call("reshape", value, shape=item.shape)
        return value if item.dtype is i64 else self._call("cast", value, to=item.dtype)

    def _call(self, op: str, *args: Any, **attrs: Any) -> Value:
        result: Value = self.builder.call(op, *args, **attrs)
        return result

    # inputs and outputs

    def _initializers(self, graph: GraphProto, scope: Scope) -> None:
        needed = set(read_in(graph))
        tensors = [(t.name, t) for t in graph.initializer]
        for name, tensor in [*tensors, *((t.values.name, t) for t in graph.sparse_initializer)]:
            try:
                item = self._constant(name, self._array(tensor))
            except UnsupportedError:
                if name in needed:
                    raise
                continue  # of whatever type it is
            item.small = small_element(tensor)
            scope.names[name] = item

    def _array(self, tensor: TensorProto | SparseTensorProto) -> np.ndarray:
        try:
            if isinstance(tensor, SparseTensorProto):
                return to_dense(tensor, self.model.folder)
            return to_array(tensor, self.model.folder)
        except (InvalidModelError, UnsupportedError) as error:
            raise type(error)(f"{self.model.name}: {error}") from error

    def _constant(self, name: str, array: np.ndarray) -> Item:
        shape = tuple(as_int(int(d)) for d in array.shape)
        return Item(from_numpy(array.dtype), shape, known=array, name=name)

    def _inputs(
        self, graph: GraphProto, scope: Scope, dims: Mapping[str, Dim], shapes: InputShapes,
        values: Mapping[str, np.ndarray],
    ) -> tuple[str, ...]:  # fmt: skip
        weights = set(scope.names)
        infos = [i for i in graph.input if i.name not in weights]
        names = DimNames()
        names.reserve(infos, shapes)
        types = [
            input_type(i, names, shapes, self.model.name) for i in infos if i.name not in values
        ]
        for symbol, dim in declared(dims, names).items():
            self.builder.dim(symbol, dim)
        free = [i.name for i in infos if i.name not in values]
        for name, (dtype, shape) in zip(free, types, strict=True):
            value = self.builder.param(name, dtype, shape)
            scope.names[name] = Item(dtype, shape, value, name=name, inputs=frozenset({name}))
        for info in infos:
            if info.name in values:
                scope.names[info.name] = self._constant(info.name, np.asarray(values[info.name]))
        return tuple(free)

    def _result(self, item: Item | None) -> Value:
        assert item is not None
        if isinstance(item, ItemList):
            raise UnsupportedError(f"{self.model.name}: the result {item.name!r} is a sequence")
        if item.small:
            raise UnsupportedError(
                f"{self.model.name}: the result {item.name!r} has elements of a type that there is "
                "only for constants"
            )
        value = self.tensor(item)
        if item.known is not None or item.inputs == frozenset({item.name}):
            return self._call("identity", value)
        return value

    # nodes

    def _nodes(self, nodes: Iterable[NodeProto], outputs: Sequence[str], scope: Scope) -> None:
        for index, node, used in live_nodes(tuple(nodes), outputs):
            label = f"node {index} {node.name} ({node.op_type})" if node.name else (
                f"node {index} ({node.op_type})"
            )  # fmt: skip
            span = scope.origin or Span(self.model.name, 0, label)
            try:
                results = self._node(node, span, used, scope)
            except BlockedError:
                results = (None,) * len(node.output)
            except UnsupportedError as error:
                self._note(node, span, error, scope)
                results = (None,) * len(node.output)
            for out, result in zip(node.output, results, strict=False):
                if out:
                    scope.names[out] = result

    def _note(self, node: NodeProto, span: Span, error: UnsupportedError, scope: Scope) -> None:
        domain = plain_domain(node.domain)
        op = f"{domain}.{node.op_type}" if domain else node.op_type
        if scope.origin is not None:  # inside of a body: the user's node is what fails
            inputs = error.inputs if isinstance(error, NeedsValueError) else frozenset[str]()
            text = f"its definition needs {op}, and {error}"
            raise NeedsValueError(text, inputs) if inputs else UnsupportedError(text)
        self.problems.add(op, span.name, error)

    def _node(
        self, node: NodeProto, span: Span, used: frozenset[int], scope: Scope
    ) -> tuple[Item | None, ...]:
        domain = plain_domain(node.domain)
        items = tuple(self._operand(scope, n) for n in node.input)
        attributes = resolved(node, scope.attributes)
        local = self.functions.get((domain, node.op_type, node.overload))
        if local is not None:
            return self._body(local_body(local, attributes), items, node, span, scope)
        opset = scope.opsets.get(domain)
        if opset is None:
            if domain not in self.domains:
                raise UnsupportedError(f"operators of domain {domain!r} are not known")
            opset = 1
        _check_arity(node, opset, span)
        site = Site(
            self, node, opset, items, attributes, span, self._array,
            lambda s: self._expand(s, scope), used,
        )  # fmt: skip
        control = _CONTROL.get(node.op_type) if not domain else None
        if control is not None:
            return self._lowered(site, lambda s: control(s, self._graphs(scope)))
        results: tuple[Item | None, ...] | None = fold(site)
        if results is None:
            lowering = self.lowerings.get((domain, node.op_type))
            if lowering is None:
                return self._expand(site, scope)
            begin = self.builder.count
            results = self._lowered(site, lowering)
            if all(i is None or is_small_constant(i.known) for i in items):
                self._evaluate(results, begin)
        inputs = frozenset[str]().union(*(i.inputs for i in items if i is not None))
        for item, name in zip(results, node.output, strict=False):
            if item is not None and item not in items:
                item.name = item.name or name
                item.inputs = inputs
                if node.op_type in _MOVES and items and items[0] is not None:
                    item.small = items[0].small
                elif node.op_type == "ConstantOfShape" and "value" in attributes:
                    item.small = small_element(attributes["value"].t)
        return results

    def _lowered(self, site: Site, lowering: Lowering) -> tuple[Item | None, ...]:
        """What the lowering gives; ranks or numbers that no legal node has: InvalidModelError."""
        try:
            return self._items(lowering(site))
        except PliantError:
            raise
        except UndecidedError as error:
            raise UnsupportedError("what it does depends on sizes that are not known") from error
        except (IndexError, ValueError, TypeError, ArithmeticError) as error:
            raise InvalidModelError(
                f"{site.span}: its operands or attributes do not fit it ({error})"
            ) from error

    def _evaluate(self, results: Sequence[Item | None], begin: int) -> None:
        """Note what the results of a node are that was made of constants from this binding on: a
        later node may need to know. Where that fails, it will be an error in every call, or what is
        computed is of no use."""
        made = [r for r in results if r is not None and r.known is None and r.value is not None]
        values = [r.value for r in made if r.value is not None]
        sizes = [product(v.shape) for v in values]
        if not all(n.is_const and n.value <= LARGEST_KNOWN for n in sizes):
            return
        part = self.builder.made_of_weights(begin, values)
        with suppress(PliantError, ArithmeticError):
            found = interpret(part, self.builder.weights, {}, self.builder.operators, run_program)
            for item, array in zip(made, found, strict=True):
                item.known, item.value = array, None  # whoever wants a tensor gets a weight

    def _operand(self, scope: Scope, name: str) -> Item | None:
        if not name:
            return None
        found = scope.find(name)
        if found is None:
            raise BlockedError
        return found

    def _items(self, results: Results) -> tuple[Item | None, ...]:
        many = results if isinstance(results, tuple) else (results,)
        return tuple(Item(r.dtype, r.shape, r) if isinstance(r, Value) else r for r in many)

    def _expand(self, site: Site, scope: Scope) -> tuple[Item | None, ...]:
        body = standard_body(site.node, site.items, site.opset, site.attributes)
        if body is None and plain_domain(site.node.domain) not in self.domains:
            raise UnsupportedError(f"operators of domain {site.node.domain!r} are not known")
        if body is None:
            raise UnsupportedError("there is no such operator in Pliant")
        body = replace(body, opsets={**scope.opsets, **body.opsets})
        return self._body(body, site.items, site.node, site.span, scope)

    def _body(
        self, body: Body, items: Sequence[Item | None], node: NodeProto, span: Span, scope: Scope
    ) -> tuple[Item | None, ...]:
        if scope.depth >= _DEEPEST:
            raise InvalidModelError(f"{span}: functions call one another without end")
        inner = Scope(
            body.opsets, attributes=body.attributes, origin=scope.origin or span,
            depth=scope.depth + 1,
        )  # fmt: skip
        absent = set(body.inputs[len(items) :])
        for name, item in zip(body.inputs, items, strict=False):
            if item is None:
                absent.add(name)
            else:
                inner.names[name] = item
        wanted = [o for o, n in zip(body.outputs, node.output, strict=False) if n]
        nodes = [without(n, absent) for n in body.nodes]
        self._nodes(nodes, wanted, inner)
        return tuple(
            inner.find(o) if n else None for o, n in zip(body.outputs, node.output, strict=False)
        )

    def _graphs(self, scope: Scope) -> RunGraph:
        """What imports the graphs of a node, with values for their inputs. The constants of a graph
        are made once, however often it is imported."""
        made: list[tuple[GraphProto, Scope]] = []

        def run(graph: GraphProto, given: Mapping[str, Item]) -> Items:
            outer = next((s for g, s in made if g is graph), None)
            if outer is None:
                outer = scope.inside()
                self._initializers(graph, outer)
                made.append((graph, outer))
            inner = outer.inside()
            inner.names.update(given)
            names = [o.name for o in graph.output]
            self._nodes(graph.node, names, inner)
            return tuple(inner.find(n) for n in names)

        return run


def _check_names(model: OnnxModel, given: Mapping[str, object]) -> None:
    have = {i.name for i in model.proto.graph.input}
    for name in given:
        if name not in have:
            known = ", ".join(i.name for i in model.proto.graph.input)
            raise ShapeError(f"{model.name} has no input {name!r}; it has: {known}")


def _check_arity(node: NodeProto, opset: int, span: Span) -> None:
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None:
        return
    given = len(node.input)
    if not schema.min_input <= given <= schema.max_input:
        raise InvalidModelError(
            f"{span}: {given} operands; it takes {schema.min_input} to {schema.max_input}"
        )
    if len(node.output) > schema.max_output:
        raise InvalidModelError(f"{span}: {len(node.output)} results; it has {schema.max_output}")
