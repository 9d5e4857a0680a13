"""What follows a product of a tile is made of the sums while they are in registers.

    t = alloc(f32[14, 32])                      if 9 < m and 32*p + 31 < n:
    mm(a, at, other, b, t, m, P, K, 32, p)          mm_0f3a(a, at, other, b, address(x[32*p]),
    for j in vectorized(32):                                address(y[r, 32*p]), m, P, K, p, n)
        if 32*p + j < n:                   ->   else:
            for i in grid(m):                       as before
                y[r + i, 32*p + j] =
                    max(t[i, j] + x[32*p + j], 0)

The micro-kernel of that name ends with

    for i, j in grid(m, 32):                    the epilogue, in terms of the tile
        y0[i, j] = max(t[i, j] + x0[j], 0)

(`codegen.epilogue_kernel`), so that the tile never goes to memory: to store and load it takes as
long as to multiply some 16 elements along K. All kernels with the same epilogue share it. It is for
whole panels and nearly as many rows as fit; others are as they were. What takes longer than that,
such as an exponential, stays where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pliant.codegen.microkernel import MicroKernel
from pliant.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Unary,
    loads_of,
)  # fmt: skip
from pliant.ir.node import Node, transform
from pliant.loop.printer import function_text
from pliant.loop.rewrite import conjoin, conjuncts, int_names, less, subst
from pliant.loop.stmt import (
    Alloc,
    Buffer,
    BufferRef,
    For,
    Function,
    If,
    Invoke,
    Seq,
    Stmt,
    Store,
    buffer,
    for_,
    offset_of,
    seq,
)  # fmt: skip
from pliant.sym.expr import Int, IntLike, as_int, var

MOST: Final = 6  # operations for an element
CHEAP: Final = frozenset("add sub mul div min max fmin fmax and or xor eq ne lt le shl shr".split())
CHEAP_UNARY: Final = frozenset("neg abs sqrt floor ceil trunc round not isnan isinf".split())
TILE: Final = "t"  # what sums are called in an epilogue, by rows and columns
ROW: Final = "_i"
COLUMN: Final = "_j"
_HERE: Final = (Index(var(ROW)), Index(var(COLUMN)))


@dataclass(frozen=True)
class Epilogue:
    """A micro-kernel's name, and what it does in the end: a program over the tile, whose first
    buffer is `TILE`, the others what is read and written, whose sizes are "m" and steps between
    rows."""

    base: str
    body: Function

    @property
    def reference(self) -> str:
        """The name and the program in one text."""
        return f"{self.base}\n{function_text(self.body)}"

    @property
    def symbol(self) -> str:
        digest = hashlib.sha256(self.reference.encode()).hexdigest()
        return f"{self.base}_{digest[:16]}"


def least_rows(kernel: MicroKernel) -> int:
    """Rows that are shared out evenly are so many in a tile, if there are three tiles and more."""
    return kernel.rows - kernel.rows // 3


def with_epilogues(
    f: Function, kernels: Mapping[str, MicroKernel]
) -> tuple[Function, tuple[Epilogue, ...]]:
    """The same program, of plain statements, and the epilogues that it calls."""
    found: dict[Epilogue, None] = {}

    def visit(node: Node) -> Node:
        match node:
            case Alloc(Buffer(scope="register") as tile, Seq((Invoke(name) as call, *after))):
                if name in kernels:
                    try:
                        made = _Tile(f, kernels[name], tile, call, seq(*after)).made()
                    except _KeptError:
                        return node
                    if made.epilogue is not None:
                        found[made.epilogue] = None
                    condition = conjoin(list(made.conditions))
                    return made.call if condition is None else If(condition, made.call, node)
        return node

    return f.replace(body=transform(f.body, visit)), tuple(found)


class _KeptError(Exception):
    """What follows the product is not made in registers."""


@dataclass(frozen=True)
class _Made:
    """What is called under conditions, and the epilogue of that name, if it has one."""

    epilogue: Epilogue | None
    call: Invoke
    conditions: tuple[Expr, ...]


@dataclass(frozen=True)
class _Part:
    """A store of the program for so many columns of the tile, from `first` on, under conditions.
    All in terms of `ROW` and `COLUMN`."""

    store: Store
    first: int
    columns: int
    conditions: tuple[Expr, ...]


@dataclass(frozen=True)
class _Operand:
    """What an epilogue reads or writes: an element of its own, the tile's first one, and how many
    elements it is from one row to the next."""

    here: Load
    first: BufferRef
    step: Int

    @property
    def memory(self) -> Buffer:
        found: Buffer = self.here.source
        return found


class _Tile:
    """A product and what follows it."""

    def __init__(
        self, f: Function, kernel: MicroKernel, tile: Buffer, call: Invoke, after: Stmt
    ) -> None:
        self.f, self.kernel, self.tile, self.call, self.after = f, kernel, tile, call, after
        *pointers, out, rows, positions, depth, _, turn = call.args
        if len(pointers) != 4 or not isinstance(rows, Index) or not _begins(out, tile, kernel):
            raise _KeptError
        # Any `other` will do where no row is missing: the tile was good enough.
        self.pointers = [pointers[0] if _begins(x, tile, kernel) else x for x in pointers]
        self.rows, self.sizes = rows.int_, (rows, positions, depth, turn)
        self.sums = buffer(TILE, (var("m"), kernel.columns), kernel.c)
        self.operands: dict[tuple[Buffer, Int], _Operand] = {}
        self.values: dict[Expr, Expr] = {}

    def made(self) -> _Made:
        parts = list(self._parts(self.after, (), ()))
        by_store: dict[Store, list[_Part]] = {}
        for part in parts:
            by_store.setdefault(part.store, []).append(part)
        for same in by_store.values():
            self._cover(same)
        self.written = {s.buffer for s in by_store}
        body = seq(*(self._in_tile(s) for s in by_store))
        if sum(not isinstance(x, Load | Const) for x in self.values) > MOST:
            raise _KeptError
        conditions = dict.fromkeys(c for part in parts for c in part.conditions)
        operands = list(self.operands.values())
        match body:  # the micro-kernel stores sums
            case Store(_, _, Load(x)) if x is self.sums and body.buffer.dtype is x.dtype:
                (to,), (*sizes, turn) = operands, self.sizes
                args = (*self.pointers, to.first, *sizes, Index(to.step), turn)
                return _Made(None, Invoke(self.kernel.symbol, args), tuple(conditions))
        enough = least_rows(self.kernel) - 1
        if not self.rows.is_const:
            conditions = {less(enough, self.rows): None} | conditions
        elif self.rows.value <= enough:
            raise _KeptError
        epilogue = Epilogue(self.kernel.symbol, self._function(body))
        steps = [Index(x.step) for x in operands if x.step != 0]
        refs = [x.first for x in operands]
        call = Invoke(epilogue.symbol, (*self.pointers, *refs, *self.sizes, *steps))
        return _Made(epilogue, call, tuple(conditions))

    def _function(self, body: Stmt) -> Function:
        """The epilogue."""
        operands = self.operands.values()
        notes = dict(self.f.notes)
        alone = tuple(
            x.memory.name for x in operands if x.first.buffer.name in notes.get("noalias", ())
        )
        kept = [(name, notes[name]) for name in ("numerics", "flushes") if name in notes]
        buffers = (self.sums, *(x.memory for x in operands))
        sizes = ("m", *(str(x.memory.strides[0]) for x in operands if x.step != 0))
        loops = for_([(ROW, var("m")), (COLUMN, self.kernel.columns)], body)
        return Function("epilogue", buffers, sizes, loops, (("noalias", alone), *kept))

    # ---- the statements after the product

    def _parts(
        self, s: Stmt, loops: tuple[For, ...], conditions: tuple[Expr, ...]
    ) -> Iterator[_Part]:
        match s:
            case Seq(stmts):
                for x in stmts:
                    yield from self._parts(x, loops, conditions)
            case For(kind="serial" | "unrolled" | "vectorized", notes=()):
                yield from self._parts(s.body, (*loops, s), conditions)
            case If(cond, then, None):
                yield from self._parts(then, loops, (*conditions, *conjuncts(cond)))
            case Store():
                yield self._part(s, loops, conditions)
            case _:
                raise _KeptError

    def _part(self, s: Store, loops: tuple[For, ...], conditions: tuple[Expr, ...]) -> _Part:
        """One loop goes over all rows, others over neighbouring columns: vectors, and lanes."""
        indices = {x.indices for x in loads_of(s.value) if x.source is self.tile}
        match [*indices]:
            case [(Index(row), Index(column))]:
                pass
            case _:
                raise _KeptError
        down = [x for x in loops if row == var(x.var) and x.extent == self.rows]
        across = [x for x in loops if x not in down]
        if len(down) != 1 or not across or not all(x.extent.is_const for x in across):
            raise _KeptError
        across.sort(key=lambda x: x.kind != "vectorized")
        first, columns = column, 1
        for loop in across:
            split = first.linear(loop.var)
            if split is None or split[0] != columns:
                raise _KeptError
            first, columns = split[1], columns * loop.extent.value
        if not first.is_const:
            raise _KeptError
        lane = across[0].var
        new = {down[0].var: var(ROW), lane: var(COLUMN) - (column - var(lane))}
        store, asked = subst(s, new), tuple(self._everywhere(subst(c, new)) for c in conditions)
        names = int_names(store).union(*map(int_names, asked))
        if any(x.var in names for x in loops):
            raise _KeptError
        return _Part(store, first.value, columns, asked)

    def _everywhere(self, condition: Expr) -> Expr:
        """That it holds in all of the tile: in the last column."""
        match condition:
            case Binary("lt" | "le", Index(a), Index(b)) if ROW not in (a - b).names:
                split = (a - b).linear(COLUMN)
                if split is not None and split[0].is_const and split[0].value >= 0:
                    return subst(condition, {COLUMN: self.kernel.columns - 1})
        raise _KeptError

    def _cover(self, parts: Sequence[_Part]) -> None:
        """All columns of the tile, each once."""
        done = 0
        for part in sorted(parts, key=lambda x: x.first):
            if part.first != done:
                raise _KeptError
            done += part.columns
        if done != self.kernel.columns:
            raise _KeptError

    # ---- in terms of the tile

    def _in_tile(self, s: Store) -> Store:
        value = self._value(s.value)
        to = self._operand("y", s.buffer, s.indices)
        if to.indices != _HERE:
            raise _KeptError
        return Store(to.source, to.indices, value)

    def _value(self, x: Expr) -> Expr:
        if x not in self.values:
            self.values[x] = self._computed(x)
        return self.values[x]

    def _computed(self, x: Expr) -> Expr:
        match x:
            case Const():
                return x
            case Load(source) if source is self.tile:
                return Load(self.sums, _HERE)
            case Load(Buffer() as source, indices) if source not in self.written:
                return self._operand("x", source, indices)
            case Binary(op) if op in CHEAP:
                pass
            case Unary(op) if op in CHEAP_UNARY:
                pass
            case Select(cond, a, b) if _loaded(a) | _loaded(b) <= _loaded(cond):
                pass  # nothing is loaded that the program might not have
            case Cast():
                pass
            case _:
                raise _KeptError
        return x.map_children(lambda c: self._value(c) if isinstance(c, Expr) else c)

    def _operand(self, kind: str, source: Buffer, indices: tuple[Expr, ...]) -> Load:
        """An element of memory, as the epilogue says it."""
        offset = offset_of(source, indices)
        down = None if offset is None else offset.linear(ROW)
        along = None if down is None else down[1].linear(COLUMN)
        if offset is None or down is None or along is None or COLUMN in down[0].names:
            raise _KeptError
        step = down[0]
        if along[0] not in (0, 1):
            raise _KeptError
        if (source, offset) not in self.operands:
            name = f"{kind}{len(self.operands)}"
            dims: list[tuple[Expr, IntLike, IntLike]] = []  # index, extent, stride
            if step != 0:
                dims.append((_HERE[0], var("m"), var(f"{name}_step")))
            if along[0] == 1:
                dims.append((_HERE[1], self.kernel.columns, 1))
            at, shape, strides = zip(*dims, strict=True) if dims else ((), (), ())
            memory = buffer(name, shape, source.dtype, strides=strides)
            start = tuple(subst(x, {ROW: 0, COLUMN: 0}) for x in indices)
            operand = _Operand(Load(memory, at), BufferRef(source, start), step)
            self.operands[source, offset] = operand
        return self.operands[source, offset].here


def _begins(x: Node, tile: Buffer, kernel: MicroKernel) -> bool:
    """Whether it is the tile, with rows as long as the kernel's panels."""
    columns = (as_int(kernel.columns), as_int(1))
    return (
        isinstance(x, BufferRef)
        and x.buffer is tile
        and tile.strides == columns
        and offset_of(tile, x.indices) == 0
    )


def _loaded(x: Expr) -> frozenset[Load]:
    return frozenset(loads_of(x))
