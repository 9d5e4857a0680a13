"""Scalar expressions to LLVM values, in every lane of the loop that is vectorized.

A value is uniform (the same in all lanes) where it can be, and becomes a vector only when it meets
one that varies. Under a mask, loads touch memory only for active lanes and guards look only at
these, so the branch of a `Select` that is not taken has no effect.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pliant.base.dtypes import DType, boolean, f32, f64, i32, i64
from pliant.codegen.llvm import ints, memory, narrow, pairs, unpacked
from pliant.codegen.llvm.math.library import MathFunction, math_function
from pliant.codegen.llvm.narrow import is_narrow
from pliant.codegen.llvm.types import literal, mangle, scalar_type, value_type, vector_type
from pliant.ir.choices import one_choice, shared
from pliant.ir.expr import (
    Axis,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Guard,
    Index,
    Load,
    Reduce,
    Select,
    Unary,
    Var,
    const,
)  # fmt: skip
from pliant.ir.scalar import COMBINER_OPS

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter
    from pliant.codegen.llvm.steady import Steady
    from pliant.loop.stmt import Buffer


@dataclass(frozen=True, slots=True)
class Val:
    """An LLVM operand of one lane (uniform) or as many as the vectorized loop has."""

    text: str
    dtype: DType
    lanes: int

    @property
    def type(self) -> str:
        return value_type(self.dtype, self.lanes)


_INT_OP: Final = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_OP: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_COMPARE: Final = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole"}
_INT_COMPARE: Final = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle"}
_UINT_COMPARE: Final = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule"}
_LLVM_UNARY: Final = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
}  # fmt: skip


def emit(e: Emitter, x: Expr) -> Val:
    """The value of `x` here; computed once per statement and mask."""
    found = e.known(x)
    if found is None:
        key = e.steady.key(e, x) if e.steady else None
        if key is not None:
            found = e.cached(key)
        if found is None:
            found = _emit(e, x)
            if key is not None:
                e.cache_steady(key, found)
        e.memo[x] = found
    return found


def emit_common(e: Emitter, steady: Steady, x: Expr, steps: frozenset[str]) -> None:
    """Compute what of `x` is the same in all of these variables' steps of unrolled loops and may be
    computed in vain. It is kept, and found where `x` itself is wanted."""
    pending, seen = [x], set[Expr]()
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        if isinstance(x, Select) and (known := _known(e, x.cond)) is not None:
            pending.append(x.a if known else x.b)
        elif isinstance(x, Binary | Unary | Cast | Load | Select):
            if steady.is_common(x, steps) and not e.has_effects(x):
                emit(e, x)
            else:
                pending += [part for part in reversed(x.children()) if isinstance(part, Expr)]


def widen(e: Emitter, v: Val) -> Val:
    """`v` in every lane."""
    if v.lanes == e.lanes:
        return v
    return Val(e.splat(v.text, scalar_type(v.dtype)), v.dtype, e.lanes)


def together(e: Emitter, *values: Val) -> tuple[Val, ...]:
    lanes = max(v.lanes for v in values)
    return values if lanes == 1 else tuple(widen(e, v) for v in values)


def _emit(e: Emitter, x: Expr) -> Val:
    match x:
        case Const():
            return Val(literal(x), x.dtype, 1)
        case Index(i):
            if e.is_varying(i):
                return Val(ints.emit_varying(e, i), i64, e.lanes)
            return Val(ints.emit_uniform(e, i), i64, 1)
        case Var(name, dtype):
            return e.variable(name, dtype)
        case Load():
            found = memory.load(e, x)
            return found if e.place(x.source).unpacked else unpacked.in_order(e, found)
        case Unary("exp", Binary("sub") as a) if x.dtype is f32:
            return call_math(e, "exp_of_difference", emit(e, a))
        case Unary("exp_from_max", a) if x.dtype is f32 and not _is_of_read(a):
            return call_math(e, "exp_of_difference", emit(e, a))
        case Unary("erf", a) if x.dtype is f32 and e.to_bf16:
            return call_math(e, "erf_to_round", emit(e, a))
        case Unary("log1p", Unary("exp", a)) if x.dtype is f32 and _may_fuse(e, f32):
            return call_math(e, "log1p_of_exp", emit(e, a))
        case Unary(op, a):
            return _unary(e, op, emit(e, a))
        case Binary("add", Unary("erf", a), b) | Binary("add", b, Unary("erf", a)) if (
            _is_one(b) and x.dtype is f32 and not e.to_bf16 and _may_fuse(e, f32)
        ):
            return call_math(e, "one_plus_erf", emit(e, a))
        case Binary("add", Unary("tanh", a), b) | Binary("add", b, Unary("tanh", a)) if (
            _is_one(b) and x.dtype is f32 and _may_fuse(e, f32)
        ):
            return call_math(e, "one_plus_tanh", emit(e, a))
        case Binary("add", a, b) if x.dtype is f32 and (made := pairs.add_products(e, a, b)):
            return made
        case Binary("add" | "sub" as op, a, b) if made := _multiply_add(e, op, a, b):
            return made
        case Binary(op, a, b):
            va, vb = together(e, emit(e, a), emit(e, b))
            if op in ("fmax", "fmin") and not is_narrow(x.dtype) and x.dtype.is_float:
                if is_number(a, e.numbers):
                    return _extreme_number(e, op, vb, va)
                if is_number(b, e.numbers):
                    return _extreme_number(e, op, va, vb)
            return binary(e, op, va, vb)
        case Select():
            return _select(e, x)
        case Cast(to, a):
            return cast(e, emit(e, a), to)
        case Bitcast(to, a):
            v = emit(e, a)
            out = Val("", to, v.lanes)
            return Val(e.text.assign(f"bitcast {v.type} {v.text} to {out.type}"), to, v.lanes)
        case Guard():
            return _guard(e, x)
        case Reduce():
            return _reduce(e, x)
    raise AssertionError(x)


def _unary(e: Emitter, op: str, v: Val) -> Val:
    t = e.text
    if is_narrow(v.dtype):
        out = _unary(e, op, cast(e, v, f32))
        return out if out.dtype is boolean else cast(e, out, v.dtype)
    if op == "isnan":
        return Val(t.assign(f"fcmp uno {v.type} {v.text}, {v.text}"), boolean, v.lanes)
    if op == "not":
        ones = literal(const(True, boolean) if v.dtype is boolean else const(0, v.dtype), v.lanes)
        if v.dtype is not boolean:
            ones = "-1" if v.lanes == 1 else f"splat ({scalar_type(v.dtype)} -1)"
        return Val(t.assign(f"xor {v.type} {v.text}, {ones}"), v.dtype, v.lanes)
    if v.dtype.is_int or v.dtype is boolean:
        return _int_unary(e, op, v)
    if op == "neg":
        return Val(t.assign(f"fneg {v.type} {v.text}"), v.dtype, v.lanes)
    if op == "abs":
        return _llvm(e, "fabs", v)
    if op == "isinf":
        size = _llvm(e, "fabs", v)
        inf = literal(const(float("inf"), v.dtype), v.lanes)
        return Val(t.assign(f"fcmp oeq {size.type} {size.text}, {inf}"), boolean, v.lanes)
    if op == "sign":
        return _float_sign(e, v)
    if op in _LLVM_UNARY:
        return _llvm(e, _LLVM_UNARY[op], v)
    return call_math(e, op, v)


def _int_unary(e: Emitter, op: str, v: Val) -> Val:
    t = e.text
    zero = literal(const(0, v.dtype), v.lanes)
    if op == "neg":
        return Val(t.assign(f"sub {v.type} {zero}, {v.text}"), v.dtype, v.lanes)
    if v.dtype.kind == "uint" or v.dtype is boolean:
        if op == "abs" or v.dtype is boolean:
            return v
        some = t.assign(f"icmp ne {v.type} {v.text}, {zero}")
        flag = value_type(boolean, v.lanes)
        return Val(t.assign(f"zext {flag} {some} to {v.type}"), v.dtype, v.lanes)
    if op == "abs":
        args = [(v.type, v.text), ("i1", "false")]
        name = f"llvm.abs.{mangle(scalar_type(v.dtype), v.lanes)}"
        return Val(t.intrinsic(name, v.type, args), v.dtype, v.lanes)
    if op == "sign":
        one, minus = literal(const(1, v.dtype), v.lanes), literal(const(-1, v.dtype), v.lanes)
        name = mangle(scalar_type(v.dtype), v.lanes)
        low = t.intrinsic(f"llvm.smax.{name}", v.type, [(v.type, v.text), (v.type, minus)])
        high = t.intrinsic(f"llvm.smin.{name}", v.type, [(v.type, low), (v.type, one)])
        return Val(high, v.dtype, v.lanes)
    raise AssertionError(op)


def _float_sign(e: Emitter, v: Val) -> Val:
    """-1, 0 or 1; zeros and NaN are passed through."""
    t, zero = e.text, literal(const(0.0, v.dtype), v.lanes)
    one = literal(const(1.0, v.dtype), v.lanes)
    name = f"llvm.copysign.{mangle(scalar_type(v.dtype), v.lanes)}"
    signed = t.intrinsic(name, v.type, [(v.type, one), (v.type, v.text)])
    number = t.assign(f"fcmp one {v.type} {v.text}, {zero}")
    flag = value_type(boolean, v.lanes)
    out = t.assign(f"select {flag} {number}, {v.type} {signed}, {v.type} {v.text}")
    return Val(out, v.dtype, v.lanes)


def _llvm(e: Emitter, name: str, v: Val, *more: Val) -> Val:
    full = f"llvm.{name}.{mangle(scalar_type(v.dtype), v.lanes)}"
    text = e.text.intrinsic(full, v.type, [(x.type, x.text) for x in (v, *more)])
    return Val(text, v.dtype, v.lanes)


def call_math(e: Emitter, name: str, *args: Val) -> Val:
    """Call one of our elementary functions, defining it in this module on first use."""
    dtype, lanes = args[0].dtype, args[0].lanes
    fn = math_function(name, dtype, lanes, e.options.features)
    _define(e, fn)
    actual = ", ".join(f"{a.type} {a.text}" for a in args)
    return Val(e.text.assign(f"call fastcc {args[0].type} @{fn.symbol}({actual})"), dtype, lanes)


def _define(e: Emitter, fn: MathFunction) -> None:
    module = e.text.module
    if fn.symbol in module.defined:
        return
    module.defined.add(fn.symbol)
    for needed in fn.requires:
        _define(e, needed)
    for line in fn.declares:
        module.declare(line)
    module.functions.append(fn.definition)


def binary(e: Emitter, op: str, a: Val, b: Val) -> Val:
    """An operator on two values of one type and lane count."""
    if a.dtype.is_float:
        return _float_binary(e, op, a, b)
    return _int_binary(e, op, a, b)


def _multiply_add(e: Emitter, op: str, a: Expr, b: Expr) -> Val | None:
    """a + b or a - b, of which one is a product, rounded once or twice as the target prefers. None
    where it is no such thing; nor of a product from which something is subtracted: that may be the
    same product, rounded (x*s - max(x*s)), and what is left has to be 0, not what rounding took.

    That is said here rather than left to LLVM, which fuses what it happens to see of a sum: the
    last product of two, none that went through memory. What a kernel gives for a row would depend
    on where it stands among others.
    """
    if not _may_fuse(e, a.dtype):
        return None
    match a, b:
        case _, Binary("mul", x, y):
            factors = [emit(e, x), emit(e, y)]
            total = emit(e, a)
            if op == "sub":
                factors[0] = _unary(e, "neg", factors[0])
        case Binary("mul", x, y), _ if op == "add":
            factors = [emit(e, x), emit(e, y)]
            total = emit(e, b)
        case _:
            return None
    return _fused(e, *factors, total)


def _is_of_read(x: Expr) -> bool:
    """Whether x is a difference of what was read, which is what the maximum was made of. What is
    computed here may be rounded otherwise than it was there, and so be above the maximum."""
    match x:
        case Binary("sub", Load() | Cast(_, Load()), _):
            return True
    return False


def _is_one(x: Expr) -> bool:
    return x is const(1.0, f32)


def _may_fuse(e: Emitter, dtype: DType) -> bool:
    return e.options.contract and dtype in (f32, f64)


def _fused(e: Emitter, *operands: Val) -> Val:
    """The first times the second, plus the third."""
    return _llvm(e, "fmuladd", *together(e, *operands))


def _float_binary(e: Emitter, op: str, a: Val, b: Val) -> Val:
    t = e.text
    if is_narrow(a.dtype):
        wide = binary(e, op, cast(e, a, f32), cast(e, b, f32))
        return wide if wide.dtype is boolean else cast(e, wide, a.dtype)
    if op in _FLOAT_COMPARE:
        out = t.assign(f"fcmp {_FLOAT_COMPARE[op]} {a.type} {a.text}, {b.text}")
        return Val(out, boolean, a.lanes)
    if op in _FLOAT_OP:
        out = t.assign(f"{_FLOAT_OP[op]} {a.type} {a.text}, {b.text}")
        return Val(out, a.dtype, a.lanes)
    match op:
        case "max" | "min":
            return _extreme(e, op, a, b)
        case "fmax" | "fmin":
            name = "maxnum" if op == "fmax" else "minnum"
            full = f"llvm.{name}.{mangle(scalar_type(a.dtype), a.lanes)}"
            args = [(a.type, a.text), (b.type, b.text)]
            return Val(t.intrinsic(full, a.type, args), a.dtype, a.lanes)
        case "pow" | "atan2" | "truncmod":
            return call_math(e, op, a, b)
        case "truncdiv":
            quotient = Val(t.assign(f"fdiv {a.type} {a.text}, {b.text}"), a.dtype, a.lanes)
            return _llvm(e, "trunc", quotient)
        case "floormod":
            return _float_floormod(e, a, b)
        case "floordiv":
            return _float_floordiv(e, a, b)
    raise AssertionError(op)


def _float_floormod(e: Emitter, a: Val, b: Val) -> Val:
    """Python's %: the sign of the divisor."""
    t, flag = e.text, value_type(boolean, a.lanes)
    r, fix = _float_rest(e, a, b)
    moved = t.assign(f"fadd {a.type} {r}, {b.text}")
    out = t.assign(f"select {flag} {fix}, {a.type} {moved}, {a.type} {r}")
    return Val(out, a.dtype, a.lanes)


