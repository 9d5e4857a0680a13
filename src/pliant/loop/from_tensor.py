"""The unscheduled program of tensor expressions: the same comprehensions, as blocks.

    t = compute((n,), lambda i: reduce("sum", (k,), lambda r: x[i, r]), "t")

    for t_i in range(n):
        for t_r in range(k):
            with block("t", S(t_vi), R(t_vr)):     bound to t_i, t_r
                init: t[t_vi] = 0
                t[t_vi] = t[t_vi] + x[t_vi, t_vr]

A scan's iterator along its axis is ordered ("O"), and so are the iterators of a scatter but for
those that say by themselves which element of a dimension is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Axis, Binary, Expr, Index, Load, Reduce, Select
from pliant.ir.node import Node, transform
from pliant.ir.tensor import (
    Compute,
    Input,
    Opaque,
    OpaqueOutput,
    Scan,
    Scatter,
    Tensor,
    producers,
)
from pliant.loop.reduction import best_of, combine, identity, start_of_best
from pliant.loop.rewrite import Names, copy_of, subst
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Combine,
    Function,
    If,
    Iter,
    Nop,
    Stmt,
    Store,
    buffer,
    for_,
    seq,
)
from pliant.sym.expr import Int, IntLike, as_int, var
from pliant.sym.extents import solve_extents

Layouts = Mapping[Tensor, tuple[Int, ...]]
SCATTER_OP = {"add": "add", "mul": "mul", "max": "max", "min": "min"}


def unscheduled(
    name: str,
    outputs: Sequence[Tensor],
    inputs: Sequence[Input],
    sizes: Sequence[str],
    layouts: Layouts | None = None,
    order: Sequence[Tensor] | None = None,
) -> Function:
    """The function that computes `outputs` from `inputs`: buffers are the inputs', then the
    outputs'; everything between is scratch. `layouts` gives strides where not compact, `order`
    what is computed first, of all that is computed (None: as the outputs need it)."""
    low = _Lowering(name, tuple(inputs), tuple(sizes), layouts or {})
    return low.function(tuple(outputs), producers(tuple(outputs)) if order is None else order)


class _Lowering:
    def __init__(
        self, name: str, inputs: tuple[Input, ...], sizes: tuple[str, ...], layouts: Layouts
    ) -> None:
        self.name, self.inputs, self.layouts = name, inputs, layouts
        self.names = Names(Function(name, (), sizes, Nop()))
        self.sizes = sizes
        self.buffers: dict[Tensor, Buffer] = {t: self._buffer(t, "param") for t in inputs}
        self.scratch: list[Buffer] = []

    def function(self, outputs: tuple[Tensor, ...], order: Iterable[Tensor]) -> Function:
        params = list(self.buffers.values())
        again: list[tuple[Tensor, Buffer]] = []  # outputs that have a buffer already
        for t in outputs:
            out = self._buffer(t, "param")
            params.append(out)
            if t in self.buffers:
                again.append((t, out))
            else:
                self.buffers[t] = out
        body = [self.nest(t) for t in order]
        body += [self._copy(self.buffers[t], out) for t, out in again]
        root = seq(*body)
        for b in reversed(self.scratch):
            root = Alloc(b, root)
        return Function(self.name, tuple(params), self.sizes, root)

    def nest(self, t: Tensor) -> Stmt:
        """The statements that fill `t`'s buffer."""
        match t:
            case Compute():
                return self._compute(t)
            case Scan():
                return self._scan(t)
            case Scatter():
                return self._scatter(t)
            case Opaque():
                return self._opaque(t)
            case Input() if t not in self.buffers:
                raise InvalidModelError(f"{t.name} is read but is not an input of {self.name}")
        return Nop()

    # ---- buffers

    def _buffer(self, t: Tensor, scope: Any) -> Buffer:
        label = self.names.buffer(identifier(t.name))
        return buffer(label, t.shape, t.dtype, scope=scope, strides=self.layouts.get(t))

    def of(self, t: Tensor) -> Buffer:
        found = self.buffers.get(t)
        if found is None:
            found = self.buffers[t] = self._buffer(t, "scratch")
            self.scratch.append(found)
        return found

    def _scratch(self, label: str, shape: tuple[Int, ...], dtype: DType) -> Buffer:
        made = buffer(self.names.buffer(label), shape, dtype, scope="scratch")
        self.scratch.append(made)
        return made

    # ---- forms

    def _compute(self, t: Compute) -> Stmt:
        nest = _Nest(self, self.of(t).name, [(a, "S") for a in t.axes], t.reduce_axes)
        out, at = self.of(t), nest.at(t.axes)
        if not isinstance(t.body, Reduce):
            return nest.block(Store(out, at, nest.expr(t.body)))
        value = nest.expr(t.body.body)
        if t.body.combiner in ("argmax", "argmin"):
            return self._arg_best(t.body, nest, out, at, value)
        init = Store(out, at, identity(t.body.combiner, out.dtype))
        return nest.block(Store(out, at, combine(t.body.combiner, Load(out, at), value)), init)

    def _arg_best(
        self, r: Reduce, nest: _Nest, out: Buffer, at: tuple[Expr, ...], value: Expr
    ) -> Stmt:
        """Position and value of the best so far."""
        best = self._scratch(out.name + "_best", out.shape, value.dtype)
        (axis,), (here,) = r.axes, nest.at(r.axes)
        by = best_of(r.combiner, value.dtype)
        targets = BufferRef(best, at), BufferRef(out, at)
        init = start_of_best(by, targets, axis.extent)
        return nest.block(Combine(by, targets, (value, here)), init)

    def _scan(self, t: Scan) -> Stmt:
        kinds = [(a, "O" if k == t.along else "S") for k, a in enumerate(t.axes)]
        nest = _Nest(self, self.of(t).name, kinds)
        out, step, extent = self.of(t), nest.var(t.axes[t.along]), t.axes[t.along].extent
        here = extent - 1 - step if t.reverse else step
        before = here + 1 if t.reverse else here - 1
        place = [nest.var(a) for a in t.axes]

        def at(position: Int) -> tuple[Expr, ...]:
            place[t.along] = position
            return tuple(map(Index, place))

        start = Binary("eq", Index(step), Index(as_int(0)))
        read = {t.axes[t.along].var: before if t.exclusive else here}
        value = nest.expr(t.body, read)
        first = identity(t.combiner, out.dtype) if t.exclusive else value
        running = combine(t.combiner, Load(out, at(before)), value)
        return nest.block(Store(out, at(here), Select(start, first, running)))

    def _scatter(self, t: Scatter) -> Stmt:
        out = self.of(t)
        copy = self._copy(self.of(t.base), out)
        # What an axis says by itself is another element in each of its iterations.
        beside = {w.int_ for w in t.where if isinstance(w, Index)}
        kinds = [(a, "S" if var(a.var) in beside else "O") for a in t.axes]
        nest = _Nest(self, out.name + "_at", kinds)
        at = tuple(nest.expr(w) for w in t.where)
        value = nest.expr(t.value)
        if t.combiner != "set":
            value = Binary(SCATTER_OP[t.combiner], Load(out, at), value)
        body: Stmt = Store(out, at, value)
        if t.skip is not None:
            body = If(~nest.expr(t.skip), body)
        return seq(copy, nest.block(body))

    def _copy(self, source: Buffer, out: Buffer) -> Stmt:
        axes = tuple(Axis(f"_i{k}", d) for k, d in enumerate(out.shape))
        nest = _Nest(self, out.name, [(a, "S") for a in axes])
        at = nest.at(axes)
        return nest.block(Store(out, at, Load(source, at)))

    def _opaque(self, t: Opaque) -> Stmt:
        """The program's body over our buffers; its sizes follow from their shapes."""
        program: Function = t.program
        results = [self.of(OpaqueOutput(t, k)) for k in range(len(t.results))]
        actual = [*(self.of(o) for o in t.operands), *results]
        body, _ = copy_of(program.body, self.names, "")
        pairs = [
            pair
            for formal, real in zip(program.buffers, actual, strict=True)
            for pair in zip(formal.shape, real.shape, strict=True)
        ]
        given: dict[str, IntLike] = dict(solve_extents(pairs))
        body = subst(body, given)
        table: dict[Node, Any] = {
            subst(formal, given): real for formal, real in zip(program.buffers, actual, strict=True)
        }
        return transform(body, lambda node: node, table)  # type: ignore[no-any-return]


