"""Dimensions, names, structure, notes and errors."""

from __future__ import annotations

import json
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
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


class Levels(nn.Module):
    """Images by number, as detectors have them."""

    def forward(self, levels: dict[Any, torch.Tensor]) -> Any:
        by_number = OrderedDict((k, v * 2) for k, v in levels.items())
        return {3: by_number, True: levels[8] + 1, None: levels["top"], 0.5: 7}


def test_dicts_by_numbers(tmp_path: Path) -> None:
    def levels(n: int) -> dict[Any, torch.Tensor]:
        return {4: floats(n, 2), 8: floats(n), "top": floats(3)}

    shapes = {"levels": {4: {0: "n"}, 8: {0: "n"}, "top": None}}
    f = pliant.compile(Levels(), (levels(4),), dynamic_shapes=shapes)
    f.save(tmp_path / "levels.so")
    for g in (f, pliant.load(tmp_path / "levels.so")):
        for n in (1, 5):
            assert_same(g(levels(n)), Levels()(levels(n)))
    with pytest.raises(ShapeError, match=r"the dict lacks \[8\]; expected \[4, 8, 'top'\]"):
        f({k: v for k, v in levels(4).items() if k != 8})


def test_a_key_that_no_file_can_hold() -> None:
    with pytest.raises(UnsupportedError, match=r"a dict with the key \(1, 2\): keys are strings"):
        pliant.compile(Apply(lambda x: {(1, 2): x}), (floats(2),))


@pytest.mark.parametrize(
    "shapes",
    [
        ({0: "n"}, {0: "n", 1: "m"}), (({0: "n"}, ("n", "m")),), (None, {0: "n", 1: "m"}),
        (["n", None], {1: "m"}), {"args": ({0: "n"}, {0: "n", 1: "m"})}, ((None, {1: "m"}),),
        {"args_1": {1: "m"}},
    ],
)  # fmt: skip
def test_dims_of_arguments_without_names(shapes: Any) -> None:
    """One by one, or all of them in one entry, as torch has it."""
    both = Apply(lambda x, y: (x, y))
    model = imported(both, (floats(4, 3), floats(4, 5)), dynamic_shapes=shapes)
    assert shapes_of(model)[1].endswith(", m]")


def test_dims_of_arguments_without_names_are_a_tuple() -> None:
    text = "dynamic_shapes of *args is a tuple with an entry for each of these arguments, not {0: "
    with pytest.raises(InvalidModelError) as caught:
        imported(Apply(torch.neg), (floats(4, 3),), dynamic_shapes={"args": {0: "n"}})
    assert str(caught.value).startswith(text)


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


def test_sizes_on_other_paths_are_refused_and_noted() -> None:
    model = imported(Branches(), (floats(4, 3),), dynamic_shapes=({0: "n"},))
    assert len(model.notes) == 1
    assert "where n is below 2 the model takes another path" in model.notes[0]
    assert dict(model.function.dims)["n"].min == 2
    kept = {"n": Dim(min=2)}
    assert not imported(Branches(), (floats(4, 3),), dynamic_shapes=({0: "n"},), dims=kept).notes


def test_ranges_the_model_asks_for_are_kept() -> None:
    long = Apply(lambda x: x + 1 if x.shape[0] > 10 else x)
    model = imported(long, (floats(20, 3),), dynamic_shapes=(({0: "n"},),), probe_small=False)
    assert dict(model.function.dims)["n"].min == 11


PATHS = {
    "other value": (lambda x: x * 3 if x.shape[0] == 8 else x, {8}),
    "beyond": (lambda x: x * 3 if x.shape[0] > 7 else x, {8, 13}),
    "above 2": (lambda x: x * 3 if x.shape[0] > 2 else x, {2}),
    "harmless": (lambda x: x.clone() if x.shape[0] % 4 else x, set()),
    "harmless bound": (lambda x: x.contiguous() if x.shape[0] < 7 else x.clone(), set()),
}


@pytest.mark.parametrize("name", PATHS)
def test_what_the_code_asks_of_sizes_holds_or_changes_nothing(name: str) -> None:
    fn, others = PATHS[name]
    model = pliant.compile(Apply(fn), (floats(5, 3),), dynamic_shapes=(({0: "n"},),))
    for n in (2, 3, 4, 5, 7, 8, 13):
        x = floats(n, 3)
        if n in others:
            with pytest.raises(ShapeError):
                model(x)
        else:
            assert_same(model(x), fn(x))


def test_a_square_example_is_no_restriction() -> None:
    turned = Apply(lambda x: (x * 2 if x.shape[0] == x.shape[1] else x + x).t())
    shapes = (({0: "h", 1: "w"},),)
    check(turned, (floats(4, 4),), shapes, [(floats(3, 5),), (floats(1, 1),)])


