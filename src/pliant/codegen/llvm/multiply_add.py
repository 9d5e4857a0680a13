"""Code of the intrinsics that add products in lanes (`schedule.recipes.multiply_add`): plain vector
instructions, which every target has."""

from __future__ import annotations

from pliant.base.dtypes import DTYPES, DType, f32, i32
from pliant.codegen.llvm.narrow import is_narrow, to_f32
from pliant.codegen.llvm.types import mangle, memory_type, value_type, vector_type
from pliant.codegen.llvm.writer import FunctionText, ModuleText
from pliant.schedule.recipes.multiply_add import TYPES


def define(module: ModuleText, symbol: str, fused: bool) -> bool:
    """Have the module contain the code of an intrinsic, of which a product and the sum it goes into
    may be rounded once if `fused`; False where it is none of these."""
    found = _multiply_add(symbol)
    if found is not None and symbol not in module.defined:
        module.defined.add(symbol)
        module.functions.append(_text(module, symbol, *found, fused))
    return found is not None


def is_multiply_add(symbol: str) -> bool:
    """Whether that is the name of such an intrinsic."""
    return _multiply_add(symbol) is not None


def _multiply_add(symbol: str) -> tuple[DType, DType, int, bool] | None:
    """The factors' types, the lanes, and whether there is one second factor for all."""
    start, _, rest = symbol.partition("multiply_add_")
    one, parts = rest.startswith("all_"), rest.removeprefix("all_").split("_")
    if start or len(parts) != 3 or not set(parts[:2]) <= set(DTYPES) or not parts[2].isdecimal():
        return None
    a, b = DTYPES[parts[0]], DTYPES[parts[1]]
    return (a, b, int(parts[2]), one) if (a, b) in {t[:2] for t in TYPES} else None


def _text(
    module: ModuleText, symbol: str, a: DType, b: DType, lanes: int, one: bool, fused: bool
) -> str:
    t = FunctionText(module)
    total = f32 if a.is_float else i32
    kind, number = value_type(total, lanes), value_type(total, 1)
    factors = [_loaded(t, "%a", a, total, lanes), _loaded(t, "%b", b, total, 1 if one else lanes)]
    if one:
        first = t.assign(f"insertelement {kind} poison, {number} {factors[1]}, i64 0")
        everywhere = f"<{lanes} x i32> zeroinitializer"
        factors[1] = t.assign(f"shufflevector {kind} {first}, {kind} poison, {everywhere}")
    before = t.assign(f"load {kind}, ptr %c, align {total.bytes}")
    if total.is_float and fused:
        args = [(kind, x) for x in (*factors, before)]
        after = t.intrinsic(f"llvm.fmuladd.{mangle(number, lanes)}", kind, args)
    else:
        multiply, add = ("fmul", "fadd") if total.is_float else ("mul", "add")
        product = t.assign(f"{multiply} {kind} {', '.join(factors)}")
        after = t.assign(f"{add} {kind} {before}, {product}")
    t.line(f"store {kind} {after}, ptr %c, align {total.bytes}")
    t.line("ret i32 0")
    header = f"define internal i32 @{symbol}(ptr %ctx, ptr %a, ptr %b, ptr %c) alwaysinline"
    return t.render(header)


def _loaded(t: FunctionText, pointer: str, dtype: DType, total: DType, lanes: int) -> str:
    """So many elements, as numbers of the type of the sums."""
    kind = vector_type(memory_type(dtype), lanes)
    x = t.assign(f"load {kind}, ptr {pointer}, align {dtype.bytes}")
    if dtype is total:
        return x
    if is_narrow(dtype):
        return to_f32(t, dtype, x, lanes, frozenset())
    how = "zext" if not dtype.is_signed else "sext"
    return t.assign(f"{how} {kind} {x} to {value_type(total, lanes)}")
