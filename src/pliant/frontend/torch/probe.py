"""Where a traced graph does not do what the model does: tried by running both.

if x.shape[0] == 1: …      the trace holds the other branch: sizes below 2 are refused
if n % 4: x = pad(x)       the trace pads; by nothing where n is a multiple of 4: no restriction
if n > 16: …               a trace at 5 is wrong beyond 16: refused there
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from pliant.frontend.torch.dims import Leaf
from pliant.frontend.torch.examples import example_sizes, groups, key_of, resized
from pliant.frontend.torch.guards import assumed_equal, demands, limits
from pliant.frontend.torch.legal import legal

_SAMPLES = 2
"""At so many sizes beyond a guard the graph must be right for the guard to be dropped."""

_WRONG = ("differs", "fails")

_ABOVE = 8
"""So many sizes above the example's are tried first where a trace is to assume less."""


@dataclass(frozen=True)
class Probe:
    """A model, its example and its trace, or that written in other operators."""

    model: torch.nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    leaves: Sequence[Leaf]
    program: ExportedProgram
    traced: ExportedProgram | None = None

    def written_as(self, program: ExportedProgram) -> Probe:
        """With the trace in other operators."""
        return replace(self, program=program, traced=self._calls)

    @property
    def _calls(self) -> ExportedProgram:
        """The program of the operators that the model calls."""
        return self.traced or self.program

    @property
    def possible(self) -> bool:
        """Whether the model can be run on the example."""
        return _is_real(self.leaves)

    def least(self) -> dict[str, int]:
        """The least size of each dim at whose sizes 0 and 1 the model computes something else."""
        known = {k: dim for k, (dim, _) in groups(self.leaves).items() if dim.multiple == 1}
        found: dict[str, int] = {}
        for size in (0, 1):
            names = [k for k, dim in known.items() if dim.min <= size]
            # Where all are 0 nothing is left to differ, and one that is 0 costs little to run.
            together = size > 0 and bool(names)
            if together and self.verdict(dict.fromkeys(names, size)) not in _WRONG:
                continue
            wrong = [n for n in names if self.verdict({n: size}) in _WRONG]
            if together and not wrong:
                wrong = self._together(names, size)
            found |= dict.fromkeys(wrong, size + 1)
        return found

    def _together(self, names: Sequence[str], size: int) -> list[str]:
        """Of dims that make a difference only together, one without which there is none."""
        rest = list(names)
        for name in names:
            fewer = [n for n in rest if n != name]
            if fewer and self.verdict(dict.fromkeys(fewer, size)) in _WRONG:
                rest = fewer
        return rest[-1:]

    def missed(self, needless: Collection[Any]) -> dict[str, int] | None:
        """Sizes of which all holds that the trace assumed, and where the graph is wrong all the
        same: the model keeps something that it computed for the sizes of another call, or does
        something else while it is traced (then these are none). Few elements are tried first. Where
        the graph fails a call is refused: that is wrong only if it fails at all of these sizes."""
        failed: dict[str, int] | None = None
        known = {k: dim for k, (dim, _) in groups(self.leaves).items()}
        keys, now = self._symbols()
        asked = {*assumed_equal(self.program), *demands(self.program), *limits(self.program)}
        steps = {name: math.lcm(*(known[k].multiple for k in keys[name])) for name in now}
        few = [{name: n * steps[name] for name in now} for n in (2, 3)]
        more = [{name: size + n * steps[name] for name, size in now.items()} for n in (1, 2)]
        for sizes in (*few, *more) if now else ():
            fits = all(known[k].allows(sizes[name]) for name in sizes for k in keys[name])
            holds = all(_holds(g, sizes) for g in asked.difference(needless))
            if sizes == now or not (fits and holds):
                continue
            other = {k: size for name, size in sizes.items() for k in keys[name]}
            verdict = self.verdict(other)
            if verdict == "agrees":
                return None
            if verdict == "differs":
                return self._explained(other)
            if verdict == "fails":
                failed = failed or other
        return None if failed is None else self._explained(failed)

    def _explained(self, other: dict[str, int]) -> dict[str, int] | None:
        """Why the graph is wrong at these sizes: where it is right at the example's, by them; else
        by being traced, unless the model draws random numbers."""
        if self.verdict({}) == "agrees":
            return other
        return {} if self._is_steady() else None

    def needless(self) -> frozenset[Any]:
        """The guards and limits of sizes beyond which the graph is right as well."""
        asked = (*demands(self.program), *limits(self.program))
        return frozenset(g for g in asked if self._is_needless(g))

    def taken(self, equalities: Iterable[Any]) -> Iterator[dict[str, int]]:
        """Sizes that the model takes, and where an equality does not hold: some, each once."""
        tried: list[dict[str, int]] = []
        for equality in equalities:
            for sizes in itertools.islice(self._beyond(equality, above=True), 2 * _SAMPLES):
                if sizes in tried or len(tried) > _ABOVE:
                    continue
                tried.append(sizes)
                if self.verdict(sizes) != "refuses":
                    yield sizes
                    break

    def covers(self, sizes: Mapping[str, int]) -> bool:
        """Whether the graph is the model there, and no equality that it was traced for, other than
        needless ones, forbids it."""
        keys, now = self._symbols()
        here = {name: next((sizes[k] for k in keys[name] if k in sizes), now[name]) for name in now}
        broken = [e for e in assumed_equal(self.program) if _at_sizes(e, here) is sympy.false]
        asked = demands(self.program) if broken else ()
        if any(e not in asked or not self._is_needless(e) for e in broken):
            return False
        return self.verdict(sizes) == "agrees"

    def _is_needless(self, guard: Any) -> bool:
        tried = 0
        for sizes in itertools.islice(self._beyond(guard), _SAMPLES):
            if self.verdict(sizes) != "agrees":
                return False
            tried += 1
        return tried > 0

    def _beyond(self, guard: Any, *, above: bool = False) -> Iterator[dict[str, int]]:
        """Sizes that a guard excludes; one symbol is changed at a time. With `above` those that are
        just greater than the example's come first."""
        keys, now = self._symbols()
        symbols = sorted(guard.free_symbols, key=str)
        if any(s.name not in keys for s in symbols):
            return
        known = {k: dim for k, (dim, _) in groups(self.leaves).items()}
        numbers = [int(n) for n in guard.atoms() if n.is_Integer and 0 < n < 1 << 12]
        near = [n + d for n in numbers for d in (-1, 0, 1)]
        for symbol in symbols:
            others = {s: now[s.name] for s in symbols if s is not symbol}
            dims = [known[k] for k in keys[symbol.name]]
            step = math.lcm(*[d.multiple for d in dims])
            first = [now[symbol.name] + k * step for k in range(1, 1 + _ABOVE)]
            first = first if above else list(others.values())
            multiples = range(step, 34 * step, step)
            for size in dict.fromkeys([*first, *near, *range(2, 34), *multiples]):
                legal = all(d.min <= size and (d.max is None or size <= d.max) and
                            size % d.multiple == 0 for d in dims)  # fmt: skip
                if legal and size >= 2 and _at(guard, {symbol: size, **others}) is sympy.false:
                    yield dict.fromkeys(keys[symbol.name], size)

    def _symbols(self) -> tuple[dict[str, list[str]], dict[str, int]]:
        """The dims that each of torch's symbols is, and its size in the example."""
        signature = self.program.graph_signature.input_specs
        names = [s.arg.name for s in signature if s.kind is InputKind.USER_INPUT]
        values = {n.name: n.meta.get("val") for n in self.program.graph.nodes}
        fresh = example_sizes(self.leaves)
        keys: dict[str, list[str]] = {}
        now: dict[str, int] = {}
        for leaf, name in zip(self.leaves, names, strict=True):
            for axis in leaf.requests:
                size = values[name].shape[axis]
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    key, symbol = key_of(leaf, axis), size.node.expr.name
                    keys.setdefault(symbol, []).append(key)
                    now[symbol] = fresh.get(key, int(leaf.value.shape[axis]))
        return keys, now

    def _is_steady(self) -> bool:
        """Whether the model gives the same twice: it draws no random numbers."""
        args, kwargs = resized(self.args, self.kwargs, self.leaves, example_sizes(self.leaves))
        model = _twin(self.model)
        with torch.no_grad(), legal(self._calls), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, second = (pytree.tree_leaves(model(*args, **kwargs)) for _ in range(2))
        return len(first) == len(second) and all(map(_is_close, first, second))

    def verdict(self, sizes: Mapping[str, int]) -> str:
        """How graph and model compare there: "agrees", "differs", the graph "fails", or the model
        "refuses" it."""
        wanted = {**example_sizes(self.leaves), **sizes}
        with torch.no_grad(), legal(self._calls), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                args, kwargs = resized(self.args, self.kwargs, self.leaves, wanted)
                inputs = [x.clone() if isinstance(x, torch.Tensor) else x
                          for x in pytree.tree_leaves((args, kwargs))]  # fmt: skip
                expected = pytree.tree_leaves(_twin(self.model)(*args, **kwargs))
            except Exception:  # whatever the model raises: the size is not legal
                return "refuses"
            try:
                found = run_graph(self.program, inputs)
            except Exception:  # as above: torch's operators raise many kinds
                return "fails"
        same = len(found) == len(expected) and all(map(_is_close, found, expected))
        return "agrees" if same else "differs"


