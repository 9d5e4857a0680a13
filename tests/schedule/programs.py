"""Small programs to schedule, and what every schedule must keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.base.dtypes import f32
from pliant.ir.expr import Binary, Expr, Index, Load, Reduce, Unary
from pliant.ir.tensor import (
    Tensor,
    compute,
    placeholder,
    reduce,
    scan,
    scatter,
    select,
    within,
)
from pliant.loop.from_tensor import unscheduled
from pliant.loop.interpret import Callee, interpret
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.stmt import (
    Alloc,
    Block,
    For,
    Function,
    If,
    Invoke,
    Seq,
    Stmt,
    Store,
)
from pliant.loop.verify import verify_function
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program, replay
from pliant.schedule.trace import parse_trace, print_trace
from pliant.sym.expr import var

n, m, k = var("n"), var("m"), var("k")
x1 = placeholder("x", (n,), f32)
x2 = placeholder("x", (n, k), f32)
MATRIX_SIZES = [(3, 5, 4), (1, 1, 1), (0, 3, 2), (3, 0, 2), (2, 3, 0), (7, 17, 5), (8, 16, 4)]
ROW_SIZES = [(3, 5), (1, 1), (0, 4), (4, 0), (5, 1), (2, 16), (7, 11)]
SIZES = [(0,), (1,), (2,), (7,), (8,), (13,)]


def _function(
    name: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor], sizes: str
) -> Program:
    return program(unscheduled(name, outputs, inputs, sizes.split()))  # type: ignore[arg-type]


def exp(e: Expr) -> Expr:
    return Unary("exp", e)


def chain() -> Program:
    """y = (2*(x + 1))**2, in three steps."""
    a = compute((n, k), lambda i, j: x2[i, j] + 1.0, "a")
    b = compute((n, k), lambda i, j: a[i, j] * 2.0, "b")
    y = compute((n, k), lambda i, j: b[i, j] * b[i, j], "y")
    return _function("chain", [y], [x2], "n k")


def matmul() -> Program:
    a, b = placeholder("a", (n, k), f32), placeholder("b", (k, m), f32)
    c = compute((n, m), lambda i, j: reduce("sum", (k,), lambda r: a[i, r] * b[r, j]), "c")
    return _function("matmul", [c], [a, b], "n m k")


def matmul_relu(intrinsics: Sequence[Intrinsic] = ()) -> Program:
    a, b = placeholder("a", (n, k), f32), placeholder("b", (k, m), f32)
    c = compute((n, m), lambda i, j: reduce("sum", (k,), lambda r: a[i, r] * b[r, j]), "c")
    y = compute((n, m), lambda i, j: Binary("max", c[i, j], c[i, j] * 0.5), "y")
    return program(unscheduled("mm", [y], [a, b], ["n", "m", "k"]), intrinsics=intrinsics)


def rows(combiner: str = "sum") -> Program:
    s = compute((n,), lambda i: reduce(combiner, (k,), lambda r: x2[i, r]), "s")
    return _function("rows", [s], [x2], "n k")


def softmax() -> Program:
    top = compute((n,), lambda i: reduce("max", (k,), lambda r: x2[i, r]), "m")
    e = compute((n, k), lambda i, j: exp(x2[i, j] - top[i]), "e")
    s = compute((n,), lambda i: reduce("sum", (k,), lambda r: e[i, r]), "s")
    y = compute((n, k), lambda i, j: e[i, j] / s[i], "y")
    return _function("softmax", [y], [x2], "n k")


def stencil() -> Program:
    """u[i] = x[i-1] + x[i] + x[i+1], zeros outside."""
    t = compute((n + 2,), lambda i: select(within(i - 1, n), x1[i - 1], 0.0), "t")
    u = compute((n,), lambda i: t[i] + t[i + 1] + t[i + 2], "u")
    return _function("stencil", [u], [x1], "n")


def running() -> Program:
    y = scan((n, k), 1, "sum", lambda i, j: x2[i, j], name="y")
    return _function("running", [y], [x2], "n k")


def reversing() -> Program:
    """Scatter: y = x backwards."""
    y = scatter(x1, (n,), lambda i: (n - 1 - i,), lambda i: x1[i], name="y")
    return _function("reversing", [y], [x1], "n")


def best() -> Program:
    p = compute((n,), lambda i: reduce("argmax", (k,), lambda r: x2[i, r]), "p")
    return _function("best", [p], [x2], "n k")


def tiled() -> Program:
    """A matrix product in register tiles, from packed copies."""
    p = matmul().cache_read("c", "b", layout=layout(lambda r, j: (j // 4, r, j % 4)), pad=0.0)
    p = p.cache_read("c", "a", layout=layout(lambda i, r: (i // 2, r, i % 2)), pad=0.0)
    p = p.cache_write("c").split("c_i", 2).split("c_j", 4)
    p = p.reorder("c_j_0", "c_i_0", "c_r", "c_i_1", "c_j_1")
    p = p.reverse_compute_at("c_store", "c_i_0").compute_at("b_cache", "c_j_0")
    return p.compute_at("a_cache", "c_i_0").shrink_buffer("c_local")


def lanes() -> Program:
    """A row sum in four lanes."""
    return rows().split("s_r", 4).rfactor("s_r_1")


PROGRAMS = {
    f.__name__: f
    for f in (
        chain,
        matmul,
        matmul_relu,
        rows,
        softmax,
        stencil,
        running,
        reversing,
        best,
        tiled,
        lanes,
    )
}
SIZES_OF = {1: SIZES, 2: ROW_SIZES, 3: MATRIX_SIZES}


def same(
    p: Program,
    q: Program,
    cases: Sequence[Sequence[int]] | None = None,
    callees: dict[str, Callee] | None = None,
) -> None:
    """`q` is a well formed program that computes what `p` does, in any order of its parallel and
    vectorized loops; its text and its trace round-trip."""
    verify_function(q.function)
    assert parse_function(function_text(q.function)) is q.function
    assert parse_trace(print_trace(q.trace)) == q.trace
    # On `p` itself: its history says which names are taken.
    assert replay(q.trace[len(p.trace) :], p).function is q.function
    for sizes in cases or SIZES_OF[len(p.function.sizes)]:
        rng = np.random.default_rng(sum(sizes))
        given = dict(zip(p.function.sizes, sizes, strict=True))
        arrays = []
        for b in p.function.buffers:
            shape = [d.eval(given) for d in b.shape]
            arrays.append(rng.integers(-4, 5, shape).astype(b.dtype.numpy))
        expected = [a.copy() for a in arrays]
        interpret(p.function, expected, given)
        for order in (iter, reversed):
            got = [a.copy() for a in arrays]
            interpret(q.function, got, given, callees, order=order)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(given))


def outline(p: Program | Function | Stmt) -> str:
    """Loops and blocks, one a line: what a schedule changes."""
    root = p.function.body if isinstance(p, Program) else p.body if isinstance(p, Function) else p
    return "\n".join(_lines(root, ""))


def _lines(s: Stmt, indent: str) -> list[str]:
    inner = indent + "  "
    match s:
        case For():
            kind = "" if s.kind == "serial" else f"{s.kind} "
            return [f"{indent}{s.var} < {kind}{s.extent}", *_lines(s.body, inner)]
        case Block():
            at = ", ".join(map(str, s.bindings))
            head = f"{indent}{s.name}({at})"
            if s.where is not None:
                head += " where " + text(s.where)
            below = [x for x in _lines(s.body, inner) if "=" not in x]
            return [head, *below]
        case Seq():
            return [line for part in s.stmts for line in _lines(part, indent)]
        case Alloc():
            dims = ", ".join(map(str, s.buffer.shape))
            return [f"{indent}{s.buffer.scope} {s.buffer.name}[{dims}]", *_lines(s.body, indent)]
        case If():
            return [f"{indent}if {text(s.cond)}", *_lines(s.then, inner)]
        case Store():
            return [f"{indent}{s.buffer.name} ="]
        case Invoke():
            return [f"{indent}{s.callee}({', '.join(map(text, s.args))})"]
    return [indent + type(s).__name__]


def text(e: object) -> str:
    """Enough of an expression for an outline."""
    match e:
        case Index():
            return str(e.int_)
        case Binary(op="and"):
            return f"{text(e.a)} and {text(e.b)}"
        case Binary():
            sign = {"lt": "<", "le": "<=", "add": "+", "mul": "*"}.get(e.op, e.op)
            return f"{text(e.a)} {sign} {text(e.b)}"
        case Load():
            return f"{e.source.name}[{', '.join(map(text, e.indices))}]"
        case Reduce():
            return f"{e.combiner}({text(e.body)})"
    buffer, indices = getattr(e, "buffer", None), getattr(e, "indices", ())
    return f"{buffer.name}[{', '.join(map(text, indices))}]" if buffer is not None else "…"