def _float_rest(e: Emitter, a: Val, b: Val) -> tuple[str, str]:
    """What is left of a division rounded towards zero, and where that is not the floor."""
    t, zero = e.text, literal(const(0.0, a.dtype), a.lanes)
    flag = value_type(boolean, a.lanes)
    r = call_math(e, "truncmod", a, b).text
    some = t.assign(f"fcmp une {a.type} {r}, {zero}")
    r_neg = t.assign(f"fcmp olt {a.type} {r}, {zero}")
    b_neg = t.assign(f"fcmp olt {a.type} {b.text}, {zero}")
    differ = t.assign(f"xor {flag} {r_neg}, {b_neg}")
    return r, t.assign(f"and {flag} {some}, {differ}")


def _float_floordiv(e: Emitter, a: Val, b: Val) -> Val:
    """The floor of the exact quotient: that rounded towards zero, which is (a - rest) / b rounded
    to the nearest integer, less one where something is left of another sign. (By a - a % b, which
    is infinite where b is, nothing could be told.)"""
    t = e.text
    r, inexact = _float_rest(e, a, b)
    exact = t.assign(f"fsub {a.type} {a.text}, {r}")
    quotient = t.assign(f"fdiv {a.type} {exact}, {b.text}")
    less = t.assign(f"fsub {a.type} {quotient}, {literal(const(1.0, a.dtype), a.lanes)}")
    floor = t.assign(
        f"select {value_type(boolean, a.lanes)} {inexact}, {a.type} {less}, {a.type} {quotient}"
    )
    rounded = _llvm(e, "round", Val(floor, a.dtype, a.lanes))
    zero = literal(const(0.0, a.dtype), a.lanes)
    by_zero = t.assign(f"fcmp oeq {a.type} {b.text}, {zero}")
    plain = t.assign(f"fdiv {a.type} {a.text}, {b.text}")
    flag = value_type(boolean, a.lanes)
    out = t.assign(f"select {flag} {by_zero}, {a.type} {plain}, {a.type} {rounded.text}")
    return Val(out, a.dtype, a.lanes)


