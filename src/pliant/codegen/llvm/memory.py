"""Loads, stores and addresses.

Along the vectorized loop an access is uniform, contiguous, contiguous but for a few that nobody
wants, or a gather/scatter, told from the coefficient of the loop variable in the element's offset;
or it is of a few pieces (`pieces`), or within one vector (`shuffled`), or lies backwards, or nearly
always in one run (`runs`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Final

from pliant.base.dtypes import DType, boolean, i64
from pliant.base.errors import InvalidModelError
from pliant.codegen.llvm import exprs, ints, past, pieces, runs, unpacked
from pliant.codegen.llvm.shuffled import Within, within_vector
from pliant.codegen.llvm.types import literal, mangle, memory_type, value_type, vector_type
from pliant.ir.expr import Binary, Cast, Const, Expr, Index, Load, Reduce, Select
from pliant.ir.node import walk
from pliant.loop import stmt as loop
from pliant.loop.rows_ahead import first_read
from pliant.loop.stmt import LINE, Buffer, BufferRef, Flat
from pliant.lower.access import cost_of
from pliant.sym.expr import Int, as_int, var

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Ask, Emitter
    from pliant.codegen.llvm.exprs import Val


BESIDE: Final = 4  # vectors whose address is chosen once
ZEROS: Final = 64  # the same where the number is 0, of which memory takes no place in files
IN_VAIN: Final = 16  # what a vector that may not be stored may cost, as `cost_of` counts

WIDEST_STEP: Final = 4
"""From lane to lane; elements further apart are gathered."""


def load(e: Emitter, x: Load) -> Val:
    """An element, or one per lane."""
    buffer: Buffer | Flat = x.source
    place = e.place(buffer)
    if place.lanes > 1:
        return _private_load(e, x, place.pointer)
    strided = _strided(e, buffer, x.indices)
    if strided is not None:
        first, step = strided
        return _load_strided(e, buffer, element_at(e, place.pointer, first, buffer.dtype), step)
    found = within_vector(e, buffer, x.indices)
    if found is not None:
        offset, _ = offset_of(e, buffer, found[0])
        return _shuffled(e, buffer, element_at(e, place.pointer, offset, buffer.dtype), found[1])
    in_pieces = _in_pieces(e, x, place.pointer)
    if in_pieces is not None:
        return in_pieces
    in_a_run = _in_a_run(e, x, place.pointer)
    if in_a_run is not None:
        return in_a_run
    offset, stride = offset_of(e, buffer, x.indices)
    if stride == 0:
        return _uniform_load(e, buffer, place.pointer, offset)
    if stride == 1:
        address = element_at(e, place.pointer, offset, buffer.dtype)
        if place.unpacked:
            return unpacked.load(e, address)
        if e.ahead is not None and e.ahead[0] == buffer.name:
            _prefetch(e, buffer, address, e.ahead)
        return _read(e, address, buffer, e.lanes, None if _own(e, buffer, offset) else e.mask)
    return _gather(e, buffer, _pointers(e, place.pointer, offset, buffer.dtype))


def load_or(e: Emitter, cond: Val, a: Expr, b: Expr) -> Val | None:
    """A vector of elements or, where a uniform condition does not hold, of a number: it comes from
    another address then, which takes no branch, so that equal ones are loaded once. Vectors beside
    one another share the choice. None for what is no such choice."""
    match a, b:
        case Load(source=Buffer() as buffer, indices=indices), Const() if (
            e.lanes > 1
            and buffer.scope != "register"  # which it is no longer with an address
            and buffer.dtype is not boolean
            and e.place(buffer).lanes == 1
            and all(isinstance(i, Index) for i in indices)
        ):
            found = within_vector(e, buffer, indices)
            if found is not None:
                indices = found[0]
            offset = offset_in(e, buffer, indices)
            step, start = offset.linear(e.lane_var) or (None, offset)
            if found is None and (step not in (0, 1) or (step == 0 and e.mask is not None)):
                return None
            apart = _beside(b) * e.lanes
            among = sum(c for c, factors in start.terms() if not factors) % apart
            first = ints.emit_uniform(e, start - among)
            address = element_at(e, e.place(buffer).pointer, first, buffer.dtype)
            other = _vectors_of(e, b)
            chosen = e.text.assign(f"select i1 {cond.text}, ptr {address}, ptr {other}")
            chosen = element_at(e, chosen, str(among), buffer.dtype)
            if found is not None:
                return _shuffled(e, buffer, chosen, found[1])
            if step == 0:
                return _read(e, chosen, buffer, 1, None)
            return _read(e, chosen, buffer, e.lanes, e.mask)
    return None


def _beside(number: Const) -> int:
    return ZEROS if _is_nothing(number) else BESIDE


def _is_nothing(number: Const) -> bool:
    """Whether all its bits are 0."""
    return number.bits == 0


def _vectors_of(e: Emitter, number: Const) -> str:
    """Memory with a number in every lane, of as many vectors as are chosen together and of one
    that begins in any of their lanes."""
    kind, lanes = memory_type(number.dtype), (_beside(number) + 1) * e.lanes
    name = f"@every_{kind}_{number.bits}_{e.lanes}"
    line = f"{name} = internal global [{lanes} x {kind}] zeroinitializer, align {LINE}"
    if not _is_nothing(number):
        kind, value = vector_type(kind, lanes), f"splat ({kind} {literal(number)})"
        line = f"{name} = private unnamed_addr constant {kind} {value}"
    e.text.module.define(name, line)
    return name


def store(
    e: Emitter, buffer: Buffer, indices: tuple[Expr, ...], value: Val, *, whole: bool = False
) -> None:
    """Write one element, or one per active lane; `whole` says that other lanes have what memory
    holds."""
    place = e.place(buffer)
    if place.lanes > 1:
        _private_store(e, buffer, place.pointer, indices, exprs.widen(e, value))
        return
    offset, stride = offset_of(e, buffer, indices)
    if stride == 0:
        if value.lanes > 1:
            raise InvalidModelError(f"{buffer.name}: all lanes store to one place")
        _uniform_store(e, element_at(e, place.pointer, offset, buffer.dtype), value)
    elif stride == 1:
        address = element_at(e, place.pointer, offset, buffer.dtype)
        if place.unpacked:
            _store_unpacked(e, address, exprs.widen(e, value))
            return
        if e.mask is not None and e.parts_from is not None:
            _stream_parts(e, buffer, address, exprs.widen(e, value), e.mask)
            return
        goes_past = e.mask is None and e.stream_from is not None and e.past is True
        if not goes_past:
            _ask_to_write(e, buffer, address)
        value, mask = exprs.widen(e, value), e.mask
        if _own(e, buffer, offset):
            value, mask = value if whole else _kept(e, buffer, address, value), None
        if mask is None and e.stream_from is not None:
            _stream(e, buffer, address, offset, value, e.stream_from)
        else:
            _write(e, address, value, buffer.dtype.bytes, mask)
    else:
        _scatter(e, _pointers(e, place.pointer, offset, buffer.dtype), exprs.widen(e, value))


def keeps_others(e: Emitter, s: loop.Store) -> bool:
    """Whether the stored sum is, in lanes that are not active, what it was: products of elements
    that are not read there, and so are 0, were added."""
    match s.value:
        case Binary("add", Load(source, indices), more) if source is s.buffer:
            return e.options.contract and indices == s.indices and _is_zero(e, more)
    return False


def _is_zero(e: Emitter, x: Expr) -> bool:
    """Whether a value is 0 in lanes that are not active."""
    match x:
        case Load(source=Buffer() as buffer, indices=indices):
            if e.place(buffer).lanes > 1 or buffer.scope == "register":
                return False
            if not all(isinstance(i, Index) for i in indices):
                return False
            step = offset_in(e, buffer, indices).linear(e.lane_var)
            return step is not None and step[0] == 1
        case Binary("mul", a, b) | Select(_, a, b):
            return _is_zero(e, a) and _is_zero(e, b)
        case Cast(_, a) | Reduce("sum", _, a):
            return _is_zero(e, a)
        case Const():
            return bool(x.value == 0)
    return False


def store_if(e: Emitter, cond: Val, s: loop.Store) -> bool:
    """A vector stored where a uniform condition holds, and elsewhere to an address that nobody
    reads: no branch, into which LLVM would move the sums that only it wants, to run one after
    another. False for what is no such store, or too dear to compute in vain."""
    place = e.place(s.buffer)
    if e.lanes == 1 or e.stream_from is not None or place.lanes > 1 or place.unpacked:
        return False
    if e.has_effects(s.value) or cost_of(s.value) > IN_VAIN:
        return False
    if not all(isinstance(i, Index) for i in s.indices):
        return False
    offset, stride = offset_of(e, s.buffer, s.indices)
    if stride != 1:
        return False
    value = exprs.widen(e, e.stored(s))
    address = element_at(e, place.pointer, offset, s.buffer.dtype)
    kind = vector_type(memory_type(value.dtype), value.lanes)
    nowhere = e.text.nowhere(kind, align_of(s.buffer, value.lanes))
    chosen = e.text.assign(f"select i1 {cond.text}, ptr {address}, ptr {nowhere}")
    _write(e, chosen, value, value.dtype.bytes, e.mask)
    return True


def _private_load(e: Emitter, x: Load, pointer: str) -> Val:
    """What each lane has in its own copy: memory holds vectors, of one element for each lane."""
    buffer: Buffer | Flat = x.source
    offset, stride = offset_of(e, buffer, x.indices)
    if stride:
        return _gather(e, buffer, _own_elements(e, buffer, pointer, offset, stride))
    address = element_at(e, pointer, offset, buffer.dtype, e.lanes)
    anywhere = not e.mask_is_nonempty and not e.in_bounds(x)  # where no lane is active
    return _read(e, address, buffer, e.lanes, e.mask if anywhere else None)


def _private_store(
    e: Emitter, buffer: Buffer, pointer: str, indices: tuple[Expr, ...], value: Val
) -> None:
    offset, stride = offset_of(e, buffer, indices)
    if stride:
        _scatter(e, _own_elements(e, buffer, pointer, offset, stride), value)
        return
    address = element_at(e, pointer, offset, buffer.dtype, e.lanes)
    _write(e, address, _kept(e, buffer, address, value), align_of(buffer, e.lanes), None)


def _own_elements(e: Emitter, buffer: Buffer | Flat, pointer: str, offset: str, stride: int) -> str:
    """Where each lane's element is, in the vector that it has picked."""
    many, lanes = vector_type("i64", e.lanes), e.size(e.lane_var, e.lanes)
    if stride == 1:  # the offset is the first lane's
        offset = e.text.assign(f"add {many} {e.splat(offset, 'i64')}, {lanes}")
    element = memory_type(buffer.dtype)
    vectors = e.text.assign(
        f"getelementptr {vector_type(element, e.lanes)}, ptr {pointer}, {many} {offset}"
    )
    return e.text.assign(f"getelementptr {element}, <{e.lanes} x ptr> {vectors}, {many} {lanes}")