def test_the_path_of_the_example_counts() -> None:
    square = Apply(lambda x: x * 2 if x.shape[0] == x.shape[1] else x.sum())
    model = imported(square, (floats(4, 4),), dynamic_shapes=(({0: "h", 1: "w"},),))
    assert_same(call(model, floats(6, 6)), floats(6, 6) * 2)
    with pytest.raises(ShapeError, match="must be equal"):
        call(model, floats(6, 5))


def test_numbers_out_of_tensors() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * x.mean().item() + x.argmax().item()

    def sliced(x: torch.Tensor) -> torch.Tensor:
        span = torch.tensor(x.shape[0]) + 2
        return torch.arange(100)[: (span * 2).item()] + 1

    for fn in (scaled, sliced):
        check(Apply(fn), (floats(4, 3),), (({0: "n"},),), [(floats(k, 3),) for k in (1, 7)])


def test_names_that_cannot_be_told_apart() -> None:
    shapes = {"x": {0: "in"}, "y": {0: "in_"}}
    with pytest.raises(InvalidModelError, match="'in_' and 'in' are the same name"):
        imported(Two(), (floats(3, 4), floats(3, 4)), dynamic_shapes=shapes)


def test_a_data_dependent_branch_is_refused_with_its_line() -> None:
    fn = Apply(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(UnsupportedError, match=r"values of a tensor at .*test_export.py:\d+"):
        imported(fn, (floats(4, 3),), dynamic_shapes=(({0: "n"},),))


class Odd:
    pass


def test_a_result_of_an_unknown_class_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedError, match=r"returns a .*Odd"):
        imported(Apply(lambda x: (x + 1, Odd())), (floats(4, 3),))


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
        y = torch.special.airy_ai(x)
        y = torch.special.bessel_j0(y) + torch.special.bessel_j0(y + 1)
        return F.dropout(y, 0.5, True)

    with pytest.raises(UnsupportedError) as error:
        imported(Apply(bad), (floats(4, 8),))
    text = str(error.value)
    assert "aten.special_bessel_j0.default (2 times, first at " in text
    assert "aten.dropout.default (once" in text
    assert "aten.special_airy_ai.default" in text
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


def test_an_example_can_be_used_again_after_an_error() -> None:
    """Without the dim that could not be dynamic: torch marks dims on the tensors that it gets."""
    module, x = Apply(lambda x: torch.gradient(x, dim=0)[0]), floats(5, 4)
    with pytest.raises(InvalidModelError, match="fixed by the model"):
        imported(module, (x,), dynamic_shapes=(({0: "n"},),))
    assert_same(pliant.compile(module, (x,))(x), module(x))