def _extreme(e: Emitter, op: str, a: Val, b: Val) -> Val:
    """min or max, NaN if either is NaN; which of two zeros is not said.

    x86 compiles this to its maximum, which passes on a NaN of the second operand, and a test of the
    first. In a reduction `a` is what came before, so that the test waits for nothing.
    """
    name = f"llvm.{op}imum.{mangle(scalar_type(a.dtype), a.lanes)}"
    args = [(b.type, b.text), (a.type, a.text)]
    return Val(e.text.intrinsic(name, a.type, args, flags="nsz "), a.dtype, a.lanes)


def is_number(x: Expr, numbers: Collection[Buffer]) -> bool:
    """Whether a float is known not to be NaN; `numbers` are buffers that hold none."""
    match x:
        case Const():
            return x.value == x.value
        case Load(source, _):
            return source in numbers
        case Binary(("fmax" | "fmin"), a, b):
            return is_number(a, numbers) or is_number(b, numbers)
        case Reduce(("fmax" | "fmin"), _, body) | Unary(("neg" | "abs"), body):
            return is_number(body, numbers)
    return False


def _extreme_number(e: Emitter, op: str, a: Val, b: Val) -> Val:
    """fmin or fmax where `b` is no NaN, in one instruction: x86's gives `b` if `a` is NaN."""
    compare = "ogt" if op.endswith("max") else "olt"
    better = e.text.assign(f"fcmp {compare} {a.type} {a.text}, {b.text}")
    flag = value_type(boolean, a.lanes)
    best = e.text.assign(f"select {flag} {better}, {a.type} {a.text}, {a.type} {b.text}")
    return Val(best, a.dtype, a.lanes)