def _store_unpacked(e: Emitter, address: str, value: Val) -> None:
    if e.mask is not None:
        value = _chosen(e, value, unpacked.load(e, address))
    unpacked.store(e, address, value)


def _kept(e: Emitter, buffer: Buffer, address: str, value: Val) -> Val:
    """The value in active lanes, what memory holds in others: a store without a mask, which LLVM
    can turn into a register."""
    if e.mask is None:
        return value
    return _chosen(e, value, _read(e, address, buffer, e.lanes, None))


def _chosen(e: Emitter, value: Val, old: Val) -> Val:
    """The value in active lanes, the old one in others."""
    flag = value_type(boolean, e.lanes)
    kept = e.text.assign(
        f"select {flag} {e.mask}, {value.type} {value.text}, {value.type} {old.text}"
    )
    return exprs.Val(kept, value.dtype, value.lanes)


def _own(e: Emitter, buffer: Buffer | Flat, offset: str) -> bool:
    """Whether all lanes from `offset` on, active or not, lie in a register buffer."""
    if isinstance(buffer, Flat) or buffer.scope != "register" or not offset.isdecimal():
        return False
    return int(offset) + e.lanes <= e.resolve(buffer.room).value


def address_of(e: Emitter, ref: BufferRef) -> str:
    """A pointer to an element, for a call."""
    place = e.place(ref.buffer)
    offset, stride = offset_of(e, ref.buffer, ref.indices)
    if stride != 0:
        raise InvalidModelError(f"the address of {ref.buffer.name} differs between lanes")
    return element_at(e, place.pointer, offset, ref.buffer.dtype)


