"""Register-tiled micro-kernels: the implementation of the `mm` intrinsics.

    c[i, j] = sum over p < P, k < K of a[offsets[p, i] + k] * b[p, k, j]      i < m, j < NR

`a` is read in place through one element offset per row and kernel position p, so the same code
serves a matrix product (P = 1) and a convolution (P = kernel positions, rows = output pixels). A
negative offset reads the row `other` instead (padding). `b` is a packed panel, NR columns wide, its
rows contiguous. The accumulators stay in registers over all of P and K. Where the offsets of all
rows of a position are `ZEROS`, it adds nothing and is passed over: of a window that is dilated to
the size of the image most positions are such.

What is multiplied, and how many elements at once, is a `Dot`. Its groups of g elements along K lie
together in the panel, as (P, ceil(K/g), NR, g); where K is no multiple of g, nothing is read of
`a` beyond K, and what the panel holds there does not matter.

Few columns fill vectors if some groups along K have lanes of their own: 24 columns are one and a
half vectors of 16 lanes, and three with pairs of groups. These `shares` of a sum are added up at
the end.

One function serves every m from 1 to MR: a jump to the variant with just that many rows, so no work
is wasted on a ragged edge. Few rows leave accumulators unused, so K is unrolled into several sets;
with `in_order` it is not, and an output's bits do not depend on how many rows there are.

While the processor multiplies by a panel, the next one, which lies behind it, is brought into the
second-level cache: otherwise the first tile of every panel waits for memory, and where there are
few tiles (late convolutions, short texts) that is a large part of them all. Several tiles pass over
a panel, and each asks for another part of the next: asked for by all, it would take the places of
loads that wait for the second-level cache. Behind the last panel whatever lies there is asked for,
which has no effect but on caches.

Several steps along K are one iteration of the loop: counting is instructions, too, and where a
core is shared by two threads, there is room for four a cycle and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Protocol

from pliant.base.dtypes import DType
from pliant.codegen.dot import F32, Dot, repeated, splat, word_type
from pliant.codegen.llvm.types import memory_type, value_type, vector_type
from pliant.codegen.llvm.writer import FunctionText, ModuleText
from pliant.loop.stmt import ZEROS

# Fewer rows than these use up a panel faster than memory can bring one.
AHEAD: Final = 4
TURNS: Final = 4  # tiles that share the next panel among them
STEPS: Final = 4  # along K in an iteration; fewer where they would be more than MOST_SUMS
MOST_SETS: Final = 4  # of accumulators
MOST_SUMS: Final = 56  # vectors of products of an iteration
LINE: Final = 64  # bytes of a cache line

Words = Callable[[int, int], str]  # the word of a row at a step of an unrolled loop
Row = list[tuple[str, int]]  # vectors of a row's sums, and how many each holds
Begin = Callable[[FunctionText], None]  # what is done before anything is multiplied
End = Callable[[FunctionText, list[Row]], None]  # what becomes of all rows' sums


class MatrixKernel(Protocol):
    """Code that computes a tile of a matrix product; see the module."""

    def __hash__(self) -> int: ...

    @property
    def symbol(self) -> str: ...

    @property
    def rows(self) -> int:
        """The most rows of a tile."""

    @property
    def row_unit(self) -> int:
        """So many rows take as long as one of them."""

    @property
    def columns(self) -> int:
        """Columns of a panel."""

    @property
    def lanes(self) -> int:
        """Sums in one vector register."""

    @property
    def a(self) -> DType: ...

    @property
    def b(self) -> DType: ...

    @property
    def c(self) -> DType: ...

    @property
    def group(self) -> int:
        """Elements along the reduction that lie together in a panel."""

    def text(self) -> str:
        """LLVM IR: `int32 symbol(ctx, a, offsets, other, b, c, m, P, K, ldc, turn)`."""


@dataclass(frozen=True)
class MicroKernel:
    """A family of micro-kernels: up to `rows` rows by `vectors` vectors of `lanes` sums.

    `together` is how many words of a row are loaded at once: more than one where an instruction
    takes a factor from any lane of a register. A column has `shares` neighbouring lanes.
    """

    lanes: int
    rows: int
    vectors: int
    in_order: bool = False
    dot: Dot = F32
    together: int = 1
    shares: int = 1
    row_unit: int = 1

    @property
    def columns(self) -> int:
        return self.across * self.vectors

    @property
    def across(self) -> int:
        """Columns of one vector."""
        return self.lanes // self.shares

    @property
    def symbol(self) -> str:
        what = self.dot.name + f"_by{self.shares}" * (self.shares > 1)
        return f"pl_mm_{what}_{self.rows}x{self.columns}" + "_in_order" * self.in_order

    @property
    def a(self) -> DType:
        return self.dot.a

    @property
    def b(self) -> DType:
        return self.dot.b

    @property
    def c(self) -> DType:
        return self.dot.c

    @property
    def group(self) -> int:
        return self.dot.group * self.shares

    @property
    def word(self) -> str:
        """LLVM's type of a group of elements."""
        return word_type(self.dot, self.shares)

    @property
    def words(self) -> str:
        """LLVM's type of a vector of them."""
        return vector_type(self.word, self.across)

    @property
    def vector(self) -> str:
        """LLVM's type of a vector of sums."""
        return value_type(self.c, self.lanes)

    def text(self) -> str:
        return _text(self)


