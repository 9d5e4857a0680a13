"""Bindings of operators that a tensor program is given for become calls of that program.

    y: f32["n", 64] = relu(x)     ->     y: f32["n", 64] = opaque(my_relu, (x,), (f32["n", 64],))

The program takes the operator's operands in order and gives its results: element types and ranks
are those of the definition, and so are the extents. What of that cannot be proved is checked in
every call of the function. Other operators around it are compiled as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pliant.base.errors import InvalidModelError
from pliant.graph.builder import define
from pliant.graph.expression import expression_binding
from pliant.graph.facts import facts_of
from pliant.graph.function import Binding, Function, TensorType
from pliant.graph.operator import Operators
from pliant.ir.tensor import Input, Opaque
from pliant.ops.program import TensorProgram
from pliant.sym.expr import Int
from pliant.sym.facts import Facts

Choice = TensorProgram | Callable[..., TensorProgram | None]
"""The program for every binding of an operator, or a function that chooses: it gets the operands'
types (None for an absent one) and the attributes by name, and gives a program or None."""

Used = Callable[[Binding, TensorProgram], None]


def use_programs(
    function: Function,
    programs: Mapping[str, Choice],
    operators: Operators,
    used: Used = lambda binding, program: None,
) -> Function:
    """The function with the programs called; `used` is told of every binding that has become a
    call. A name that is no operator's is a function's of the module, with the types of its calls.

    Raises InvalidModelError, with the place in the model, where a program does not fit.
    """
    using = _Using(facts_of(function), operators)
    bindings: list[Binding] = []
    for binding in function.bindings:
        program = _chosen(binding, programs)
        bindings.append(binding if program is None else using.call(binding, program))
        if program is not None:
            used(binding, program)
    equalities = (*function.equalities, *((a, b, m) for (a, b), m in using.checks.items()))
    return function.replace(bindings=tuple(bindings), equalities=equalities)


def _chosen(binding: Binding, programs: Mapping[str, Choice]) -> TensorProgram | None:
    choice = programs.get(binding.op)
    if choice is None or isinstance(choice, TensorProgram):
        return choice
    return choice(*map(_type, binding.args), **binding.attributes())


def _type(arg: object) -> object:
    if isinstance(arg, tuple):
        return tuple(map(_type, arg))
    return getattr(arg, "type", None)


class _Using:
    def __init__(self, facts: Facts, operators: Operators) -> None:
        self.facts, self.operators = facts, operators
        self.checks: dict[tuple[Int, Int], str] = {}

    def call(self, binding: Binding, program: TensorProgram) -> Binding:
        try:
            made = program.opaque([Input(v.name, v.dtype, v.shape) for v in binding.operands()])
            for a, b, message in made.requires:
                self.demand(a, b, message)
            self.check_results(binding, made)
        except InvalidModelError as error:
            places = "".join(f" ({s})" for s in binding.spans[:1])
            raise InvalidModelError(
                f"the program for {binding.op}{places} does not fit: {error}"
            ) from error
        values = {v.name: v for v in binding.operands()}
        notes = (("op", binding.op),)
        return expression_binding(binding.outputs, made, values, notes, binding.spans)

    def check_results(self, binding: Binding, made: Opaque) -> None:
        """The results are what the operator's definition says (a call of a function: what is
        declared)."""
        wanted = tuple(v.type for v in binding.outputs)
        if binding.op in self.operators:
            tensors = define(self.operators[binding.op], binding.args, binding.attributes())
            wanted = tuple(TensorType(t.dtype, t.shape) for t in tensors)
        name = made.program.name
        if len(wanted) != len(made.results):
            raise InvalidModelError(
                f"{name} has {len(made.results)} results, {binding.op} has {len(wanted)}"
            )
        outputs = made.program.buffers[len(made.operands) :]
        for buffer, want, (dtype, shape) in zip(outputs, wanted, made.results, strict=True):
            if want.dtype is not dtype or len(want.shape) != len(shape):
                got = TensorType(dtype, shape)
                raise InvalidModelError(
                    f"{name}: {buffer.name} is {got}, {binding.op} gives {want}"
                )
            for d, (a, b) in enumerate(zip(shape, want.shape, strict=True)):
                said = f"{name}: dim {d} of {buffer.name} is {a}, {binding.op} gives {b}"
                self.demand(a, b, said)

    def demand(self, a: Int, b: Int, message: str) -> None:
        """a == b: proved, or checked in every call. Raises where it never holds."""
        difference = self.facts.simplify(a - b)
        if difference == 0 or self.facts.equal(a, b):
            return
        if difference.is_const:
            raise InvalidModelError(message)
        self.checks.setdefault((a, b), message)
        self.facts.assume_equal(a, b)