def offset_of(e: Emitter, buffer: Buffer | Flat, indices: tuple[Expr, ...]) -> tuple[str, int]:
    """Element offset, and how it moves from lane to lane: 0, 1, or 2 for anything else (then the
    offset is a vector)."""
    if all(isinstance(i, Index) for i in indices):
        return _affine_offset(e, offset_in(e, buffer, indices))
    computed: Val | None = None
    affine = as_int(0)
    for index, stride in zip(indices, buffer.strides, strict=True):
        if isinstance(index, Index):
            affine = affine + index.int_ * stride
            continue
        step = exprs.emit(e, index)
        scaled = step if stride == 1 else _product(e, step, stride)
        if computed is not None:
            scaled = exprs.binary(e, "add", *exprs.together(e, computed, scaled))
        computed = scaled
    assert computed is not None
    rest, stride_of_lanes = _affine_offset(e, e.resolve(affine))
    # A row that is looked up is read along as any other.
    if computed.lanes > 1 or stride_of_lanes == 2:
        kind = vector_type("i64", e.lanes)
        along = rest if stride_of_lanes == 2 else ints.emit_varying(e, e.resolve(affine))
        return e.text.assign(f"add {kind} {exprs.widen(e, computed).text}, {along}"), 2
    return e.text.assign(f"add i64 {computed.text}, {rest}"), stride_of_lanes


