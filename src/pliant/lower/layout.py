"""The order in which each stored value keeps its dimensions.

Tensors inside need not be row-major: a convolution wants its channels last, the
product of attention wants heads next to features because the reader merges them. Since every
access is an expression, no transposition is inserted; readers just see other strides. They are
compact, or have a gap after each row (`lower.gaps`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from pliant.ir.expr import Cast, Expr, Index, Load, index_names, substitute
from pliant.ir.few_channels import filters_of
from pliant.ir.mapping import IDLE, copied_sooner, idle_products, likely_value, step_along
from pliant.ir.narrow_groups import narrow_groups
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, Opaque, Tensor, compute, own_nodes
from pliant.lower.access import classify, is_identity, read_often, reads_many, slid_axes, slides
from pliant.lower.constants import constant_values
from pliant.lower.contraction import COLUMNS, Contraction, contraction
from pliant.lower.sampled import sampled_along
from pliant.lower.stages import Stage, Stages, copy_of, readers_of
from pliant.sym.expr import Int, IntLike, as_int, var
from pliant.sym.facts import Facts

Order = tuple[int, ...]
SEVERAL: Final = 4  # elements of one value, of which rows are read where they lie
MIN_DEPTH: Final = 16  # fewer channels are not worth a copy, where windows do not overlap
MIN_RUN: Final = 8  # nor are fewer worth an order of dimensions: their rows are gathered anyhow
VECTOR: Final = 16  # elements
MIN_ROW: Final = 8  # shorter rows leave most of a vector empty
STEPS: Final = 4  # elements from one window of a row to the next that are still a row's
COPIED: Final = {8: 0.25, 4: 0.25, 2: 2.0, 1: 2.0}
"""Of a factor in so many bytes, how many elements are copied in the time in which one is turned."""
ONE_PASS: Final = 256  # columns for which the rows of a product are gathered once


def choose_layouts(s: Stages, wishes: Mapping[str, Order]) -> dict[str, Order]:
    """The order of dimensions, outermost first, of every stage's value; parameters, weights and
    results are row-major. `wishes` are orders that earlier passes want of some stages."""
    fixed = row_major_values(s)
    constants = constant_values(s)
    orders: dict[str, Order] = {n: o for n, o in wishes.items() if n not in fixed}
    readers = readers_of(s)
    sampled = _sampled(s)
    given = {p.name for p in s.params}
    for name, stage in s.stages.items():  # forwards: convolutions decide, maps follow
        tensor = stage.tensor
        if name in fixed or name in orders or not isinstance(tensor, Compute):
            continue
        wanted = stage.note("layout")
        if wanted is None and not runs_in_rows(name, s, readers, orders, constants):
            along = sampled.get(name)
            wanted = _with_last(tensor, (along,)) if along else own_wish(tensor, orders, constants)
            wanted = _images_given(name, s, readers, given) if wanted is None else wanted
        if wanted is not None:
            orders[name] = wanted
    loads: dict[str, dict[str, Load]] = {}
    products = _of_products(s, constants)
    # Backwards: the rest suit the reader that reads most of them, of equal ones one that row-major
    # suits. (Gradients are read by two products: along their rows, and along their columns.)
    for name in reversed(s.stages):
        tensor = s.stages[name].tensor
        if name in fixed or name in orders or not isinstance(tensor, Compute):
            continue
        found: list[tuple[int, bool, Order]] = []
        for reader in () if _stays_in_rows(tensor, orders) else readers.get(name, ()):
            by = s.stages[reader].tensor
            if reader not in loads:
                loads[reader] = _first_loads(by)
            load, along = loads[reader].get(name), sampled.get(reader, "")
            wanted = _reader_wish(load, by, orders.get(reader), constants, along)
            if name in products and all(_only_reduces(s.stages[r].tensor) for r in readers[name]):
                wanted = products[name]
            if wanted is not None:
                moves = wanted != tuple(range(len(wanted)))
                found.append((-_read_by(by, s), moves, wanted))
        if found:
            _, moves, wanted = min(found, key=lambda wish: wish[:2])
            if moves:
                orders[name] = wanted
    identity = {n: tuple(range(len(st.tensor.shape))) for n, st in s.stages.items()}
    return identity | orders


def relay(s: Stages, orders: dict[str, Order]) -> None:
    """Copy weights and parameters where a sliding window, or a map that reads many elements for
    each, wants another dimension last: the kernels of a depthwise convolution, an image that comes
    with its channels first. Such a map reads copies of results, too. Copies of weights are made
    once. Rows of a product that lie across the lines of what it reads are copied before, whatever
    that is: the gradient of a weight is such a product."""
    given = {v.name for v, _ in s.weights} | {p.name for p in s.params}
    constants, sampled = constant_values(s), _sampled(s)
    stages: dict[str, Stage] = {}
    copies: dict[tuple[Any, int], str] = {}
    turned: dict[Compute, str] = {}
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if not isinstance(tensor, Compute) or _is_packed(tensor, orders[name], constants, s.facts):
            stages[name] = stage
            continue
        along = sampled.get(name)
        wanted = (along, ()) if along else _wanted_last(tensor, orders[name], constants)
        if wanted is None:
            c = _rows_across(tensor, orders, name, constants, s.facts)
            if c is not None and _windowed(tensor):  # as other windows of the image want it
                wanted = c.k[-1], c.batch
            elif c is not None:
                copy, places = _rows_of(c, tensor)
                lies = turned.get(copy)
                if lies is None:
                    added = s.added(f"{c.a.source.name}.rows", copy, "copy", stage.spans)
                    lies = turned[copy] = added.name
                    stages[lies] = added
                    orders[lies] = tuple(range(len(copy.shape)))
                body = transform(tensor.body, lambda n: n, {c.a: s.types[lies][places]})
                stage = replace(stage, tensor=tensor.replace(body=body))
        if wanted is not None:
            moved: dict[Node, Any] = {}
            fixed = given if tensor.reduce_axes else given | set(s.results)
            if classify(tensor) == "reduction":
                fixed = fixed | constants
            for load in own_nodes(tensor.body):
                if not (isinstance(load, Load) and load.source.name in fixed):
                    continue
                dim = _dim_along(load, tensor, *wanted)
                if dim is None or _ends_reduced(load, tensor):
                    continue
                source = load.source
                if all(n == 1 for n in source.shape[dim + 1 :]):
                    continue
                copied = copies.get((source, dim))
                if copied is None:
                    copied = copies[source, dim] = s.fresh(f"{source.name}.last{dim}")
                    stages[copied] = Stage(copied, copy_of(source), "copy", stage.spans)
                    s.types[copied] = Input(copied, source.dtype, source.dims)
                    rest = tuple(d for d in range(len(source.dims)) if d != dim)
                    orders[copied] = (*rest, dim)
                moved[source] = s.types[copied]
            if moved:
                body = transform(tensor.body, lambda n: n, moved)
                stage = replace(stage, tensor=tensor.replace(body=body))
        stages[name] = stage
    s.stages = stages


def _wanted_last(
    tensor: Compute, order: Order, constants: Set[str], least: int | None = None
) -> tuple[str, tuple[str, ...]] | None:
    """The iterator along which the operands should be contiguous, and those that may stand beside
    it; None if it does not matter, as of a contraction over fewer than the `least` (if that is
    None, than are worth a copy: the fewer the more windows read an element, 8 channels 0.5 to 0.8
    times as long)."""
    if not tensor.axes:
        return None
    kind = classify(tensor)
    if kind == "reduction" or (kind == "map" and reads_many(tensor)):
        return tensor.axes[order[-1]].var, ()
    c = contraction(tensor, constants) if kind == "contraction" else None
    if c is None or not _windowed(tensor) or (len(c.k) < 2 and _read_once(tensor, c, order)):
        return None
    if least is None:
        least = MIN_RUN if _overlap(tensor, c.a) else MIN_DEPTH
    extents = {a.var: a.extent for a in tensor.reduce_axes}
    for k in c.k:
        deep = not extents[k].is_const or extents[k].value >= least
        if deep and _dim_of(c.a, k, c.batch) is not None:
            return k, c.batch
    return None


def _overlap(tensor: Compute, read: Load) -> bool:
    """Whether windows that lie beside one another have elements in common."""
    outer = {a.var for a in tensor.axes}
    inner = {a.var: a.extent for a in tensor.reduce_axes}
    for index in read.indices:
        if not isinstance(index, Index) or index.int_.names.isdisjoint(outer):
            continue
        steps = {x: line[0] for x in index.int_.names if (line := index.int_.linear(x))}
        apart = [steps[x] for x in outer & steps.keys()]
        reach = as_int(1)
        for x in inner.keys() & steps.keys():
            reach = reach + steps[x] * (inner[x] - 1)
        for step in apart if reach != 1 else ():
            if not (step.is_const and reach.is_const and reach.value <= step.value):
                return True
    return False


def _rows_across(
    tensor: Compute, orders: Mapping[str, Order], name: str, constants: Set[str], facts: Facts
) -> Contraction | None:
    """A plain product whose first operand's rows lie across its lines; None for others. (Zen 5:
    squares that are turned before take 0.3 to 0.8 as long as to gather rows in the product.)"""
    if classify(tensor) != "contraction" or slides(tensor):
        return None
    c = _placed(tensor, orders[name], constants)
    if c is None or c.a_side is not c.a or c.a.source.name in constants:
        return None
    if not all(isinstance(i, Index) for i in c.a.indices):
        return None
    (run,) = (a.extent for a in tensor.reduce_axes if a.var == c.k[-1])
    if run.is_const and run.value < MIN_RUN:
        return None
    steps = strides_in(c.a.source.name, c.a.source.shape, orders, {})
    unit = [x for x in (*c.m, *c.k) if step_along(c.a, x, steps, facts) == 1]
    return c if len(unit) == 1 and unit[0] in c.m else None


def _is_packed(tensor: Compute, order: Order, constants: Set[str], facts: Facts) -> bool:
    """Whether weights are rows of a plain product: what they multiply is packed as it lies."""
    if classify(tensor) != "contraction" or slides(tensor):
        return False
    c = contraction(tensor, constants)
    if c is None or c.b.source.name not in constants or tensor.axes[order[-1]].var not in c.m:
        return False
    sizes = {a.var: likely_value(a.extent, facts) for a in (*tensor.axes, *tensor.reduce_axes)}
    elements = prod(sizes[x] for x in (*c.batch, *c.m, *c.k))
    idle = _idle(tensor, order, c, sizes)
    return copied_sooner(c.a, elements, prod(sizes[a.var] for a in tensor.axes), idle)


def _idle(tensor: Compute, order: Order, c: Contraction, sizes: Mapping[str, int]) -> int:
    """Products on what fills panels, where those are of rows of the first operand."""
    return idle_products(sizes, [tensor.axes[d].var for d in order], c.m, COLUMNS)


def _rows_of(c: Contraction, tensor: Compute) -> tuple[Compute, tuple[Int, ...]]:
    """The first operand of a product, row after row, and which of its elements are multiplied."""
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    read = frozenset[str]().union(*map(index_names, c.a.indices))
    names = [x for x in (*c.batch, *c.m, *c.k) if x in read]

    def element(*at: Int) -> Expr:
        found: Expr = substitute(c.a, dict(zip(names, at, strict=True)))
        return found

    copy = compute([extents[x] for x in names], element, "copy")
    return copy, tuple(var(x) for x in names)


def _stays_in_rows(tensor: Compute, orders: Mapping[str, Order]) -> bool:
    """Whether a map, each element of which is made of several of one value, reads rows where they
    lie: in another order it would gather them one by one, and its result is turned as well."""
    if tensor.reduce_axes or not tensor.axes or not reads_many(tensor, SEVERAL):
        return False
    rows = tensor.axes[-1].var
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load) and n.indices]
    read = [n for n in loads if any(_has(i, rows) for i in n.indices)]
    return all(_bare(n.indices[orders.get(n.source.name, (-1,))[-1]]) == rows for n in read)


def _read_along(loads: Sequence[Load], orders: Mapping[str, Order]) -> str:
    """The iterator along which all loads lie one element after another; empty if there is none."""
    last = {_bare(n.indices[orders.get(n.source.name, (-1,))[-1]]) for n in loads if n.indices}
    return last.pop() if len(last) == 1 else ""


def _ends_reduced(load: Load, tensor: Compute) -> bool:
    """Whether the reduction runs over rows of what is loaded: along its last dimensions, but for
    those of one element."""
    names = [_bare(i) for i in load.indices]
    while names and not names[-1] and load.source.shape[len(names) - 1] == 1:
        names.pop()
    outer, inner = {a.var for a in tensor.axes}, {a.var for a in tensor.reduce_axes}
    rows = len(names) - len(inner)
    return len(names) == len(outer | inner) and (set(names[:rows]), set(names[rows:])) == (
        outer, inner,
    )  # fmt: skip


def _bare(index: Expr) -> str:
    """The iterator that the index is; empty where it is another expression."""
    if not isinstance(index, Index):
        return ""
    name = next(iter(index.int_.names), "")
    return name if name and index.int_ is var(name) else ""


def _read_once(tensor: Compute, c: Contraction, order: Order) -> bool:
    """Whether the columns are few and lie together, so that all are made in one pass over a."""
    run = [tensor.axes[d].var for d in order[len(order) - len(c.n) :]]
    columns = as_int(1)
    for axis in tensor.axes:
        if axis.var in c.n:
            columns = columns * axis.extent
    return set(run) == set(c.n) and (not columns.is_const or columns.value <= ONE_PASS)


def _dim_of(load: Load, name: str, beside: tuple[str, ...] = ()) -> int | None:
    """The dimension that an iterator steps through alone, or with iterators `beside` it."""
    for d, index in enumerate(load.indices):
        split = index.int_.linear(name) if isinstance(index, Index) else None
        if split is not None and split[0] == 1 and split[1].names <= set(beside):
            return d
    return None


def _dim_along(load: Load, reader: Compute, name: str, beside: tuple[str, ...] = ()) -> int | None:
    """The same, or that of the channels of which an iterator over outputs reads its group's."""
    dim, groups = _dim_of(load, name, beside), narrow_groups(reader)
    if dim is None and groups is not None and groups.outer == name:
        return _dim_of(load, groups.inner, (name,))
    return dim