def _int_binary(e: Emitter, op: str, a: Val, b: Val) -> Val:
    t = e.text
    signed = a.dtype.kind == "int"
    if op in _INT_COMPARE:
        how = (_INT_COMPARE if signed else _UINT_COMPARE)[op]
        return Val(t.assign(f"icmp {how} {a.type} {a.text}, {b.text}"), boolean, a.lanes)
    if a.dtype is boolean:
        as_bits = {"max": "or", "add": "or", "min": "and", "mul": "and", "fmax": "or",
                   "fmin": "and", "sub": "xor"}  # fmt: skip
        op = as_bits.get(op, op)
    if op in _INT_OP:
        return Val(t.assign(f"{_INT_OP[op]} {a.type} {a.text}, {b.text}"), a.dtype, a.lanes)
    if op in ("min", "max", "fmin", "fmax"):
        name = ("s" if signed else "u") + op[-3:]
        full = f"llvm.{name}.{mangle(scalar_type(a.dtype), a.lanes)}"
        args = [(a.type, a.text), (b.type, b.text)]
        return Val(t.intrinsic(full, a.type, args), a.dtype, a.lanes)
    if op in ("shl", "shr"):
        mask = literal(const(a.dtype.bits - 1, a.dtype), a.lanes)
        count = t.assign(f"and {a.type} {b.text}, {mask}")
        how = "shl" if op == "shl" else "ashr" if signed else "lshr"
        return Val(t.assign(f"{how} {a.type} {a.text}, {count}"), a.dtype, a.lanes)
    if op in ("floordiv", "truncdiv", "floormod", "truncmod"):
        return _int_divide(e, op, a, b)
    if op == "pow":
        return _int_pow(e, a, b)
    raise AssertionError(op)