def _affine_offset(e: Emitter, affine: Int) -> tuple[str, int]:
    if not e.is_varying(affine):
        return ints.emit_uniform(e, affine), 0
    split = affine.linear(e.lane_var)
    if split is None:  # a part of the lane's number, which its range may decide: (32*o + l)//32
        affine = e.facts.simplify(affine)
        if not e.is_varying(affine):
            return ints.emit_uniform(e, affine), 0
        split = affine.linear(e.lane_var)
    if split is not None and split[0].is_const and split[0].value == 1:
        return ints.emit_uniform(e, split[1]), 1
    return ints.emit_varying(e, affine), 2


def _strided(
    e: Emitter, buffer: Buffer | Flat, indices: tuple[Expr, ...]
) -> tuple[str, int] | None:
    """The offset of the first lane and the step between lanes, where that is so small that whole
    vectors are better than elements. (Under a mask they are where masks are registers.)"""
    if e.mask is not None and "avx512bw" not in e.options.features:
        return None
    if e.lanes < WIDEST_STEP or not all(isinstance(i, Index) for i in indices):
        return None
    split = offset_in(e, buffer, indices).linear(e.lane_var)
    if split is None or not split[0].is_const or not 1 < split[0].value <= WIDEST_STEP:
        return None
    return ints.emit_uniform(e, split[1]), split[0].value


def _in_pieces(e: Emitter, x: Load, pointer: str) -> Val | None:
    """A vector of few pieces; under a mask where all lanes are active, else it is gathered."""
    buffer: Buffer | Flat = x.source
    if e.lanes == 1 or not all(isinstance(i, Index) for i in x.indices):
        return None
    offset = offset_in(e, buffer, x.indices)
    found = pieces.pieces_of(e, offset)
    if found is None:
        return None
    dtype = buffer.dtype

    def few() -> str:
        return pieces.load_pieces(e, pointer, memory_type(dtype), dtype.bytes, found)

    def many() -> str:
        return _gathered(e, buffer, _pointers(e, pointer, ints.emit_varying(e, offset), dtype))

    if e.mask is None:
        return _from_memory(e, few(), dtype, e.lanes)
    flag = vector_type("i1", e.lanes)
    every = e.text.intrinsic(f"llvm.vector.reduce.and.v{e.lanes}i1", "i1", [(flag, e.mask)])
    return _from_memory(e, _if(e, every, few, many, memory_type(dtype)), dtype, e.lanes)


def _in_a_run(e: Emitter, x: Load, pointer: str) -> Val | None:
    """A vector that lies backwards, or in one run in either direction where its ends say so when
    the code runs; then others are gathered."""
    buffer: Buffer | Flat = x.source
    if e.lanes == 1 or not all(isinstance(i, Index) for i in x.indices):
        return None
    offset = offset_in(e, buffer, x.indices)
    along = offset.linear(e.lane_var)
    if along is not None and along[0] != -1:  # as nearly all are
        return None
    offset = e.facts.simplify(offset)
    least, greatest = runs.steps_of(offset, e.lane_var)
    first, last = (offset.subs({e.lane_var: as_int(k)}) for k in (0, e.lanes - 1))
    dtype = buffer.dtype

    def forwards() -> str:
        address = element_at(e, pointer, ints.emit_uniform(e, first), dtype)
        return _read_memory(e, address, buffer, e.lanes, e.mask)

    def backwards() -> str:
        address = element_at(e, pointer, ints.emit_uniform(e, last), dtype)
        mask = None if e.mask is None else _reversed(e, e.mask, "i1")
        return _reversed(e, _read_memory(e, address, buffer, e.lanes, mask), memory_type(dtype))

    def gathered() -> str:
        return _gathered(e, buffer, _pointers(e, pointer, ints.emit_varying(e, offset), dtype))

    if least == greatest == -1:
        return _from_memory(e, backwards(), dtype, e.lanes)
    if offset.linear(e.lane_var) is not None or not (greatest <= 1 or least >= -1):
        return None
    apart, way = ints.emit_uniform(e, last - first), gathered
    for possible, run, step in ((least >= -1, backwards, -1), (greatest <= 1, forwards, 1)):
        if possible:
            way = _if_apart(e, apart, step * (e.lanes - 1), run, way, memory_type(dtype))
    return _from_memory(e, way(), dtype, e.lanes)


