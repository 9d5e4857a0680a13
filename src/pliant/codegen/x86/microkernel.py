"""Register-tiled micro-kernels: the implementation of the `mm` intrinsic.

    c[i, j] = sum over p < P, k < K of a[offsets[p, i] + k] * b[p*K + k, j]      i < m, j < NR

`a` is read in place through one element offset per row and kernel position p, so the same code
serves a matrix product (P = 1) and a convolution (P = kernel positions, rows = output pixels). A
negative offset reads the row of zeros instead (padding). `b` is a packed panel, NR columns wide,
its rows contiguous. The accumulators stay in registers over all of P and K.

One function serves every m from 1 to MR: a jump to the variant with just that many rows, so no work
is wasted on a ragged edge. Few rows leave accumulators unused, so K is unrolled into several sets;
with `in_order` it is not, and an output's bits do not depend on how many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.codegen.llvm.writer import FunctionText, ModuleText


@dataclass(frozen=True)
class MicroKernel:
    """A family of f32 micro-kernels: up to `rows` rows by `vectors` vectors of `lanes` columns."""

    lanes: int
    rows: int
    vectors: int
    in_order: bool = False

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    @property
    def symbol(self) -> str:
        return f"pl_mm_f32_{self.rows}x{self.columns}" + "_in_order" * self.in_order

    def text(self) -> str:
        """LLVM IR: `int32 symbol(ctx, a, offsets, zeros, b, c, m, P, K, ldc)`."""
        module = ModuleText()
        for m in range(1, self.rows + 1):
            _variant(module, self, m)
        _dispatch(module, self)
        return module.render()


def _variant_name(kernel: MicroKernel, m: int) -> str:
    return f"{kernel.symbol}_m{m}"


_PARAMS = (
    "ptr noalias readonly %a, ptr noalias readonly %offsets, ptr noalias readonly %zeros, "
    "ptr noalias readonly %b, ptr noalias %c"
)


def _dispatch(module: ModuleText, kernel: MicroKernel) -> None:
    t = FunctionText(module)
    default = _variant_name(kernel, 1)
    names = [default, *(_variant_name(kernel, m) for m in range(1, kernel.rows + 1))]
    table = f"@{kernel.symbol}_table"
    entries = ", ".join(f"ptr @{n}" for n in names)
    module.globals.append(f"{table} = internal constant [{len(names)} x ptr] [{entries}]")
    at = t.assign(f"getelementptr ptr, ptr {table}, i64 %m")
    fn = t.assign(f"load ptr, ptr {at}")
    t.line(f"tail call void {fn}(ptr %a, ptr %offsets, ptr %zeros, ptr %b, ptr %c,"
           " i64 %P, i64 %K, i64 %ldc)")  # fmt: skip
    t.line("ret i32 0")
    header = f"define i32 @{kernel.symbol}(ptr %ctx, {_PARAMS}, i64 %m, i64 %P, i64 %K, i64 %ldc)"
    module.functions.append(t.render(header))


def _variant(module: ModuleText, kernel: MicroKernel, m: int) -> None:
    """for p: take m row pointers; for k: one rank-1 update of the accumulators."""
    t = FunctionText(module)
    nv, vec = kernel.vectors, f"<{kernel.lanes} x float>"
    sets = 1 if m * nv >= 8 or kernel.in_order else min(4, 8 // (m * nv))
    outer = _Loop(t, "p", "%P", m * nv * sets, vec)
    bp = outer.extra_phi("ptr", "%b")
    rows = _row_pointers(t, outer.index, m)
    inner = _Loop(t, "k", t.assign(f"udiv i64 %K, {sets}") if sets > 1 else "%K",
                  m * nv * sets, vec, start=outer.acc)  # fmt: skip
    b = inner.extra_phi("ptr", bp.value)
    acc = list(inner.acc)
    base = t.assign(f"mul i64 {inner.index}, {sets}") if sets > 1 else inner.index
    for s in range(sets):
        k = base if s == 0 else t.assign(f"add i64 {base}, {s}")
        part = _update(t, kernel, rows, b.value, s, k, acc[s * m * nv : (s + 1) * m * nv])
        acc[s * m * nv : (s + 1) * m * nv] = part
    b.next = t.assign(f"getelementptr float, ptr {b.value}, i64 {kernel.columns * sets}")
    inner.close(acc)
    acc = list(inner.acc)
    after = b.value
    if sets > 1:  # the last K % sets values of k
        done = t.assign(f"mul i64 {inner.count}, {sets}")
        rest = _Loop(t, "r", t.assign(f"sub i64 %K, {done}"), m * nv, vec, start=acc[: m * nv])
        b2 = rest.extra_phi("ptr", after)
        k = t.assign(f"add i64 {done}, {rest.index}")
        part = _update(t, kernel, rows, b2.value, 0, k, rest.acc)
        b2.next = t.assign(f"getelementptr float, ptr {b2.value}, i64 {kernel.columns}")
        rest.close(part)
        acc[: m * nv] = rest.acc
        after = b2.value
    bp.next = after
    outer.close(acc)
    _store(t, kernel, m, sets, outer.acc)
    header = (
        f"define internal void @{_variant_name(kernel, m)}({_PARAMS}, i64 %P, i64 %K, i64 %ldc)"
    )
    module.functions.append(t.render(header))


def _row_pointers(t: FunctionText, p: str, m: int) -> list[str]:
    first = t.assign(f"mul i64 {p}, {m}")
    table = t.assign(f"getelementptr i64, ptr %offsets, i64 {first}")
    rows = []
    for i in range(m):
        at = t.assign(f"getelementptr i64, ptr {table}, i64 {i}")
        offset = t.assign(f"load i64, ptr {at}, align 8")
        inside = t.assign(f"icmp sge i64 {offset}, 0")
        row = t.assign(f"getelementptr float, ptr %a, i64 {offset}")
        rows.append(t.assign(f"select i1 {inside}, ptr {row}, ptr %zeros"))
    return rows


def _update(
    t: FunctionText, kernel: MicroKernel, rows: list[str], b: str, step: int, k: str, acc: list[str]
) -> list[str]:
    nv, vec, lanes = kernel.vectors, f"<{kernel.lanes} x float>", kernel.lanes
    zeros = f"<{lanes} x i32> zeroinitializer"
    columns = []
    for j in range(nv):
        at = t.assign(f"getelementptr float, ptr {b}, i64 {step * kernel.columns + j * lanes}")
        columns.append(t.assign(f"load {vec}, ptr {at}, align 4"))  # the caller's, anywhere
    out = []
    for i, row in enumerate(rows):
        at = t.assign(f"getelementptr float, ptr {row}, i64 {k}")
        x = t.assign(f"load float, ptr {at}, align 4")
        one = t.assign(f"insertelement {vec} poison, float {x}, i64 0")
        all_ = t.assign(f"shufflevector {vec} {one}, {vec} poison, {zeros}")
        for j in range(nv):
            args = [(vec, all_), (vec, columns[j]), (vec, acc[i * nv + j])]
            out.append(t.intrinsic(f"llvm.fma.v{lanes}f32", vec, args))
    return out


def _store(t: FunctionText, kernel: MicroKernel, m: int, sets: int, acc: list[str]) -> None:
    nv, vec, lanes = kernel.vectors, f"<{kernel.lanes} x float>", kernel.lanes
    for i in range(m):
        row = t.assign(f"mul i64 %ldc, {i}")
        for j in range(nv):
            total = acc[i * nv + j]
            for s in range(1, sets):
                total = t.assign(f"fadd {vec} {total}, {acc[s * m * nv + i * nv + j]}")
            at = t.assign(f"add i64 {row}, {j * lanes}")
            at = t.assign(f"getelementptr float, ptr %c, i64 {at}")
            t.line(f"store {vec} {total}, ptr {at}, align 4")
    t.line("ret void")


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