@pytest.mark.parametrize("sizes", [None, ({0: "n"}, {0: "n"}), ({0: "n"}, {0: "m"})])
def test_one_tensor_may_be_the_example_of_two_arguments(sizes: Any) -> None:
    class Apart(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (2 * x).sum() + y

    x = floats(5)
    f = pliant.compile(Apart(), (x, x), dynamic_shapes=sizes)
    n, m = (5, 5) if sizes is None else (7, 7 if sizes[0] == sizes[1] else 4)
    others = floats(n), floats(m)
    torch.testing.assert_close(f(*others), Apart()(*others))


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
    compiled = pliant.compile(module, (floats(2, 4),))
    expected = module(floats(2, 4))
    with torch.no_grad():
        module.a.weight.zero_()
        module.short.zero_()
    assert_same(compiled(floats(2, 4)), expected.detach())


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


def test_regions_under_autocast_are_cast() -> None:
    linear = nn.Linear(4, 4)

    def regions(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, linear.weight.detach(), linear.bias.detach())
            with torch.autocast("cpu", enabled=False):
                z = F.linear(y.float(), linear.weight.detach())
            return y, z, y.softmax(-1), x @ x.mT, x + y

    check(Apply(regions), (floats(3, 4),), (({0: "n"},),), [(floats(n, 4),) for n in (0, 1, 7)])


def _products(x: torch.Tensor) -> torch.Tensor:
    of_row = torch.vmap(lambda row, w: (row @ w).tanh() + row.cumsum(0).sum(), in_dims=(0, 1))
    return of_row(x, torch.ones(4, x.shape[0], 3))


def _turned(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(torch.vmap(torch.sin), out_dims=1)(x)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("fn", [_products, _turned])
def test_functions_of_rows(fn: Any) -> None:
    """vmap, of two tensors and in one another."""
    check(Apply(fn), (floats(3, 4),), (({0: "n"},),), [(floats(n, 4),) for n in (1, 2, 7)])


def test_a_transform_that_cannot_be_traced_is_ended() -> None:
    """Otherwise all that is computed later would be a part of it."""

    def slopes(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(torch.func.grad(lambda row: (row.sin() ** 2).sum()))(x)

    with pytest.raises(UnsupportedError, match="cannot capture the model"):
        imported(Apply(slopes), (floats(3, 4),), dynamic_shapes=(({0: "n"},),))
    assert torch.rand(2).shape == (2,)  # vmap refuses random numbers
    check(Apply(_products), (floats(3, 4),), (({0: "n"},),))


def test_operators_that_take_functions_are_refused() -> None:
    def sums(x: torch.Tensor) -> Any:
        start = torch.zeros_like(x[0])
        return torch._higher_order_ops.scan(lambda a, b: (a + b, a * b), start, x)

    with pytest.raises(UnsupportedError, match=r"scan.*: loops inside the model are not supported"):
        imported(Apply(sums), (floats(3, 4),))


def test_sizes_of_negative_numbers() -> None:
    """Rounding up by -(-n // 4), and rounding of what is negative, are as in Python."""

    class Rounded(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            n, m = x.shape
            up = -(-n // 4)
            half, apart = int((n - m) / 2), abs(n - m)
            return x.new_zeros(up) + 3, x + half, x.new_ones(int(up / 2)), x * apart

    shapes = ({0: "n", 1: "m"},)
    dims = {"n": pliant.Dim(max=40), "m": pliant.Dim(max=40)}
    f = pliant.compile(Rounded(), (torch.randn(5, 6),), dynamic_shapes=shapes, dims=dims)
    for n, m in ((5, 6), (1, 1), (1, 8), (4, 11), (17, 4), (40, 39), (3, 0)):
        x = torch.randn(n, m)
        for found, wanted in zip(f(x), Rounded()(x), strict=True):
            torch.testing.assert_close(found, wanted)


def test_small_sizes_that_differ_only_alone() -> None:
    """Where both sizes are 0 nothing is left to differ; the trace is wrong where m alone is 0."""

    class AtLeastOne(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.new_zeros(4 * x.shape[0]) + max(1, x.shape[1])

    shapes = ({0: "n", 1: "m"},)
    f = pliant.compile(AtLeastOne(), (torch.randn(5, 6),), dynamic_shapes=shapes)
    assert f(torch.randn(3, 1)).tolist() == [1.0] * 12
    with pytest.raises(ShapeError):
        f(torch.randn(3, 0))


def test_small_sizes_that_differ_only_together() -> None:
    """At (1, 1) alone the trace holds the other branch: one of the two is not 1, then."""

    class Single(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] * x.shape[1] == 1 else x + 1

    shapes = ({0: "n", 1: "m"},)
    f = pliant.compile(Single(), (torch.randn(5, 6),), dynamic_shapes=shapes)
    x = torch.randn(1, 6)
    torch.testing.assert_close(f(x), x + 1)
    with pytest.raises(ShapeError):
        f(torch.randn(1, 1))


class Ends(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor


def test_named_tuples(tmp_path: Path) -> None:
    """As arguments and results, the classes of torch's operators too; also out of a file."""

    def both(x: torch.Tensor, given: Ends) -> Any:
        return x.max(1), [Ends(x + given.low, x - given.high)]

    args = (torch.randn(3, 4), Ends(torch.ones(4), torch.zeros(4)))
    f = pliant.compile(Apply(both), args)
    f.save(tmp_path / "ends.so")
    for g in (f, pliant.load(tmp_path / "ends.so")):
        found, expected = g(*args), both(*args)
        assert type(found[0]) is torch.return_types.max
        assert type(found[1][0]) is Ends
        assert torch.equal(found[0].indices, expected[0].indices)
        assert torch.equal(found[1][0].high, expected[1][0].high)


def test_elements_as_results() -> None:
    """Numbers to the user, as torch's item() gives them."""
    for x in (torch.tensor(True), torch.tensor(3), torch.tensor(2.5)):
        f = pliant.compile(Apply(lambda x: (x.item(), x[None])), (x,))
        found, expected = f(x)[0], x.item()
        assert type(found) is type(expected)
        assert found == expected
    longer = Apply(lambda x: (x * 2, x.shape[0] > 3, x.shape[0] // 4 == 1))
    f = pliant.compile(longer, (torch.ones(5),), dynamic_shapes=(({0: "n"},),))
    for n in (1, 3, 4, 9):
        assert f(torch.ones(n))[1:] == (n > 3, n // 4 == 1)
        assert type(f(torch.ones(n))[1]) is bool


def test_threads_trace_one_after_the_other() -> None:
    """Torch keeps what it traces in the process."""
    x, models = torch.ones(2, 4), [nn.Linear(4, 3 + k) for k in range(4)]
    with ThreadPoolExecutor(len(models)) as pool:
        made = list(pool.map(lambda m: pliant.compile(m, (x,)), models))
    for f, model in zip(made, models, strict=True):
        assert_same(f(x), model(x).detach())
