"""The host function: read the sizes, check them, place the buffers, launch the kernels.

    def main():
        batch = x_shape[0]; seq = x_shape[1]
        check(x_shape[2] == 384, "x: dim 2 must be 384, got {0}")
        with output(0, f32[batch, seq]) as y, arena(4 * batch * seq * 384) as memory:
            k_1f3a(x, w3, memory[0], batch * seq, 384)
            if seq % 1024 == 0: k_77b0(…) else: k_90c2(…)
            …

It is a loop program like any other, compiled with the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pliant.base.dtypes import i64, u8
from pliant.base.errors import InvalidModelError
from pliant.base.names import fresh_name
from pliant.graph.function import Dim, Value
from pliant.graph.function import Function as GraphFunction
from pliant.ir.expr import Binary, Expr, Index, Load, Var
from pliant.ir.node import Node
from pliant.ir.tensor import Input
from pliant.loop.printer import HOST_NOTE
from pliant.loop.stmt import (
    Alloc,
    Buffer,
    BufferRef,
    Check,
    Function,
    If,
    Invoke,
    Let,
    Stmt,
    buffer,
    compact_strides,
    seq,
)  # fmt: skip
from pliant.lower.canonical import Launch, Spec
from pliant.lower.guards import guards
from pliant.lower.memory import MemoryPlan
from pliant.lower.pack import product
from pliant.lower.sliced import Place
from pliant.sym.atoms import MaxAtom
from pliant.sym.expr import Int, IntLike, as_int, var
from pliant.sym.facts import Facts


def host_function(
    graph: GraphFunction,
    launches: Sequence[Launch],
    symbols: Mapping[Spec, str],
    types: Mapping[str, Input],
    weights: Sequence[str],
    results: Sequence[str],
    viewed: Mapping[str, str],
    memory: MemoryPlan,
) -> Function:
    """`symbols` are those of the kernels; `weights` the names of the weight table's entries;
    `viewed` says of values that lie where a result does in which."""
    host = _Host(graph, symbols, types, weights, results, viewed, memory)
    return host.build(launches)


class _Host:
    def __init__(
        self, graph: GraphFunction, symbols: Mapping[Spec, str], types: Mapping[str, Input],
        weights: Sequence[str], results: Sequence[str], viewed: Mapping[str, str],
        memory: MemoryPlan,
    ) -> None:  # fmt: skip
        self.graph, self.symbols = graph, symbols
        self.types, self.memory, self.results = types, memory, results
        self.viewed = viewed
        self.taken = {*types, *(name for name, _ in graph.dims), *(n for n, _ in memory.steps)}
        self.arena = buffer(self._fresh("memory"), (memory.total,), u8, scope="arena")
        self.buffers: dict[str, Buffer] = {}
        self.shapes: list[Buffer] = []
        for k, p in enumerate(graph.params):
            self.buffers[p.name] = _buffer(p.name, types[p.name], f"input{k}")
            self.shapes.append(
                buffer(self._fresh(f"{p.name}_shape"), (len(p.shape),), i64)
                .replace(scope=f"shape{k}", strides=(as_int(1),))
            )  # fmt: skip
        for k, name in enumerate(weights):
            self.buffers[name] = _buffer(name, types[name], f"weight{k}")
        self.params = list(self.buffers.values())
        self.outputs: list[Buffer] = []
        for k, name in enumerate(results):
            b = _buffer(self._fresh(f"{name}_out"), types[name], f"output{k}")
            self.buffers[name] = b
            self.outputs.append(b)

    def build(self, launches: Sequence[Launch]) -> Function:
        calls = seq(*map(self._call, launches))
        body: Stmt = calls
        if self.memory.offsets:
            body = Alloc(self.arena, body)
        for name, size in reversed(self.memory.steps):
            body = Let(Var(name, i64), Index(size), body)
        for b in reversed(self.outputs):
            body = Alloc(b, body)
        sizes = [s for launch in launches for s in launch.sizes]
        sizes += [v.guard for launch in launches for v in launch.variants]
        body = self._prologue(body, sizes)
        return Function(self.graph.name, (*self.params, *self.shapes), (), body, (HOST_NOTE,))

    def _call(self, launch: Launch) -> Stmt:
        places = launch.places or ((),) * len(launch.inputs)
        read = (self._ref(n, at) for n, at in zip(launch.inputs, places, strict=True))
        refs = (*read, *(self._ref(n) for n in launch.outputs))
        args: tuple[Node, ...] = (*refs, *map(Index, launch.sizes))
        call: Stmt = Invoke(self.symbols[launch.spec], args)
        for v in reversed(launch.variants):
            holds = Binary("eq", Index(v.guard), Index(as_int(0)))
            call = If(holds, Invoke(self.symbols[v.spec], args), call)
        return call

    def _ref(self, name: str, place: Place = ()) -> BufferRef:
        """A value from an element on, of one that lies in order; from the first by itself."""
        if name in self.memory.offsets:
            behind = self._behind(name, place) * self.types[name].dtype.bytes
            return BufferRef(self.arena, (Index(self.memory.offsets[name] + behind),))
        b = self.buffers[self.viewed.get(name, name)]
        at: list[IntLike] = list(place or (0,) * len(b.shape))
        if name in self.viewed and place:  # its elements lie there in other dimensions
            at = [0] * len(b.shape)
            at[-1:] = [self._behind(name, place)] if at else []
        return BufferRef(b, tuple(Index(as_int(k)) for k in at))

    def _behind(self, name: str, place: Place) -> Int:
        """So many elements lie before that place of a value that lies in order."""
        steps = zip(place, compact_strides(self.types[name].dims), strict=False)
        return sum((k * step for k, step in steps), as_int(0))

    # -- sizes and checks ------------------------------------------------------------------------

    def _prologue(self, body: Stmt, arguments: Sequence[Int]) -> Stmt:
        """Bind every symbol, then check every range, whether sizes can be computed with at all,
        every extent and equality."""
        bound, lets, solved = self._bind()
        checks: list[Stmt] = []
        plain = {n for k, d in bound for n in self.graph.params[k].shape[d].names}
        for name, known in self.graph.dims:
            if name in solved:
                # An extent is never negative; what was solved from one (n + 3) may be.
                checks += _range_checks(name, known, solved[name], 0 if name in plain else -1)
        checks += guards(self._sizes(arguments), self._ranges(solved))
        for k, p in enumerate(self.graph.params):
            for d, extent in enumerate(p.shape):
                if (k, d) not in bound:
                    checks.append(self._extent_check(k, p, d, extent))
        for a, b, message in self.graph.equalities:
            left = _larger(a, b)
            open_ = [x for x in (left, b) if not x.is_const]
            told = ", ".join(f"{x} is {{{k}}}" for k, x in enumerate(open_))
            values = tuple(map(Index, open_))
            checks.append(_check(Binary("eq", Index(a), Index(b)), f"{message} ({told})", values))
        out = seq(*checks, body)
        for name, value in reversed(lets):
            out = Let(Var(name, i64), value, out)
        return out

    def _sizes(self, arguments: Sequence[Int]) -> Iterator[Int]:
        """Everything that this function computes."""
        for p in self.graph.params:
            yield from p.shape
        for a, b, _ in self.graph.equalities:
            yield a
            yield b
        for output in self.outputs:
            yield from output.shape
            yield product(list(output.shape)) * output.dtype.bytes
        yield self.memory.most
        yield from arguments

    def _ranges(self, solved: Mapping[str, str]) -> Facts:
        """What the range checks have made sure of. Equalities are not checked yet."""
        facts = Facts()
        for name, known in self.graph.dims:
            if name in solved:
                facts.declare(name, known.min, known.max, known.multiple)
        return facts

    def _bind(self) -> tuple[set[tuple[int, int]], list[tuple[str, Expr]], dict[str, str]]:
        """Symbols from extents: bare ones first, then those of linear expressions. Returns the
        extents used up, the definitions, and where each symbol came from."""
        used: set[tuple[int, int]] = set()
        lets: list[tuple[str, Expr]] = []
        source: dict[str, str] = {}
        for k, p in enumerate(self.graph.params):
            for d, extent in enumerate(p.shape):
                names = extent.names
                if len(names) == 1 and extent is var(min(names)) and min(names) not in source:
                    (name,) = names
                    lets.append((name, self._extent(k, d)))
                    source[name] = f"{p.name}: dim {d}"
                    used.add((k, d))
        again = True
        while again:
            again = False
            for k, p in enumerate(self.graph.params):
                for d, extent in enumerate(p.shape):
                    unknown = sorted(n for n in extent.names if n not in source)
                    split = extent.linear(unknown[0]) if len(unknown) == 1 else None
                    if split is None or not split[0].is_const or split[0].value < 1:
                        continue
                    raw = self._fresh(f"extent{k}_{d}")
                    lets.append((raw, self._extent(k, d)))
                    lets.append((unknown[0], Index((var(raw) - split[1]) // split[0])))
                    source[unknown[0]] = f"{p.name}: dim {d}"
                    again = True
        missing = sorted(
            {n for p in self.graph.params for e in p.shape for n in e.names} - set(source)
        )
        if missing:
            raise InvalidModelError(
                f"{self.graph.name}: the sizes {', '.join(missing)} do not follow from the inputs' "
                "shapes; give each its own dimension of an input"
            )
        return used, lets, source

    def _fresh(self, name: str) -> str:
        """A name that nothing has: neither a value of the model, which may have any, nor a size."""
        name = fresh_name(name, self.taken)
        self.taken.add(name)
        return name

    def _extent(self, k: int, d: int) -> Expr:
        return Load(self.shapes[k], (Index(as_int(d)),))

    def _extent_check(self, k: int, p: Value, d: int, extent: Int) -> Stmt:
        got = self._extent(k, d)
        what = str(extent) if extent.is_const else f"{extent} = {{1}}"
        message = f"{p.name}: dim {d} must be {what}, got {{0}}"
        return _check(Binary("eq", got, Index(extent)), message, (got, Index(extent)))


def _range_checks(name: str, known: Dim, where: str, sure: int) -> list[Stmt]:
    """The checks of a symbol that is at least `sure` anyway."""
    size = Index(var(name))
    out: list[Stmt] = []
    if known.min > sure:
        text = f"{where} ({name}) must be at least {known.min}, got {{0}}"
        out.append(_check(Binary("le", Index(as_int(known.min)), size), text, (size,)))
    if known.max is not None:
        text = f"{where} ({name}) must be at most {known.max}, got {{0}}"
        out.append(_check(Binary("le", size, Index(as_int(known.max))), text, (size,)))
    if known.multiple > 1:
        text = f"{where} ({name}) must be a multiple of {known.multiple}, got {{0}}"
        rest = Index(var(name) % known.multiple)
        out.append(_check(Binary("eq", rest, Index(as_int(0))), text, (size,)))
    return out


def _larger(a: Int, b: Int) -> Int:
    """What is more than `b` where `a`, the greater of both, does not equal it."""
    atom = a.sole_atom
    if not isinstance(atom, MaxAtom) or b not in atom.args:
        return a
    others = [x for x in atom.args if x is not b]
    return others[0] if len(others) == 1 else a


def _check(cond: Expr, message: str, values: tuple[Expr, ...]) -> Stmt:
    return Check(cond, "ShapeError", message, values)


def _buffer(name: str, type_: Input, scope: str) -> Buffer:
    return Buffer(name, type_.dtype, type_.dims, compact_strides(type_.dims), scope)
