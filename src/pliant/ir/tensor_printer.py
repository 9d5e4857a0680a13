"""Tensor expressions as Python text that parses back to the same objects.

    x = placeholder(f32["n", "k"])
    m = compute((n,), lambda _i0: max(x[_i0, _r0] for _r0 in grid(k)))
    s = scan((n,), 0, "sum", lambda _i0: m[_i0], reverse=True)
    o = scatter(s, (n,), lambda _i0: (_i0 // 2,), lambda _i0: m[_i0], combiner="add")
    p = opaque(sort_rows, (x,), (f32["n", "k"], i64["n", "k"]))
    p_0 = output(p, 0)
    m, p_0

The last line says which tensors are meant. A body with named parts is written as a `def` before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pliant.base.errors import InvalidModelError
from pliant.base.names import fresh_name
from pliant.ir.expr import Axis, Expr
from pliant.ir.printer import (
    as_name,
    dims_text,
    expr_text,
    int_text,
    quote,
    tuple_text,
    type_text,
)  # fmt: skip
from pliant.ir.tensor import (
    Compute,
    Input,
    Opaque,
    OpaqueOutput,
    Scan,
    Scatter,
    Tensor,
    producers,
)  # fmt: skip

ProgramText = Callable[[Any, str], str]
"""The text of an opaque program, to be called by a name."""

WORDS: Final = frozenset({"placeholder", "compute", "scan", "scatter", "opaque", "output"})


def tensors_text(roots: Sequence[Tensor], program_text: ProgramText | None = None) -> str:
    """The definitions of `roots` and all that they read, and a last line that names the roots."""
    printer = TensorPrinter(program_text)
    names = [printer.define(r) for r in roots]
    return "\n".join([*printer.lines, ", ".join(names) if len(names) > 1 else tuple_text(names)])


class TensorPrinter:
    """Collects the lines that define tensors, each once, under unique names."""

    def __init__(self, program_text: ProgramText | None = None, taken: set[str] | None = None):
        self.lines: list[str] = []
        self._program_text = program_text
        self._names: dict[Any, str] = {}
        self._taken = set() if taken is None else taken

    def define(self, root: Tensor) -> str:
        """Lines for the tensor and what it reads, unless printed before; its name in the text."""
        for tensor in producers([root]):
            if tensor not in self._names:
                self._names[tensor] = name = self._fresh(tensor.name)
                self.lines.append(f"{name} = {self.text(tensor, name, name)}")
        return self._names[root]

    def know(self, tensor: Tensor, name: str) -> None:
        """The tensor is defined elsewhere, under this name."""
        self._names[tensor] = name

    def _fresh(self, wish: str) -> str:
        name = fresh_name(as_name(wish), self._taken)
        self._taken.add(name)
        return name

    def text(self, tensor: Tensor, name: str, label: str) -> str:
        """The definition of a tensor over known ones; parts of it are called after `name`. One
        that is not called `label` says so."""
        parts: list[str]
        match tensor:
            case Input(_, dtype, dims):
                word, parts = "placeholder", [type_text(dtype, dims)]
            case Compute(_, axes, body, requires):
                word, parts = "compute", [_extents(axes), self._lambda(name, axes, [body])]
                if requires:
                    parts.append(f"requires={_requires_text(requires)}")
            case Scan():
                word, parts = "scan", self._scan(tensor, name)
            case Scatter():
                word, parts = "scatter", self._scatter(tensor, name)
            case Opaque():
                word, parts = "opaque", self._opaque(tensor)
            case OpaqueOutput(of, index):
                return f"output({self._names[of]}, {index})"
            case _:
                raise InvalidModelError(f"cannot print {type(tensor).__name__}")
        if tensor.name != label:
            parts.append(f"name={quote(tensor.name)}")
        return f"{word}({', '.join(parts)})"

    def _scan(self, tensor: Scan, name: str) -> list[str]:
        parts = [_extents(tensor.axes), str(tensor.along), quote(tensor.combiner)]
        parts.append(self._lambda(name, tensor.axes, [tensor.body]))
        parts += ["exclusive=True"] if tensor.exclusive else []
        return parts + (["reverse=True"] if tensor.reverse else [])

    def _scatter(self, tensor: Scatter, name: str) -> list[str]:
        axes = tensor.axes
        parts = [self._names[tensor.base], _extents(axes)]
        parts.append(self._lambda(f"{name}_where", axes, tensor.where, as_tuple=True))
        parts.append(self._lambda(f"{name}_value", axes, [tensor.value]))
        if tensor.combiner != "set":
            parts.append(f"combiner={quote(tensor.combiner)}")
        if tensor.skip is not None:
            parts.append(f"skip={self._lambda(f'{name}_skip', axes, [tensor.skip])}")
        if tensor.requires:
            parts.append(f"requires={_requires_text(tensor.requires)}")
        return parts

    def _opaque(self, tensor: Opaque) -> list[str]:
        operands = tuple_text(self._names[t] for t in tensor.operands)
        results = tuple_text(type_text(d, s) for d, s in tensor.results)
        parts = [self._program(tensor.program), operands, results]
        return parts + ([f"requires={_requires_text(tensor.requires)}"] if tensor.requires else [])

    def _program(self, program: Any) -> str:
        if program not in self._names:
            if self._program_text is None:
                raise InvalidModelError(f"no printer for the program {program.name}")
            self._names[program] = name = self._fresh(program.name)
            self.lines += self._program_text(program, name).splitlines()
        return self._names[program]

    def _lambda(
        self, name: str, axes: Sequence[Axis], bodies: Sequence[Expr], *, as_tuple: bool = False
    ) -> str:
        """The bodies as a function of the axes; a `def` of its own where parts have names."""
        lines: list[str] = []
        texts: list[str] = []
        for body in bodies:
            parts, text = expr_text(
                body, source_name=self._names.__getitem__, first_name=len(lines)
            )
            lines += parts
            texts.append(text)
        value = tuple_text(texts) if as_tuple else texts[0]
        arguments = ", ".join(a.var for a in axes)
        if not lines:
            return f"lambda {arguments}: {value}" if arguments else f"lambda: {value}"
        called = self._fresh(f"{name}_at")
        self.lines.append(f"def {called}({arguments}):")
        self.lines += [f"    {line}" for line in [*lines, f"return {value}"]]
        return called


def _extents(axes: Sequence[Axis]) -> str:
    return tuple_text(int_text(a.extent) for a in axes)


def _requires_text(requires: Sequence[tuple[Any, Any, str]]) -> str:
    return tuple_text(
        f"({dims_text((a, b), quoted=False)}, {quote(message)})" for a, b, message in requires
    )