def _sampled(s: Stages) -> dict[str, str]:
    """Along which iterator stages sample, of those that do."""
    computed = ((n, st.tensor) for n, st in s.stages.items() if isinstance(st.tensor, Compute))
    found = ((name, sampled_along(tensor, s.facts)) for name, tensor in computed)
    return {name: along for name, along in found if along}


def row_major_values(s: Stages) -> set[str]:
    """Results, and what programs read that were written for row-major operands."""
    read = (x for stage in s.stages.values() if isinstance(stage.tensor, Opaque)
            for x in stage.inputs)  # fmt: skip
    return {*s.results, *read}


@dataclass(frozen=True)
class Gap:
    """So many `elements` lie free after each row, which is the last `dims` dimensions in memory."""

    dims: int
    elements: IntLike


def strides_of(shape: tuple[Int, ...], order: Order, gap: Gap | None = None) -> tuple[Int, ...]:
    """Strides of a tensor whose dimensions lie in `order`, one after another but for the gap."""
    return _steps(shape, order, gap)[0]


def order_in(name: str, shape: Sequence[Int], orders: Mapping[str, Order]) -> Order:
    """The order of a value by what was decided of it; others are row-major."""
    return orders.get(name, tuple(range(len(shape))))


def strides_in(
    name: str, shape: tuple[Int, ...], orders: Mapping[str, Order], gaps: Mapping[str, Gap]
) -> tuple[Int, ...]:
    """Strides of a value by what was decided of it; of others they are row-major."""
    return strides_of(shape, order_in(name, shape, orders), gaps.get(name))


