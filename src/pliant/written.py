"""Tensor programs written by hand.

    @pliant.program
    def row_sums(x: f32["n", "k"], y: f32["n"]):
        for i in grid(n):
            y[i] = sum(x[i, r] for r in grid(k))

    p = row_sums.split("i", 8).parallel("i_0")     a schedule; print(p) after every step
    y, = p.run(x)                                  by the interpreter
    f = pliant.compile(p)                          a callable like that of a model

What is written is checked, step by step: what cannot be proved is refused, with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, overload

from pliant.base.errors import InvalidModelError, ShapeError
from pliant.codegen.build import target_intrinsics
from pliant.codegen.llvm.target import Target
from pliant.codegen.llvm.target import target as find_target
from pliant.graph.builder import Builder
from pliant.graph.function import Dim
from pliant.graph.function import Function as GraphFunction
from pliant.graph.operator import Operators
from pliant.loop.signature import demands, signature
from pliant.loop.source import function_of_source
from pliant.loop.stmt import Function, Invoke, statements
from pliant.ops.program import TensorProgram, call_program
from pliant.opt.use_programs import Choice
from pliant.schedule.errors import close_names
from pliant.schedule.primitives import program as scheduled
from pliant.schedule.program import Program
from pliant.sym.facts import Facts

Choose = Callable[..., Program | None]
"""A function of an operator's operands' types and its attributes that chooses a program."""


@overload
def program(fn: Callable[..., object], /) -> Program: ...


@overload
def program(
    *, dims: Mapping[str, Dim] | None = None, target: str = "native", numerics: str = "fast"
) -> Callable[[Callable[..., object]], Program]: ...


def program(
    fn: Callable[..., object] | None = None,
    /,
    *,
    dims: Mapping[str, Dim] | None = None,
    target: str = "native",
    numerics: str = "fast",
) -> Program | Callable[[Callable[..., object]], Program]:
    """A decorator: the function's source is a tensor program, to schedule, run and compile.

    `pliant.language` lists the words. Parameters are buffers, `x: f32["n", 384]`, and sizes,
    `n: i64`, which need not be listed where a shape names them. Those that are stored into are
    outputs; as with `numpy.empty`, what a program does not store into one is anything (`run` shows
    NaN). Where a whole margin of one is never stored, it is refused. `dims` says what is taken for
    granted of sizes; calls check it. `target` and `numerics` say which intrinsics there are to
    `tensorize` with (`p.intrinsics`).

    Raises InvalidModelError, with file, line and the text, for what is not the language.
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    around = {} if caller is None else dict(caller.f_locals)

    def make(fn: Callable[..., object]) -> Program:
        function = function_of_source(fn, around)
        facts, known = Facts(), dict(dims or {})
        for size in function.sizes:
            dim = known.pop(size, Dim())
            facts.declare(size, dim.min, dim.max, dim.multiple, dim.likely)
        if known:
            there = ", ".join(function.sizes) or "none"
            raise ShapeError(f"{function.name} has no size {min(known)}; its sizes are: {there}")
        intrinsics = target_intrinsics(find_target(target), numerics)
        made = scheduled(function, facts, intrinsics=intrinsics)
        return replace(made.with_dims(dims or {}), demands=demands(function, facts))

    return make if fn is None else make(fn)


def program_graph(
    p: Program, operators: Operators, dims: Mapping[str, Dim] | None = None
) -> GraphFunction:
    """The graph function that calls the program once. `dims` adds to what is known of sizes."""
    s = signature(p.function)
    b = Builder(p.function.name, operators)
    known = dict(p.dims)
    for name, dim in (dims or {}).items():
        if name not in p.function.sizes:
            there = ", ".join(p.function.sizes) or "none"
            raise ShapeError(f"{p.function.name} has no size {name!r}; its sizes are: {there}")
        known[name] = dim.merged(known.get(name))
    for name, dim in known.items():
        b.dim(name, dim)
    params = [b.param(x.name, x.dtype, x.shape) for x in s.inputs]
    called = TensorProgram(p.function, demands=p.demands)  # its dims are the graph's
    made = call_program(b, called, *params)
    function, _ = b.finish(made if isinstance(made, tuple) else (made,))
    return function


def chosen_programs(
    programs: Mapping[str, Program | Choose], operators: Operators, t: Target, numerics: str
) -> dict[str, Choice]:
    """What `programs=` of `pliant.compile` says, for `opt.use_programs`. Raises InvalidModelError
    for names of no operator, and for programs that the target cannot run."""
    if not isinstance(programs, Mapping):
        raise InvalidModelError(f"programs is a dict by operator, not {programs!r:.60}")
    chosen: dict[str, Choice] = {}
    for name, choice in programs.items():
        if name not in operators:
            near = ", ".join(close_names(str(name), operators)) or "see docs/operators.md"
            raise InvalidModelError(f"programs: there is no operator {name!r} ({near})")
        chosen[name] = _choice(name, choice, t, numerics)
    return chosen


def _choice(name: str, choice: Program | Choose, t: Target, numerics: str) -> Choice:
    def checked(p: object) -> TensorProgram:
        if not isinstance(p, Program):
            raise InvalidModelError(
                f"programs[{name!r}] is a pliant.program, or a function of the operands' types and "
                f"the attributes that gives one or None, not {p!r:.60}"
            )
        check_calls(p.function, t, numerics)
        return p.tensor_program

    if isinstance(choice, Program) or not callable(choice):
        return checked(choice)

    def choose(*types: Any, **attributes: Any) -> TensorProgram | None:
        found = choice(*types, **attributes)
        return None if found is None else checked(found)

    return choose


def check_calls(function: Function, t: Target, numerics: str) -> None:
    """Raise InvalidModelError where the program calls what the target does not offer."""
    offered = {i.callee for i in target_intrinsics(t, numerics)}
    for s in statements(function.body):
        if isinstance(s, Invoke) and s.callee not in offered:
            raise InvalidModelError(
                f"{function.name} calls {s.callee}, which target {t.name} with "
                f"numerics={numerics!r} does not have; say the target and the numerics where the "
                "program is made: @pliant.program(target=…, numerics=…)"
            )
