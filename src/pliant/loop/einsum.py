"""The form `O[…] ⊕= f(I1[…], I2[…])` (`ir.einsum`) of loop programs: of a block that is one update,
and of a function that is one nest, as the semantics of an intrinsic.

    for i, j, k in grid(n, m, l):                            outer  i j   inner  k
        with block("c", S(i), S(j), R(k)):           ->      combiner  sum
            c[i, j] = c[i, j] + a[i, k] * b[k, j]            term  a[i, k] * b[k, j]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pliant.ir.einsum import Einsum, NoEinsum, names_in, split_guard
from pliant.ir.expr import Axis, Expr, Index, substitute
from pliant.ir.mapping import likely_value
from pliant.ir.node import transform
from pliant.loop.reducer import Reducer
from pliant.loop.reduction import as_update
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Block, For, Function, If, Iter, Seq, Stmt, Store, offset_of
from pliant.sym.atoms import MinAtom
from pliant.sym.expr import ceildiv, var
from pliant.sym.facts import Facts


def einsum_of_block(block: Block, facts: Facts) -> Einsum:
    """The form of a block in terms of its own iterators. Raises NoEinsum."""
    update = as_update(block)
    if update is None or isinstance(update.combiner, Reducer):
        raise NoEinsum(f"block {block.name} is not one update of one value")
    ordered = [i.var for i in block.iters if i.kind == "O"]
    if ordered:
        raise NoEinsum(f"{', '.join(ordered)} must run in order")
    if block.where is not None:
        raise NoEinsum(f"block {block.name} runs under a condition")
    (place,), (value,) = update.places, update.values
    outer = tuple(Axis(i.var, i.extent) for i in block.iters if i.kind == "S")
    inner = tuple(Axis(i.var, i.extent) for i in block.iters if i.kind == "R")
    used = frozenset[str]().union(*map(names_in, place.indices))
    late = sorted(used & {a.var for a in inner})
    if late:
        raise NoEinsum(f"{', '.join(late)} is reduced over but says where the result goes")
    store = Store(place.buffer, place.indices, value)
    return _form(store, outer, inner, update.combiner, block.init is not None, facts)


def einsum_of_function(f: Function) -> Einsum:
    """The form of a function that is one nest around one update, perhaps after the identity was
    stored. Raises NoEinsum."""
    loops, update, begins = _update_in(f.body)
    written = frozenset[str]().union(*map(names_in, update.indices))
    iters = tuple(Iter(x.var, x.extent, "S" if x.var in written else "R") for x in loops)
    made = Block(f.name, iters, tuple(var(x.var) for x in loops), update)
    form = einsum_of_block(made, Facts())
    return Einsum(
        form.label, form.outer, form.inner, form.combiner, form.term, form.at, form.order,
        form.guard, begins,
    )  # fmt: skip


def joined(form: Einsum) -> tuple[Einsum, int]:
    """The form with one iterator in place of the last two that are reduced over, if they are groups
    of neighbours and places in a group; and how many are a group, 1 where there are none.

        for k in range(ceildiv(K, 4)):                       for k in range(K):
            for e in range(min(4, K - 4*k)):         ->          c[j] += a[k] * b[k//4, j, k%4]
                c[j] += a[4*k + e] * b[k, j, e]
    """
    if len(form.inner) < 2:
        return form, 1
    *rest, outer, inner = form.inner
    atom = inner.extent.sole_atom
    ends = atom.args if isinstance(atom, MinAtom) else (inner.extent,)
    sizes = [x for x in ends if x.is_const]
    if len(sizes) != 1 or len(ends) > 2:
        return form, 1
    size, k = sizes[0], var(outer.var)
    total = size * outer.extent
    if len(ends) == 2:
        (left,) = (x for x in ends if not x.is_const)
        total = left + size * k
        if outer.var in total.names or ceildiv(total, size) != outer.extent:
            return form, 1
    facts = Facts()
    facts.declare_index(outer.var, total)
    term = substitute(form.term, {outer.var: k // size, inner.var: k % size})
    simple = transform(term, lambda n: Index(facts.simplify(n.int_)) if isinstance(n, Index) else n)
    one = replace(form, inner=(*rest, Axis(outer.var, total)), term=simple)
    return one, size.value


def _update_in(s: Stmt) -> tuple[tuple[For, ...], Store, bool]:
    match s:
        case For():
            loops, update, begins = _update_in(s.body)
            return (s, *loops), update, begins
        case Block(init=init, where=None):
            loops, update, _ = _update_in(subst(s.body, bindings_of(s)))
            return loops, update, init is not None
        case Seq(stmts=(first, second)) if isinstance(_innermost(first), Store):
            loops, update, _ = _update_in(second)
            return loops, update, True
        case Store():
            return (), s, False
        case If():
            raise NoEinsum("it computes under a condition")
    raise NoEinsum("it is not one nest around one update")


def _innermost(s: Stmt) -> Stmt:
    while isinstance(s, For):
        s = s.body
    return s


def _form(
    store: Store,
    outer: Sequence[Axis],
    inner: Sequence[Axis],
    combiner: str,
    begins: bool,
    facts: Facts,
) -> Einsum:
    term, guard = split_guard(combiner, store.value)
    label = store.buffer.name
    order = _order(store, outer, facts)
    at: tuple[Expr, ...] = store.indices
    return Einsum(label, tuple(outer), tuple(inner), combiner, term, at, order, guard, begins)


def _order(store: Store, outer: Sequence[Axis], facts: Facts) -> tuple[str, ...]:
    """The iterators as the output lies in memory: by how far each moves, at likely sizes."""
    offset = offset_of(store.buffer, store.indices)
    steps: dict[str, int] = {}
    for axis in outer:
        parts = None if offset is None else offset.linear(axis.var)
        known = parts is not None and parts[0].names.isdisjoint(a.var for a in outer)
        assert parts is not None or not known
        steps[axis.var] = likely_value(parts[0], facts) if parts is not None and known else 0
    return tuple(sorted(steps, key=lambda v: -steps[v]))