def room_of(shape: tuple[Int, ...], order: Order, gap: Gap | None = None) -> Int:
    """How many elements such a tensor takes, with all gaps."""
    return _steps(shape, order, gap)[1]


def _steps(shape: tuple[Int, ...], order: Order, gap: Gap | None) -> tuple[tuple[Int, ...], Int]:
    strides = [as_int(1)] * len(shape)
    step = as_int(1)
    for k, dim in enumerate(reversed(order), 1):
        strides[dim] = step
        step = step * shape[dim]
        if gap is not None and gap.dims == k:
            step = step + gap.elements
    return tuple(strides), step


def own_wish(tensor: Compute, orders: Mapping[str, Order], constants: Set[str]) -> Order | None:
    """The order that a value wants for what its definition does, given its operands' orders."""
    rank = len(tensor.axes)
    kind = classify(tensor)
    if kind == "contraction":
        c = contraction(tensor, constants)
        assert c is not None
        if tensor.axes[-1].var not in c.n and _windowed(tensor):
            return _with_last(tensor, c.n)
        return None
    filters = filters_of(tensor)
    if filters:
        return _with_last(tensor, (filters,))
    if kind == "reduction" and rank >= 3 and slides(tensor) and not _rows_stay(tensor):
        return (0, *range(2, rank), 1)
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    often = read_often(tensor) if kind == "map" and rank else []
    if often:
        rows = tensor.axes[-1].var
        if along := _read_along(often, orders):
            return _with_last(tensor, (along,))
        if all(rows in map(_bare, n.indices) for n in often):
            return tuple(range(rank))
    for load in loads:
        order = orders.get(load.source.name)
        if order is not None and is_identity(load, tensor):
            return order
    if kind == "reduction":
        return None
    for load in loads:  # concatenation, padding, resizing: same rank, dimensions in place
        order = orders.get(load.source.name)
        if order is not None and _keeps_dims(load, tensor):
            return order
    return None