def _int_divide(e: Emitter, op: str, a: Val, b: Val) -> Val:
    """Integer division that cannot trap: by 0 (legal only in masked lanes) and min / -1 (wraps)."""
    t, flag = e.text, value_type(boolean, a.lanes)
    zero, one = literal(const(0, a.dtype), a.lanes), literal(const(1, a.dtype), a.lanes)
    signed = a.dtype.kind == "int"
    bad = t.assign(f"icmp eq {a.type} {b.text}, {zero}")
    if signed:
        minus = literal(const(-1, a.dtype), a.lanes)
        negate = t.assign(f"icmp eq {a.type} {b.text}, {minus}")
        bad = t.assign(f"or {flag} {bad}, {negate}")
    d = t.assign(f"select {flag} {bad}, {a.type} {one}, {a.type} {b.text}")
    prefix = "s" if signed else "u"
    q = t.assign(f"{prefix}div {a.type} {a.text}, {d}")
    r = t.assign(f"{prefix}rem {a.type} {a.text}, {d}")
    if signed:
        opposite = t.assign(f"sub {a.type} {zero}, {a.text}")
        q = t.assign(f"select {flag} {negate}, {a.type} {opposite}, {a.type} {q}")
        if op.startswith("floor"):
            some = t.assign(f"icmp ne {a.type} {r}, {zero}")
            mixed = t.assign(f"xor {a.type} {r}, {d}")
            differ = t.assign(f"icmp slt {a.type} {mixed}, {zero}")
            fix = t.assign(f"and {flag} {some}, {differ}")
            less, more = t.assign(f"sub {a.type} {q}, {one}"), t.assign(f"add {a.type} {r}, {d}")
            q = t.assign(f"select {flag} {fix}, {a.type} {less}, {a.type} {q}")
            r = t.assign(f"select {flag} {fix}, {a.type} {more}, {a.type} {r}")
    return Val(q if op.endswith("div") else r, a.dtype, a.lanes)