def _shuffled(e: Emitter, buffer: Buffer | Flat, address: str, found: Within) -> Val:
    """The lanes of a vector that is loaded whole."""
    whole, element = _read_memory(e, address, buffer, found.size, None), memory_type(buffer.dtype)
    text = pieces.shuffle(e, element, found.size, whole, "poison", found.lanes)
    return _from_memory(e, text, buffer.dtype, e.lanes)


def _if_apart(
    e: Emitter, apart: str, wanted: int, run: Callable[[], str], other: Callable[[], str], kind: str
) -> Callable[[], str]:
    """A way to a vector: by `run` where its ends are so far apart."""

    def way() -> str:
        return _if(e, e.text.assign(f"icmp eq i64 {apart}, {wanted}"), run, other, kind)

    return way


def _reversed(e: Emitter, vector: str, element: str) -> str:
    return pieces.shuffle(e, element, e.lanes, vector, "poison", range(e.lanes)[::-1])


def _if(
    e: Emitter, cond: str, then: Callable[[], str], otherwise: Callable[[], str], element: str
) -> str:
    """A vector that is got in one way where a uniform condition holds, and in another elsewhere."""
    t = e.text
    yes, no, join = t.label("then"), t.label("else"), t.label("join")
    t.branch(cond, yes, no)
    arms: list[tuple[str, str]] = []
    for label, way in ((yes, then), (no, otherwise)):
        t.start(label)
        with e.scope():
            arms.append((way(), t.block))
        t.jump(join)
    t.start(join)
    return t.phi(vector_type(element, e.lanes), *arms)


def _product(e: Emitter, index: Val, stride: Int) -> Val:
    factor = exprs.Val(ints.emit_uniform(e, stride), i64, 1)
    return exprs.binary(e, "mul", *exprs.together(e, index, factor))


def offset_in(e: Emitter, buffer: Buffer | Flat, indices: tuple[Expr, ...]) -> Int:
    """Where an access goes whose indices are integers, in elements, for this iteration of unrolled
    loops. Several ways to load ask in turn."""
    found = e.offsets.get((buffer, indices))
    if found is None:
        found = loop.offset_of(buffer, indices)
        assert found is not None  # the indices are
        e.offsets[buffer, indices] = found
    return e.resolve(found)


def element_at(e: Emitter, pointer: str, offset: str, dtype: DType, lanes: int = 1) -> str:
    """A pointer to an element."""
    if offset == "0":
        return pointer
    element = vector_type(memory_type(dtype), lanes)
    return e.text.assign(f"getelementptr {element}, ptr {pointer}, i64 {offset}")


def align_of(buffer: Buffer | Flat, lanes: int) -> int:
    """How a private buffer's vectors are aligned: three lanes are no power of two, and memory
    begins with a line."""
    size = buffer.dtype.bytes * lanes
    return min(size & -size, LINE)


def vector_bytes(buffer: Buffer, lanes: int) -> int:
    """From one vector of a private buffer to the next: LLVM rounds up to a power of two."""
    return 1 << (buffer.dtype.bytes * lanes - 1).bit_length()


def _from_memory(e: Emitter, text: str, dtype: DType, lanes: int) -> Val:
    """Booleans are bytes in memory and bits in registers."""
    if dtype is boolean:
        byte = vector_type("i8", lanes)
        zero = "0" if lanes == 1 else "zeroinitializer"
        text = e.text.assign(f"icmp ne {byte} {text}, {zero}")
    return exprs.Val(text, dtype, lanes)


def _to_memory(e: Emitter, value: Val) -> str:
    if value.dtype is boolean:
        return e.text.assign(f"zext {value.type} {value.text} to {vector_type('i8', value.lanes)}")
    return value.text


def _read(e: Emitter, address: str, buffer: Buffer | Flat, lanes: int, mask: str | None) -> Val:
    text = _read_memory(e, address, buffer, lanes, mask)
    return _from_memory(e, text, buffer.dtype, lanes)


