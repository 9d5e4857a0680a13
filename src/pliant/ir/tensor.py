"""Tensor expressions: an operator's meaning, as small programs of comprehensions.

Four forms:

    Compute    out[i…] = body(i…), where body may hold one `Reduce` at its root or none
    Scan       out[i…] along one axis: combine(out[… t-1 …], body[… t …])
    Scatter    out = copy of base; for j… in updates: out[where(j…)] = combine(out[…], value(j…))
    Opaque     a loop program with a declared access (sort, top-k, nonzero)

`Input` is a placeholder. All are tensors: they have `name`, `shape`, `dtype`, and `t[i, j]` is a
`Load`. Axis variables are named by position (`_i0`, `_i1`, … and `_r0`, …), so that equal
definitions are the same object. Output extents are written in the definition.

An access is in bounds by construction, or under a `Select` whose condition says so, or guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from pliant.base.dtypes import DType, boolean, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Axis, Binary, Expr, Load, Reduce, Select, as_expr
from pliant.ir.node import Node
from pliant.sym.expr import Int, IntLike, as_int, var

__all__ = [
    "Compute",
    "Input",
    "Opaque",
    "OpaqueOutput",
    "Scan",
    "Scatter",
    "Tensor",
    "all_of",
    "compute",
    "inputs_of",
    "own_nodes",
    "placeholder",
    "producers",
    "reduce",
    "scan",
    "scatter",
    "select",
    "sources",
    "within",
]  # fmt: skip


class Tensor(Node):
    """A value with a symbolic shape. `t[i, j]` loads an element; integers become indices."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[Int, ...]:
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Load:
        if not isinstance(indices, tuple):
            indices = (indices,)
        return Load(self, tuple(as_expr(i, i64) for i in indices))


class Input(Tensor):
    """A placeholder: an operator's operand, later the buffer that holds it."""

    label: str
    type: DType
    dims: tuple[Int, ...]

    @property
    def name(self) -> str:
        return self.label

    @property
    def shape(self) -> tuple[Int, ...]:
        return self.dims

    @property
    def dtype(self) -> DType:
        return self.type


class Compute(Tensor):
    """`label[axes] = body`. A reduction is a `Reduce` at the root of the body.

    `requires` lists what must hold of the sizes: (a, b, message) for a == b. What cannot be proved
    when the model is compiled is checked in every call.
    """

    label: str
    axes: tuple[Axis, ...]
    body: Expr
    requires: tuple[tuple[Int, Int, str], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.body, Reduce) and any(
            isinstance(n, Reduce) for n in own_nodes(self.body)
        ):
            raise InvalidModelError(f"{self.label}: a reduction must be the root of the body")

    @property
    def name(self) -> str:
        return self.label

    @property
    def shape(self) -> tuple[Int, ...]:
        return tuple(a.extent for a in self.axes)

    @property
    def dtype(self) -> DType:
        return self.body.dtype

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        return self.body.axes if isinstance(self.body, Reduce) else ()


class Scan(Tensor):
    """Inclusive running `combiner` ("sum", "prod", "max", "min") of `body` along axis `along`.

    `exclusive` shifts by one (the first is the combiner's identity), `reverse` runs from the end.
    """

    label: str
    axes: tuple[Axis, ...]
    along: int
    combiner: str
    body: Expr
    exclusive: bool = False
    reverse: bool = False

    @property
    def name(self) -> str:
        return self.label

    @property
    def shape(self) -> tuple[Int, ...]:
        return tuple(a.extent for a in self.axes)

    @property
    def dtype(self) -> DType:
        return self.body.dtype


class Scatter(Tensor):
    """A copy of `base` with `value` combined in at data-dependent places, in order of `axes`.

    `combiner`: "set" (the last one wins), "add", "mul", "max", "min". `where` gives one i64 index
    for every dimension of `base`; they must be in range (use `Guard`). With `skip`, places
    where the condition `skip` holds are left out instead. `requires`: as in `Compute`.
    """

    label: str
    base: Tensor
    axes: tuple[Axis, ...]
    where: tuple[Expr, ...]
    combiner: str
    value: Expr
    skip: Expr | None = None
    requires: tuple[tuple[Int, Int, str], ...] = ()

    @property
    def name(self) -> str:
        return self.label

    @property
    def shape(self) -> tuple[Int, ...]:
        return self.base.shape

    @property
    def dtype(self) -> DType:
        return self.base.dtype


class Opaque(Tensor):
    """Outputs of a loop program given in full (`program` is a `pliant.loop` function).

    The program takes the operands' buffers, then the outputs' buffers, in order. Its sizes are its
    own: they follow from the extents of its buffers, which have the values that this tensor's
    dimensions have. Not a value by itself: its results are `OpaqueOutput`s. `requires`: as in
    `Compute`.
    """

    label: str
    operands: tuple[Tensor, ...]
    results: tuple[tuple[DType, tuple[Int, ...]], ...]
    program: Any
    requires: tuple[tuple[Int, Int, str], ...] = ()

    @property
    def name(self) -> str:
        return self.label

    @property
    def shape(self) -> tuple[Int, ...]:
        return self.results[0][1]

    @property
    def dtype(self) -> DType:
        return self.results[0][0]


