"""Reduction of huge arguments modulo pi/2 (Payne and Hanek), for the lanes that need it.

x = m 2^e with an integer m. Of the product x (2/pi) only the value modulo 4 matters, so the bits of
2/pi whose weight times 2^e is 4 or more are skipped: a window of 96 bits (f32; 192 for f64) from
there on gives the quadrant and a remainder with as many good bits as the nearest multiple of pi/2
can ever cancel. The window is read from a table of 32-bit words at a bit offset; all products are
32 x 32 -> 64 bits, so that every target has them.
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math.builder import FORMATS, Builder, Value

LIMIT: Final[dict[DType, float]] = {f32: 2.0**17, f64: 2.0**30}
"""Arguments beyond this are huge."""

TWO_OVER_PI: Final = (
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561"
    "B7246E3A424DD2E006492EEA09D1921CFE1DEB1CB129A73EE88235F52EBB4484"
    "E99C7026B45F7E413991D639835339F49C845F8BBDF9283B1FF897FFDE05980F"
    "EF2F118B5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B"
    "3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B6BAB"
)
"""The first 1216 bits of 2/pi after the point, in hexadecimal."""
HALF_PI: Final = float.fromhex("0x1.921fb54442d18p+0")
HALF_PI_LOW: Final = float.fromhex("0x1.1a62633145c07p-54")
LOW_WORD: Final = 0xFFFFFFFF


def symbol(dtype: DType, lanes: int) -> str:
    """Name of the function {q, r, l} f(a, q, r, l): a's reduction (quadrant, remainder
    in two parts) where a is huge, else the other arguments.
    """
    return f"pl_reduce_huge_{dtype}" + (f"x{lanes}" if lanes > 1 else "")


def lane_symbol(dtype: DType) -> str:
    """Name of the function {q, r, l} f(a) that reduces one huge scalar."""
    return f"pl_reduce_huge_lane_{dtype}"


def define_lanes(dtype: DType, lanes: int) -> str:
    """The cold function of a vector: a loop over its huge lanes."""
    fmt = FORMATS[dtype]
    scalar = f"{{ {fmt.int_kind}, {fmt.kind}, {fmt.kind} }}"
    call = f"call fastcc {scalar} @{lane_symbol(dtype)}({fmt.kind}"
    if lanes == 1:
        return (
            f"define internal fastcc {scalar} @{symbol(dtype, 1)}({fmt.kind} %a, {fmt.int_kind} %q,"
            f" {fmt.kind} %r, {fmt.kind} %l) cold noinline nounwind {{\n"
            f"  %all = {call} %a)\n  ret {scalar} %all\n}}\n"
        )
    floats, ints = f"<{lanes} x {fmt.kind}>", f"<{lanes} x {fmt.int_kind}>"
    result = f"{{ {ints}, {floats}, {floats} }}"
    limit = Builder("", dtype, 1, 0).constant(fmt.kind, LIMIT[dtype]).text
    parts = (("q", ints, fmt.int_kind), ("r", floats, fmt.kind), ("l", floats, fmt.kind))
    carried = "\n".join(
        f"  %{p} = phi {vector} [ %{p}.given, %entry ], [ %{p}.new, %join ]"
        for p, vector, _ in parts
    )
    placed = "\n".join(
        f"  %{p}.lane = extractvalue {scalar} %all, {k}\n"
        f"  %{p}.set = insertelement {vector} %{p}, {element} %{p}.lane, i32 %i"
        for k, (p, vector, element) in enumerate(parts)
    )
    merged = "\n".join(
        f"  %{p}.new = phi {vector} [ %{p}, %loop ], [ %{p}.set, %reduce ]"
        for p, vector, _ in parts
    )
    head = f"define internal fastcc {result} @{symbol(dtype, lanes)}"
    given = f"{ints} %q.given, {floats} %r.given, {floats} %l.given"
    return f"""{head}({floats} %a, {given}) cold noinline nounwind {{
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %join ]
{carried}
  %x = extractelement {floats} %a, i32 %i
  %huge = fcmp ogt {fmt.kind} %x, {limit}
  br i1 %huge, label %reduce, label %join
reduce:
  %all = {call} %x)
{placed}
  br label %join
join:
{merged}
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, {lanes}
  br i1 %more, label %loop, label %done