def _read_memory(
    e: Emitter, address: str, buffer: Buffer | Flat, lanes: int, mask: str | None
) -> str:
    element = memory_type(buffer.dtype)
    kind = vector_type(element, lanes)
    align = align_of(buffer, lanes) if e.place(buffer).lanes > 1 else buffer.dtype.bytes
    if mask is None:
        return e.text.assign(f"load {kind}, ptr {address}, align {align}")
    size = _most_masked(e, buffer.dtype, lanes)
    if size < lanes:
        parts = list[str]()
        for k in range(0, lanes, size):
            at = e.text.assign(f"getelementptr {element}, ptr {address}, i64 {k}")
            some = pieces.shuffle(e, "i1", lanes, mask, "poison", range(k, k + size))
            parts.append(_masked_load(e, at, element, align, size, some))
        return pieces.joined(e, element, size, parts, range(lanes))
    return _masked_load(e, address, element, align, lanes, mask)


def _masked_load(e: Emitter, address: str, element: str, align: int, lanes: int, mask: str) -> str:
    kind, flag = vector_type(element, lanes), vector_type("i1", lanes)
    args = [(f"ptr align {align}", address), (flag, mask), (kind, "zeroinitializer")]
    return e.text.intrinsic(f"llvm.masked.load.{mangle(element, lanes)}.p0", kind, args)


