"""What a damaged, foreign or unsupported model says."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from pliant.base.errors import InvalidModelError, PliantError, ShapeError, UnsupportedError
from pliant.frontend.onnx import import_onnx, load_model
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.models import imported, ops_of, parsed

ADD = "g (float[n] x) => (float[n] y) { c = Constant<value_float = 1.5>() y = Add(x, c) }"


def test_a_truncated_file(tmp_path: Path) -> None:
    data = parsed(ADD).SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InvalidModelError, match=r"cut\.onnx: .*truncated, damaged"):
        load_model(path)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    with pytest.raises(InvalidModelError, match=r"empty\.onnx: empty, not an ONNX model"):
        load_model(path)


def test_a_file_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(3)}, path)
    with pytest.raises(InvalidModelError, match=r"model\.pt: an archive, as torch saves"):
        load_model(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"none\.onnx: No such file"):
        load_model(tmp_path / "none.onnx")


@pytest.mark.parametrize("data", [b"hello world", b"\x89PNG\r\n\x1a\n" + bytes(64), b"{}"])
def test_another_format(data: bytes) -> None:
    with pytest.raises(InvalidModelError, match="not an ONNX model"):
        load_model(data)


def test_damaged_bytes_never_crash() -> None:
    good = parsed(ADD).SerializeToString()
    random = np.random.default_rng(0)
    for _ in range(300):
        bad = bytearray(good)
        for at in random.integers(0, len(bad), 3):
            bad[at] = random.integers(0, 256)
        with contextlib.suppress(PliantError):
            import_onnx(bytes(bad), OPERATORS)


def test_an_old_operator_set() -> None:
    old = "g (float[n, 4] x, float[4] y) => (float[n, 4] z) { z = Add<broadcast = 1>(x, y) }"
    with pytest.raises(UnsupportedError, match="set 6 is older than 7, and Add changed"):
        imported(old, opset=6)


def test_an_old_operator_set_whose_operators_are_as_they_were() -> None:
    model = imported("g (float[n, m] x) => (float[n, m] y) { y = Softmax(x) }", opset=6)
    assert ops_of(model) == ["softmax"]


def test_an_operator_set_of_the_future() -> None:
    with pytest.raises(UnsupportedError, match=r"newer than .* upgrade it"):
        imported(ADD, opset=999)


def test_a_value_nobody_writes() -> None:
    with pytest.raises(InvalidModelError, match=r"node 0 .*reads 'z', which nothing"):
        imported("g (float[n] x) => (float[n] y) { y = Add(x, z) }")


def test_a_missing_weight() -> None:
    model = parsed("g (float[n] x) => (float[n] y) { y = Add(x, x) }")
    model.graph.node[0].input[1] = "encoder.weight"
    with pytest.raises(InvalidModelError) as caught:
        import_onnx(model, OPERATORS)
    assert str(caught.value) == (
        "g: node 0 (Add): reads 'encoder.weight', which nothing before it writes; if it is a "
        "weight, the file lacks it"
    )


def test_too_few_operands() -> None:
    with pytest.raises(InvalidModelError, match="1 operands; it takes 2 to 2"):
        imported("g (float[n] x) => (float[n] y) { y = Add(x) }")


def test_an_attribute_of_the_wrong_kind() -> None:
    model = parsed("g (float[n] x) => (float[n] y) { y = Softmax<axis = 0>(x) }")
    model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("axis", 1.5))
    with pytest.raises(InvalidModelError, match="attribute 'axis' is no INT"):
        import_onnx(model, OPERATORS)


@pytest.mark.parametrize("parts", [2, 4, 2**63 - 1])
def test_other_parts_than_outputs(parts: int) -> None:
    model = parsed("g (float[6] x) => (float[2] y) { y, z, v = Split<num_outputs = 3>(x) }")
    model.opset_import[0].version = 18
    model.graph.node[0].attribute[0].i = parts
    with pytest.raises(InvalidModelError, match=f"num_outputs is {parts}, and there are 3 outputs"):
        import_onnx(model, OPERATORS)


def test_operands_of_two_types() -> None:
    with pytest.raises(InvalidModelError, match=r"node 0 \(Add\).*f32 and i64"):
        imported("g (float[n] x, int64[n] z) => (float[n] y) { y = Add(x, z) }")


def test_an_input_without_a_shape() -> None:
    model = parsed(ADD)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match=r"'x' has no shape in the file; give one") as caught:
        import_onnx(model, OPERATORS)
    assert 'dynamic_shapes={"x": ("batch", None, 3)}' in str(caught.value)
    assert import_onnx(model, OPERATORS, input_shapes={"x": (None,)}).inputs == ("x",)


def test_an_input_that_does_not_exist() -> None:
    with pytest.raises(ShapeError, match="no input 'q'; it has: x"):
        imported(ADD, input_shapes={"q": (1,)})


def test_a_weight_of_the_wrong_size() -> None:
    model = parsed(ADD)
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.dims[0] = 5
    model.graph.initializer.append(tensor)
    with pytest.raises(InvalidModelError, match="tensor 'w' needs 20 bytes and has 16"):
        import_onnx(model, OPERATORS)


@pytest.mark.parametrize("dims", [(-4,), (1 << 40, 1 << 40), (3,), (1 << 62, 0)])
def test_a_sparse_weight_of_impossible_dims(dims: tuple[int, ...]) -> None:
    model = parsed(ADD)
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.asarray([7], np.int64), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, list(dims)))
    with pytest.raises(InvalidModelError, match="sparse tensor 'w'"):
        import_onnx(model, OPERATORS)


def test_constants_too_large_to_fold_are_left_to_run() -> None:
    """Neither takes minutes or gigabytes while importing."""
    for body in (
        "a = Constant<value_int = 0>() b = Constant<value_int = 1000000000>()"
        " s = Constant<value_int = 1>() y = Range(a, b, s)",
        "k = Constant<value_ints = [1, 2, 3]>() r = Constant<value_ints = [1000000000]>()"
        " y = Tile(k, r)",
        "h = Constant<value_ints = [100, 100]>() z = ConstantOfShape(h)"
        " t = Constant<value_ints = [10000, 1]>() u = Constant<value_ints = [1, 10000]>()"
        " p = Reshape(z, t) q = Reshape(z, u) y = Add(p, q)",
    ):
        model = imported(f"g (float[n] x) => (y) {{ {body} }}")
        assert sum(w.nbytes for w in model.weights.values()) < 1 << 20


def external(folder: Path, location: str, offset: int | None = None) -> Path:
    """A model whose weight lies in another file."""
    model = parsed("g (float[4] x) => (float[4] y) { y = Add(x, w) }".replace("w)", "x)"))
    tensor = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    (folder / "data.bin").write_bytes(bytes(8) + tensor.raw_data)
    set_external_data(tensor, location, offset=offset, length=16)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    model.graph.initializer.append(tensor)
    model.graph.node[0].input[1] = "w"
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    model = import_onnx(external(tmp_path, "data.bin", 8), OPERATORS)
    (array,) = model.weights.values()
    np.testing.assert_array_equal(array, np.arange(4, dtype=np.float32))


@pytest.mark.parametrize(
    ("location", "offset", "message"),
    [
        ("gone.bin", 0, "tensor 'w': the external data file 'gone.bin' is missing"),
        ("data.bin", 12, "bytes 12 to 28 of 'data.bin' are wanted, but the file has 24"),
        ("../data.bin", 0, "leads out of the model's folder"),
        ("/etc/passwd", 0, "leads out of the model's folder"),
        ("", 0, "has no location"),
    ],
)
def test_external_data_out_of_reach(
    tmp_path: Path, location: str, offset: int, message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(InvalidModelError, match=message):
        import_onnx(external(folder, location, offset), OPERATORS)


def test_external_data_through_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = external(folder, "link.bin", 0)
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(InvalidModelError, match="leads out of the model's folder"):
        import_onnx(path, OPERATORS)


def test_external_data_of_a_model_from_memory(tmp_path: Path) -> None:
    data = external(tmp_path, "data.bin").read_bytes()
    with pytest.raises(InvalidModelError, match="pass the path of the model file"):
        import_onnx(data, OPERATORS)


UNSUPPORTED = """
g (float[n, 4] x, int64[1] k) => (float[n, 4] y) {
  a = acme.Warp(x)
  b = acme.Warp(a)
  c = acme.Warp(x)
  d = Det(x)
  t, i = TopK(x, k)
  y = Add(b, c)
  z = Add(d, t)
}
"""

REPORT = """\
g: 3 of 7 nodes cannot be imported
  2 x acme.Warp: operators of domain 'acme' are not known; first at node 0 (Warp)
  1 x TopK: its k ('k') is computed at run time; it must be a constant or follow from shapes; \
first at node 4 (TopK)
  what to do: make the inputs that decide shapes or modes constants of the model: k"""


def test_everything_unsupported_is_reported_at_once() -> None:
    model = parsed(UNSUPPORTED, domains='"acme" : 1')
    model.graph.output.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, None))
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(model, OPERATORS)
    assert str(caught.value) == REPORT


def test_what_nobody_reads_is_not_imported() -> None:
    model = imported("g (float[n] x) => (float[n] y) { dead = acme.Warp(x) y = Relu(x) }")
    assert [b.op for b in model.function.bindings] == ["relu"]


def test_strings_and_small_floats_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="float8e4m3fn"):
        imported("g (float[n] x) => (float[n] y) { z = Cast<to = 17>(x) y = Cast<to = 1>(z) }")


def test_spans_name_the_node() -> None:
    model = imported("g (float[n] x) => (float[n] y) { [top] y = Relu(x) }")
    (binding,) = model.function.bindings
    assert str(binding.spans[0]) == "g (node 0 top (Relu))"


def test_checks_of_onnx_agree() -> None:
    onnx.checker.check_model(parsed(ADD))