def _images_given(
    name: str, s: Stages, readers: Mapping[str, list[str]], given: Set[str]
) -> Order | None:
    """Channels last for what a map makes of images, most of which are given so, if it is not just
    on the way to results."""
    tensor = s.stages[name].tensor
    assert isinstance(tensor, Compute)
    rank = len(tensor.axes)
    if rank < 4 or classify(tensor) != "map" or _only_maps_follow(name, s, readers):
        return None
    wanted = (0, *range(2, rank), 1)
    names = {tuple(tensor.axes[d].var for d in order) for order in (range(rank), wanted)}
    found = Counter(
        order
        for load in own_nodes(tensor.body)
        if isinstance(load, Load) and load.source.name in given
        if (order := tuple(map(_bare, load.indices))) in names
    )
    last = found[tuple(tensor.axes[d].var for d in wanted)]
    return wanted if 2 * last > found.total() else None


def runs_in_rows(
    name: str,
    s: Stages,
    readers: Mapping[str, list[str]],
    orders: Mapping[str, Order],
    constants: Set[str] = frozenset(),
) -> bool:
    """Whether a stage is a reduction that goes in small steps through row-major operands, or
    not at all, and only maps lie between it and results. Another order would cost a copy before it
    and one after it. A product of a parameter by `constants`, which copies that, is one if it has
    many results."""
    tensor = s.stages[name].tensor
    if not isinstance(tensor, Compute) or not tensor.axes:
        return False
    kind = classify(tensor)
    if kind == "contraction":
        if slides(tensor) or not _many_results(tensor, constants, s):
            return False
    elif kind != "reduction":
        return False
    if filters_of(tensor):  # vectors lie along these
        return False
    last = tensor.axes[-1]
    if last.extent.is_const and last.extent.value < MIN_ROW:
        return False
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    moving = [n for n in loads if any(_has(i, last.var) for i in n.indices)]
    straight = all(
        n.source.name not in orders and _runs_along(n, (last.var,), STEPS) for n in moving
    )
    return bool(moving) and straight and _only_maps_follow(name, s, readers)