class OpaqueOutput(Tensor):
    """One result of an opaque program."""

    of: Opaque
    index: int

    @property
    def name(self) -> str:
        return f"{self.of.label}_{self.index}"

    @property
    def shape(self) -> tuple[Int, ...]:
        return self.of.results[self.index][1]

    @property
    def dtype(self) -> DType:
        return self.of.results[self.index][0]


def placeholder(name: str, shape: Sequence[IntLike], dtype: DType) -> Input:
    """An operand."""
    return Input(name, dtype, tuple(as_int(d) for d in shape))


def compute(
    shape: Sequence[IntLike],
    fn: Callable[..., Expr | int | float | bool],
    name: str = "t",
    requires: Sequence[tuple[Int, Int, str]] = (),
) -> Compute:
    """`out[i…] = fn(i…)`; `fn` gets one symbolic integer for each dimension of `shape`."""
    axes = _axes("_i", shape)
    body = as_expr(fn(*(var(a.var) for a in axes)))
    return Compute(name, axes, body, tuple(requires))


def reduce(
    combiner: str, extents: Sequence[IntLike], fn: Callable[..., Expr | int | float]
) -> Expr:
    """The reduction of `fn(r…)` over a box; to be the body of a `compute`."""
    axes = _axes("_r", extents)
    return Reduce(combiner, axes, as_expr(fn(*(var(a.var) for a in axes))))


def scan(
    shape: Sequence[IntLike],
    along: int,
    combiner: str,
    fn: Callable[..., Expr],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    name: str = "scan",
) -> Scan:
    """Running reduction of `fn(i…)` along dimension `along`."""
    axes = _axes("_i", shape)
    body = as_expr(fn(*(var(a.var) for a in axes)))
    return Scan(name, axes, along, combiner, body, exclusive, reverse)


def scatter(
    base: Tensor,
    extents: Sequence[IntLike],
    where: Callable[..., Sequence[Any]],
    value: Callable[..., Expr],
    *,
    combiner: str = "set",
    skip: Callable[..., Expr] | None = None,
    name: str = "scatter",
    requires: Sequence[tuple[Int, Int, str]] = (),
) -> Scatter:
    """For every j in the box `extents`: `out[where(j)] combiner= value(j)` on a copy of `base`."""
    axes = _axes("_i", extents)
    at = tuple(var(a.var) for a in axes)
    places = tuple(as_expr(w, i64) for w in where(*at))
    return Scatter(
        name, base, axes, places, combiner, as_expr(value(*at), base.dtype),
        None if skip is None else skip(*at), tuple(requires),
    )  # fmt: skip


def select(cond: Expr | bool, a: Any, b: Any) -> Expr:
    """Lazy choice; Python numbers take the other branch's type. Folds a literal condition."""
    if isinstance(cond, bool):
        return as_expr(a) if cond else as_expr(b)
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = as_expr(b, a.dtype)
    return Select(cond, a, b)


def within(index: IntLike, extent: IntLike) -> Expr:
    """0 <= index < extent, as a condition."""
    at = as_expr(as_int(index))
    return Binary("and", Binary("le", as_expr(0), at), Binary("lt", at, as_expr(as_int(extent))))


def all_of(conditions: Sequence[Expr]) -> Expr:
    """Conjunction; true when empty."""
    if not conditions:
        return as_expr(True, boolean)
    result = conditions[0]
    for c in conditions[1:]:
        result = Binary("and", result, c)
    return result


def inputs_of(roots: Sequence[Tensor]) -> tuple[Input, ...]:
    """The placeholders below `roots`, in order of first use."""
    seen: dict[Input, None] = {}
    for t in producers(roots):
        if isinstance(t, Input):
            seen[t] = None
    return tuple(seen)


def producers(roots: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors below and including `roots`, each after those that it reads."""
    order: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        tensor, expanded = stack.pop()
        if tensor in order:
            continue
        if expanded:
            order[tensor] = None
            continue
        stack.append((tensor, True))
        stack += [(s, False) for s in reversed(list(sources(tensor))) if s not in order]
    return tuple(order)


def sources(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that `tensor` reads directly, each once, in order of first use."""
    match tensor:
        case Input():
            return
        case Opaque():
            yield from dict.fromkeys(tensor.operands)
        case OpaqueOutput():
            yield tensor.of
        case _:
            seen: dict[Tensor, None] = {}
            if isinstance(tensor, Scatter):
                seen[tensor.base] = None
            for root in tensor.children():
                if isinstance(root, Expr):
                    for node in own_nodes(root):
                        if isinstance(node, Load):
                            seen[node.source] = None
            yield from seen


def own_nodes(root: Node) -> Iterator[Node]:
    """The nodes of a body without descending into the tensors that it loads from."""
    try:
        below: tuple[Node, ...] = root._own  # type: ignore[attr-defined]
    except AttributeError:  # each body is asked for them many times
        below = tuple(_own_below(root))
        object.__setattr__(root, "_own", below)
    return chain((root,), below)


def _own_below(root: Node) -> Iterator[Node]:
    """All but the root, which would keep itself alive."""
    seen: set[Node] = {root}
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if node is not root:
            yield node
        children = node.indices if isinstance(node, Load) else node.children()
        for child in reversed(children):
            if child not in seen:
                seen.add(child)
                stack.append(child)


def _axes(prefix: str, extents: Sequence[IntLike]) -> tuple[Axis, ...]:
    return tuple(Axis(f"{prefix}{k}", as_int(e)) for k, e in enumerate(extents))