def _twin(model: torch.nn.Module) -> torch.nn.Module:
    """The model with the same tensors, and Python's state of its own: some keep sizes that they
    have seen. The model itself where it cannot be copied."""
    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}
    try:
        return copy.deepcopy(model, shared)
    except Exception:  # whatever its parts raise
        return model


def _holds(guard: Any, sizes: Mapping[str, int]) -> bool:
    """Whether it certainly holds."""
    return _at_sizes(guard, sizes) is sympy.true


def _at_sizes(guard: Any, sizes: Mapping[str, int]) -> Any:
    return _at(guard, {s: sizes[s.name] for s in guard.free_symbols if s.name in sizes})


def _at(guard: Any, sizes: Mapping[Any, int]) -> Any:
    """What is left of it at these sizes of symbols; None where it means nothing."""
    try:
        return guard.subs(sizes)
    except ZeroDivisionError:
        return None


def _is_real(leaves: Iterable[Leaf]) -> bool:
    tensors = [leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    return all(type(t) in (torch.Tensor, torch.nn.Parameter) and not t.is_meta for t in tensors)


class _Unchecked(torch.fx.Interpreter):
    """Runs a graph as importing reads it, and without the assertions about sizes."""

    def run_node(self, n: Node) -> Any:
        if str(n.target).startswith(("aten._assert", "aten.sym_constrain")):
            return None
        if str(n.target).startswith("aten.squeeze") and isinstance(n.args[0], Node):
            return self._squeezed(n, n.args[0])
        return super().run_node(n)

    def _squeezed(self, n: Node, source: Node) -> Any:
        """A dim that may be 1 stays, as it does in what is imported."""
        x = self.env[source]
        given = n.args[1] if len(n.args) > 1 else list(range(x.ndim))
        dims = given if isinstance(given, list | tuple) else [given]
        sizes = source.meta["val"].shape
        return x.squeeze([d for d in dims if isinstance(sizes[d], int)]) if x.ndim else x


def run_graph(program: ExportedProgram, inputs: Sequence[Any]) -> list[Any]:
    """The exported graph on these leaves of the arguments."""
    values = iter(inputs)
    everything: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            everything.append(next(values))
        elif spec.target in program.constants:
            everything.append(program.constants[spec.target])
        else:
            everything.append(program.state_dict[str(spec.target)])
    return list(_Unchecked(program.graph_module).run(*everything))


def _is_close(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point:
        return bool(torch.equal(a, b))
    if torch.finfo(a.dtype).bits < 32:  # sums in another order may differ in the last bits
        return _is_near(a.float(), b.float(), 8 * torch.finfo(a.dtype).eps)
    finite = b[b.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4 * max(scale, 1e-3), equal_nan=True)


def _is_near(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    """The same where they are not finite, and near by their relative L2 elsewhere."""
    finite = b.isfinite()
    if not torch.equal(finite, a.isfinite()):
        return False
    a, b = a[finite].double(), b[finite].double()
    return bool((a - b).norm() <= tolerance * max(float(b.norm()), 1e-3))