def _many_results(tensor: Compute, constants: Set[str], s: Stages) -> bool:
    """Whether a product of a parameter by weights has so many results for each of its elements that
    to copy it, row by row, costs less than to have these lie otherwise and turn them."""
    c = contraction(tensor, constants)
    if c is None or c.b.source.name not in constants or not _is_given(c.a.source.name, s):
        return False
    each = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    if not all(each[x].is_const for x in (*c.n, *c.k)):
        return False
    sizes = {x: likely_value(n, s.facts) for x, n in each.items()}
    rows, results, terms = (prod(sizes[x] for x in names) for names in (c.m, c.n, c.k))
    idle = _idle(tensor, tuple(range(len(tensor.axes))), c, sizes) // IDLE
    return rows * terms + idle <= COPIED[c.a.dtype.bytes] * rows * results


def _is_given(name: str, s: Stages) -> bool:
    """Whether a value is a parameter, or one converted."""
    stage = s.stages.get(name)
    if stage is None:
        return any(p.name == name for p in s.params)
    match stage.tensor:
        case Compute(body=Cast(_, Load() as load)) if is_identity(load, stage.tensor):
            return _is_given(load.source.name, s)
    return False


def _has(index: Expr, name: str) -> bool:
    return not isinstance(index, Index) or name in index.int_.names


