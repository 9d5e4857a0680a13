"""Shape arithmetic is carried as symbolic integers and leaves no tensor behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pliant
from pliant.base.errors import InvalidModelError, ShapeError, UnsupportedError
from pliant.graph.function import Dim
from tests.frontend.onnx.models import imported, ops_of, parsed, shapes_of
from tests.frontend.onnx.run import run

FLATTEN_HEADS = """
g (float[batch, seq, 384] x) => (float[a, b, c, d] y) {
  s = Shape(x)
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  b = Gather(s, zero)
  n = Gather(s, one)
  axes = Constant<value_ints = [0]>()
  b1 = Unsqueeze(b, axes)
  n1 = Unsqueeze(n, axes)
  tail = Constant<value_ints = [12, -1]>()
  shape = Concat<axis = 0>(b1, n1, tail)
  y = Reshape(x, shape)
}
"""


def test_reshape_to_heads_is_one_binding() -> None:
    model = imported(FLATTEN_HEADS)
    assert ops_of(model) == ["reshape"]
    assert shapes_of(model) == ["f32[batch, seq, 12, 32]"]


def reshape(shape: str, x: str = "float[n, m, 6]", opset: int = 17, attrs: str = "") -> str:
    model = imported(
        f"g ({x} x) => (float[a] y) {{ s = Constant<value_ints = {shape}>()\n"
        f"y = Reshape{attrs}(x, s) }}", opset,
    )  # fmt: skip
    return shapes_of(model)[0]


@pytest.mark.parametrize(
    ("shape", "result"),
    [
        ("[0, -1]", "f32[n, 6*m]"),
        ("[-1]", "f32[6*m*n]"),
        ("[0, 0, 2, 3]", "f32[n, m, 2, 3]"),
        ("[-1, 4]", "f32[m*n + (m*n)//2, 4]"),
        ("[0, 0, -1, 2]", "f32[n, m, 3, 2]"),
    ],
)
def test_reshape_rules(shape: str, result: str) -> None:
    assert reshape(shape) == result


def test_reshape_allowzero_keeps_zero() -> None:
    x = "float[0, n]"
    assert reshape("[5, 0]", x, attrs="<allowzero = 1>") == "f32[5, 0]"


def test_reshape_twice_open_is_refused() -> None:
    with pytest.raises(InvalidModelError, match="two -1"):
        reshape("[-1, -1]")


def sizes(body: str, inputs: str = "float[n, m] x") -> str:
    """The shape of `full(body's y)`: how a computed size is seen."""
    model = imported(f"g ({inputs}) => (float[a] out) {{ {body}\n out = ConstantOfShape(y) }}")
    assert ops_of(model) == ["full"], ops_of(model)
    return shapes_of(model)[0]


DIM0 = "s = Shape(x) i = Constant<value_ints = [0]>() d = Gather(s, i) "


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("y = Shape(x)", "f32[n, m]"),
        ("y = Shape<start = -1>(x)", "f32[m]"),
        ("y = Shape<end = 1>(x)", "f32[n]"),
        ("t = Size(x) k = Constant<value_ints = [1]>() y = Reshape(t, k)", "f32[m*n]"),
        (DIM0 + "k = Constant<value_ints = [2]>() y = Div(d, k)", "f32[n//2]"),
        (DIM0 + "k = Constant<value_ints = [2]>() t = Mul(d, k) y = Div(t, k)", "f32[n]"),
        (DIM0 + "k = Constant<value_ints = [4]>() y = Mod(d, k)", "f32[n%4]"),
        (DIM0 + "k = Constant<value_ints = [3]>() y = Add(d, k)", "f32[n + 3]"),
        (DIM0 + "k = Constant<value_ints = [8]>() y = Max(d, k)", "f32[max(8, n)]"),
        (DIM0 + "k = Constant<value_ints = [8]>() y = Min(d, k)", "f32[min(8, n)]"),
        (
            DIM0 + "f = Cast<to = 1>(d) k = Constant<value_floats = [3.0]>() q = Div(f, k) "
            "c = Ceil(q) y = Cast<to = 7>(c)",
            "f32[(n + 2)//3]",
        ),
        (
            DIM0 + "f = Cast<to = 1>(d) k = Constant<value_floats = [0.33333334]>() "
            "q = Mul(f, k) c = Floor(q) y = Cast<to = 7>(c)",
            "f32[n//3]",
        ),
        (
            DIM0 + "f = Cast<to = 1>(d) k = Constant<value_floats = [2.0]>() q = Mul(f, k) "
            "y = Cast<to = 7>(q)",
            "f32[2*n]",
        ),
        ("s = Shape(x) p = ReduceProd<keepdims = 1>(s) y = Identity(p)", "f32[m*n]"),
        (DIM0 + "k = Constant<value_ints = [3]>() y = Expand(d, k)", "f32[n, n, n]"),
        ("s = Shape(x) y = Transpose(s)", "f32[n, m]"),
        ("s = Shape(x) a, b = Split<axis = 0>(s) y = Concat<axis = 0>(b, a)", "f32[m, n]"),
        (
            "s = Shape(x) st = Constant<value_ints = [-1]>() en = Constant<value_ints = [-99]>() "
            "ax = Constant<value_ints = [0]>() sp = Constant<value_ints = [-1]>() "
            "y = Slice(s, st, en, ax, sp)",
            "f32[m, n]",
        ),
        (
            "s = Shape(x) neg = Constant<value_ints = [-1]>() e = Equal(s, neg) "
            "k = Constant<value_ints = [5]>() y = Where(e, k, s)",
            "f32[n, m]",
        ),
        (DIM0 + "a = Neg(d) y = Abs(a)", "f32[n]"),
        (
            DIM0 + "one = Constant<value_ints = [1]>() v = Concat<axis = 0>(one, d) "
            "at = Constant<value_ints = [-1]>() three = Constant<value_int = 3>() "
            "h = OneHot(at, three, v) k = Constant<value_ints = [-1]>() y = Reshape(h, k)",
            "f32[1, 1, n]",
        ),
    ],
)
def test_sizes(body: str, result: str) -> None:
    assert sizes(body) == result


@pytest.mark.parametrize(
    ("start", "end", "step", "result"),
    [
        (0, 9223372036854775807, 1, "n"),
        (1, 9223372036854775807, 1, "n - min(1, n)"),
        (0, 4, 1, "min(4, n)"),
        (0, -1, 1, "max(0, n - 1)"),
        (-1, 9223372036854775807, 1, None),
        (9223372036854775807, -9223372036854775807, -1, "n"),
    ],
)
def test_slice_of_a_symbolic_dim(start: int, end: int, step: int, result: str | None) -> None:
    model = imported(
        f"""g (float[n] x) => (float[a] y) {{
        s = Constant<value_ints = [{start}]>() e = Constant<value_ints = [{end}]>()
        a = Constant<value_ints = [0]>() t = Constant<value_ints = [{step}]>()
        y = Slice(x, s, e, a, t) }}"""
    )
    size = model.function.results[0].shape[0]
    for n in (0, 1, 2, 3, 7, 100):
        assert size.eval({"n": n}) == len(np.zeros(n)[start:end:step]), (n, str(size))
    if result is not None and "-" not in result:
        assert str(size) == result


def test_slice_of_a_known_large_dim_needs_no_clamp() -> None:
    model = imported(
        """g (float[n] x) => (float[a] y) {
        s = Constant<value_ints = [0]>() e = Constant<value_ints = [4]>()
        y = Slice(x, s, e) }""",
        dims={"n": Dim(min=16)},
    )
    assert shapes_of(model) == ["f32[4]"]


def test_a_size_used_as_a_tensor_is_made() -> None:
    model = imported("""g (int64[n] x) => (int64[n] y) { s = Shape(x) y = Add(x, s) }""")
    assert ops_of(model) == ["size_vector", "add"]


def test_what_is_made_of_constants_may_decide_a_shape() -> None:
    """By any operator: it is computed while importing."""
    made = (
        "k = Constant<value_floats = [256.0]>() half = Constant<value_floats = [0.5]>() "
        "q = Pow(k, half) r = Pow(q, half) i = Cast<to = 7>(r) s = Shape<start = 0, end = 1>(x) "
        "y = Concat<axis = 0>(i, s)"
    )
    assert sizes(made) == "f32[4, n]"


def test_constants_that_cannot_be_computed_are_an_error_in_every_call() -> None:
    model = imported(
        "g (int64[n] x) => (int64[n] y) { a = Constant<value_ints = [6]>() "
        "z = Constant<value_ints = [0]>() b = Mod(a, z) y = Add(x, b) }"
    )
    with pytest.raises(ShapeError, match="division by zero"):
        run(model, [np.ones(3, np.int64)])


def test_range_over_a_dim() -> None:
    model = imported(
        """g (float[n, m] x) => (int64[a] y) {
        s = Shape(x) one = Constant<value_int = 1>() zero = Constant<value_int = 0>()
        m = Gather(s, one) y = Range(zero, m, one) }"""
    )
    assert ops_of(model) == ["iota"]
    assert shapes_of(model) == ["i64[m]"]


@pytest.mark.parametrize("shape", [(3,), (0,), (2, 3), (1, 2), (2, 1, 3)])
def test_places_in_what_is_nowhere_zero(shape: tuple[int, ...]) -> None:
    """A range, as older exporters write it."""
    dims = ", ".join("abc"[: len(shape)])
    model = imported(
        f"g (float[{dims}] x) => (int64[r, k] y) {{ s = Shape(x) "
        "o = ConstantOfShape<value = int64[1] {1}>(s) y = NonZero(o) }"
    )
    (y,) = run(model, [np.zeros(shape, np.float32)])
    np.testing.assert_array_equal(y, np.stack(np.nonzero(np.ones(shape))))


def test_a_runtime_shape_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError) as caught:
        imported(
            "g (float[n] x, int64[2] where_to) => (float[a, b] y) { y = Reshape(x, where_to) }"
        )
    assert "its shape ('where_to') is computed at run time" in str(caught.value)
    assert "constants of the model: where_to" in str(caught.value)


def test_a_fixed_input_decides_the_shape() -> None:
    model = imported(
        "g (float[6] x, int64[2] where_to) => (float[a, b] y) { y = Reshape(x, where_to) }",
        values={"where_to": np.array([2, 3])},
    )
    assert model.inputs == ("x",)
    assert shapes_of(model) == ["f32[2, 3]"]


def test_names_of_dims() -> None:
    model = imported(
        "g (float[batch, ?, N, min] x, float[batch, ?] y) => (float z) "
        "{ a = ReduceSum<keepdims = 0>(x) b = ReduceSum<keepdims = 0>(y) z = Add(a, b) }"
    )
    assert [str(p.type) for p in model.function.params] == [
        "f32[batch, x_d1, N, min_]", "f32[batch, y_d1]",
    ]  # fmt: skip


def test_dims_are_refined_by_the_models_name() -> None:
    model = imported(
        "g (float[n] x) => (float[n] y) { y = Relu(x) }", dims={"n": Dim(min=1, max=64)}
    )
    assert dict(model.function.dims)["n"] == Dim(min=1, max=64)


def test_an_unknown_dim_is_an_error_that_lists_them() -> None:
    with pytest.raises(ShapeError, match="no dim 'k'; it has: n"):
        imported("g (float[n] x) => (float[n] y) { y = Relu(x) }", dims={"k": Dim()})


def test_input_shapes_replace_the_files() -> None:
    model = imported(
        "g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }", input_shapes={"x": ("b", 3)}
    )
    assert shapes_of(model) == ["f32[b, 3]"]


POOLS = """
g (float[n, 2, h, w] x) => (float[a, b, c, d] y, float[e, f, i, j] z) {
  y = MaxPool<kernel_shape = [3, 2], strides = [3, 2]>(x)
  z = AveragePool<kernel_shape = [2, 3], strides = [2, 2], pads = [0, 1, 0, 0]>(x)
}
"""


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 2), (2, 3), (3, 2), (5, 4), (6, 7)])
def test_a_pool_short_by_less_than_a_stride_has_one_window(size: tuple[int, int]) -> None:
    """ONNX's quotient truncates: (1 - 3)/3 + 1 windows are one."""
    runtime = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(0).standard_normal((2, 2, *size), np.float32)
    session = runtime.InferenceSession(
        parsed(POOLS).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for have, want in zip(run(imported(POOLS), [x]), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def test_a_pool_of_nothing_is_refused() -> None:
    f = pliant.compile(parsed(POOLS))
    assert f(np.zeros((1, 2, 1, 1), np.float32))[0].shape == (1, 2, 1, 1)
    with pytest.raises(ShapeError, match="too small for the window"):
        f(np.zeros((1, 2, 0, 1), np.float32))


def test_quotients_are_rounded_towards_zero_whatever_the_sign() -> None:
    model = imported(
        "g (float[n] x) => (float y, float z) { s = Shape(x) three = Constant<value_ints = [3]>() "
        "one = Constant<value_ints = [1]>() ten = Constant<value_ints = [10]>() "
        "a = Sub(s, one) b = Div(a, three) y = ConstantOfShape(b) "
        "c = Sub(s, ten) d = Div(c, three) e = Add(d, ten) z = ConstantOfShape(e) }"
    )
    y, z = (r.shape[0] for r in model.function.results)
    for n in range(15):
        assert y.subs({"n": n}) == int((n - 1) / 3)
        assert z.subs({"n": n}) == int((n - 10) / 3) + 10


@pytest.mark.parametrize("by", [1, -1, 3])
def test_rolled_by_a_rest_of_a_size(by: int) -> None:
    """As PyTorch exports `roll`: in two slices, at a remainder of a size that may be 0."""
    model = imported(
        f"g (float[2, n] x) => (float[2, n] y) {{ by = Constant<value_ints = [{-by}]>() "
        "n = Shape<start = 1>(x) at = Mod(by, n) one = Constant<value_ints = [1]>() "
        "zero = Constant<value_ints = [0]>() first = Slice(x, zero, at, one) "
        "rest = Slice(x, at, n, one) y = Concat<axis = 1>(rest, first) }"
    )
    for n in (0, 1, 2, 3, 4, 9):
        x = np.arange(2.0 * n, dtype=np.float32).reshape(2, n)
        np.testing.assert_array_equal(run(model, [x])[0], np.roll(x, by, 1))


@pytest.mark.parametrize("size", [5, 6, 7, 8])
@pytest.mark.parametrize(
    ("stride", "pad", "dilation"), [(1, 1, 1), (2, 1, 1), (3, 0, 1), (2, 2, 2)]
)
def test_blocks_summed_into_an_image(size: int, stride: int, pad: int, dilation: int) -> None:
    """Whatever is left of the image beyond the last whole step."""
    step, pads = f"[{stride}, {stride}]", [pad] * 4
    model = imported(
        "g (float[n, 18, l] x) => (float[n, 2, h, w] y) { "
        f"im = Constant<value_ints = [{size}, {size}]>() bl = Constant<value_ints = [3, 3]>() "
        f"y = Col2Im<strides = {step}, pads = {pads}, dilations = [{dilation}, {dilation}]>"
        "(x, im, bl) }", 18,
    )  # fmt: skip
    count = (size + 2 * pad - 2 * dilation - 1) // stride + 1
    x = np.random.default_rng(0).standard_normal((3, 18, count**2), np.float32)
    want = torch.nn.functional.fold(torch.tensor(x), size, 3, dilation, pad, stride).numpy()
    np.testing.assert_allclose(run(model, [x])[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("start", "end", "step"), [(-9, -20, -1), (-3, -4, -3), (9, -20, -2)])
def test_a_backward_slice_begins_with_an_element_that_there_is(
    start: int, end: int, step: int
) -> None:
    """ONNX takes the first for one before it."""
    runtime = pytest.importorskip("onnxruntime")
    text = (
        f"g (float[n] x) => (float[m] y) {{ s = Constant<value_ints = [{start}]>() "
        f"e = Constant<value_ints = [{end}]>() a = Constant<value_ints = [0]>() "
        f"t = Constant<value_ints = [{step}]>() y = Slice(x, s, e, a, t) }}"
    )
    session = runtime.InferenceSession(
        parsed(text).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    model = imported(text)
    for n in (0, 1, 2, 4, 12):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(run(model, [x])[0], session.run(None, {"x": x})[0])


def test_statistics_of_doubles_are_kept_as_the_node_says() -> None:
    model = imported(
        "g (double[2, 3] x, double[3] w) => (double[2, 3] y, float[2, 1] m, float[2, 1] i) "
        "{ y, m, i = LayerNormalization(x, w) }"
    )
    assert shapes_of(model) == ["f64[2, 3]", "f32[2, 1]", "f32[2, 1]"]