class _Nest:
    """Loops, iterators and names of one block."""

    def __init__(
        self,
        owner: _Lowering,
        label: str,
        axes: Sequence[tuple[Axis, str]],
        reduce_axes: Sequence[Axis] = (),
    ) -> None:
        self.owner, self.name = owner, owner.names.block(label)
        self.axes = [*axes, *((a, "R") for a in reduce_axes)]
        letters = [*_letters("ijkl", len(axes)), *_letters("rst", len(reduce_axes))]
        self.loops = [owner.names.variable(f"{self.name}_{c}") for c in letters]
        iters = [owner.names.variable(f"{self.name}_v{c}") for c in letters]
        self.iters = {a.var: i for (a, _), i in zip(self.axes, iters, strict=True)}

    def var(self, axis: Axis) -> Int:
        return var(self.iters[axis.var])

    def at(self, axes: Sequence[Axis]) -> tuple[Expr, ...]:
        return tuple(Index(self.var(a)) for a in axes)

    def expr(self, body: Expr, places: Mapping[str, IntLike] | None = None) -> Expr:
        """A tensor body over this nest's iterators and the buffers."""
        sizes: dict[str, IntLike] = {a: var(i) for a, i in self.iters.items()}
        return _lower_expr(body, sizes | dict(places or {}), self.owner.of)

    def block(self, body: Stmt, init: Stmt | None = None) -> Stmt:
        around = {a.var: var(v) for (a, _), v in zip(self.axes, self.loops, strict=True)}
        iters = tuple(Iter(self.iters[a.var], a.extent.subs(around), k) for a, k in self.axes)
        made = Block(self.name, iters, tuple(map(var, self.loops)), body, init)
        extents = [a.extent.subs(around) for a, _ in self.axes]
        return for_(list(zip(self.loops, extents, strict=True)), made)