def _only_maps_follow(name: str, s: Stages, readers: Mapping[str, list[str]]) -> bool:
    """Whether what is made of a value is results, by maps alone."""
    for reader in readers.get(name, ()):
        tensor = s.stages[reader].tensor
        if not isinstance(tensor, Compute) or tensor.reduce_axes:
            return False
        if not _only_maps_follow(reader, s, readers):
            return False
    return True


def _windowed(tensor: Compute) -> bool:
    """A sliding window of products. One of 1 x 1 leaves no iterator behind, but strided or plain
    spatial axes do not come last."""
    return slides(tensor) or (len(tensor.axes) >= 4 and len(tensor.reduce_axes) <= 3)


def _rows_stay(tensor: Compute) -> bool:
    """Whether a window does not slide along the last dimension, which fills vectors, but does along
    the second, of tokens then, or that one's channels would leave most of a vector empty."""
    channels = tensor.axes[1]
    last = next((a for a in reversed(tensor.axes) if a.extent != 1), tensor.axes[-1])
    slid = slid_axes(tensor)
    if last.var in slid or (last.extent.is_const and last.extent.value < VECTOR):
        return False
    few = channels.extent.is_const and channels.extent.value < VECTOR
    return few or channels.var in slid


def _with_last(tensor: Compute, names: tuple[str, ...]) -> Order:
    first = [k for k, a in enumerate(tensor.axes) if a.var not in names]
    return (*first, *(k for k, a in enumerate(tensor.axes) if a.var in names))


def _keeps_dims(load: Load, tensor: Compute) -> bool:
    if len(load.indices) != len(tensor.axes):
        return False
    return all(
        isinstance(i, Index) and i.int_.names & {b.var for b in tensor.axes} <= {a.var}
        for i, a in zip(load.indices, tensor.axes, strict=True)
    )


def _of_products(s: Stages, constants: Set[str]) -> dict[str, Order]:
    """The orders in which products by weights come, and what maps make of them by element."""
    found: dict[str, Order] = {}
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if not isinstance(tensor, Compute) or len(tensor.axes) < 2:
            continue
        c = contraction(tensor, constants) if classify(tensor) == "contraction" else None
        if c is not None and c.b.source.name in constants:
            found[name] = _with_last(tensor, c.n)
        elif classify(tensor) == "map":
            loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
            same = [found[n.source.name] for n in loads
                    if n.source.name in found and is_identity(n, tensor)]  # fmt: skip
            if same:
                found[name] = same[0]
    return found


def _only_reduces(reader: Tensor) -> bool:
    """Whether a stage is a reduction that takes its operand in any order: no window, no product."""
    if not isinstance(reader, Compute) or classify(reader) != "reduction" or slides(reader):
        return False
    return all(
        not isinstance(n, Load) or all(map(_bare, n.indices)) for n in own_nodes(reader.body)
    )


def _first_loads(reader: Tensor) -> dict[str, Load]:
    """The first load of each tensor that the reader loads from, by name."""
    loads: dict[str, Load] = {}
    if isinstance(reader, Compute):
        for node in own_nodes(reader.body):
            if isinstance(node, Load):
                loads.setdefault(node.source.name, node)
    return loads


