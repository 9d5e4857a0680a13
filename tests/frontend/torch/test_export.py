"""Dimensions, names, structure, notes and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pliant.base.errors import InvalidModelError, ShapeError, UnsupportedError
from pliant.frontend.torch import export_program, import_exported, import_torch
from pliant.frontend.torch.structure import fill
from pliant.graph.function import Dim
from pliant.ops.table import OPERATORS
from tests.frontend.torch.running import assert_same, call, check, imported
from tests.frontend.torch.test_operators import Apply, floats


class Two(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def shapes_of(model: Any) -> list[str]:
    return [str(p.type) for p in model.function.params]


def test_dims_are_named_by_the_user() -> None:
    n = torch.export.Dim("n", min=1, max=64)
    shapes = {"x": {0: n, 1: "in"}, "y": {0: n, 1: Dim(max=9)}}
    model = imported(Two(), (floats(3, 4), floats(3, 4)), dynamic_shapes=shapes)
    assert shapes_of(model) == ["f32[n, in_]", "f32[n, in_]"]
    known = dict(model.function.dims)
    assert known["n"].min == 1
    assert known["n"].max == 64
    assert known["in_"].max == 9


def test_names_that_meet_become_equalities() -> None:
    shapes = {"x": {0: "a"}, "y": {0: "b"}}
    model = imported(Two(), (floats(3, 4), floats(3, 4)), dynamic_shapes=shapes)
    assert shapes_of(model) == ["f32[a, 4]", "f32[b, 4]"]
    assert len(model.function.equalities) == 1
    assert_same(call(model, floats(5, 4), floats(5, 4)), floats(5, 4) * 2)
    with pytest.raises(ShapeError):
        call(model, floats(5, 4), floats(6, 4))


def test_derived_dims_are_expressions() -> None:
    n = torch.export.Dim("n")
    cut = Apply(lambda x, y: x[::2] + y)
    shapes = (({0: 2 * n}, {0: n}),)
    model = imported(cut, (floats(8, 3), floats(4, 3)), dynamic_shapes=shapes)
    assert shapes_of(model) == ["f32[2*n, 3]", "f32[n, 3]"]
    x, y = floats(10, 3), floats(5, 3)
    assert_same(call(model, x, y), x[::2] + y)


def test_multiples() -> None:
    fold = Apply(lambda x: x.view(x.shape[0] // 4, 4, 2).sum(1))
    dims = {"n": Dim(multiple=4, max=64)}
    model = check(fold, (floats(4, 2),), (({0: "n"},),), [(floats(12, 2),)], dims=dims)
    assert dict(model.function.dims)["n"] == Dim(multiple=4, max=64)
    assert str(model.function.results[0].type) == "f32[n//4, 2]"


@pytest.mark.parametrize("size", [0, 1])
def test_small_examples_stay_dynamic(size: int) -> None:
    fn = Apply(lambda x: (x.softmax(-1), x.sum(0), torch.cat([x, x])))
    check(fn, (floats(size, 3),), (({0: "n"},),), [(floats(k, 3),) for k in (0, 1, 2, 13)])


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 1 else x + 1


def test_other_paths_at_size_one_are_noted() -> None:
    model = imported(Branches(), (floats(4, 3),), dynamic_shapes=({0: "n"},))
    assert len(model.notes) == 1
    assert "where n is 1 the model takes another path" in model.notes[0]
    kept = {"n": Dim(min=2)}
    assert not imported(Branches(), (floats(4, 3),), dynamic_shapes=({0: "n"},), dims=kept).notes


def test_ranges_the_model_asks_for_are_kept() -> None:
    long = Apply(lambda x: x + 1 if x.shape[0] > 10 else x)
    model = imported(long, (floats(20, 3),), dynamic_shapes=(({0: "n"},),), probe_small=False)
    assert dict(model.function.dims)["n"].min == 11


def test_examples_grow_until_no_inner_size_is_one() -> None:
    halves = Apply(lambda x: x[:, ::4] * 2 + x[:, :1])
    check(halves, (floats(3, 4),), (({1: "n"},),), [(floats(3, k),) for k in (1, 9, 33)])


def test_unnamed_dims_of_an_exported_program() -> None:
    dynamic = torch.export.Dim.DYNAMIC
    program = torch.export.export(
        Two(), (floats(3, 4), floats(3, 4)), dynamic_shapes=({0: dynamic}, {0: dynamic})
    )
    model = import_exported(program, OPERATORS)
    assert shapes_of(model) == ["f32[x_0, 4]", "f32[x_0, 4]"]
    named = export_program(program, dynamic_shapes=({0: "rows"}, None))
    assert shapes_of(import_exported(named, OPERATORS)) == ["f32[rows, 4]", "f32[rows, 4]"]


class Nested(nn.Module):
    def forward(
        self, x: torch.Tensor, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], *,
        flag: bool = True, factor: int = 2,
    ) -> Any:  # fmt: skip
        first, named = pair
        best = (x + first).max(-1)
        out = {"best": best, "size": x.shape[0] * factor, "none": None, "list": [named["k"] * 2, x]}
        return out, flag


def test_structure_of_arguments_and_results() -> None:
    def inputs(n: int) -> tuple[Any, ...]:
        return floats(n, 3), (floats(3), {"k": floats(n)})

    shapes = {"x": {0: "n"}, "pair": (None, {"k": {0: "n"}}), "flag": None, "factor": None}
    options = {"flag": True, "factor": 3}
    module = Nested()
    model = imported(module, inputs(4), options, dynamic_shapes=shapes)
    assert model.call.leaves == (("x",), ("pair", 0), ("pair", 1, "k"))
    for n in (1, 5):
        assert_same(call(model, *inputs(n), **options), module(*inputs(n), **options))
    json.dumps([model.output, dict(model.call.arguments)])
    plain = fill(model.output, [torch.tensor(k) for k in range(9)])
    assert plain[1] is True
    assert set(plain[0]) == {"best", "size", "none", "list"}
    with pytest.raises(ShapeError, match="factor is 4"):
        call(model, *inputs(4), flag=True, factor=4)
    with pytest.raises(ShapeError, match="'pair' is missing"):
        call(model, floats(4, 3))


def test_all_unsupported_operators_are_reported_at_once() -> None:
    def bad(x: torch.Tensor) -> torch.Tensor:
        y = torch.fft.rfft(x).abs()
        y = torch.special.bessel_j0(y) + torch.special.bessel_j0(y + 1)
        return F.dropout(y, 0.5, True)

    with pytest.raises(UnsupportedError) as error:
        imported(Apply(bad), (floats(4, 8),))
    text = str(error.value)
    assert "aten.special_bessel_j0.default (2 times, first at " in text
    assert "aten.dropout.default (once" in text
    assert "aten.fft_rfft.default" in text
    assert "test_operators.py" in text  # where `Apply` calls the function
    assert "model.eval()" in text


def test_rules_can_be_added() -> None:
    module = Apply(torch.special.bessel_j1)
    extra = {"aten.special_bessel_j1.default": lambda ctx, x: ctx.call("sin", x)}
    model = import_torch(module, (floats(3),), operators=OPERATORS, extra=extra)
    assert_same(call(model, floats(3)), floats(3).sin())


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


def test_changed_state_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="changes its state: count"):
        imported(Counter(), (floats(3),))


def test_training_mode_is_an_error() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout())
    with pytest.raises(UnsupportedError, match=r"call model.eval\(\)"):
        import_torch(module.train(), (floats(2, 3),), operators=OPERATORS)


def test_a_fixed_dimension_is_an_error() -> None:
    module = nn.Linear(4, 2)
    with pytest.raises(InvalidModelError, match="fixed by the model"):
        imported(module, (floats(3, 4),), dynamic_shapes=({1: "k"},))


def test_data_dependent_sizes_are_an_error() -> None:
    with pytest.raises(UnsupportedError, match="depends on"):
        imported(Apply(lambda x: x[x > 0]), (floats(4),))


def test_weights_are_snapshots_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight
            self.short = nn.Parameter(torch.randn(4).bfloat16())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x)) + self.short

    module = Tied()
    model = check(module, (floats(2, 4),))
    assert sorted(a.dtype.name for a in model.weights.values()) == ["bfloat16", "float32"]
    expected = module(floats(2, 4))
    with torch.no_grad():
        module.a.weight.zero_()
    assert_same(call(model, floats(2, 4)), expected.detach())


def test_spans_name_the_users_line_and_module() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp()

    model = imported(nn.Sequential(Inner()), (floats(2),))
    (binding,) = model.function.bindings
    assert binding.spans[0].file == __file__
    assert binding.spans[0].name == "0"


def test_regions_without_gradients_or_autocast_are_inlined() -> None:
    def regions(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", enabled=False):
            return y + x

    check(Apply(regions), (floats(3, 2),), (({0: "n"},),), [(floats(5, 2),)])
