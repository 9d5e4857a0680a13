"""Rewriting of graph functions by tables of rules.

    x = any_("x")
    RULES = (
        Rule("identity", op("identity", x), lambda m, b: m["x"]),
        Rule("transpose twice", op("transpose", op("transpose", x, once=True, name="inner")),
             lambda m, b: b.call("transpose", m["x"], perm=composed(m))),
    )
    rewrite(function, RULES, operators)

    y = transpose(x, perm=(1, 0))
    z = transpose(y, perm=(1, 0))        ->    u = transpose(x, perm=(0, 1))
    return z                                   return u

A pattern is matched against a binding (by the value that it gives) and the bindings that made its
operands. A replacement is a function of the match and a `Builder`: it calls operators and gives the
new value (or values), or refuses with `NoMatch(reason)`. New bindings carry the spans of all that
they replace. What is not used any more is dropped. Each round walks the bindings once; rounds end
when nothing matches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pliant.graph.builder import Builder
from pliant.graph.function import Binding, Function, Module, Value
from pliant.graph.operator import Operators
from pliant.ir.rewrite import NoMatch, RewriteError

STEP_LIMIT: Final = 100_000

Explain = Callable[[str, Binding, str], None]
"""Called with a rule's name, the binding and the reason for which the rule does not apply."""


@dataclass(frozen=True)
class AnyPattern:
    """Matches every operand: a value, None, or all of a variadic one."""

    name: str


@dataclass(frozen=True)
class OpPattern:
    """Matches the binding that made a value; see `op`."""

    ops: tuple[str, ...]
    args: tuple[Pattern | None, ...] | None
    attrs: tuple[tuple[str, Any], ...]
    name: str
    once: bool


Pattern = AnyPattern | OpPattern | tuple["AnyPattern | OpPattern", ...]


def any_(name: str) -> AnyPattern:
    """Any operand."""
    return AnyPattern(name)


def op(
    ops: str | Sequence[str],
    *args: Pattern | None,
    attrs: Mapping[str, Any] | None = None,
    name: str = "",
    once: bool = False,
    any_args: bool = False,
) -> OpPattern:
    """A binding of one of `ops`.

    `args`: patterns, None for an absent operand, tuples for variadic ones; with `any_args` they do
    not matter. `attrs`: wanted values, or predicates. `name` makes the binding known to the
    replacement. `once`: nothing else uses its result.
    """
    names = (ops,) if isinstance(ops, str) else tuple(ops)
    wanted = tuple((attrs or {}).items())
    return OpPattern(names, None if any_args else args, wanted, name, once)


@dataclass
class Match:
    """What a pattern's names stand for."""

    root: Binding
    operands: dict[str, Any] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    covered: list[Binding] = field(default_factory=list)
    makers: Mapping[Value, Binding] = field(default_factory=dict)
    uses: Mapping[Value, int] = field(default_factory=dict)

    def maker(self, value: Value) -> Binding | None:
        """What makes a value that is read once, for replacements that look further than patterns
        say; None for others."""
        return self.makers.get(value) if self.uses.get(value) == 1 else None

    def __getitem__(self, name: str) -> Any:
        """The operand of that name."""
        return self.operands[name]

    def attrs(self, name: str = "") -> dict[str, Any]:
        """Attributes of the named binding, or of the root."""
        return (self.bindings[name] if name else self.root).attributes()


Replacement = Callable[[Match, Builder], "Value | tuple[Value, ...] | NoMatch"]


@dataclass(frozen=True)
class Rule:
    """`pattern` becomes what `replacement` builds."""

    name: str
    pattern: OpPattern
    replacement: Replacement


def rewrite_module(
    module: Module, rules: Sequence[Rule], operators: Operators, *, explain: Explain | None = None
) -> Module:
    """Rewrite every graph function; constants that the rules make join the module's weights."""
    functions, weights = dict(module.functions), dict(module.weights)
    for name, function in module.functions.items():
        if isinstance(function, Function):
            functions[name], new = rewrite(function, rules, operators, explain=explain)
            weights |= new
    return Module(functions, weights)


def rewrite(
    function: Function,
    rules: Sequence[Rule],
    operators: Operators,
    *,
    limit: int = STEP_LIMIT,
    explain: Explain | None = None,
) -> tuple[Function, dict[str, np.ndarray]]:
    """The function rewritten until no rule matches, and the weights that are new.

    Raises RewriteError after `limit` steps, naming the last ten rules. `explain` is told of every
    rule that was tried in vain.
    """
    steps = _Steps(limit)
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        for name in rule.pattern.ops:
            table.setdefault(name, []).append(rule)
    weights: dict[str, np.ndarray] = {}
    fired = -1
    while fired != steps.count:
        fired = steps.count
        function, new = _Round(function, table, operators, steps, explain).run()
        weights |= new
    return function, weights


def without_unused(function: Function) -> Function:
    """The function without bindings and weights that no result needs."""
    needed = set(function.results)
    kept: list[Binding] = []
    for binding in reversed(function.bindings):
        if not needed.isdisjoint(binding.outputs):
            kept.append(binding)
            needed.update(binding.operands())
    weights = tuple([(v, key) for v, key in function.weights if v in needed])
    return function.replace(bindings=tuple(reversed(kept)), weights=weights)


@dataclass
class _Steps:
    limit: int
    count: int = 0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=10))

    def add(self, name: str) -> None:
        self.count += 1
        self.last.append(name)
        if self.count > self.limit:
            raise RewriteError(
                f"rewriting does not end after {self.limit} steps; the last rules were "
                + ", ".join(self.last)
            )


