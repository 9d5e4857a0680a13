"""Text of tensor expressions back to the same objects: the inverse of `tensor_printer`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from pliant.ir.expr import Axis, Expr
from pliant.ir.parser import ExprParser, Scope, Text
from pliant.ir.tensor import Compute, Input, Opaque, OpaqueOutput, Scan, Scatter, Tensor
from pliant.ir.tensor_printer import WORDS
from pliant.sym.expr import Int

BOUND_WORDS: Final = WORDS - {"placeholder", "output"}  # which a binding of a graph may say

ProgramOf = Callable[[Text, ast.FunctionDef], Any]
"""What a decorated definition means."""


def parse_tensors(text: str, program_of: ProgramOf | None = None) -> tuple[Tensor, ...]:
    """The tensors named by the last line. Raises ParseError with the line."""
    source = Text(text)
    parser = TensorParser(source, program_of)
    last = source.tree.body[-1] if source.tree.body else None
    if not isinstance(last, ast.Expr):
        raise source.error(last or source.tree, "the last line names the tensors")
    for node in source.tree.body[:-1]:
        if not parser.statement(node):
            raise source.error(node, "expected a tensor")
    named = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    return tuple([parser.tensor(n) for n in named])


class TensorParser:
    """Reads definitions one by one and remembers them by name."""

    def __init__(self, text: Text, program_of: ProgramOf | None = None) -> None:
        self.text = text
        self.tensors: dict[str, Tensor] = {}
        self._programs: dict[str, Any] = {}
        self._bodies: dict[str, ast.FunctionDef] = {}
        self._program_of = program_of

    def statement(self, node: ast.stmt) -> bool:
        """Take in one statement; False if it is none of ours."""
        match node:
            case ast.FunctionDef(decorator_list=[]):
                self._bodies[node.name] = node
            case ast.FunctionDef() if self._program_of is not None:
                self._programs[node.name] = self._program_of(self.text, node)
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=word)) as call
            ) if word in WORDS:
                self.tensors[name] = self.text.located(node, lambda: self._define(name, word, call))
            case _:
                return False
        return True

    def expression(self, call: ast.Call, sources: dict[str, Tensor], label: str) -> Tensor | None:
        """The tensor that a call says, over `sources` by name; None if it is no such call."""
        if not (isinstance(call.func, ast.Name) and call.func.id in BOUND_WORDS):
            return None
        inner = copy.copy(self)
        inner.tensors = sources
        return inner._define(label, call.func.id, call)

    def tensor(self, node: ast.expr) -> Tensor:
        """A tensor by its name."""
        if isinstance(node, ast.Name) and node.id in self.tensors:
            return self.tensors[node.id]
        raise self.text.error(node, f"no tensor {ast.unparse(node)}")

    def _define(self, name: str, word: str, call: ast.Call) -> Tensor:
        parser = ExprParser(self.text, Scope(self.tensors))
        options = {k.arg: k.value for k in call.keywords if k.arg}
        label = parser.string(options["name"]) if "name" in options else name
        match word, call.args:
            case "placeholder", [kind]:
                dtype, dims = parser.type(kind)
                return Input(label, dtype, dims)
            case "compute", [shape, body]:
                axes, values = self._function(parser, shape, body)
                return Compute(label, axes, values[0], _requires(parser, options))
            case "scan", [shape, ast.Constant(value=int(along)), combiner, body]:
                axes, values = self._function(parser, shape, body)
                flags = [_flag(options.get(n)) for n in ("exclusive", "reverse")]
                return Scan(label, axes, along, parser.string(combiner), values[0], *flags)
            case "scatter", [base, shape, where, value]:
                return self._scatter(parser, label, [base, shape, where, value], options)
            case "opaque", [ast.Name(id=program), operands, results] if program in self._programs:
                return Opaque(
                    label,
                    tuple([self.tensor(t) for t in parser.elements(operands)]),
                    tuple([parser.type(r) for r in parser.elements(results)]),
                    self._programs[program],
                    _requires(parser, options),
                )
            case "output", [of, ast.Constant(value=int(index))]:
                whole = self.tensor(of)
                if isinstance(whole, Opaque):
                    return OpaqueOutput(whole, index)
        raise self.text.error(call, f"{word} has other arguments")

    def _scatter(
        self, parser: ExprParser, label: str, args: list[ast.expr], options: dict[str, ast.expr]
    ) -> Scatter:
        base, shape, at, what = args
        axes, where = self._function(parser, shape, at)
        _, value = self._function(parser, shape, what)
        combiner = parser.string(options["combiner"]) if "combiner" in options else "set"
        skip: Expr | None = None
        if "skip" in options:
            skip = self._function(parser, shape, options["skip"])[1][0]
        requires = _requires(parser, options)
        return Scatter(label, self.tensor(base), axes, where, combiner, value[0], skip, requires)

    def _function(
        self, parser: ExprParser, shape: ast.expr, body: ast.expr
    ) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
        """The axes and values of `lambda i, j: …` or of a definition by name, over `shape`."""
        scope = parser.scope
        match body:
            case ast.Lambda(args=arguments, body=value):
                statements: Sequence[ast.stmt] = ()
            case ast.Name(id=name) if name in self._bodies:
                arguments, statements = self._bodies[name].args, self._bodies[name].body
            case _:
                raise self.text.error(body, "expected a function of the indices")
        for node in statements:
            inner = ExprParser(self.text, scope)
            match node:
                case ast.Assign(targets=[ast.Name(id=part)], value=named):
                    scope = scope.with_part(part, inner.expr(named))
                case ast.Return(value=ast.expr() as value):
                    pass
                case _:
                    raise self.text.error(node, "expected a named part or a return")
        extents = parser.integers(shape)
        names = [a.arg for a in arguments.args]
        if len(names) != len(extents):
            raise self.text.error(body, f"{len(names)} indices for {len(extents)} extents")
        axes = tuple([Axis(n, e) for n, e in zip(names, extents, strict=True)])
        inner = ExprParser(self.text, scope)
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        return axes, tuple([inner.expr(v) for v in values])


def _requires(parser: ExprParser, options: dict[str, ast.expr]) -> tuple[tuple[Int, Int, str], ...]:
    if "requires" not in options:
        return ()
    return tuple([parser.requirement(r) for r in parser.elements(options["requires"])])


def _flag(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
