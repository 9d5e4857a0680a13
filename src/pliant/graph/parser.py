"""Text of graph functions and modules back to the same objects: the inverse of `printer`."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from pliant.base.dtypes import from_numpy
from pliant.base.spans import Span
from pliant.graph.expression import expression_binding
from pliant.graph.function import Binding, Dim, Function, Module, TensorType, Value
from pliant.graph.printer import EXPRESSION_LABEL, implied_dims
from pliant.ir.parser import ExprParser, Scope, Text
from pliant.ir.tensor import Input, Tensor
from pliant.ir.tensor_parser import ProgramOf, TensorParser

FunctionOf = Callable[[Text, ast.FunctionDef], Any]
"""What a decorated definition means."""


def parse_module(
    text: str, weights: Mapping[str, np.ndarray], levels: Mapping[str, FunctionOf]
) -> Module:
    """A module whose weights are found by key in `weights`.

    `levels` says for each decorator how its functions are read. Raises ParseError with the line.
    """
    source = Text(text)
    parser = ExprParser(source, Scope())
    functions: dict[str, Any] = {}
    used: dict[str, np.ndarray] = {}
    for node in source.tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="weights")], value=ast.Dict(keys=keys, values=types)
            ):
                for key, kind in zip(keys, types, strict=True):
                    if key is not None:
                        name = parser.string(key)
                        used[name] = _weight(parser, name, kind, weights)
            case ast.FunctionDef():
                function = function_level(source, node, levels)
                if function.name in functions:
                    raise source.error(node, f"{function.name} is defined twice")
                functions[function.name] = function
            case _:
                raise source.error(node, "expected a function")
    return Module(functions, used)


def function_level(text: Text, node: ast.FunctionDef, levels: Mapping[str, FunctionOf]) -> Any:
    """The function that a definition says, by its decorator."""
    for decorator in node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(name, ast.Name) and name.id in levels:
            return levels[name.id](text, node)
    raise text.error(node, f"a function begins with one of {', '.join('@' + n for n in levels)}")


def function_of(text: Text, node: ast.FunctionDef, program_of: ProgramOf | None = None) -> Function:
    """The graph function that a definition in `text` says."""
    return text.located(node, lambda: _Parser(text, program_of).function(node))  # type: ignore[no-any-return]


def _weight(
    parser: ExprParser, key: str, kind: ast.expr, weights: Mapping[str, np.ndarray]
) -> np.ndarray:
    if key not in weights:
        raise parser.text.error(kind, f"the weight {key!r} is not in the store")
    dtype, shape = parser.type(kind)
    array = weights[key]
    if (from_numpy(array.dtype), array.shape) != (dtype, tuple([d.value for d in shape])):
        raise parser.text.error(
            kind, f"the weight {key!r} in the store is {array.dtype}{array.shape}"
        )
    return array


class _DataParser(ExprParser):
    """Attributes may name tensors defined before."""

    tensors: TensorParser

    def data(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name) and node.id in self.tensors.tensors:
            return self.tensors.tensor(node)
        return super().data(node)


class _Parser:
    def __init__(self, text: Text, program_of: ProgramOf | None) -> None:
        self.text = text
        self.parser = _DataParser(text, Scope())
        self.parser.tensors = TensorParser(text, program_of)
        self.values: dict[str, Value] = {}
        self.by_name: dict[str, Value] = {}
        self.inputs: dict[str, Tensor] = {}  # what expressions read: a placeholder for each value
        self.weights: list[tuple[Value, str]] = []
        self.bindings: list[Binding] = []

    def function(self, node: ast.FunctionDef) -> Function:
        params: list[Value] = []
        for arg in node.args.args:
            if arg.annotation is None:
                raise self.text.error(arg, f"{arg.arg} has no type")
            params.append(self._declare(arg.arg, arg.annotation))
        results: tuple[Value, ...] | None = None
        for stmt in node.body:
            if results is not None:
                raise self.text.error(stmt, "nothing may follow the return")
            if isinstance(stmt, ast.Return):
                results = self._results(stmt)
            else:
                self._statement_at(stmt)
        if results is None:
            raise self.text.error(node, "the function returns nothing")
        dims, equalities, notes = self._options(node, tuple(params))
        return Function(
            node.name, tuple(params), tuple(self.weights), tuple(self.bindings), results, dims,
            equalities, notes,
        )  # fmt: skip

    def _statement_at(self, node: ast.stmt) -> None:
        self.text.located(node, lambda: self._statement(node))

    def _options(self, node: ast.FunctionDef, params: tuple[Value, ...]) -> tuple[Any, Any, Any]:
        dims = implied_dims(params)
        exact: tuple[tuple[str, Dim], ...] | None = None
        equalities: tuple[Any, ...] = ()
        notes: tuple[tuple[str, Any], ...] = ()
        decorator = node.decorator_list[0] if node.decorator_list else None
        for option in decorator.keywords if isinstance(decorator, ast.Call) else []:
            match option.arg:
                case "dims":
                    dims |= dict(self._dims(option.value))
                case "all_dims":
                    exact = self._dims(option.value)
                case "equal":
                    items = self.parser.elements(option.value)
                    equalities = tuple([self.parser.requirement(item) for item in items])
                case "notes":
                    notes = self.parser.pairs(option.value)
                case _:
                    raise self.text.error(node, f"no option {option.arg!r}")
        if exact is None:
            exact = tuple(sorted(dims.items(), key=lambda pair: pair[0]))
        return exact, equalities, notes

    def _dims(self, node: ast.expr) -> tuple[tuple[str, Dim], ...]:
        if not isinstance(node, ast.Dict):
            raise self.text.error(node, "expected a dictionary")
        out: list[tuple[str, Dim]] = []
        for key, value in zip(node.keys, node.values, strict=True):
            match key, value:
                case ast.Constant(), ast.Call(func=ast.Name(id="dim"), args=[]):
                    known = {k.arg: self.parser.data(k.value) for k in value.keywords if k.arg}
                    dim = self.text.located(value, partial(Dim, **known))
                    out.append((self.parser.string(key), dim))
                case _:
                    raise self.text.error(value, "expected dim(min=…, max=…, multiple=…, likely=…)")
        return tuple(out)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=None):
                self._declare(name, kind)
            case ast.AnnAssign(
                target=ast.Name(id=name), value=ast.Call(func=ast.Name(id="weight")) as call
            ):
                value = self._declare(name, node.annotation)
                self.weights.append((value, self.parser.string(call.args[0])))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as call):
                binding = self._binding(call, ())
                outputs = (self._declare(name, node.annotation),)
                self.bindings.append(binding.replace(outputs=outputs))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=call):
                self.bindings.append(self._binding(call, tuple([self._value(n) for n in names])))
            case ast.Expr(value=call):
                self.bindings.append(self._binding(call, ()))
            case _ if not self.parser.tensors.statement(node):
                raise self.text.error(node, "not a binding")

    def _declare(self, name: str, kind: ast.expr) -> Value:
        real = name
        match kind:
            case ast.Call(func=ast.Name(id="named"), args=[text, inner]):
                real, kind = self.parser.string(text), inner
        value = Value(real, TensorType(*self.parser.type(kind)))
        self.values[name] = self.by_name[real] = value
        self.inputs[name] = Input(real, value.dtype, value.shape)
        return value

    def _binding(self, node: ast.expr, outputs: tuple[Value, ...]) -> Binding:
        spans: list[Span] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            spans.append(self.parser.span(node.right))
            node = node.left
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise self.text.error(node, "not the call of an operator")
        where = tuple(reversed(spans))
        tensor = self.parser.tensors.expression(node, self.inputs, EXPRESSION_LABEL)
        if tensor is not None:
            said = {k.arg: k.value for k in node.keywords}
            notes = self.parser.pairs(said["notes"]) if "notes" in said else ()
            return expression_binding(outputs, tensor, self.by_name, notes, where)
        op, args = node.func.id, node.args
        if op == "op" and args:
            op, args = self.parser.string(args[0]), args[1:]
        elif op.endswith("_") and keyword.iskeyword(op[:-1]):
            op = op[:-1]
        attrs: list[tuple[str, Any]] = []
        for k in node.keywords:
            if k.arg is not None:
                attrs.append((k.arg, self.parser.data(k.value)))
            else:
                attrs += self.parser.pairs(k.value)
        operands = tuple([self._argument(a) for a in args])
        return Binding(outputs, op, operands, tuple(attrs), where)

    def _argument(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Tuple(elts=items):
                return tuple([self._argument(i) for i in items])
        return self._value(node)

    def _value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        raise self.text.error(node, f"{ast.unparse(node)} is not defined")

    def _results(self, node: ast.Return) -> tuple[Value, ...]:
        if node.value is None:
            raise self.text.error(node, "write `return ()` for no results")
        items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        return tuple([self._value(i) for i in items])