def _read_by(reader: Tensor, s: Stages) -> int:
    """About how many elements a stage reads of each value."""
    if not isinstance(reader, Compute):
        return 0
    axes = (*reader.axes, *reader.reduce_axes)
    return likely_value(prod((a.extent for a in axes), start=as_int(1)), s.facts)


def _reader_wish(
    load: Load | None, reader: Tensor, order: Order | None, constants: Set[str], sampled: str
) -> Order | None:
    """Dimensions in the order in which the reader runs through what it loads; row-major where that
    does not make it jump; with that last along which a sliding window, or what samples along an
    iterator, wants its rows."""
    if load is None or not isinstance(reader, Compute):
        return None
    dim = _dim_of(load, sampled) if sampled else None
    dim = _rows_along(load, reader, order, constants) if dim is None else dim
    if dim is not None:
        return (*(d for d in range(len(load.indices)) if d != dim), dim)
    innermost = _innermost(load, reader, order, constants)
    axes = list(reader.axes) if order is None else [reader.axes[k] for k in order]
    place = {a.var: k for k, a in enumerate((*axes, *reader.reduce_axes))}
    if _runs_along(load, innermost):
        return tuple(range(len(load.indices)))
    keys: list[tuple[int, int]] = []
    for dim, index in enumerate(load.indices):
        if not isinstance(index, Index):
            return None
        at = [place[n] for n in index.int_.names if n in place]
        keys.append((max(at, default=-1), dim))
    return tuple(dim for _, dim in sorted(keys))


def _rows_along(
    load: Load, reader: Compute, order: Order | None, constants: Set[str]
) -> int | None:
    """The dimension of a contraction's operand, but not its last, along which its rows should lie,
    or what windows reduce, whose order says along which dimension; None for what is neither."""
    if order is not None and classify(reader) == "reduction" and slides(reader):
        dim = _dim_along(load, reader, reader.axes[order[-1]].var)
        return None if dim == len(load.indices) - 1 else dim
    c = _placed(reader, order, constants)
    if c is None or c.a.source is not load.source:
        return None
    own = order or tuple(range(len(reader.axes)))
    wanted = _wanted_last(reader, own, constants, MIN_RUN)
    dim = None if wanted is None else _dim_of(load, *wanted)
    return None if dim == len(load.indices) - 1 or _ends_reduced(load, reader) else dim


def _placed(reader: Compute, order: Order | None, constants: Set[str]) -> Contraction | None:
    """The reader as a contraction. Of two values that is packed along which the result lies."""
    c = contraction(reader, constants)
    if c is None or not order or constants & {c.a.source.name, c.b.source.name}:
        return c
    if reader.axes[order[-1]].var not in c.m:
        return c
    return replace(c, m=c.n, n=c.m, a=c.b, b=c.a, a_side=c.b_side, b_side=c.a_side)


def _innermost(
    load: Load, reader: Compute, order: Order | None, constants: Set[str]
) -> tuple[str, ...]:
    """The iterators of which one should be contiguous in what the reader loads."""
    c = _placed(reader, order, constants)
    if c is not None:  # the second operand is packed, which suits either way
        return (*c.n, *c.k) if load is c.b else c.k
    if not reader.axes:
        return tuple(a.var for a in reader.reduce_axes)
    last = reader.axes[-1 if order is None else order[-1]].var
    return (last, *(a.var for a in reader.reduce_axes[-1:]))


def _runs_along(load: Load, names: tuple[str, ...], widest: int = 1) -> bool:
    """Whether one of the iterators goes through a row-major source in steps of an element, or of
    as many as `widest`."""
    offset = as_int(0)
    strides = strides_of(load.source.shape, tuple(range(len(load.indices))))
    for index, stride in zip(load.indices, strides, strict=True):
        if isinstance(index, Index):
            offset = offset + index.int_ * stride
    splits = (offset.linear(n) for n in names)
    return any(s is not None and s[0].is_const and 1 <= s[0].value <= widest for s in splits)