def _letters(letters: str, count: int) -> list[str]:
    if count <= len(letters):
        return list(letters[:count])
    return [f"{letters[0]}{k}" for k in range(count)]


def identifier(name: str) -> str:
    """A Python identifier that looks like `name`."""
    text = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
    return text if text[:1].isalpha() or text[:1] == "_" else "t" + text


def _lower_expr(root: Expr, sizes: Mapping[str, IntLike], of: Callable[[Tensor], Buffer]) -> Expr:
    """Integer variables replaced, loads of tensors made loads of their buffers. Iterative, and
    never looks into the tensors that are loaded from."""
    done: dict[Node, Any] = {}
    stack: list[Node] = [root]
    while stack:
        node = stack[-1]
        parts = node.indices if isinstance(node, Load) else tuple(node.children())
        waiting = [p for p in parts if p not in done]
        if waiting and node not in done:
            stack += reversed(waiting)
            continue
        stack.pop()
        match node:
            case Load(source=source, indices=indices):
                done[node] = Load(of(source), tuple(done[i] for i in indices))
            case Index():
                done[node] = Index(node.int_.subs(sizes))
            case Axis():
                done[node] = Axis(node.var, node.extent.subs(sizes))
            case _:
                done[node] = node.map_children(done.__getitem__)
    return done[root]  # type: ignore[no-any-return]
