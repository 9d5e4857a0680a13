"""Branches, loops and sequences, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.onnx import control, import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import Case, by_runtime, check
from tests.frontend.onnx.models import imported, ops_of, parsed, shapes_of

X = np.random.default_rng(29).standard_normal((4, 3)).astype(np.float32)


def same(text: str, *, opset: int = 17, x: np.ndarray = X) -> None:
    case = Case(parsed(text, opset), {"x": x})
    check(case, by_runtime(case))


LOOP = """g (float[n, m] x) => (float[n, m] y, float[k, n, m] all) {{
  steps = Constant<value_int = {steps}>() on = Constant<value = bool {{{on}}}>()
  y, all = Loop(steps, {given}, x) <body = b (int64 i, bool c, float[n, m] v)
      => (bool d, float[n, m] w, float[n, m] kept) {{
    f = Cast<to = 1>(i) w = Add(v, f) kept = Mul(w, x)
    last = Constant<value_int = 2>() less = Less(i, last) d = {rule}
  }}> }}"""


@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize("rule", ["Identity(c)", "Identity(less)"])
def test_a_loop_of_known_steps(steps: int, rule: str) -> None:
    """What it reads from outside, what it carries, what it collects; it may end itself."""
    same(LOOP.format(steps=steps, on=1, given="on", rule=rule))


def test_a_loop_that_ends_by_its_condition_alone() -> None:
    text = LOOP.format(steps=0, on=1, given="on", rule="Identity(less)").replace("(steps, ", "(, ")
    same(text)


def test_a_loop_without_a_condition() -> None:
    same(LOOP.format(steps=3, on=1, given="", rule="Identity(c)"))


@pytest.mark.parametrize(("steps", "on"), [(0, 1), (4, 0)])
def test_a_loop_without_steps(steps: int, on: int) -> None:
    model = parsed(LOOP.format(steps=steps, on=on, given="on", rule="Identity(c)"))
    with pytest.raises(UnsupportedError, match="it has no steps, and the file does not say"):
        import_onnx(model, OPERATORS)
    model.graph.output.pop()
    case = Case(model, {"x": X})
    check(case, [X])


def test_a_loop_whose_end_is_data_is_refused() -> None:
    text = LOOP.format(steps=3, on=1, given="on", rule="Less(v0, f0)").replace(
        "d = Less", "z = ReduceMax<keepdims = 0>(v) f0 = Neg(z) v0 = Identity(z) d = Less"
    )
    with pytest.raises(UnsupportedError, match="whether it goes on is computed at run time"):
        imported(text)


def test_as_many_steps_as_data_says_are_refused() -> None:
    text = LOOP.format(steps=3, on=1, given="on", rule="Identity(c)")
    text = text.replace("x) => (float[n, m] y,", "x, int64 steps2) => (float[n, m] y,", 1)
    with pytest.raises(UnsupportedError, match=r"number of steps \('steps2'\) is computed at run"):
        imported(text.replace("Loop(steps,", "Loop(steps2,"))


def test_too_many_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MOST_NODES", 200)
    text = LOOP.format(steps=100_000, on=1, given="on", rule="Identity(c)")
    with pytest.raises(UnsupportedError, match="and 200 nodes are the most"):
        imported(text)


def test_a_loop_without_nodes_that_does_not_end_is_refused() -> None:
    text = """g (float[n, m] x) => (float[n, m] y) {
      on = Constant<value = bool {1}>()
      y = Loop(, on, x) <body = b (int64 i, bool c, float[n, m] v) => (bool c, float[n, m] v) {}>
    }"""
    with pytest.raises(UnsupportedError, match="20001 steps of 0 nodes or more"):
        import_onnx(parsed(text), OPERATORS)


def test_what_cannot_be_imported_in_a_loop_is_said_once() -> None:
    text = LOOP.format(steps=3, on=1, given="on", rule="Identity(c)").replace(
        "Mul(w, x)", "Warp(w)"
    )
    with pytest.raises(UnsupportedError, match=r"g: 1 of 3 nodes cannot be imported\n  1 x Warp"):
        imported(text)


def test_a_loop_in_a_loop_with_a_branch() -> None:
    same("""g (float[n, m] x) => (float[n, m] y) {
      two = Constant<value_int = 2>()
      y = Loop(two, , x) <body = b (int64 i, bool c, float[n, m] v) => (bool d, float[n, m] w) {
        d = Identity(c) three = Constant<value_int = 3>()
        w = Loop(three, , v) <body = inner (int64 j, bool e, float[n, m] s)
            => (bool o, float[n, m] t) {
          o = Identity(e) k = Add(i, j) odd = Mod(k, two) zero = Sub(two, two) q = Equal(odd, zero)
          t = If(q) <then_branch = a () => (float[n, m] p) { p = Add(s, x) },
                     else_branch = z () => (float[n, m] r) { r = Neg(s) }> }> }> }""")


BRANCHES = """g (float[n, m] x) => (float[n, m] y, int64[r] s) {{
  sum = ReduceSum<keepdims = {kept}>(x) zero = Constant<value = float {{0.0}}>()
  c = Greater(sum, zero)
  y, s = If(c) <then_branch = t () => (float[n, m] a, int64[r] p) {{ a = Relu(x) p = Shape(x) }},
    else_branch = e () => (float[n, m] b, int64[r] q) {{ v = Neg(x) b = Mul(v, x) q = Shape(x) }}>
}}"""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_branch_that_values_decide(sign: int, kept: int) -> None:
    """Also where what the condition says is a tensor of one element in two dims."""
    same(BRANCHES.format(kept=kept), x=sign * np.abs(X))


def test_branches_that_are_not_alike() -> None:
    text = BRANCHES.format(kept=0).replace("b = Mul(v, x)", "b = ReduceSum<keepdims = 1>(v)")
    with pytest.raises(UnsupportedError, match=r"give f32\[n, m\] and f32\[1, 1\], and which is"):
        imported(text)


SCAN = """g (float[n, m] x) => (float[m] last, float[k, m] all) {{
  zero = Constant<value = float {{0.0}}>() first = ReduceSum<keepdims = 0>(x, axes)
  start = Mul(first, zero)
  last, all = Scan<num_scan_inputs = 2, {how}
      body = b (float[m] s, float[m] a, float[m] b) => (float[m] t, float[m] kept) {{
    u = Mul(s, a) t = Add(u, b) kept = Sub(t, a) }}>(start, x, x) }}"""


@pytest.mark.parametrize(
    "how", ["", "scan_input_directions = [0, 1],", "scan_output_directions = [1],",
            "scan_output_axes = [1],"],
)  # fmt: skip
def test_a_scan(how: str) -> None:
    text = SCAN.format(how=how).replace("zero =", "axes = Constant<value_ints = [0]>() zero =", 1)
    model = parsed(text.replace("float[n, m] x", "float[4, m] x"))
    case = Case(model, {"x": X})
    want = by_runtime(case)
    check(case, want, named={"x": (4, None)})
    with pytest.raises(UnsupportedError, match="it has n steps, and their number must be known"):
        imported(text)


SEQUENCES = {
    "split and at": "s = Constant<value_ints = [1, 3]>() p = SplitToSequence(x, s) "
    "k = Constant<value_int = -1>() y = SequenceAt(p, k)",
    "split into equal parts": "s = Constant<value_int = 3>() p = SplitToSequence(x, s) "
    "k = Constant<value_int = 1>() y = SequenceAt(p, k)",
    "split into single ones": "p = SplitToSequence<axis = 1, keepdims = 0>(x) "
    "k = Constant<value_int = 2>() y = SequenceAt(p, k)",
    "joined": "p = SplitToSequence<axis = 1>(x) y = ConcatFromSequence<axis = 0>(p)",
    "stacked": "p = SequenceConstruct(x, x) y = ConcatFromSequence<axis = -1, new_axis = 1>(p)",
    "changed": "e = SequenceEmpty() a = SequenceInsert(e, x) n = Neg(x) "
    "k = Constant<value_int = 0>()"
    " b = SequenceInsert(a, n, k) z = Relu(x) c = SequenceInsert(b, z) d = SequenceErase(c, k)"
    " f = SequenceErase(c) h = ConcatFromSequence<axis = 0>(d) i = ConcatFromSequence<axis = 0>(f)"
    " y = Concat<axis = 1>(h, i)",
    "counted": "p = SplitToSequence<axis = 1>(x) l = SequenceLength(p) f = Cast<to = 1>(l)"
    " y = Mul(x, f)",
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(name: str) -> None:
    text = f"g (float[4, 3] x) => (y) {{ {SEQUENCES[name]} }}"
    case = Case(parsed(text), {"x": X})
    check(case, by_runtime(case), named={"x": (4, 3)})


def test_a_split_leaves_only_what_is_read() -> None:
    model = imported(
        "g (float[n, 6] x) => (float[n, 2] y) { s = Constant<value_ints = [2, 2, 2]>() "
        "p = SplitToSequence<axis = 1>(x, s) k = Constant<value_int = 1>() y = SequenceAt(p, k) }"
    )
    assert (ops_of(model), shapes_of(model)) == (["split"], ["f32[n, 2]"])


def test_a_function_over_a_sequence() -> None:
    same("""g (float[4, 3] x) => (float[a, b] y) {
      p = SplitToSequence<axis = 1>(x)
      q = SequenceMap(p, x) <body = b (float[4, 1] e, float[4, 3] z) => (float[4, 3] r) {
        r = Mul(e, z) }>
      y = ConcatFromSequence<axis = 0>(q) }""")


def test_values_that_may_be_missing() -> None:
    same(
        """g (float[n, m] x) => (float[n, m] y) {
      o = Optional(x) h = OptionalHasElement(o)
      y = If(h) <then_branch = a () => (float[n, m] p) { p = OptionalGetElement(o) },
                 else_branch = z () => (float[n, m] r) { r = Neg(x) }> }""",
        opset=18,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p = SequenceConstruct(x) k = Constant<value_int = 1>() y = SequenceAt(p, k)",
         "position 1 of 1 members"),
        ("p = SequenceConstruct(x) y = Relu(p)", "operand 0 is a sequence, no tensor"),
        ("k = Constant<value_int = 1>() y = SequenceAt(x, k)", "operand 0 is no sequence"),
    ],
)  # fmt: skip
def test_what_is_no_sequence_or_not_in_it(text: str, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        imported(f"g (float[n] x) => (y) {{ {text} }}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y = SequenceConstruct(x)", "the result 'y' is a sequence"),
        ("p = SplitToSequence(x) k = Constant<value_int = 1>() y = SequenceAt(p, k)",
         "how many parts there are depends on sizes"),
    ],
)  # fmt: skip
def test_sequences_of_run_time_are_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        imported(f"g (float[n] x) => (y) {{ {text} }}")