class _Round:
    """One walk over the bindings, in order: what a binding reads is rewritten before it."""

    def __init__(
        self,
        function: Function,
        table: Mapping[str, list[Rule]],
        operators: Operators,
        steps: _Steps,
        explain: Explain | None,
    ) -> None:
        self.function = function
        self.table = table
        self.steps = steps
        self.explain = explain
        self.builder = Builder.resume(function, operators, ())
        self.makers: dict[Value, Binding] = {}
        self.instead: dict[Value, Value] = {}
        self.uses: dict[Value, int] = {}
        for value in (*function.results, *(v for b in function.bindings for v in b.operands())):
            self.uses[value] = self.uses.get(value, 0) + 1

    def run(self) -> tuple[Function, dict[str, np.ndarray]]:
        for old in self.function.bindings:
            binding = old.replace(args=tuple([self._renamed(a) for a in old.args]))
            if not self._rewritten(binding):
                self.builder.keep(binding)
                self.makers |= dict.fromkeys(binding.outputs, binding)
        results = [self.instead.get(r, r) for r in self.function.results]
        function, weights = self.builder.finish(results)
        return without_unused(function), weights

    def _renamed(self, arg: Any) -> Any:
        if isinstance(arg, tuple):
            return tuple([self._renamed(a) for a in arg])
        return self.instead.get(arg, arg)

    def _rewritten(self, binding: Binding) -> bool:
        for rule in self.table.get(binding.op, ()):
            match = Match(binding, makers=self.makers, uses=self.uses)
            reason = self._match(rule.pattern, binding, match, root=True)
            if reason is None:
                reason = self._replace(rule, match)
            if reason is None:
                self.steps.add(rule.name)
                return True
            if self.explain is not None:
                self.explain(rule.name, binding, reason)
        return False

    def _replace(self, rule: Rule, match: Match) -> str | None:
        """Bind the replacement's values instead of the root's; None, or why not."""
        begin = len(self.builder.bindings)
        spans = [s for b in reversed(match.covered) for s in b.spans]  # what ran first is first
        self.builder.origin = tuple(dict.fromkeys(spans))
        new = rule.replacement(match, self.builder)
        if isinstance(new, NoMatch):
            return new.reason
        values = new if isinstance(new, tuple) else (new,)
        outputs = match.root.outputs
        if len(values) != len(outputs):
            raise RewriteError(f"{rule.name}: {len(values)} values for {len(outputs)}")
        for made in self.builder.bindings[begin:]:
            self.makers |= dict.fromkeys(made.outputs, made)
            for value in made.operands():
                self.uses[value] = self.uses.get(value, 0) + 1
        for value in match.root.operands():
            self.uses[value] -= 1
        for old, value in zip(outputs, values, strict=True):
            self._check_type(rule, old, value)
            self.instead[old] = value
            self.uses[value] = self.uses.get(value, 0) + self.uses.get(old, 0)
        return None

    def _check_type(self, rule: Rule, old: Value, new: Value) -> None:
        equal = self.builder.facts.equal
        same = old.type is new.type or (
            old.dtype is new.dtype
            and len(old.shape) == len(new.shape)
            and all(equal(a, b) for a, b in zip(old.shape, new.shape, strict=True))
        )
        if not same:
            raise RewriteError(f"{rule.name}: {old.name} is {old.type}, its replacement {new.type}")

    def _match(
        self, pattern: OpPattern, binding: Binding, match: Match, *, root: bool = False
    ) -> str | None:
        """Bind what the pattern names; None if it matches, else the reason why not."""
        if binding.op not in pattern.ops:
            return f"{' or '.join(pattern.ops)} is expected, not {binding.op}"
        found = binding.attributes()
        for name, wanted in pattern.attrs:
            value = found.get(name)
            verdict = wanted(value) if callable(wanted) else value == wanted
            if isinstance(verdict, NoMatch):
                return verdict.reason
            if not verdict:
                return f"{binding.op}: {name} is {value!r}"
        if pattern.once and not root and sum(self.uses[v] for v in binding.outputs) != 1:
            return f"{binding.outputs[0].name} is used elsewhere too"
        match.covered.append(binding)
        if pattern.name:
            match.bindings[pattern.name] = binding
        if pattern.args is None:
            return None
        return self._match_args(pattern.args, binding.args, match)

    def _match_args(
        self, patterns: Sequence[Pattern | None], args: Sequence[Any], match: Match
    ) -> str | None:
        if len(patterns) != len(args):
            return f"{len(patterns)} operands are expected, not {len(args)}"
        for pattern, arg in zip(patterns, args, strict=True):
            reason = self._match_arg(pattern, arg, match)
            if reason is not None:
                return reason
        return None

    def _match_arg(self, pattern: Pattern | None, arg: Any, so_far: Match) -> str | None:
        match pattern:
            case None:
                return None if arg is None else f"{arg.name} is given, nothing is expected"
            case AnyPattern(name):
                known = so_far.operands.setdefault(name, arg)
                return None if known == arg else f"{name} would be two different operands"
            case OpPattern():
                maker = self.makers.get(arg) if isinstance(arg, Value) else None
                if maker is None:
                    return f"{' or '.join(pattern.ops)} is expected, not a parameter or constant"
                return self._match(pattern, maker, so_far)
            case _:
                if not isinstance(arg, tuple):
                    return "a variadic operand is expected"
                return self._match_args(pattern, arg, so_far)
