"""Graph functions and modules as Python text that parses back to the same objects.

    @graph(dims={"s": dim(min=1, max=4096)}, equal=(("t", "s", "lengths differ"),))
    def main(x: f32["b", "s", 384]):
        w: f32[384, 384] = weight("9f86d081884c7d65")
        h: f32["b", "s", 384] = matmul(x, w) @ at("model.py", 12)
        values: f32["b", "s", 5]
        places: i64["b", "s", 5]
        values, places = topk(h, axis=2, k=5)
        return values

Operators are called by name (`and_` for `and`), attributes are keywords; `@ at(…)` says where in
the model a binding comes from. A tensor expression is bound as it is (`graph.expression`):

        y: f32["b"] = compute((b,), lambda _i0: sum(x[_i0, _r0] for _r0 in grid(s)))

 Symbols of the parameters are declared only where something is known
of them. A value whose name is no Python name is written `v: named("its name", f32["b"]) = …`.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any, Final

from pliant.base.dtypes import from_numpy
from pliant.base.errors import InvalidModelError
from pliant.graph.expression import Notes, expression_of
from pliant.graph.function import Binding, Dim, Function, Module, Value
from pliant.ir.printer import (
    as_name,
    data_text,
    dims_text,
    is_name,
    pairs_text,
    quote,
    span_text,
    tuple_text,
    type_text,
)  # fmt: skip
from pliant.ir.tensor import Tensor, sources
from pliant.ir.tensor_printer import WORDS, ProgramText, TensorPrinter
from pliant.sym.expr import as_int

CALL_WORDS: Final = frozenset({"weight", "op", *WORDS})
EXPRESSION_LABEL: Final = "t"  # of a bound tensor expression that has no `name`
_INDENT: Final = "    "


def module_text(module: Module, function_text: Callable[[Any], str]) -> str:
    """All functions, and the types of the weights by key; `function_text` prints one function."""
    parts: list[str] = []
    if module.weights:
        types = [
            f"{_INDENT}{quote(key)}: "
            + type_text(from_numpy(array.dtype), tuple(map(as_int, array.shape)))
            for key, array in module.weights.items()
        ]
        parts.append("weights = {\n" + ",\n".join(types) + ",\n}")
    for name, function in module.functions.items():
        if function.name != name:
            raise InvalidModelError(f"the module calls {function.name} by another name, {name}")
        parts.append(function_text(function))
    return "\n\n\n".join(parts) + "\n"


def function_text(function: Function, program_text: ProgramText | None = None) -> str:
    """The function as text; `program_text` prints the loop programs of opaque tensors."""
    return "\n".join(_Printer(function, program_text).lines)


def binding_lines(function: Function) -> tuple[list[str], dict[int, int]]:
    """The text by lines, and the line (from 0) of each binding by its position."""
    printer = _Printer(function, lambda program, name: f"# {name}: a loop program")
    return printer.lines, printer.places


class _Printer:
    def __init__(self, function: Function, program_text: ProgramText | None) -> None:
        if not is_name(function.name):
            raise InvalidModelError(f"{function.name!r} cannot name a function")
        self.lines: list[str] = []
        self.places: dict[int, int] = {}
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        for value in _defined(function):
            self._name(value)
        # An attribute's `n` is a size: no tensor may be called so.
        symbols = {n for v in _defined(function) for d in v.shape for n in d.names}
        self._tensors = TensorPrinter(program_text, self._taken | symbols)
        self._function(function)

    def _function(self, function: Function) -> None:
        options = _options(function)
        self.lines.append(f"@graph({', '.join(options)})" if options else "@graph")
        params = [f"{self._name(p)}: {self._type(p)}" for p in function.params]
        self.lines.append(f"def {function.name}({', '.join(params)}):")
        for value, key in function.weights:
            self._line(f"{self._name(value)}: {self._type(value)} = weight({quote(key)})")
        for k, binding in enumerate(function.bindings):
            self._binding(k, binding)
        results = [self._name(r) for r in function.results]
        self._line(f"return {', '.join(results) if results else '()'}")

    def _binding(self, position: int, binding: Binding) -> None:
        found = expression_of(binding)
        called = self._call(binding) if found is None else self._expression(binding, *found)
        called += "".join(f" @ {span_text(s)}" for s in binding.spans)
        for line in self._tensors.lines:
            self._line(line)
        self._tensors.lines.clear()
        self.places[position] = len(self.lines)
        outputs = binding.outputs
        match outputs:
            case []:
                self._line(called)
            case [value]:
                self._line(f"{self._name(value)}: {self._type(value)} = {called}")
            case _:
                for value in outputs:
                    self._line(f"{self._name(value)}: {self._type(value)}")
                self._line(f"{', '.join(map(self._name, outputs))} = {called}")

    def _call(self, binding: Binding) -> str:
        parts = [self._argument(a) for a in binding.args]
        odd: list[str] = []
        for name, value in binding.attrs:
            text = data_text(value, self._tensor_name)
            if is_name(name) and not odd:
                parts.append(f"{name}={text}")
            else:
                odd.append(f"{quote(name)}: {text}")
        parts += [f"**{{{', '.join(odd)}}}"] if odd else []
        op = op_text(binding.op)
        if op is None:
            op, parts = "op", [quote(binding.op), *parts]
        return f"{op}({', '.join(parts)})"

    def _expression(self, binding: Binding, tensor: Tensor, notes: Notes) -> str:
        for source, value in zip(sources(tensor), binding.args, strict=True):
            self._tensors.know(source, self._name(value))
        name = self._name(binding.outputs[0]) if binding.outputs else EXPRESSION_LABEL
        text = self._tensors.text(tensor, name, EXPRESSION_LABEL)
        return f"{text[:-1]}, notes={pairs_text(notes)})" if notes else text

    def _argument(self, arg: Any) -> str:
        if arg is None:
            return "None"
        if isinstance(arg, Value):
            return self._name(arg)
        if isinstance(arg, tuple):
            return tuple_text([self._argument(a) for a in arg])
        raise InvalidModelError(f"{arg!r} is no operand")

    def _tensor_name(self, value: Any) -> str | None:
        return self._tensors.define(value) if isinstance(value, Tensor) else None

    def _name(self, value: Value) -> str:
        found = self._names.get(value)
        if found is None:
            wish = as_name(value.name)
            found, k = wish, 1
            while found in self._taken:
                found, k = f"{wish}_{k}", k + 1
            self._names[value] = found
            self._taken.add(found)
        return found

    def _type(self, value: Value) -> str:
        text = type_text(value.dtype, value.shape)
        return text if self._names[value] == value.name else f"named({quote(value.name)}, {text})"

    def _line(self, text: str) -> None:
        self.lines.append(_INDENT + text)


def op_text(op: str) -> str | None:
    """How an operator is called in text; None if only `op("…")` will do."""
    if keyword.iskeyword(op):
        return f"{op}_"
    plain = is_name(op) and op not in CALL_WORDS
    return op if plain and not (op.endswith("_") and keyword.iskeyword(op[:-1])) else None


def implied_dims(params: tuple[Value, ...]) -> dict[str, Dim]:
    """The symbols of the parameters, of which nothing is known."""
    return {name: Dim() for p in params for d in p.shape for name in d.names}


def _defined(function: Function) -> list[Value]:
    values = [*function.params, *(v for v, _ in function.weights)]
    return values + [v for b in function.bindings for v in b.outputs]


def _options(function: Function) -> list[str]:
    options: list[str] = []
    told = {name: dim for name, dim in function.dims if dim != Dim()}
    implied = sorted({**implied_dims(function.params), **told}.items(), key=lambda pair: pair[0])
    if tuple(implied) != function.dims:
        options.append(f"all_dims={_dims_text(function.dims)}")
    elif told:
        options.append(f"dims={_dims_text(tuple(told.items()))}")
    if function.equalities:
        equal = [f"({dims_text((a, b))}, {quote(why)})" for a, b, why in function.equalities]
        options.append(f"equal={tuple_text(equal)}")
    if function.notes:
        options.append(f"notes={pairs_text(function.notes)}")
    return options


def _dims_text(dims: tuple[tuple[str, Dim], ...]) -> str:
    return "{" + ", ".join(f"{quote(name)}: {_dim_text(dim)}" for name, dim in dims) + "}"


def _dim_text(dim: Dim) -> str:
    default = Dim()
    known = [
        f"{name}={data_text(getattr(dim, name))}"
        for name in ("min", "max", "multiple", "likely")
        if getattr(dim, name) != getattr(default, name)
    ]
    return f"dim({', '.join(known)})"