def _int_pow(e: Emitter, a: Val, b: Val) -> Val:
    """Repeated squaring over the exponent's bits, wrapping; negative exponents give 0, 1 or -1."""
    t, kind, flag = e.text, a.type, value_type(boolean, a.lanes)
    one, zero = literal(const(1, a.dtype), a.lanes), literal(const(0, a.dtype), a.lanes)
    result, base, exponent = one, a.text, b.text
    if a.dtype.kind == "int":  # only 1 and -1 have integer inverses; they are their own
        minus = literal(const(-1, a.dtype), a.lanes)
        unit = t.assign(f"icmp eq {kind} {base}, {one}")
        unit_neg = t.assign(f"icmp eq {kind} {base}, {minus}")
        own = t.assign(f"or {flag} {unit}, {unit_neg}")
        negative = t.assign(f"icmp slt {kind} {exponent}, {zero}")
        gone = t.assign(f"xor {flag} {own}, {literal(const(True, boolean), a.lanes)}")
        gone = t.assign(f"and {flag} {negative}, {gone}")
        base = t.assign(f"select {flag} {gone}, {kind} {zero}, {kind} {base}")
        odd = t.assign(f"and {kind} {exponent}, {one}")
        flipped = t.assign(f"select {flag} {own}, {kind} {odd}, {kind} {one}")
        exponent = t.assign(f"select {flag} {negative}, {kind} {flipped}, {kind} {exponent}")
    for bit in range(a.dtype.bits - (a.dtype.kind == "int")):
        shift = literal(const(bit, a.dtype), a.lanes)
        moved = t.assign(f"lshr {kind} {exponent}, {shift}")
        low = t.assign(f"and {kind} {moved}, {one}")
        take = t.assign(f"icmp ne {kind} {low}, {zero}")
        product = t.assign(f"mul {kind} {result}, {base}")
        result = t.assign(f"select {flag} {take}, {kind} {product}, {kind} {result}")
        base = t.assign(f"mul {kind} {base}, {base}")
    return Val(result, a.dtype, a.lanes)


def cast(e: Emitter, v: Val, to: DType) -> Val:
    """Convert. Float to int saturates and sends NaN to 0; int to int wraps; to bool is `!= 0`."""
    if v.dtype is to:
        return v
    t, out = e.text, Val("", to, v.lanes).type
    src = v.dtype

    def done(instruction: str) -> Val:
        return Val(t.assign(f"{instruction} {v.type} {v.text} to {out}"), to, v.lanes)

    if is_narrow(src) and to is not f32:
        return cast(e, cast(e, v, f32), to)
    if to is boolean:
        zero = literal(const(0, src), v.lanes)
        how = "fcmp une" if src.is_float else "icmp ne"
        return Val(t.assign(f"{how} {v.type} {v.text}, {zero}"), boolean, v.lanes)
    if src.is_float and to.is_float:
        return _cast_float(e, v, to)
    if src.is_float:
        return _cast_short(e, v, to) if to.bits <= 16 else _cast_long(e, v, to)
    signed = src.kind == "int"
    if to.is_float:
        if is_narrow(to):
            return cast(e, cast(e, v, f32), to)
        return done("sitofp" if signed else "uitofp")
    if to.bits == src.bits:
        return Val(v.text, to, v.lanes)
    return done("trunc" if to.bits < src.bits else "sext" if signed else "zext")


