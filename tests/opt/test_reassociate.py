"""Products over channels change places with what is linear, where that is cheaper."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F

import pliant
from pliant.frontend.select import Request, import_model
from pliant.graph.function import Function
from pliant.ops.table import OPERATORS
from pliant.opt.reassociate import reassociate


class Head(nn.Module):
    """Linear projections of maps of several sizes, enlarged to the first one's, joined, fused."""

    def __init__(self, channels=(32, 48), width=64, mode="bilinear", between=None, bias=True):
        super().__init__()
        self.projections = nn.ModuleList([nn.Linear(c, width) for c in channels])
        self.fuse = nn.Conv2d(width * len(channels), width, 1, bias=bias)
        self.norm = nn.BatchNorm2d(width)
        self.mode, self.between = mode, between or nn.Identity()

    def forward(self, *maps):
        out = []
        for project, x in zip(self.projections, maps, strict=True):
            n, _, h, w = x.shape
            y = project(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(n, -1, h, w)
            out.append(F.interpolate(self.between(y), size=maps[0].shape[2:], mode=self.mode))
        return torch.relu(self.norm(self.fuse(torch.cat(out[::-1], 1))))


def imported(module, args, dynamic_shapes=None) -> Function:
    return import_model(Request(module.eval(), args, None, dynamic_shapes), OPERATORS).function


def products(function: Function) -> int:
    """Multiplications of all convolutions and linear maps of values, at constant sizes."""
    total = 0
    constants = {v for v, _ in function.weights}
    for b in function.bindings:
        if all(v in constants for v in b.operands()):
            constants |= set(b.outputs)
        elif b.op in ("conv", "linear", "matmul"):
            inner = b.args[1].shape[0 if b.op == "matmul" else 1 :]
            inner = inner[:1] if b.op == "matmul" else inner
            total += int(np.prod([d.value for d in (*b.outputs[0].shape, *inner)]))
    return total


def test_a_head_multiplies_at_the_small_sizes():
    torch.manual_seed(0)
    head, maps = Head(), (torch.randn(1, 32, 24, 20), torch.randn(1, 48, 12, 10))
    before = imported(head, maps)
    after = reassociate(before, OPERATORS)
    large, small, width = 24 * 20, 12 * 10, 64
    assert products(before) == large * width * (32 + 2 * width) + small * width * 48
    assert products(after) == large * width * 32 + small * width * 48


@pytest.mark.sweep
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_same_as_torch_at_every_size(mode, bias):
    torch.manual_seed(1)
    head = Head(mode=mode, bias=bias).eval()
    for p in head.norm.buffers():
        if p.dtype.is_floating_point:
            p.copy_(torch.rand_like(p) + 0.5)
    n, h, w = (torch.export.Dim(x, min=1) for x in "nhw")
    shapes = {"maps": ({0: n, 2: 2 * h, 3: 2 * w}, {0: n, 2: h, 3: w})}
    f = pliant.compile(
        head, (torch.randn(2, 32, 8, 6), torch.randn(2, 48, 4, 3)), dynamic_shapes=shapes
    )
    for sizes in ((1, 1, 1), (3, 2, 5), (1, 7, 11)):
        b, y, x = sizes
        maps = torch.randn(b, 32, 2 * y, 2 * x), torch.randn(b, 48, y, x)
        with torch.no_grad():
            want = head(*maps)
        torch.testing.assert_close(
            torch.from_numpy(np.asarray(f(*maps))), want, rtol=2e-5, atol=2e-5
        )
    assert f.stats()["compiles"] == 1


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (Head(between=nn.ReLU()), None),
        (nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 64)), torch.randn(5, 64)),
        (nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), torch.randn(5, 64)),
        (nn.Sequential(nn.Upsample(scale_factor=0.5), nn.Conv2d(32, 32, 1)),
         torch.randn(1, 32, 8, 8)),
        (nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 32, 3)),
         torch.randn(1, 32, 8, 8)),
        (nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 32, 1, groups=2)),
         torch.randn(1, 32, 8, 8)),
        (nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 32, 1, padding=1)),
         torch.randn(1, 32, 8, 8)),
        (nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(4, 32, 1)), torch.randn(1, 4, 8, 8)),
    ],
    ids=["between", "low rank", "not linear", "shrunk", "3x3", "groups", "padding", "few channels"],
)  # fmt: skip
def test_what_stays(module, x):
    args = (x,) if x is not None else (torch.randn(1, 32, 8, 8), torch.randn(1, 48, 4, 4))
    before = imported(module, args)
    fewer = products(reassociate(before, OPERATORS)) < products(before)
    # Past a ReLU the enlarging, which commutes with nothing there, still follows the product.
    assert fewer == (x is None)


def test_a_value_that_is_read_twice_stays():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(32, 64), nn.Linear(64, 16)

        def forward(self, x):
            y = self.a(x)
            return y, self.b(y)

    before = imported(Twice(), (torch.randn(3, 32),))
    assert products(reassociate(before, OPERATORS)) == products(before)


def test_matmul_and_add_of_onnx():
    rng = np.random.default_rng(0)
    u, w = rng.standard_normal((24, 96)).astype("f"), rng.standard_normal((96, 16)).astype("f")
    c, d = rng.standard_normal(96).astype("f"), rng.standard_normal(16).astype("f")
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["t0"]),
        helper.make_node("Add", ["c", "t0"], ["t1"]),
        helper.make_node("MatMul", ["t1", "w"], ["t2"]),
        helper.make_node("Add", ["t2", "d"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m", 16])],
        [numpy_helper.from_array(a, k) for k, a in (("u", u), ("w", w), ("c", c), ("d", d))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    f = pliant.compile(model)
    x = rng.standard_normal((3, 7, 24)).astype("f")
    want = (x.astype("d") @ u + c) @ w + d
    np.testing.assert_allclose(np.asarray(f(x)), want, rtol=1e-4, atol=1e-4)
    assert f.explain().count("[contraction") == 1
    strict = pliant.compile(model, numerics="strict")
    assert strict.explain().count("[contraction") != 1


def test_a_long_chain_before_a_product_is_compiled():
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(16, 8)
            self.register_buffer("shift", torch.ones(16))

        def forward(self, x):
            for _ in range(1500):
                x = x + self.shift
            return self.last(x)

    chain, x = Chain(), torch.randn(2, 16)
    function = imported(chain, (x,))
    assert products(reassociate(function, OPERATORS)) == products(function)
