"""Loop programs: statements over buffers. Kernels and host functions are both written in this.

    For         0 <= var < extent; serial, parallel, vectorized, unrolled or bound to a thread axis
    Block       an isolated computation with a signature: iterators bound to loop expressions
    Store       buffer[indices] = value
    Combine     several elements, at once, become what a reducer makes of them and of new values
    Seq         one after the other
    Alloc       a buffer that lives in `body`
    Let         a scalar (or, of type i64, a size usable in symbolic integers) that lives in `body`
    If, While   control flow
    Check       fail the call with a message unless a condition holds
    Invoke      call a kernel or an intrinsic
    Barrier     wait for the other threads of a block (only in device functions)
    Nop         nothing

Vectorized loops mean single program, multiple lanes: the body runs for all values of the variable
at once, a buffer allocated inside is private to each lane, and loops inside must be uniform.

Loops bound to a thread axis are described in `loop/threads.py`.

A block's iterators are its own names; `bindings` say what they are in terms of the loops around.
"S" iterators are data parallel, "R" reduce, "O" must run in order. `init` runs once for all values
of the "R" iterators, before the first of them, and also where there are none (`lower_init` makes
that explicit). Nothing runs where the predicate `where` is false; for `init` only those parts of
it count that do not depend on loops that the "R" iterators are bound to. Parts of it that load are
asked only where all others hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal

from pliant.base.dtypes import DType, boolean
from pliant.base.errors import InvalidModelError
from pliant.base.spans import Span
from pliant.ir.expr import Expr, Index, Load, Var, as_expr
from pliant.ir.node import Node, exact
from pliant.loop.reducer import Reducer
from pliant.sym.expr import Int, IntLike, as_int, maximum

__all__ = [
    "Alloc", "Barrier", "Block", "Buffer", "BufferRef", "Check", "Combine", "Flat", "For",
    "Function", "If", "Invoke", "Iter", "Let", "Nop", "Seq", "Stmt", "Store", "While", "buffer",
    "compact_strides", "for_", "seq", "statements", "stored",
]  # fmt: skip

LoopKind = Literal[
    "serial", "parallel", "vectorized", "unrolled", "blockIdx.x", "blockIdx.y", "blockIdx.z",
    "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread",
]  # fmt: skip
# param: passed in. register: constant size, small, promoted to registers where possible.
# scratch: memory of the running thread, until the kernel returns. arena, output, weight, input:
# places of host functions. shared, warp, local, global and wmma.*: see loop/threads.py.
Scope = Literal[
    "param", "register", "scratch", "arena", "output", "weight", "input", "shared", "warp", "local",
    "global", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator",
]  # fmt: skip


class Buffer(Node):
    """Typed memory. Element (i, j, …) lies `offset + i * strides[0] + j * strides[1] + …` elements
    from its start."""

    name: str
    dtype: DType
    shape: tuple[Int, ...]
    strides: tuple[Int, ...]
    scope: str = "param"
    align: int = 0  # known alignment of element 0, in bytes; 0: that of the element type

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise InvalidModelError(f"buffer {self.name}: rank of shape and strides differ")

    def __getitem__(self, indices: Any) -> Load:
        if not isinstance(indices, tuple):
            indices = (indices,)
        return Load(self, tuple(as_expr(i) for i in indices))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def room(self) -> Int:
        """How many elements of memory it takes, from its first one on."""
        if self.strides == compact_strides(self.shape):
            count = as_int(1)
            for extent in self.shape:
                count = count * extent
            return count
        return maximum(*self.flat.shape, 0)  # less than nothing where an extent is 0

    @property
    def flat(self) -> Flat:
        """The same memory, to be read by element offset."""
        return Flat(self)


class Flat(Node):
    """A buffer's memory seen as a row of elements: `x.flat[k]` is the element that lies `k`
    elements after x's first one. To load from; a store says where in the buffer it goes."""

    buffer: Buffer

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[Int, ...]:
        last = as_int(1)
        for extent, stride in zip(self.buffer.shape, self.buffer.strides, strict=True):
            last = last + (extent - 1) * stride
        return (last,)

    @property
    def strides(self) -> tuple[Int, ...]:
        return (as_int(1),)

    def __getitem__(self, index: Any) -> Load:
        return Load(self, (as_expr(index),))