def _cast_short(e: Emitter, v: Val, to: DType) -> Val:
    """A float to an integer so short that floats hold its ends: clamped first, then converted to 32
    bits and cut. (LLVM's saturating conversion to such goes through every lane by itself.)"""
    t, kind = e.text, v.type
    flag = vector_type("i1", v.lanes)
    clamped = v.text
    for how, end in (("ogt", to.min), ("olt", to.max)):  # NaN becomes the least
        bound = literal(const(float(end), v.dtype), v.lanes)
        inside = t.assign(f"fcmp {how} {kind} {clamped}, {bound}")
        clamped = t.assign(f"select {flag} {inside}, {kind} {clamped}, {kind} {bound}")
    words = vector_type("i32", v.lanes)
    whole = t.assign(f"fptosi {kind} {clamped} to {words}")
    if to.min != 0:
        number = t.assign(f"fcmp ord {kind} {v.text}, {v.text}")
        zero = literal(const(0, i32), v.lanes)
        whole = t.assign(f"select {flag} {number}, {words} {whole}, {words} {zero}")
    out = Val("", to, v.lanes).type
    return Val(t.assign(f"trunc {words} {whole} to {out}"), to, v.lanes)


def _cast_long(e: Emitter, v: Val, to: DType) -> Val:
    """A float to an integer of 32 or 64 bits: what lies between its ends is converted, what does
    not becomes the end, NaN 0. (LLVM's saturating conversion goes through every lane by itself.)"""
    t, kind = e.text, v.type
    flag, out = vector_type("i1", v.lanes), Val("", to, v.lanes).type
    # The greatest integer need not be a float; the number after it is one, as is the least.
    least, after = (literal(const(float(x), v.dtype), v.lanes) for x in (to.min, to.max + 1))
    low, high = (literal(const(x, to), v.lanes) for x in (to.min, to.max))
    above = t.assign(f"fcmp oge {kind} {v.text}, {after}")
    not_below = t.assign(f"fcmp oge {kind} {v.text}, {least}")
    inside = t.assign(f"fcmp olt {kind} {v.text}, {after}")
    inside = t.assign(f"and {flag} {inside}, {not_below}")
    nothing = literal(const(0.0, v.dtype), v.lanes)
    safe = t.assign(f"select {flag} {inside}, {kind} {v.text}, {kind} {nothing}")
    how = "fptoui" if to.kind == "uint" else "fptosi"
    whole = t.assign(f"{how} {kind} {safe} to {out}")
    below = t.assign(f"fcmp olt {kind} {v.text}, {least}")
    ended = t.assign(f"select {flag} {below}, {out} {low}, {out} {whole}")
    return Val(t.assign(f"select {flag} {above}, {out} {high}, {out} {ended}"), to, v.lanes)


def _cast_float(e: Emitter, v: Val, to: DType) -> Val:
    """Between floats; to and from 16 bits always through f32."""
    src, features = v.dtype, e.options.features
    if (is_narrow(src) and to is not f32) or (is_narrow(to) and src is not f32):
        return cast(e, cast(e, v, f32), to)
    if is_narrow(src):
        return Val(narrow.to_f32(e.text, src, v.text, v.lanes, features), f32, v.lanes)
    if is_narrow(to):
        flushes = e.options.flushes
        text = narrow.from_f32(e.text, to, v.text, v.lanes, features, flushes=flushes)
        return Val(text, to, v.lanes)
    how = "fpext" if to.bits > src.bits else "fptrunc"
    out = value_type(to, v.lanes)
    return Val(e.text.assign(f"{how} {v.type} {v.text} to {out}"), to, v.lanes)


def _select(e: Emitter, choice: Select) -> Val:
    known = _known(e, choice.cond)
    if known is not None:
        return emit(e, choice.a if known else choice.b)
    one = one_choice(choice)
    if one is not choice and not e.has_effects(one.cond):
        return emit(e, one)
    cond, a, b = choice.cond, choice.a, choice.b
    c = emit(e, cond)
    if c.lanes == 1 and (chosen := memory.load_or(e, c, a, b)) is not None:
        return chosen
    if not e.has_effects(a) and not e.has_effects(b):
        va, vb = emit(e, a), emit(e, b)
    else:
        for x in shared(a, b, e.certain):
            emit(e, x)
        if c.lanes == 1:
            return _branch(e, c, a, b)
        with e.masked(c.text, of_part=True):
            va = emit(e, a)
        with e.masked(c.text, negate=True, of_part=True):
            vb = emit(e, b)
    lanes = max(c.lanes, va.lanes, vb.lanes)
    if lanes > 1:
        va, vb = widen(e, va), widen(e, vb)
    out = e.text.assign(f"select {c.type} {c.text}, {va.type} {va.text}, {vb.type} {vb.text}")
    return Val(out, va.dtype, lanes)


