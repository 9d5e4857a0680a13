"""A Python function's source as a loop program; the function is never run.

    PI = 3.14159

    def area(r: f32["n"], a: f32["n"]):         @loop(notes={"outputs": ("a",)})
        for i in range(n):                      def area(r: f32["n"], a: f32["n"], n: i64):
            a[i] = PI * r[i] ** 2        ->         for i in grid(n):
                                                        with block("a", S(i, n)) as (vi,):
                                                            a[vi] = pow(r[vi], 2.0) * 3.14159

Numbers, sizes and element types may come from outside; names mean what they mean there when the
function is defined. Sizes that shapes name are parameters. What else is short is listed in
`loop.parser` and `loop.derive_blocks`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DTYPES, DType
from pliant.base.errors import InvalidModelError
from pliant.ir.parser import Text
from pliant.language import WORDS, Word
from pliant.loop.derive_blocks import derive_blocks
from pliant.loop.parser import parameters, suite
from pliant.loop.signature import OUTPUTS, stored_buffers
from pliant.loop.stmt import Buffer, Function
from pliant.loop.verify import verify_function
from pliant.sym.expr import Int

_MISSING: Final = object()


def function_of_source(fn: Callable[..., object], around: Mapping[str, Any]) -> Function:
    """The program that the function's source says; `around` are the names of the scopes that it
    stands in. Raises InvalidModelError with file and line."""
    text, node = _definition(fn)
    _check_signature(text, node)
    code = fn.__code__
    cells = zip(code.co_freevars, fn.__closure__ or (), strict=True)
    inner = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    known = {**vars(builtins), **fn.__globals__, **around, **inner}
    node = _Resolver(text, known, _bound_names(node)).visit(node)
    ast.fix_missing_locations(node)

    def build() -> Function:
        buffers, sizes = parameters(text, node)
        body = [s for s in node.body if not _is_docstring(s)]
        written = suite(text, body, buffers, by_hand=True)
        program = Function(node.name, buffers, _sizes(buffers, sizes), written)
        verify_function(program)
        program = derive_blocks(program)
        outputs = tuple(b.name for b in buffers if b in stored_buffers(program.body))
        return program.replace(notes=((OUTPUTS, outputs),))

    return text.located(node, build)  # type: ignore[no-any-return]


def _definition(fn: Callable[..., object]) -> tuple[Text, ast.FunctionDef]:
    if not inspect.isfunction(fn):
        raise InvalidModelError(f"a program is made of a function, not of {fn!r:.60}")
    try:
        source = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError) as error:
        raise InvalidModelError(
            f"{fn.__qualname__}: its source cannot be read ({error}); define it in a file"
        ) from error
    text = Text(source, fn.__code__.co_filename, fn.__code__.co_firstlineno)
    match text.tree.body:
        case [ast.FunctionDef() as node]:
            return text, node
    raise text.error(text.tree.body[0], f"{fn.__qualname__}: a program is a `def`")


def _check_signature(text: Text, node: ast.FunctionDef) -> None:
    a = node.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
        raise text.error(node, f"{node.name}: parameters are plain names with types")
    if node.returns is not None and ast.unparse(node.returns) != "None":
        raise text.error(
            node, f"{node.name} gives nothing back: results are parameters that it stores into"
        )


def _sizes(buffers: tuple[Buffer, ...], given: tuple[str, ...]) -> tuple[str, ...]:
    """The sizes: those given, then those that the buffers name, in order of use."""
    names = dict.fromkeys(given)
    for b in buffers:
        for extent in (*b.shape, *b.strides):
            names |= dict.fromkeys(sorted(extent.names, key=str(extent).find))
    return tuple(names)


def _is_docstring(s: ast.stmt) -> bool:
    return isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # the variable has no value yet
        return False
    return True


def _bound_names(node: ast.FunctionDef) -> frozenset[str]:
    """Names that the program itself gives a meaning: parameters, loops, what it assigns, sizes."""
    names = {a.arg for a in node.args.args}
    for x in ast.walk(node):
        if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store):
            names.add(x.id)
        if isinstance(x, ast.FunctionDef) and x is not node:
            names |= {x.name, *(a.arg for a in x.args.args)}
    for a in node.args.args:
        for x in ast.walk(a.annotation) if a.annotation else ():
            if isinstance(x, ast.Constant) and isinstance(x.value, str):
                names |= _names_of(x.value)
    return frozenset(names)


def _names_of(text: str) -> set[str]:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:  # the parser of the shape says so, with the place
        return set()
    called = {x.func for x in ast.walk(tree) if isinstance(x, ast.Call)}
    return {x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and x not in called}


def _buffers_of(node: ast.FunctionDef) -> dict[str, ast.expr]:
    """Names that are of buffers only, with their types: parameters, and what is allocated."""
    types = {a.arg: a.annotation for a in node.args.args}
    found: dict[str, ast.expr] = {n: t for n, t in types.items() if isinstance(t, ast.Subscript)}
    others = set[str]()
    for x in ast.walk(node):
        match x:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="alloc"), args=[kind, *_]),
            ):
                found[name] = kind
            case ast.For(target=target) | ast.comprehension(target=target):
                others |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                others.add(name)
            case ast.arg(annotation=ast.Subscript(slice=shape)):
                others |= {n.id for n in ast.walk(shape) if isinstance(n, ast.Name)}
                texts = (n.value for n in ast.walk(shape) if isinstance(n, ast.Constant))
                others |= {name for x in texts if isinstance(x, str) for name in _names_of(x)}
            case ast.withitem(optional_vars=ast.expr() as names):
                others |= {n.id for n in ast.walk(names) if isinstance(n, ast.Name)}
    return {name: kind for name, kind in found.items() if name not in others}


class _Resolver(ast.NodeTransformer):
    """Puts in what names from outside stand for, and refuses those that nothing is known of."""

    def __init__(self, text: Text, known: Mapping[str, Any], bound: frozenset[str]) -> None:
        self.text, self.known, self.bound = text, known, bound
        self.is_inside = False
        self.around: list[str] = []  # variables of the loops around
        self.buffers: dict[str, ast.expr] = {}  # with their types

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self.is_inside:  # a reducer, whose names are its own
            buffers, self.buffers = self.buffers, {}
            visited = self.generic_visit(node)
            self.buffers = buffers
            return visited
        self.is_inside = True
        node.decorator_list = []
        node.returns = None
        self.buffers = _buffers_of(node)
        for a in node.args.args:  # sizes that annotations take from outside are the program's own
            for x in ast.walk(a.annotation) if a.annotation else ():
                if isinstance(x, ast.Name | ast.Attribute):
                    value = self._value(x)
                    self.bound |= value.names if isinstance(value, Int) else frozenset()
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        names = [x.id for x in ast.walk(node.target) if isinstance(x, ast.Name)]
        for k, name in enumerate(names):
            if name in self.around or name in names[:k]:
                raise self.text.error(node, f"{name} hides a variable of the same name")
        self.around += names
        visited = self.generic_visit(node)
        del self.around[len(self.around) - len(names) :]
        return visited

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not isinstance(node.value, ast.Name):
            return self.generic_visit(node)
        inner: ast.expr = node.value
        if node.value.id not in self.buffers:
            inner = self.visit(inner)
        made = ast.Subscript(inner, self.visit(node.slice), node.ctx)
        return ast.copy_location(made, node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return node  # refused later on, whatever it is of

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call):  # of an intrinsic, which takes buffers
            call = node.value
            whole = [isinstance(a, ast.Name) and a.id in self.buffers for a in call.args]
            pairs = zip(call.args, whole, strict=True)
            call.args = [a if is_buffer else self.visit(a) for a, is_buffer in pairs]
            call.func = self.visit(call.func)
            call.keywords = [self.visit(k) for k in call.keywords]
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self.buffers:
            kind = ast.unparse(self.buffers[node.id])
            at = "[()]" if kind.endswith("[()]") else "[…]"
            raise self.text.error(
                node, f"{node.id} is a buffer, {kind}: an element of it is {node.id}{at}"
            )
        if not isinstance(node.ctx, ast.Load) or node.id in self.bound:
            return node
        value = self._value(node)
        if value is _MISSING or value is vars(builtins).get(node.id, _MISSING):
            if node.id in WORDS or node.id in DTYPES or node.id == "range":
                return node
            if value is _MISSING:
                raise self.text.error(node, f"nothing named {node.id!r} is known here")
        return self._constant(node, value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self.buffers:
            return node
        value = self._value(node)
        return self.generic_visit(node) if value is _MISSING else self._constant(node, value)

    def _value(self, node: ast.expr) -> Any:
        """What a name or an attribute of a module is outside."""
        match node:
            case ast.Name(id=name) if name not in self.bound:
                return self.known.get(name, _MISSING)
            case ast.Attribute(value=inner, attr=name):
                home = self._value(inner)
                if isinstance(home, ModuleType) and hasattr(home, name):
                    return getattr(home, name)
        return _MISSING

    def _constant(self, node: ast.expr, value: Any) -> ast.AST:
        new: ast.expr
        match value:
            case bool() | int() | float():
                new = ast.Constant(value)
            case np.generic() if isinstance(value.item(), bool | int | float):
                new = ast.Constant(value.item())
            case DType():
                new = ast.Name(value.name, ast.Load())
            case Word():
                new = ast.Name(value.name, ast.Load())
            case Int():
                new = ast.parse(str(value), mode="eval").body
            case _:
                raise self.text.error(
                    node,
                    f"{ast.unparse(node)} is a {type(value).__name__}: a program takes numbers, "
                    "sizes, element types and words of pliant.language from outside",
                )
        return ast.copy_location(new, node)