class BufferRef(Node):
    """The place of an element: what a kernel or intrinsic is handed, or a `Combine` stores to."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def load(self) -> Load:
        """What is there."""
        return Load(self.buffer, self.indices)


class Stmt(Node):
    """A statement."""

    _extra_slots: ClassVar[tuple[str, ...]] = ("_nested",)

    def nested(self) -> tuple[Stmt, ...]:
        """The statements among its children, in order."""
        try:
            found: tuple[Stmt, ...] = self._nested  # type: ignore[attr-defined]
        except AttributeError:  # asked for the first time
            found = tuple([c for c in self.children() if isinstance(c, Stmt)])
            object.__setattr__(self, "_nested", found)
        return found


class Nop(Stmt):
    pass


STREAM: Final = "stream"
PARTS: Final = "stream_parts"
PREFETCH: Final = "prefetch"
LINE: Final = 64  # bytes of a cache line
# Entries of a table of where rows begin, for such that are not there: something else is read for
# them, which is zeros in the second case, so that what is multiplied by them need not be read.
ABSENT: Final = -1
ZEROS: Final = -2
PAGE: Final = 4096  # bytes whose addresses differ in what chooses the set of a first cache


class For(Stmt):
    """`notes`: ("grain", n) is the least number of iterations worth a thread of its own;
    (STREAM, n) stores vectors past the caches where a buffer has n bytes or more, (PARTS, n) the
    elements of vectors of which not all lanes are stored;
    (PREFETCH, (buffer, n, "", cache, share)) asks for what lies n elements behind what is read of
    the buffer, in every vector, or by every iteration of a loop that is not vectorized (by all of
    them for the first of `share` parts of it), to come as near as that level of the caches;
    (PREFETCH, (buffer, n, loop, cache, 1)) for what vectors read n iterations of an outer loop
    later, (PREFETCH, (buffer, n, loop, cache, (count, step, size))) for so many runs of `size`
    elements, `step` apart, from n elements behind where the next iteration of an outer loop begins
    to read."""

    var: str
    extent: Int
    body: Stmt
    kind: str = "serial"
    notes: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:  # 1, 1.0 and True are different notes
        return exact(args[4])


class Iter(Node):
    """An iterator of a block: 0 <= var < extent; kind "S", "R" or "O"."""

    var: str
    extent: Int
    kind: str


class Block(Stmt):
    name: str
    iters: tuple[Iter, ...]
    bindings: tuple[Int, ...]
    body: Stmt
    init: Stmt | None = None
    where: Expr | None = None
    notes: tuple[tuple[str, Any], ...] = ()
    spans: tuple[Span, ...] = ()

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        return exact(args[6])

    def __post_init__(self) -> None:
        if len(self.iters) != len(self.bindings):
            raise InvalidModelError(f"block {self.name}: iterators and bindings differ in number")


class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.buffer.shape):
            raise InvalidModelError(f"store to {self.buffer.name}: wrong number of indices")
        if self.value.dtype is not self.buffer.dtype:
            raise InvalidModelError(
                f"store of {self.value.dtype} to {self.buffer.name}: {self.buffer.dtype}"
            )


class Combine(Stmt):
    """`targets = reducer(targets, values)`: everything is read before anything is stored. The
    targets are of different buffers."""

    reducer: Reducer
    targets: tuple[BufferRef, ...]
    values: tuple[Expr, ...]

    def __post_init__(self) -> None:
        name, types = self.reducer.name, self.reducer.types
        for what, given in (
            ("targets", tuple(t.buffer.dtype for t in self.targets)),
            ("values", tuple(v.dtype for v in self.values)),
        ):
            if given != types:
                have, want = (", ".join(map(str, x)) for x in (given, types))
                raise InvalidModelError(f"{what} of {name} are {have or 'none'}, not {want}")
        for target in self.targets:
            if len(target.indices) != len(target.buffer.shape):
                raise InvalidModelError(f"{name} to {target.buffer.name}: wrong number of indices")
        if len({t.buffer for t in self.targets}) < len(self.targets):
            raise InvalidModelError(f"two targets of {name} are of one buffer")


class Seq(Stmt):
    stmts: tuple[Stmt, ...]


class Alloc(Stmt):
    buffer: Buffer
    body: Stmt


class Let(Stmt):
    """`var` is a `Var`; one of type i64 is also the symbolic integer of that name."""

    var: Var
    value: Expr
    body: Stmt


class If(Stmt):
    cond: Expr
    then: Stmt
    otherwise: Stmt | None = None

    def __post_init__(self) -> None:
        if self.cond.dtype is not boolean:
            raise InvalidModelError("the condition of an If must be boolean")


class While(Stmt):
    cond: Expr
    body: Stmt


class Check(Stmt):
    """Fail the call unless `cond`. `error` names a class of the error tree; `message` may hold
    {0}, {1}, … for `values` (integers)."""

    cond: Expr
    error: str
    message: str
    values: tuple[Expr, ...] = ()


class Invoke(Stmt):
    """Call `callee` with buffers' addresses, then i64 scalars, in the order of its signature."""

    callee: str
    args: tuple[Node, ...]