@lru_cache(64)  # every compilation asks: it is the key of the object
def _text(kernel: MicroKernel) -> str:
    module = ModuleText()
    names = {m: f"{kernel.symbol}_m{m}" for m in range(1, kernel.rows + 1)}
    for m, name in names.items():
        variant(module, kernel, name, PARAMS, m, partial(_store, kernel=kernel))
    dispatch(module, kernel.symbol, PARAMS, [names[1], *names.values()])
    return module.render()


def unrolled(kernel: MicroKernel, m: int) -> tuple[int, int]:
    """For so many rows, the sets of accumulators, and the steps along K of an iteration. There are
    more sums on their way than what begins, two a cycle, until the first is done."""
    sums, enough = m * kernel.vectors, 2 * kernel.dot.latency + 1
    room = kernel.rows * kernel.vectors // sums
    sets = 1 if kernel.in_order else min(MOST_SETS, room, -(-enough // sums))
    if m < AHEAD:
        return sets, max(sets, kernel.together)
    return sets, max(sets, kernel.together, min(STEPS, 1 << (MOST_SUMS // sums).bit_length() - 1))


PARAMS: Final = (
    "ptr %ctx, ptr noalias readonly %a, ptr noalias readonly %offsets, "
    "ptr noalias readonly %other, ptr noalias readonly %b, ptr noalias %c, "
    "i64 %m, i64 %P, i64 %K, i64 %ldc, i64 %turn"
)


def dispatch(module: ModuleText, symbol: str, params: str, names: Sequence[str]) -> None:
    """A function that ends in one of these, by `%m`."""
    t = FunctionText(module)
    table = f"@{symbol}_table"
    entries = ", ".join(f"ptr @{n}" for n in names)
    module.globals.append(f"{table} = internal constant [{len(names)} x ptr] [{entries}]")
    at = t.assign(f"getelementptr ptr, ptr {table}, i64 %m")
    fn = t.assign(f"load ptr, ptr {at}")
    go_on(t, fn, params)
    module.functions.append(t.render(f"define i32 @{symbol}({params})"))


def go_on(t: FunctionText, fn: str, params: str = PARAMS) -> None:
    """End in another function of the same parameters: a jump, which leaves them where they are.
    Copied two at a time, those on the stack would wait until all that was stored before has
    reached the cache."""
    status = t.assign(f"musttail call i32 {fn}({params})")
    t.line(f"ret i32 {status}")


def variant(
    module: ModuleText,
    kernel: MicroKernel,
    name: str,
    params: str,
    m: int,
    end: End,
    begin: Begin | None = None,
) -> None:
    """for p: take m row pointers; for k: one update of the accumulators. Then `end`, with sums.

    Accumulators: sets of m * vectors sums and, where the steps add a bias, its sums.
    """
    t = FunctionText(module)
    if begin is not None:
        begin(t)
    vec, sums = kernel.vector, m * kernel.vectors
    sets, steps = unrolled(kernel, m)
    each = sums + kernel.vectors * bool(kernel.dot.biased)
    position = _position_words(t, kernel)
    first_asked = _first_asked(t, kernel, position) if m >= AHEAD else ""
    outer = _Loop(t, "p", "%P", each * sets, vec)
    bp = outer.extra_phi("ptr", "%b")
    asked = outer.extra_phi("ptr", first_asked) if first_asked else None
    rows, some = _row_pointers(t, kernel, outer.index, m)
    depth = t.assign(f"select i1 {some}, i64 %K, i64 0")
    whole = depth if kernel.group == 1 else t.assign(f"udiv i64 {depth}, {kernel.group}")
    inner = _Loop(t, "k", t.assign(f"udiv i64 {whole}, {steps}") if steps > 1 else whole,
                  each * sets, vec, start=outer.acc)  # fmt: skip
    b = inner.extra_phi("ptr", bp.value)
    acc = list(inner.acc)
    if asked:
        ask = inner.extra_phi("ptr", asked.value)
        asked.next = ask.value
        ask.next = _ask(t, kernel, ask.value, steps)
    base = t.assign(f"mul i64 {inner.index}, {steps}") if steps > 1 else inner.index
    words = _loaded(t, kernel, rows, base) if kernel.together > 1 else None
    for s in range(steps):
        k = base if s == 0 or words else t.assign(f"add i64 {base}, {s}")
        at = slice(s % sets * each, (s % sets + 1) * each)
        acc[at] = _update(t, kernel, words or _at(t, kernel, rows, k), b.value, s, acc[at])
    b.next = t.assign(f"getelementptr {kernel.word}, ptr {b.value}, i64 {kernel.columns * steps}")
    inner.close(acc)
    acc = list(inner.acc)
    after = b.value
    if steps > 1:  # the last K % steps values of k
        done = t.assign(f"mul i64 {inner.count}, {steps}")
        rest = _Loop(t, "r", t.assign(f"sub i64 {whole}, {done}"), each, vec, start=acc[:each])
        b2 = rest.extra_phi("ptr", after)
        k = t.assign(f"add i64 {done}, {rest.index}")
        part = _update(t, kernel, _at(t, kernel, rows, k), b2.value, 0, rest.acc)
        b2.next = t.assign(f"getelementptr {kernel.word}, ptr {b2.value}, i64 {kernel.columns}")
        rest.close(part)
        acc[:each] = rest.acc
        after = b2.value
    if kernel.group > 1:
        acc[:each], after = _last_word(t, kernel, rows, depth, whole, after, acc[:each])
    beyond = t.assign(f"getelementptr {kernel.word}, ptr {bp.value}, i64 {position}")
    bp.next = t.assign(f"select i1 {some}, ptr {after}, ptr {beyond}")
    outer.close(acc)
    end(t, _rows_of_sums(t, kernel, m, sets, outer.acc))
    t.line("ret i32 0")
    module.functions.append(t.render(f"define internal i32 @{name}({params})"))


def _position_words(t: FunctionText, kernel: MicroKernel) -> str:
    """Words of a panel for one position: those from one panel to the next are P times as many."""
    words = "%K"
    if kernel.group > 1:
        rounded = t.assign(f"add i64 %K, {kernel.group - 1}")
        words = t.assign(f"udiv i64 {rounded}, {kernel.group}")
    return t.assign(f"mul i64 {words}, {kernel.columns}")


def _first_asked(t: FunctionText, kernel: MicroKernel, position: str) -> str:
    """Where the part of the next panel begins that this tile asks for."""
    panel = t.assign(f"mul i64 %P, {position}")
    part = t.assign(f"mul i64 {t.assign(f'and i64 %turn, {TURNS - 1}')}, {panel}")
    part = t.assign(f"lshr i64 {part}, {TURNS.bit_length() - 1}")
    there = t.assign(f"add i64 {panel}, {part}")
    return t.assign(f"getelementptr {kernel.word}, ptr %b, i64 {there}")


def _ask(t: FunctionText, kernel: MicroKernel, there: str, steps: int) -> str:
    """Ask for as much of it, into the second-level cache, as the steps' share; where the rest is.
    Lines are asked for twice where a share is less than one."""
    share = kernel.columns * kernel.group * kernel.b.bytes * steps // TURNS
    for line in range(0, share, LINE):
        at = t.assign(f"getelementptr i8, ptr {there}, i64 {line}")
        t.prefetch(at, cache=2)
    return t.assign(f"getelementptr i8, ptr {there}, i64 {share}")


def _row_pointers(t: FunctionText, kernel: MicroKernel, p: str, m: int) -> tuple[list[str], str]:
    """Where the rows of a position begin, and whether there are some that are not zeros. (Of one
    table no entry is ABSENT where another is ZEROS: together they are ZEROS if all are.)"""
    first = t.assign(f"mul i64 {p}, {m}")
    table = t.assign(f"getelementptr i64, ptr %offsets, i64 {first}")
    rows, together = [], ""
    for i in range(m):
        at = t.assign(f"getelementptr i64, ptr {table}, i64 {i}")
        offset = t.assign(f"load i64, ptr {at}, align 8")
        rows.append(row_pointer(t, kernel.a, offset))
        together = t.assign(f"and i64 {together}, {offset}") if together else offset
    return rows, t.assign(f"icmp ne i64 {together}, {ZEROS}")


def row_pointer(t: FunctionText, dtype: DType, offset: str) -> str:
    """Where the row with this entry in the table begins."""
    inside = t.assign(f"icmp sge i64 {offset}, 0")
    row = t.assign(f"getelementptr {memory_type(dtype)}, ptr %a, i64 {offset}")
    return t.assign(f"select i1 {inside}, ptr {row}, ptr %other")


def _at(t: FunctionText, kernel: MicroKernel, rows: list[str], k: str) -> Words:
    """One word of each row, loaded where it is used."""

    def word(i: int, step: int) -> str:
        at = t.assign(f"getelementptr {kernel.word}, ptr {rows[i]}, i64 {k}")
        return t.assign(f"load {kernel.word}, ptr {at}, align {kernel.a.bytes}")

    return word


def _loaded(t: FunctionText, kernel: MicroKernel, rows: list[str], k: str) -> Words:
    """The words of all steps, loaded together."""
    kind = vector_type(kernel.word, kernel.together)
    vectors = []
    for row in rows:
        at = t.assign(f"getelementptr {kernel.word}, ptr {row}, i64 {k}")
        vectors.append(t.assign(f"load {kind}, ptr {at}, align {kernel.a.bytes}"))
    return lambda i, step: t.assign(f"extractelement {kind} {vectors[i]}, i64 {step}")


def _update(
    t: FunctionText, kernel: MicroKernel, words: Words, b: str, step: int, acc: list[str],
    mask: str = "",
) -> list[str]:  # fmt: skip
    """The products of one word of every row with one row of the panel."""
    nv, dot, lanes, kind = kernel.vectors, kernel.dot, kernel.lanes, kernel.words
    sums = len(acc) - nv * bool(dot.biased)
    columns = []
    for j in range(nv):
        offset = step * kernel.columns + j * kernel.across
        at = t.assign(f"getelementptr {kernel.word}, ptr {b}, i64 {offset}")
        column = t.assign(f"load {kind}, ptr {at}, align {kernel.b.bytes}")
        if mask:
            column = t.assign(f"and {kind} {column}, {mask}")
        if kernel.shares > 1:
            parts = vector_type(word_type(dot), lanes)
            column = t.assign(f"bitcast {kind} {column} to {parts}")
        columns.append(dot.right(t, lanes, column))
    out = []
    for i in range(sums // nv):
        word = dot.left(t, lanes, repeated(t, dot, lanes, kernel.shares, words(i, step)))
        for j in range(nv):
            out.append(dot.step(t, lanes, acc[i * nv + j], word, columns[j]))
    if dot.biased:
        word = dot.left(t, lanes, "zeroinitializer")
        for j in range(nv):
            out.append(dot.step(t, lanes, acc[sums + j], word, columns[j]))
    return out


def _last_word(
    t: FunctionText, kernel: MicroKernel, rows: list[str], depth: str, whole: str, b: str,
    acc: list[str],
) -> tuple[list[str], str]:  # fmt: skip
    """The last K % group elements, as a word filled up with zeros."""
    word, bits = kernel.word, kernel.a.bits
    done = t.assign(f"mul i64 {whole}, {kernel.group}")
    left = t.assign(f"sub i64 {depth}, {done}")
    some = t.assign(f"icmp ne i64 {left}, 0")
    once = _Loop(t, "t", t.assign(f"zext i1 {some} to i64"), len(acc), kernel.vector, start=acc)
    b2 = once.extra_phi("ptr", b)
    shift = t.assign(f"mul i64 {left}, {bits}")
    if word != "i64":
        resize = "zext" if bits * kernel.group > 64 else "trunc"
        shift = t.assign(f"{resize} i64 {shift} to {word}")
    mask = t.assign(f"sub {word} {t.assign(f'shl {word} 1, {shift}')}, 1")
    last = t.assign(f"sub i64 {left}, 1")

    def partial_word(i: int, step: int) -> str:
        total = ""
        for e in range(kernel.group - 1):  # elements that are not there repeat the last one
            at = t.intrinsic("llvm.umin.i64", "i64", [("i64", str(e)), ("i64", last)])
            at = t.assign(f"add i64 {done}, {at}")
            at = t.assign(f"getelementptr i{bits}, ptr {rows[i]}, i64 {at}")
            x = t.assign(f"load i{bits}, ptr {at}, align {kernel.a.bytes}")
            x = t.assign(f"zext i{bits} {x} to {word}")
            if e:
                x = t.assign(f"shl {word} {x}, {e * bits}")
            total = t.assign(f"or {word} {total}, {x}") if total else x
        return t.assign(f"and {word} {total}, {mask}")

    columns = ""
    if kernel.c.is_float:  # 0 times what the panel holds may be NaN
        columns = splat(t, kernel.across, word, mask)
    part = _update(t, kernel, partial_word, b2.value, 0, once.acc, columns)
    b2.next = t.assign(f"getelementptr {word}, ptr {b2.value}, i64 {kernel.columns}")
    once.close(part)
    return once.acc, b2.value


def _rows_of_sums(
    t: FunctionText, kernel: MicroKernel, m: int, sets: int, acc: list[str]
) -> list[Row]:
    """What was added up, by rows."""
    nv, vec = kernel.vectors, kernel.vector
    each = len(acc) // sets
    add = "fadd" if kernel.c.is_float else "add"

    def total_of(at: int) -> str:
        total = acc[at]
        for s in range(1, sets):
            total = t.assign(f"{add} {vec} {total}, {acc[s * each + at]}")
        return total

    biases = [total_of(m * nv + j) for j in range(nv)] if kernel.dot.biased else []
    rows = []
    for i in range(m):
        totals = [total_of(i * nv + j) for j in range(nv)]
        if biases:
            pairs = zip(totals, biases, strict=True)
            totals = [t.assign(f"sub {vec} {x}, {bias}") for x, bias in pairs]
        rows.append(_folded(t, kernel, totals))
    return rows


def _store(t: FunctionText, sums: list[Row], kernel: MicroKernel) -> None:
    """To where the caller wants them."""
    for i, vectors in enumerate(sums):
        row = t.assign(f"mul i64 %ldc, {i}")
        column = 0
        for total, count in vectors:
            at = t.assign(f"add i64 {row}, {column}")
            at = t.assign(f"getelementptr {memory_type(kernel.c)}, ptr %c, i64 {at}")
            t.line(f"store {value_type(kernel.c, count)} {total}, ptr {at}, align 4")
            column += count


def _folded(t: FunctionText, kernel: MicroKernel, row: list[str]) -> Row:
    """A row of sums, with what a column has in neighbouring lanes added up, and how many each
    vector holds."""
    vectors = [(x, kernel.lanes) for x in row]
    add = "fadd" if kernel.c.is_float else "add"
    for _ in range(kernel.shares.bit_length() - 1):
        halves: Row = []
        while vectors:
            (x, lanes), *vectors = vectors
            kind, other, count = value_type(kernel.c, lanes), "poison", lanes // 2
            if vectors and vectors[0][1] == lanes:
                (other, _), *vectors = vectors
                count = lanes
            sides = []
            for side in (0, 1):  # those at even places and those at odd ones
                mask = ", ".join(f"i32 {2 * k + side}" for k in range(count))
                both = f"{kind} {x}, {kind} {other}, <{count} x i32> <{mask}>"
                sides.append(t.assign(f"shufflevector {both}"))
            total = t.assign(f"{add} {value_type(kernel.c, count)} {sides[0]}, {sides[1]}")
            halves.append((total, count))
        vectors = halves
    return vectors


class _Phi:
    def __init__(self, value: str, first: str, kind: str) -> None:
        self.value, self.first, self.kind, self.next = value, first, kind, ""


class _Loop:
    """for index in [0, count), carrying accumulators; after `close`, `acc` holds the final ones."""

    def __init__(
        self, t: FunctionText, name: str, count: str, carried: int, kind: str,
        start: list[str] | None = None,
    ) -> None:  # fmt: skip
        self.t, self.kind, self.count = t, kind, count
        self.before, self.head = t.block, t.label(f"{name}head")
        self.body, self.done = t.label(f"{name}body"), t.label(f"{name}done")
        self.latch = t.label(f"{name}latch")
        self.first = start or ["zeroinitializer"] * carried
        t.jump(self.head)
        t.start(self.head)
        self.index = t.name(name)
        self._at = len(t._lines)
        self.acc = [t.name("acc") for _ in range(carried)]
        self.phis: list[_Phi] = []
        t.start(self.body)

    def extra_phi(self, kind: str, first: str) -> _Phi:
        phi = _Phi(self.t.name("ptr"), first, kind)
        self.phis.append(phi)
        return phi

    def close(self, acc: list[str]) -> None:
        t = self.t
        step = t.name("step")
        t.jump(self.latch)
        t.start(self.latch)
        t.line(f"{step} = add nuw nsw i64 {self.index}, 1")
        t.jump(self.head)
        head = [
            f"  {self.index} = phi i64 [ 0, %{self.before} ], [ {step}, %{self.latch} ]",
            *(
                f"  {a} = phi {self.kind} [ {first}, %{self.before} ], [ {n}, %{self.latch} ]"
                for a, first, n in zip(self.acc, self.first, acc, strict=True)
            ),
            *(
                f"  {p.value} = phi {p.kind} [ {p.first}, %{self.before} ],"
                f" [ {p.next}, %{self.latch} ]"
                for p in self.phis
            ),
        ]
        more = t.name("more")
        head += [
            f"  {more} = icmp ult i64 {self.index}, {self.count}",
            f"  br i1 {more}, label %{self.body}, label %{self.done}",
        ]
        t._lines[self._at : self._at] = head
        t.start(self.done)
