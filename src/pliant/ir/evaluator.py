"""Expressions as Python functions of an environment: the evaluator behind the interpreters.

    value = evaluator(expr, load)      load(source) -> function of (source's indices)
    value(env)                         a NumPy scalar

An environment maps names to values: loop variables, sizes and i64 scalars to Python integers,
other scalars to NumPy scalars. Each distinct expression is translated once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError, ShapeError
from pliant.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Guard,
    Index,
    Load,
    Reduce,
    Select,
    Unary,
    Var,
)  # fmt: skip
from pliant.ir.scalar import (
    COMBINER_OPS,
    Scalar,
    better,
    binary_operation,
    bitcast,
    cast,
    from_bits,
    identity_of,
    unary_operation,
)  # fmt: skip
from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int


class Env(dict[str, Any]):
    """Values by name; a name that is not bound is an error of the program."""

    def __missing__(self, name: str) -> Any:
        raise InvalidModelError(f"{name!r} is used but not defined here")


Value = Callable[[Env], Scalar]
Number = Callable[[Env], int]
Loader = Callable[[Any], Callable[[Env, tuple[int, ...]], Scalar]]


class Evaluator:
    """Translates expressions; `loader` says how an element of a source is read."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._values: dict[Expr, Value] = {}
        self._numbers: dict[Int, Number] = {}

    def value(self, expr: Expr) -> Value:
        """The expression as a function of the environment."""
        found = self._values.get(expr)
        if found is None:
            found = self._values[expr] = self._translate(expr)
        return found

    def number(self, integer: Int) -> Number:
        """The symbolic integer as a function of the environment."""
        found = self._numbers.get(integer)
        if found is None:
            found = self._numbers[integer] = self._integer(integer)
        return found

    def position(self, expr: Expr) -> Number:
        """An i64 expression (an index) as a Python integer."""
        if isinstance(expr, Index):
            return self.number(expr.int_)
        value = self.value(expr)
        return lambda env: int(value(env))

    def _translate(self, expr: Expr) -> Value:
        match expr:
            case Const(dtype, bits):
                constant = from_bits(bits, dtype)
                return lambda env: constant
            case Index(integer):
                number = self.number(integer)
                return lambda env: np.int64(number(env))
            case Var(name, dtype):
                if dtype is i64:
                    return lambda env: np.int64(env[name])
                return lambda env: env[name]
            case Load(source, indices):
                return self._load(source, indices)
            case Unary(op, a):
                fn, x = unary_operation(op, a.dtype), self.value(a)
                return lambda env: fn(x(env))
            case Binary(op, a, b):
                fn, x, y = binary_operation(op, a.dtype), self.value(a), self.value(b)
                return lambda env: fn(x(env), y(env))
            case Select(cond, a, b):
                test, x, y = self.value(cond), self.value(a), self.value(b)
                return lambda env: x(env) if test(env) else y(env)
            case Cast(to, a):
                x, source = self.value(a), a.dtype
                return lambda env: cast(x(env), source, to)
            case Bitcast(to, a):
                x, source = self.value(a), a.dtype
                return lambda env: bitcast(x(env), source, to)
            case Guard(cond, a, _, message):
                return _guard(self.value(cond), self.value(a), message)
            case Reduce():
                return self._reduce(expr)
        raise InvalidModelError(f"cannot evaluate {type(expr).__name__}")

    def _load(self, source: Any, indices: tuple[Expr, ...]) -> Value:
        read = self._loader(source)
        at = [self.position(i) for i in indices]
        if len(at) == 1:
            first = at[0]
            return lambda env: read(env, (first(env),))
        return lambda env: read(env, tuple([p(env) for p in at]))

    def _reduce(self, expr: Reduce) -> Value:
        axes = [(a.var, self.number(a.extent)) for a in expr.axes]
        body = self.value(expr.body)
        if expr.combiner in ("argmax", "argmin"):
            return _arg_reduce(expr, axes[0], body)
        start = identity_of(expr.combiner, expr.dtype)
        combine = binary_operation(COMBINER_OPS[expr.combiner], expr.dtype)

        def run(env: Env) -> Scalar:
            inner, total = Env(env), start
            for point in itertools.product(*[range(extent(env)) for _, extent in axes]):
                for (name, _), k in zip(axes, point, strict=True):
                    inner[name] = k
                total = combine(total, body(inner))
            return total

        return run

    def _integer(self, integer: Int) -> Number:
        if integer.is_const:
            value = integer.value
            return lambda env: value
        atom = integer.sole_atom
        if atom is not None:
            return self._atom(atom)
        terms = [
            (coefficient, [(self._atom(a), power) for a, power in factors])
            for coefficient, factors in integer.terms()
        ]

        def run(env: Env) -> int:
            total = 0
            for coefficient, factors in terms:
                for factor, power in factors:
                    coefficient *= factor(env) if power == 1 else factor(env) ** power
                total += coefficient
            return total

        return run

    def _atom(self, atom: Atom) -> Number:
        match atom:
            case VarAtom(name):
                return lambda env: env[name]
            case DivAtom(num, den):
                a, b = self.number(num), self.number(den)
                return lambda env: a(env) // b(env)
            case ModAtom(num, den):
                a, b = self.number(num), self.number(den)
                return lambda env: a(env) % b(env)
            case MinAtom(args):
                parts = [self.number(x) for x in args]
                return lambda env: min([p(env) for p in parts])
            case MaxAtom(args):
                parts = [self.number(x) for x in args]
                return lambda env: max([p(env) for p in parts])


def _guard(cond: Value, value: Value, message: str) -> Value:
    def run(env: Env) -> Scalar:
        if not cond(env):
            raise ShapeError(message)
        return value(env)

    return run


def _arg_reduce(expr: Reduce, axis: tuple[str, Number], body: Value) -> Value:
    name, extent = axis

    def run(env: Env) -> Scalar:
        inner, best, place = Env(env), None, 0
        for k in range(extent(env)):
            inner[name] = k
            new = body(inner)
            if best is None or better(expr.combiner, new, best):
                best, place = new, k
        return np.int64(place)

    return run