class Barrier(Stmt):
    """No thread goes on before all of its block ("block") or of its row of `threadIdx.x` ("warp")
    have come here. What they wrote is then seen by the others."""

    scope: str = "block"


class Function(Node):
    """A kernel: pointer parameters in order, then i64 sizes.

    `noalias` tells for each buffer whether nothing else may point into it.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: Stmt
    notes: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        return exact(args[4])


def offset_of(memory: Buffer | Flat, indices: Sequence[Expr]) -> Int | None:
    """Where an access goes, in elements from the start; None where that depends on data."""
    total = as_int(0)
    for index, stride in zip(indices, memory.strides, strict=True):
        if not isinstance(index, Index):
            return None
        total = total + index.int_ * stride
    return total


def compact_strides(shape: tuple[Int, ...]) -> tuple[Int, ...]:
    """Row-major strides, in elements."""
    strides: list[Int] = []
    step = as_int(1)
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))


def buffer(
    name: str,
    shape: tuple[IntLike, ...],
    dtype: DType,
    *,
    scope: Scope = "param",
    strides: tuple[IntLike, ...] | None = None,
    align: int = 0,
) -> Buffer:
    """A buffer; compact row-major unless `strides` are given."""
    dims = tuple(as_int(d) for d in shape)
    steps = compact_strides(dims) if strides is None else tuple(as_int(s) for s in strides)
    return Buffer(name, dtype, dims, steps, scope, align)


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order; flattens, drops nothing-statements."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat += s.stmts
        elif not isinstance(s, Nop):
            flat.append(s)
    if not flat:
        return Nop()
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def for_(loops: list[tuple[str, IntLike]], body: Stmt, kind: LoopKind = "serial") -> Stmt:
    """A nest of loops, outermost first."""
    for name, extent in reversed(loops):
        body = For(name, as_int(extent), body, kind)
    return body


def statements(root: Stmt) -> Iterator[Stmt]:
    """Every statement below `root`, parents first, in program order (repeated where shared)."""
    stack = [root]
    while stack:
        s = stack.pop()
        yield s
        stack += s.nested()[::-1]


def own_statements(root: Stmt) -> Iterator[Stmt]:
    """Those of the function that `root` is the body of: parallel loops, whose tasks are functions
    of their own, are none of them."""
    if not (isinstance(root, For) and root.kind == "parallel"):
        yield root
        for child in root.nested():
            yield from own_statements(child)


def stored(root: Stmt) -> Iterator[BufferRef]:
    """The places that stores and reducers below `root` write, in program order."""
    for s in statements(root):
        if isinstance(s, Store):
            yield BufferRef(s.buffer, s.indices)
        elif isinstance(s, Combine):
            yield from s.targets