def _most_masked(e: Emitter, dtype: DType, lanes: int) -> int:
    """Lanes that LLVM may be asked to load under one mask.

    Of more than a register LLVM 22.1 makes loads without a mask for AVX2, or ends the process,
    where it finds out that the mask of a register is empty whatever another condition says.
    """
    features = e.options.features
    if "avx2" not in features or "avx512f" in features or dtype.bits < 32:
        return lanes  # narrower elements are loaded one by one
    size = gcd(lanes, 256 // dtype.bits)
    return size if size > 1 else lanes


def _write(e: Emitter, address: str, value: Val, align: int, mask: str | None) -> None:
    element = memory_type(value.dtype)
    kind = vector_type(element, value.lanes)
    text = _to_memory(e, value)
    if mask is None:
        e.text.line(f"store {kind} {text}, ptr {address}, align {align}")
        return
    name = f"llvm.masked.store.{mangle(element, value.lanes)}.p0"
    flag = vector_type("i1", value.lanes)
    e.text.intrinsic(name, "void", [(kind, text), (f"ptr align {align}", address), (flag, mask)])


def _stream(
    e: Emitter, buffer: Buffer, address: str, offset: str, value: Val, at_least: int
) -> None:
    """Write a vector past the caches, where it goes there; as ever elsewhere."""
    t, what = e.text, past.Vector(buffer, as_int(0), value.lanes, at_least)
    kind, text = vector_type(memory_type(value.dtype), value.lanes), _to_memory(e, value)
    t.module.define("!0", "!0 = !{i32 1}")
    over = f"store {kind} {text}, ptr {address}, align {what.align}, !nontemporal !0"
    plain = f"store {kind} {text}, ptr {address}, align {buffer.dtype.bytes}"
    if e.past is not None:
        t.line(over if e.past else plain)
        return
    labels = t.label("past"), t.label("plain"), t.label("done")
    t.branch(past.goes(e, what, offset), *labels[:2])
    for label, store in zip(labels, (over, plain), strict=False):
        t.start(label)
        t.line(store)
        t.jump(labels[2])
    t.start(labels[2])


def _stream_parts(e: Emitter, buffer: Buffer, address: str, value: Val, mask: str) -> None:
    """Write the active lanes of a vector past the caches, element by element, where the buffer has
    enough bytes; as ever elsewhere. Stores to one line that follow one another leave together."""
    assert e.parts_from is not None
    t, size, lanes = e.text, buffer.dtype.bytes, value.lanes
    over, plain, done = t.label("past"), t.label("plain"), t.label("done")
    t.branch(past.is_large(e, buffer, e.parts_from), over, plain)
    t.start(plain)
    _ask_to_write(e, buffer, address)
    _write(e, address, value, size, mask)
    t.jump(done)
    t.start(over)
    t.module.define("!0", "!0 = !{i32 1}")
    kind, text = vector_type(memory_type(value.dtype), lanes), _to_memory(e, value)
    kept = t.alloca(kind, LINE)
    t.line(f"store {kind} {text}, ptr {kept}, align {LINE}")
    before, head, body = t.block, t.label("head"), t.label("body")
    left = t.assign(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    here, rest = t.name("lanes"), t.name("rest")
    t.jump(head)
    t.start(head)
    t.line(f"{here} = phi i{lanes} [ {left}, %{before} ], [ {rest}, %{body} ]")
    t.branch(t.assign(f"icmp ne i{lanes} {here}, 0"), body, done)
    t.start(body)
    first = t.intrinsic(f"llvm.cttz.i{lanes}", f"i{lanes}", [(f"i{lanes}", here), ("i1", "true")])
    at = t.assign(f"zext i{lanes} {first} to i64") if lanes < 64 else first
    word = f"i{8 * size}"  # of a float there is no such store
    source, to = (t.assign(f"getelementptr {word}, ptr {p}, i64 {at}") for p in (kept, address))
    element = t.assign(f"load {word}, ptr {source}, align {size}")
    t.line(f"store {word} {element}, ptr {to}, align {size}, !nontemporal !0")
    t.line(f"{rest} = and i{lanes} {here}, {t.assign(f'sub i{lanes} {here}, 1')}")
    t.jump(head)
    t.start(done)


def _ask_to_write(e: Emitter, buffer: Buffer, address: str) -> None:
    """Ask for lines of a buffer that is only stored to, if that is wished."""
    if e.ahead is not None and e.ahead[0] == buffer.name and e.ahead_to_write:
        _prefetch(e, buffer, address, e.ahead)


def _prefetch(e: Emitter, buffer: Buffer | Flat, address: str, ask: Ask) -> None:
    """Ask for the lines of a vector that lies so many elements behind this one, or that a load
    would give; no line may be there."""
    _, ahead, _, cache, _ = ask
    assert not isinstance(ahead, tuple)  # these are for other loops
    if isinstance(ahead, Load):
        e.ahead = None  # an index may follow from the same buffer: reading that asks for nothing
        offset, stride = offset_of(e, ahead.source, ahead.indices)
        e.ahead = ask
        if stride != 1:
            return
        far = element_at(e, e.place(ahead.source).pointer, offset, buffer.dtype)
    else:
        far = element_at(e, address, ints.emit_uniform(e, ahead), buffer.dtype)
    _ask(e, far, e.lanes * buffer.dtype.bytes, cache, write=e.ahead_to_write)


def ask_for(e: Emitter, name: str, s: loop.Stmt, ask: Ask) -> None:
    """Ask for what lies `ahead` elements behind all that the first load of the buffer in `s` reads
    while the loops inside run; where they make it a run of unknown length, for its start. What
    other values choose only vectors ask for. Iterations of the loop `name` that share ask for a
    part of as many elements each, one behind the other. Of several places `share` elements each."""
    buffer, ahead, _, cache, share = ask
    if isinstance(ahead, tuple):
        load = first_read(s, buffer)
        assert load is not None
        pointer = e.place(load.source).pointer
        for line in ahead:
            far = element_at(e, pointer, ints.emit_uniform(e, line), load.dtype)
            _ask(e, far, share * load.dtype.bytes, cache, write=False)
        return
    nodes = list(walk(s))
    load = next((n for n in nodes if isinstance(n, Load) and n.source.name == buffer), None)
    if load is None or isinstance(ahead, Load):
        return
    if not all(isinstance(i, Index) for i in load.indices):
        return
    offset = offset_in(e, load.source, load.indices)
    last = {n.var: n.extent - 1 for n in nodes if isinstance(n, loop.For)}
    first = offset.subs(dict.fromkeys(last, 0))
    if not e.knows(first):
        return
    span = e.resolve(offset.subs(last) - first)
    size = (span.value + 1) * load.dtype.bytes if span.is_const else 0
    if share > 1:
        along = first.linear(name)
        if along is None:
            return
        size = -(-size // share)
        first = along[1] + along[0] * var(name) // share
    start = ints.emit_uniform(e, first + ahead)
    far = element_at(e, e.place(load.source).pointer, start, load.dtype)
    _ask(e, far, max(size // LINE, 1) * LINE, cache, write=False)


def _ask(e: Emitter, address: str, size: int, cache: int, *, write: bool) -> None:
    """Ask for so many bytes, to read or to write, into the caches from this level on, as data."""
    for byte in range(0, size, LINE):
        at = e.text.assign(f"getelementptr i8, ptr {address}, i64 {byte}")
        e.text.prefetch(at, cache, write=write)


def fence(e: Emitter) -> None:
    """Stores past the caches come before what follows: on x86 nothing less orders them (Intel SDM,
    volume 3, "Strengthening or Weakening the Memory-Ordering Model")."""
    if "neon" not in e.options.features:
        e.text.intrinsic("llvm.x86.sse.sfence", "void", [])


def _uniform_load(e: Emitter, buffer: Buffer | Flat, pointer: str, offset: str) -> Val:
    """One element for all lanes; under a mask only if some lane is active."""
    address = element_at(e, pointer, offset, buffer.dtype)
    if e.mask is None or e.mask_is_nonempty:
        return _read(e, address, buffer, 1, None)
    t = e.text
    some = e.any_active()
    before, then, join = t.block, t.label("some"), t.label("join")
    t.branch(some, then, join)
    t.start(then)
    value = _read(e, address, buffer, 1, None)
    inside = t.block
    t.jump(join)
    t.start(join)
    kind = value_type(buffer.dtype, 1)
    text = t.phi(kind, (value.text, inside), ("zeroinitializer", before))
    return exprs.Val(text, buffer.dtype, 1)


def _uniform_store(e: Emitter, address: str, value: Val) -> None:
    t = e.text
    if e.mask is None or e.mask_is_nonempty:
        _write(e, address, value, value.dtype.bytes, None)
        return
    then, join = t.label("some"), t.label("join")
    t.branch(e.any_active(), then, join)
    t.start(then)
    _write(e, address, value, value.dtype.bytes, None)
    t.jump(join)
    t.start(join)


def _pointers(e: Emitter, pointer: str, offsets: str, dtype: DType) -> str:
    kind = vector_type("i64", e.lanes)
    return e.text.assign(f"getelementptr {memory_type(dtype)}, ptr {pointer}, {kind} {offsets}")


def _gather(e: Emitter, buffer: Buffer | Flat, pointers: str) -> Val:
    return _from_memory(e, _gathered(e, buffer, pointers), buffer.dtype, e.lanes)


def _gathered(e: Emitter, buffer: Buffer | Flat, pointers: str) -> str:
    element = memory_type(buffer.dtype)
    kind, flag = vector_type(element, e.lanes), vector_type("i1", e.lanes)
    mask = e.mask or "splat (i1 true)"
    name = f"llvm.masked.gather.{mangle(element, e.lanes)}.v{e.lanes}p0"
    return e.text.intrinsic(
        name, kind,
        [(f"<{e.lanes} x ptr>", pointers), (flag, mask), (kind, "zeroinitializer")],
    )  # fmt: skip


def _load_strided(e: Emitter, buffer: Buffer | Flat, address: str, step: int) -> Val:
    """Elements `step` apart, picked from vectors that hold all from the first to the last of them:
    the last vector begins early enough to end with the last element."""
    lanes, element = e.lanes, memory_type(buffer.dtype)
    starts = [*range(0, (step - 1) * lanes, lanes), step * (lanes - 1) + 1 - lanes]
    text = ""
    lies = range(0)  # where in `text` the elements found so far lie
    for start in starts:
        at = element_at(e, address, str(start), buffer.dtype)
        mask = None if e.mask is None else _spread(e, e.mask, start, step)
        part = _read_memory(e, at, buffer, lanes, mask)
        places = range(step * len(lies) - start, lanes, step)
        if not text:
            text, lies = part, places
            continue
        picks = [*lies, *(lanes + p for p in places)]
        padded = [*picks, *[0] * (lanes - len(picks))]
        text = pieces.shuffle(e, element, lanes, text, part, padded)
        lies = range(len(picks))
    return _from_memory(e, text, buffer.dtype, lanes)


def _spread(e: Emitter, mask: str, start: int, step: int) -> str:
    """Which elements from `start` on active lanes want, that are `step` apart."""
    lanes = e.lanes
    wanted = [divmod(start + k, step) for k in range(lanes)]
    picks = [lane if rest == 0 else lanes for lane, rest in wanted]
    return pieces.shuffle(e, "i1", lanes, mask, "zeroinitializer", picks)


def _scatter(e: Emitter, pointers: str, value: Val) -> None:
    element = memory_type(value.dtype)
    kind, flag = vector_type(element, e.lanes), vector_type("i1", e.lanes)
    name = f"llvm.masked.scatter.{mangle(element, e.lanes)}.v{e.lanes}p0"
    text = _to_memory(e, value)
    mask = e.mask or "splat (i1 true)"
    e.text.intrinsic(name, "void", [(kind, text), (f"<{e.lanes} x ptr>", pointers), (flag, mask)])