done:
  %out.0 = insertvalue {result} poison, {ints} %q.new, 0
  %out.1 = insertvalue {result} %out.0, {floats} %r.new, 1
  %out.2 = insertvalue {result} %out.1, {floats} %l.new, 2
  ret {result} %out.2
}}
"""


def define_lane(dtype: DType) -> tuple[str, tuple[str, ...]]:
    """The scalar reduction with its table, and the declarations it needs."""
    b = Builder(lane_symbol(dtype), dtype, 1, 1)
    (x,) = b.params
    q, r, low = _reduce_f32(b, x) if dtype is f32 else _reduce_f64(b, x)
    r = (x < float("inf")).select(r, float("nan"))
    result = f"{{ {b.format.int_kind}, {b.format.kind}, {b.format.kind} }}"
    all_parts = "poison"
    for i, part in enumerate((q, r, low)):
        text = f"insertvalue {result} {all_parts}, {part.kind} {part.text}, {i}"
        all_parts = b.emit(text, part.kind).text
    bits = "0" * 8 + TWO_OVER_PI  # windows of the smallest arguments start before the point
    words = [int(bits[i : i + 8], 16) for i in range(0, len(bits), 8)]
    table = ", ".join(f"i32 {w}" for w in words)
    head = f"define internal fastcc {result} @{b.symbol}({b.format.kind} %x0)"
    lines = [
        f"@{b.symbol}_words = internal unnamed_addr constant [{len(words)} x i32] [{table}]",
        f"{head} cold noinline nounwind {{",
        *b.lines,
        f"  ret {result} {all_parts}",
        "}",
        "",
    ]
    return "\n".join(lines), tuple(b.declares)


def _window(b: Builder, position: Value, count: int) -> list[Value]:
    """`count` 32-bit words (as i64) of the table from a bit position (an i64) on, high to low."""
    first = position.lshr(5)
    shift = position & 31
    name = f"@{b.symbol}_words"
    words = []
    for i in range(count + 1):
        index = first + i
        address = b.emit(f"getelementptr i32, ptr {name}, i64 {index.text}", "i64")
        word = b.emit(f"load i32, ptr {address.text}, align 4", "i32")
        words.append(b.cast("zext", word, "i64"))
    pairs = [(words[i] << 32) | words[i + 1] for i in range(count)]
    return [b.bitwise("shl", pair, shift).lshr(32) for pair in pairs]


def _quadrant(product: Value) -> tuple[Value, Value]:
    """(n, p - n 2^62) for p a fraction of 62 bits modulo 4: the nearest integer and the rest."""
    n = (product + (1 << 61)).lshr(62)
    return n, product - (n << 62)


def _reduce_f32(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """x = m 2^e; the window starts at the bit of weight 2^(1 - e): position e + 30 of the table."""
    bits = b.cast("zext", x.as_int(), "i64")
    m = (bits & 0x7FFFFF) | 0x800000
    w0, w1, w2 = _window(b, bits.lshr(23) - 120, 3)
    product = ((m * w0) << 32) + m * w1 + (m * w2).lshr(32)
    n, rest = _quadrant(product)
    wide = rest.to_float() * (HALF_PI * 2.0**-62)
    r = wide.narrow()
    return b.cast("trunc", n, "i32"), r, (wide - r.widen()).narrow()


def _reduce_f64(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """The same with a window of six words, times m in two halves, summed by columns of 2^32."""
    bits = x.as_int()
    m = (bits & 0xFFFFFFFFFFFFF) | 0x10000000000000
    m_high, m_low = m.lshr(32), m & LOW_WORD
    words = _window(b, bits.lshr(52) - 1045, 6)
    columns: list[list[Value]] = [[] for _ in range(7)]
    for i, word in enumerate(words):
        low = m_low * word
        columns[5 - i] += [low & LOW_WORD]
        columns[6 - i] += [low.lshr(32), m_high * word]
    digits: list[Value] = []
    carry = bits.like(0)
    for column in columns[:6]:  # the seventh is a multiple of 4
        total = carry
        for term in column:
            total = total + term
        digits.append(total & LOW_WORD)
        carry = total.lshr(32)
    n, rest = _quadrant((digits[5] << 32) | digits[4])
    high = rest.to_float()
    # what the conversion lost, and the word below, in units of 2^-62
    below = b.cast("uitofp", (digits[3] << 32) | digits[2], "double") * 2.0**-64
    lost = (rest - b.cast("fptosi", high, "i64")).to_float() + below
    return n, *_times_half_pi(high, lost)


def _times_half_pi(high: Value, low: Value) -> tuple[Value, Value]:
    """(high + low) (pi/2) 2^-62 as a double and its error."""
    sum_ = high + low
    low = low - (sum_ - high)
    factor = HALF_PI * 2.0**-62
    r = sum_ * factor
    error = sum_.fma(factor, -r)
    error = sum_.mad(HALF_PI_LOW * 2.0**-62, low.mad(factor, error))
    return r, error