def _known(e: Emitter, cond: Expr) -> bool | None:
    """Whether a place is the one that is asked for, where that is known: in unrolled loops."""
    match cond:
        case Binary("eq", Index(a), Index(b)):
            apart = e.resolve(a - b)
            return apart.value == 0 if apart.is_const else None
    return None


def _branch(e: Emitter, c: Val, a: Expr, b: Expr) -> Val:
    """A uniform condition: only one side runs."""
    t = e.text
    then, other, join = t.label("then"), t.label("else"), t.label("join")
    t.branch(c.text, then, other)
    varies = e.lanes > 1 and (e.may_vary(a) or e.may_vary(b))
    arms: list[tuple[str, str]] = []
    for label, x in ((then, a), (other, b)):
        t.start(label)
        with e.scope(of_part=True):
            v = emit(e, x)
            if varies:
                v = widen(e, v)
        arms.append((v.text, t.block))
        t.jump(join)
    t.start(join)
    kind = value_type(a.dtype, e.lanes if varies else 1)
    return Val(t.phi(kind, *arms), a.dtype, e.lanes if varies else 1)


def _guard(e: Emitter, x: Guard) -> Val:
    e.fail_unless(emit(e, x.cond), "ShapeError", x.message)
    return emit(e, x.value)


def _reduce(e: Emitter, x: Reduce) -> Val:
    """A reduction over a constant number of values, as a balanced tree."""
    (axis,) = x.axes
    count = axis.extent.value
    op = COMBINER_OPS[x.combiner]
    if e.lanes == 1 and count in (4, 8, 16, 32, 64):
        return _reduce_lanes(e, axis, op, x.body)
    values: list[Val] = []
    first = (count + 1) // 2  # values, to which products are added that come later
    fuses = op == "add" and _may_fuse(e, x.body.dtype)
    for k in range(count):
        with e.bound(axis.var, k):
            match x.body:
                case Binary("mul", a, b) if fuses and k >= first:
                    total = values[k - first]
                    values[k - first] = _fused(e, emit(e, a), emit(e, b), total)
                case body:
                    values.append(emit(e, body))
    while len(values) > 1:
        half = (len(values) + 1) // 2
        paired = [binary(e, op, *together(e, a, b)) for a, b in zip(values, values[half:])]
        values = paired + values[len(paired) : half]
    return values[0]


def _reduce_lanes(e: Emitter, axis: Axis, op: str, body: Expr) -> Val:
    """All values as one vector, then halved until one is left.

    Whether there is a NaN for min and max to pass on is found beside the chain of halvings, which
    has no instruction to spare: every row of a softmax waits for it.
    """
    count = axis.extent.value
    with e.vector(axis.var, count):
        v = widen(e, emit(e, body))
    every = v
    extreme = op in ("max", "min") and v.dtype.is_float and not is_narrow(v.dtype)
    numbers = op in ("fmax", "fmin") and is_number(body, e.numbers)
    combine = _extreme_number if extreme or numbers else binary
    while v.lanes > 2:
        half = v.lanes // 2
        low, high = (
            Val(_part(e, v, range(start, start + half)), v.dtype, half) for start in (0, half)
        )
        v = combine(e, op, low, high)
    ends = (e.text.assign(f"extractelement {v.type} {v.text}, i64 {k}") for k in (0, 1))
    low, high = (Val(text, v.dtype, 1) for text in ends)
    best = combine(e, op, low, high)
    return _nan_if_any(e, every, best) if extreme else best


def _nan_if_any(e: Emitter, v: Val, otherwise: Val) -> Val:
    t = e.text
    nan = t.assign(f"fcmp uno {v.type} {v.text}, {v.text}")
    flags = value_type(boolean, v.lanes)
    some = t.intrinsic(f"llvm.vector.reduce.or.v{v.lanes}i1", "i1", [(flags, nan)])
    quiet = literal(const(float("nan"), v.dtype))
    out = t.assign(f"select i1 {some}, {otherwise.type} {quiet}, {otherwise.type} {otherwise.text}")
    return Val(out, v.dtype, 1)


def _part(e: Emitter, v: Val, lanes: range) -> str:
    mask = ", ".join(f"i32 {k}" for k in lanes)
    pick = f"<{len(lanes)} x i32> <{mask}>"
    return e.text.assign(f"shufflevector {v.type} {v.text}, {v.type} poison, {pick}")
