"""Modules whose functions use one another, as one function: the meaning of a call.

    @graph
    def main_prepare(): …; return p              p: f32[64] = expression of weights

    @graph
    def main_0(x: f32["n"], p: f32[64]): …; return h

    @graph                                  ->   @graph
    def main(x: f32["n"]):                       def main(x: f32["n"]):
        p: f32[64] = weight("main_prepare.p")        p: f32[64] = …
        h: f32["n"] = main_0(x, p)                   h: f32["n"] = …
        return h                                     return h

A binding whose operator is a function of the module calls it; symbols mean the same in both. Calls
of tensor programs stay (`opt.use_programs`). A weight whose key is "function.value" is a result of
that function, which takes no parameters.
"""

from __future__ import annotations

from typing import Any

from pliant.base.errors import InvalidModelError
from pliant.base.names import fresh_name
from pliant.graph.function import Binding, Function, Module, Value


def inline(module: Module, name: str) -> Function:
    """The function of that name with all that it calls in place of the calls.

    Raises InvalidModelError where a call does not fit or functions call one another in a circle.
    """
    return _inlined(module, name, ())


def _inlined(module: Module, name: str, within: tuple[str, ...]) -> Function:
    if name in within:
        raise InvalidModelError(f"{' calls '.join((*within, name))}: a circle")
    function = module.functions.get(name)
    if not isinstance(function, Function):
        raise InvalidModelError(f"there is no graph function {name!r} in the module")
    early = {k.partition(".")[0] for _, k in function.weights} & module.functions.keys()
    called = {b.op for b in function.bindings} & module.functions.keys()
    called = {c for c in called if isinstance(module.functions[c], Function)}
    if not early and not called:
        return function
    inlining = _Inlining(function)
    for other in sorted(early):
        inlining.prepare(_inlined(module, other, (*within, name)))
    callees = {c: _inlined(module, c, (*within, name)) for c in called}
    for binding in function.bindings:
        callee = callees.get(binding.op)
        if callee is None:
            inlining.bind(binding)
        else:
            inlining.call(binding, callee)
    return inlining.function(function)


class _Inlining:
    def __init__(self, function: Function) -> None:
        self.weights = {key: value for value, key in function.weights}
        self.bindings: list[Binding] = []
        self.instead: dict[Value, Value] = {}
        own = [*function.params, *(v for b in function.bindings for v in b.outputs)]
        self.taken = {v.name for v in own} | {v.name for v, _ in function.weights}

    def bind(self, binding: Binding) -> None:
        self.bindings.append(binding.replace(args=tuple(map(self._renamed, binding.args))))

    def prepare(self, function: Function) -> None:
        """The bindings of a function that weights come from."""
        wanted = {}
        for key in list(self.weights):
            home, _, result = key.partition(".")
            if home == function.name:
                wanted[result] = self.weights.pop(key)
        results = {r.name: r for r in function.results}
        missing = wanted.keys() - results.keys()
        if missing or function.params:
            what = f"no result {min(missing)}" if missing else "parameters"
            raise InvalidModelError(f"{function.name} has {what}: its results are no weights")
        self._body(function, {}, {results[n]: v for n, v in wanted.items()})

    def call(self, binding: Binding, callee: Function) -> None:
        """The bindings of a callee instead of its call."""
        _check_types(callee.name, "operand", callee.params, binding.args)
        _check_types(callee.name, "result", callee.results, binding.outputs)
        given = dict(zip(callee.params, map(self._renamed, binding.args), strict=True))
        self._body(callee, given, dict(zip(callee.results, binding.outputs, strict=True)))

    def _body(
        self, callee: Function, given: dict[Value, Value], results: dict[Value, Value]
    ) -> None:
        inner = dict(given)
        for value, key in callee.weights:
            inner[value] = inner.get(value) or self._weight(value, key)
        for binding in callee.bindings:
            outputs = []
            for v in binding.outputs:
                inner[v] = results.get(v) or self._fresh(v)
                outputs.append(inner[v])
            args = tuple([_mapped(a, inner) for a in binding.args])
            self.bindings.append(binding.replace(args=args, outputs=tuple(outputs)))
        for value, outside in results.items():
            if inner[value] is not outside:  # a parameter or a weight comes back
                self.instead[outside] = inner[value]

    def _weight(self, value: Value, key: str) -> Value:
        if key not in self.weights:
            self.weights[key] = self._fresh(value)
        return self.weights[key]

    def _fresh(self, value: Value) -> Value:
        name = fresh_name(value.name, self.taken)
        self.taken.add(name)
        return value if name == value.name else Value(name, value.type)

    def _renamed(self, arg: Any) -> Any:
        return _mapped(arg, self.instead)

    def function(self, outer: Function) -> Function:
        results = tuple([self.instead.get(r, r) for r in outer.results])
        return outer.replace(
            weights=tuple([(v, k) for k, v in self.weights.items()]),
            bindings=tuple(self.bindings),
            results=results,
        )


def _mapped(arg: Any, table: dict[Value, Value]) -> Any:
    if isinstance(arg, tuple):
        return tuple([_mapped(a, table) for a in arg])
    return table.get(arg, arg)


def _check_types(name: str, what: str, formal: tuple[Value, ...], actual: tuple[Any, ...]) -> None:
    if len(formal) != len(actual):
        raise InvalidModelError(f"{name} has {len(formal)} {what}s, {len(actual)} are given")
    for f, a in zip(formal, actual, strict=True):
        if not isinstance(a, Value) or a.type is not f.type:
            got = a.type if isinstance(a, Value) else repr(a)
            raise InvalidModelError(f"{name}: {what} {f.name} is {f.type}, not {got}")
