"""Random expressions and programs for property tests: well-typed, not meaningful."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pliant.base.dtypes import DTYPES, DType, bf16, boolean, f16, f32, f64, i8, i32, i64, u8
from pliant.base.spans import Span
from pliant.graph import function as graph
from pliant.ir.expr import (
    COMPARISONS,
    FLOAT_UNARY,
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
    as_expr,
    const,
)
from pliant.ir.node import walk
from pliant.ir.tensor import Compute, Input, Opaque, OpaqueOutput, Scan, Scatter, Tensor
from pliant.loop.stmt import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    BufferRef,
    Check,
    For,
    Function,
    If,
    Invoke,
    Iter,
    Let,
    Nop,
    Seq,
    Stmt,
    Store,
    While,
    compact_strides,
)
from pliant.loop.threads import AXES
from pliant.sym.expr import Int, as_int, maximum, minimum, var

TYPES = (f32, f64, f16, bf16, i64, i32, i8, u8, boolean)
NAMES = ("n", "m", "i", "j", "_r0")
TEXT = st.text("ab'\"\\\n{}é", max_size=6)


@st.composite
def ints(draw: Any, depth: int = 2, names: tuple[str, ...] = NAMES) -> Int:
    """Symbolic integers."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(st.sampled_from(names).map(var), st.integers(-3, 300).map(as_int)))
    a, b = draw(ints(depth - 1, names)), draw(ints(depth - 1, names))
    positive = draw(st.integers(1, 9))
    return draw(
        st.sampled_from(
            [a + b, a - b, a * b, a // positive, a % positive, minimum(a, b), maximum(a, b)]
        )
    )


@st.composite
def consts(draw: Any, dtype: DType) -> Expr:
    """Literals, with odd bit patterns."""
    if dtype.kind == "bool":
        return const(draw(st.booleans()), dtype)
    if draw(st.booleans()):
        return Const(dtype, draw(st.integers(0, (1 << dtype.bits) - 1)))
    values = [0, 1, 2, 100] + (
        [float("inf"), -0.0, 0.1, float("nan"), -2.5] if dtype.is_float else []
    )
    return const(draw(st.sampled_from(values)), dtype)


@st.composite
def exprs(
    draw: Any,
    dtype: DType,
    sources: tuple[Any, ...] = (),
    depth: int = 3,
    scalars: tuple[Var, ...] = (),
) -> Expr:
    """Expressions of one type."""

    def sub(of: DType = dtype) -> Expr:
        return draw(exprs(of, sources, depth - 1, scalars))  # type: ignore[no-any-return]

    leaves = [consts(dtype)]
    if dtype is i64:
        leaves.append(ints().map(Index))
    leaves += [st.just(v) for v in scalars if v.type is dtype]
    leaves.append(
        st.sampled_from(["_e0", "inf"] if dtype is f32 else [f"q_{dtype}"]).map(
            lambda name: Var(name, dtype)
        )
    )
    if depth == 0:
        return draw(st.one_of(leaves))
    loads = [s for s in sources if s.dtype is dtype]
    kinds = ["leaf", "binary", "binary", "select", "cast", "unary", "guard"]
    kinds += ["load"] * 3 if loads else []
    kinds += ["reduce"] if depth > 1 else []
    kinds += ["compare", "not"] if dtype is boolean else []
    kinds += ["bitcast"] if dtype in (f32, i32) else []
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "load":
            source = draw(st.sampled_from(loads))
            return Load(source, tuple(sub(i64) for _ in source.shape))
        case "binary":
            return Binary(draw(st.sampled_from(binary_ops(dtype))), sub(), sub())
        case "compare":
            of = draw(st.sampled_from(TYPES))
            return Binary(draw(st.sampled_from(sorted(COMPARISONS))), sub(of), sub(of))
        case "select":
            return Select(sub(boolean), sub(), sub())
        case "cast":
            return Cast(dtype, sub(draw(st.sampled_from(TYPES))))
        case "bitcast":
            return Bitcast(dtype, sub(i32 if dtype is f32 else f32))
        case "unary":
            exact = ["not"] if dtype is boolean else ["neg", "abs", "not", "sign"]
            ops = [*sorted(FLOAT_UNARY), "neg", "abs"] if dtype.is_float else exact
            return Unary(draw(st.sampled_from(ops)), sub())
        case "not":
            return Unary("isnan", sub(f32))
        case "guard":
            return Guard(sub(boolean), sub(), "index", draw(TEXT))
        case "reduce":
            return draw(reductions(dtype, sources, depth, scalars))  # type: ignore[no-any-return]
    return draw(st.one_of(leaves))


@st.composite
def reductions(
    draw: Any, dtype: DType, sources: tuple[Any, ...], depth: int, scalars: tuple[Var, ...] = ()
) -> Expr:
    """A reduction of the type."""
    combiner = draw(
        st.sampled_from(
            ["any", "all"] if dtype is boolean else ["sum", "prod", "max", "min", "fmax", "fmin"]
        )
    )
    axes = tuple(Axis(f"_r{k}", draw(ints())) for k in range(draw(st.integers(0, 2))))
    return Reduce(combiner, axes, draw(exprs(dtype, sources, depth - 1, scalars)))


def binary_ops(dtype: DType) -> list[str]:
    """Operators that take and give this type."""
    logic = ["and", "or", "xor"]
    if dtype is boolean:
        return logic
    common = [
        "add",
        "sub",
        "mul",
        "floordiv",
        "floormod",
        "truncdiv",
        "truncmod",
        "min",
        "max",
        "fmin",
        "fmax",
        "pow",
    ]
    return [*common, "div", "atan2"] if dtype.is_float else [*common, *logic, "shl", "shr"]


@st.composite
def buffers(draw: Any, name: str, scope: str = "param") -> Buffer:
    """Buffers; compact or not."""
    shape = tuple(draw(ints(1, ("n", "m"))) for _ in range(draw(st.integers(0, 2))))
    strides = compact_strides(shape)
    if draw(st.integers(0, 3)) == 0:
        strides = tuple(draw(ints(1, ("n", "m"))) for _ in shape)
    align = draw(st.sampled_from([0, 0, 64]))
    return Buffer(name, draw(st.sampled_from(TYPES)), shape, strides, scope, align)


@cache
def data() -> st.SearchStrategy[Any]:
    """Attribute values."""
    leaf = st.one_of(
        st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), TEXT,
        st.sampled_from([math.nan, *DTYPES.values()]), ints(1, ("n", "f32", "inf")),
    )  # fmt: skip
    return st.recursive(leaf, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


@cache
def pairs() -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    """Notes."""
    return st.lists(st.tuples(TEXT, data()), max_size=2).map(tuple)


@cache
def spans() -> st.SearchStrategy[tuple[Span, ...]]:
    """Places in a model."""
    return st.lists(st.builds(Span, TEXT, st.integers(0, 9), TEXT), max_size=2).map(tuple)


@st.composite
def stmts(
    draw: Any, sources: tuple[Buffer, ...], depth: int, scalars: tuple[Var, ...] = ()
) -> Stmt:
    """Statements."""

    def sub(more: tuple[Buffer, ...] = (), vars: tuple[Var, ...] = ()) -> Stmt:
        return draw(stmts(sources + more, depth - 1, scalars + vars))  # type: ignore[no-any-return]

    def value(dtype: DType, d: int = 2) -> Expr:
        return draw(exprs(dtype, sources, d, scalars))  # type: ignore[no-any-return]

    leaves = ["nop", "store", "store", "invoke", "check", "barrier"]
    inner = ["for", "for", "block", "seq", "seq", "alloc", "let", "if", "while"]
    fresh = f"v{depth}{len(sources)}{len(scalars)}"
    match draw(st.sampled_from(leaves if depth == 0 else leaves + inner * 2)):
        case "store" if sources:
            target = draw(st.sampled_from(sources))
            return Store(target, tuple(value(i64, 1) for _ in target.shape), value(target.dtype))
        case "invoke":
            refs = [BufferRef(b, tuple(value(i64, 1) for _ in b.shape)) for b in sources]
            refs += [BufferRef(b, (as_expr(0),) * b.rank) for b in sources]
            args = draw(st.lists(st.sampled_from(refs), max_size=2)) if refs else []
            callee = draw(st.sampled_from(["kernel", "check", "llvm.x", "if"]))
            return Invoke(callee, (*args, value(i64, 1)))
        case "check":
            error = draw(st.sampled_from(["ShapeError", "ResourceError"]))
            return Check(value(boolean), error, draw(TEXT), (value(i64, 1),))
        case "for":
            kinds = ["serial", "parallel", "vectorized", "unrolled", "odd", *AXES]
            kind = draw(st.sampled_from(kinds))
            return For(draw(st.sampled_from(NAMES)), draw(ints()), sub(), kind, draw(pairs()))
        case "block":
            iters = tuple(
                Iter(n, draw(ints()), draw(st.sampled_from("SRO")))
                for n in draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
            )
            return Block(
                draw(TEXT), iters, tuple(draw(ints()) for _ in iters), sub(),
                sub() if draw(st.booleans()) else None,
                value(boolean) if draw(st.booleans()) else None, draw(pairs()), draw(spans()),
            )  # fmt: skip
        case "barrier":
            return Barrier(draw(st.sampled_from(["block", "warp"])))
        case "seq":
            return Seq(tuple(sub() for _ in range(draw(st.integers(0, 3)))))
        case "alloc":
            new = draw(
                buffers(
                    draw(st.sampled_from(["b", "b."])) + fresh,
                    draw(st.sampled_from(["register", "scratch"])),
                )
            )
            return Alloc(new, sub((new,)))
        case "let":
            var_ = Var(fresh, draw(st.sampled_from(TYPES)))
            return Let(var_, value(var_.type), sub((), (var_,)))
        case "if":
            return If(value(boolean), sub(), sub() if draw(st.booleans()) else None)
        case "while":
            return While(value(boolean), sub())
    return Nop()


@st.composite
def functions(draw: Any) -> Function:
    """Loop programs."""
    params = tuple(draw(buffers(name)) for name in ("x", "y"))
    notes = draw(st.sampled_from([(), (("level", "host"),), (("level", "device"),)])) + draw(
        pairs()
    )
    return Function("f", params, ("n", "m"), draw(stmts(params, 3)), notes)


@st.composite
def tensors(draw: Any, count: int = 4) -> tuple[Tensor, ...]:
    """Tensors over one another."""
    made: list[Tensor] = []
    label = st.sampled_from(["t", "x", "a b", "class", "t", "n"])
    for k in range(2):
        made.append(Input(f"x{k}", draw(st.sampled_from(TYPES)), (var("n"), as_int(4))[: k + 1]))
    for _ in range(draw(st.integers(0, count))):
        axes = tuple(
            Axis(f"_i{k}", draw(ints(1, ("n", "m")))) for k in range(draw(st.integers(0, 2)))
        )
        dtype = draw(st.sampled_from(TYPES))
        sources, body = tuple(made), exprs(dtype, tuple(made))
        match draw(st.sampled_from(["compute", "reduce", "scan", "scatter", "opaque"])):
            case "compute":
                plain = draw(body.filter(lambda e: not any(isinstance(n, Reduce) for n in walk(e))))
                needs = tuple(draw(st.lists(st.tuples(ints(1), ints(1), TEXT), max_size=2)))
                made.append(Compute(draw(label), axes, plain, needs))
            case "reduce":
                inside = exprs(dtype, sources, 1)
                rows = (Axis("_r0", draw(ints(1))),)
                made.append(Compute(draw(label), axes, Reduce("max", rows, draw(inside))))
            case "scan":
                flags = draw(st.booleans()), draw(st.booleans())
                made.append(Scan(draw(label), axes, 0, "max", draw(exprs(dtype, sources)), *flags))
            case "scatter":
                base = draw(st.sampled_from(made))
                where = tuple(draw(exprs(i64, sources, 1)) for _ in base.shape)
                skip = draw(st.none() | exprs(boolean, sources, 2))
                value = draw(exprs(base.dtype, sources, 2))
                combiner = draw(st.sampled_from(["set", "add"]))
                needs = tuple(draw(st.lists(st.tuples(ints(1), ints(1), TEXT), max_size=1)))
                made.append(Scatter(draw(label), base, axes, where, combiner, value, skip, needs))
            case "opaque":
                operands = tuple(draw(st.lists(st.sampled_from(made), max_size=2)))
                results = ((f32, (var("n"),)), (i64, ()))
                whole = Opaque(draw(label), operands, results, draw(functions()))
                made.append(OpaqueOutput(whole, draw(st.integers(0, 1))))
    return tuple(draw(st.lists(st.sampled_from(made), min_size=1, max_size=3)))


CODES = st.lists(st.integers(0, 20), max_size=3)
ATTRIBUTES = st.lists(st.sampled_from(["axis", "lambda", "to"]), unique=True, max_size=2)
DIMS = st.dictionaries(
    st.sampled_from(NAMES),
    st.sampled_from([graph.Dim(), graph.Dim(1, 9), graph.Dim(2, None, 2, (4, 8))]),
)


def _operand(known: list[graph.Value], code: int) -> Any:
    """A value, None, or a tuple of these."""
    if code < 15:
        return known[code % len(known)]
    return None if code < 17 else tuple(_operand(known, k) for k in range(14, code - 2))


@st.composite
def graphs(draw: Any) -> tuple[graph.Function, dict[str, np.ndarray]]:
    """Graph functions, well-formed in names only."""
    names = draw(
        st.lists(
            st.sampled_from(["x", "y", "in", "h", "v_in", "é", "a b", ".", "a.b", "1"]),
            unique=True, min_size=3, max_size=8,
        )
    )  # fmt: skip
    values = [
        graph.Value(
            n,
            graph.TensorType(
                draw(st.sampled_from(TYPES)), tuple(draw(st.lists(ints(1), max_size=2)))
            ),
        )
        for n in names
    ]
    array = np.arange(3, dtype=np.float32)
    weight = graph.Value("w!", graph.TensorType(f32, (as_int(3),)))
    known, bindings = [values[0], weight], []
    rest = values[1:]
    while rest:
        k = draw(st.integers(0, 2))
        outputs, rest = rest[:k], rest[k:]
        args = tuple(_operand(known, code) for code in draw(CODES))
        attrs = tuple(
            (n, draw(data()) if draw(st.integers(0, 9)) else draw(tensors(1))[0])
            for n in draw(ATTRIBUTES)
        )
        op = draw(st.sampled_from(["matmul", "and", "and_", "op", "weight", "at", "my.op"]))
        bindings.append(graph.Binding(tuple(outputs), op, args, attrs, draw(spans())))
        known += outputs
    dims = tuple(sorted(draw(DIMS).items()))
    equal = tuple(draw(st.lists(st.tuples(ints(1), ints(1), TEXT), max_size=2)))
    results = tuple(draw(st.lists(st.sampled_from(known), max_size=2)))
    function = graph.Function(
        "main", (values[0],), ((weight, "key"),), tuple(bindings), results, dims, equal
    )
    return function, {"key": array}
