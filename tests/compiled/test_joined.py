"""Concatenations whose parts are written where the whole lies (`lower.joined`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

A, B, C = tensor(32, 16, 1, 1), tensor(48, 16, 3, 3), tensor(40, 16, 1, 1)
LAST, WIDE = tensor(8, 120, 1, 1), tensor(8, 120, 3, 3)
GROWTH = [tensor(32, 16 + 32 * k, 1, 1) for k in range(6)]
SCALES = [tensor(16 + 32 * k) for k in range(7)]
WEIGHT = tensor(1, 16, 6, 7)
LINEAR, ROWS = tensor(16, 40), tensor(5, 40)

Fn = Callable[[torch.Tensor], Any]


def _three(x: torch.Tensor) -> list[torch.Tensor]:
    return [F.conv2d(x, A).relu(), F.conv2d(x, B, None, 1, 1), F.conv2d(x, C).sigmoid()]


def _inside(x: torch.Tensor) -> Any:
    """What lies there is read elsewhere, too, and is a part of two."""
    a, b, c = _three(x)
    return F.conv2d(torch.cat([a, b, c], 1), LAST), F.conv2d(torch.cat([c, b, a], 1), LAST), a + 1


def _wanted_twice(x: torch.Tensor) -> Any:
    """A part of one whole is itself a whole, whose parts lie in another: it has to be copied."""
    a, b, c = (F.conv2d(f(x), A).relu() for f in (torch.sin, torch.cos, torch.tanh))
    ab = torch.cat([a, b], 1)
    other = F.conv2d(torch.cat([ab, x.exp() @ x.mT @ x], 1), LAST[:, :80])
    return F.conv2d(ab, LAST[:, :64]), other, F.conv2d(torch.cat([a, b, c], 1), LAST[:, :96])


def _dense(x: torch.Tensor) -> Any:
    """Every layer reads what all before it have made."""
    have = [x.relu()]
    for weight, scale in zip(GROWTH, SCALES, strict=False):
        whole = torch.cat(have, 1)
        have.append(F.conv2d((whole * scale.view(1, -1, 1, 1)).relu(), weight))
    return torch.cat(have, 1) * SCALES[-1].view(1, -1, 1, 1)


def _enlarged(x: torch.Tensor) -> Any:
    """One piece is a view of something else, which is copied."""
    a, b, _ = _three(x)
    c = F.interpolate(F.conv2d(F.max_pool2d(x, 2), C), scale_factor=2.0)
    return F.conv2d(torch.cat([a, b, c], 1), LAST)


def _along_rows(x: torch.Tensor) -> Any:
    """Without a gap: the rows of one lie behind those of the other."""
    rows = x.flatten(2).transpose(1, 2)[0]  # [h*w, 16]
    a, b = rows @ LINEAR, (rows * 2).tanh() @ LINEAR
    return torch.cat([a, b], 0) @ ROWS.T


CASES: dict[str, Fn] = {
    "product": lambda x: F.conv2d(torch.cat(_three(x), 1), LAST),
    "windows": lambda x: F.conv2d(torch.cat(_three(x), 1), WIDE, None, 1, 1),
    "maxima": lambda x: F.max_pool2d(torch.cat(_three(x), 1), 2),
    "an input too": lambda x: F.conv2d(torch.cat([*_three(x)[:2], x, x[:, :8], x], 1)[:, :120], LAST),
    "the same twice": lambda x: F.conv2d(torch.cat([_three(x)[2]] * 3, 1), LAST),
    "the result": lambda x: torch.cat(_three(x), 1),
    "planes": lambda x: F.avg_pool2d(torch.cat([x, x.relu()], 1), 3, 1, 1),
    "in two": _inside,
    "wanted twice": _wanted_twice,
    "dense": _dense,
    "enlarged": _enlarged,
    "rows": _along_rows,
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    fn = CASES[name]
    f = pliant.compile(
        Apply(fn), (tensor(2, 16, 6, 8),), dynamic_shapes=(({0: "n", 2: "h", 3: "w"},),),
        dims={"h": pliant.Dim(min=2, multiple=2), "w": pliant.Dim(min=2, multiple=2)},
    )  # fmt: skip
    for n, h, w in ((2, 6, 8), (1, 2, 2), (3, 10, 14), (1, 34, 6)):
        x = tensor(n, 16, h, w)
        assert_same(f(x), fn(x), tolerance=1e-4)
    assert f.stats()["compiles"] == 1


def _drawn(seed: int) -> Fn:
    """Products of concatenations of some values that there are, which are values, too."""
    draw = random.Random(seed)
    steps = [(draw.sample(range(k + 2), min(k + 2, draw.randint(1, 4))), draw.random() < 0.5)
             for k in range(7)]  # fmt: skip
    weight = tensor(16, 256, 1, 1)

    def run(x: torch.Tensor) -> Any:
        have = [x.sin(), F.conv2d(x.cos(), weight[:, :16]).relu()]
        for at, joins in steps:
            whole = torch.cat([have[k] for k in at], 1)
            narrow = whole[:, :256] if whole.shape[1] > 256 else whole
            have.append(whole if joins else F.conv2d(narrow, weight[:, : narrow.shape[1]]).tanh())
        return tuple(F.conv2d(v[:, :16], weight[:, :16]) for v in have[2:])

    return run


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4))
def test_drawn(seed: int) -> None:
    fn, x = _drawn(seed), tensor(2, 16, 3, 5)
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=(({0: "n"},),))
    for n in (2, 1, 3):
        x = tensor(n, 16, 3, 5, seed=n)
        assert_same(f(x), fn(x), tolerance=1e-4)


def _maps(fn: Fn) -> str:
    f = pliant.compile(Apply(fn), (tensor(2, 16, 6, 8),), dynamic_shapes=(({0: "n"},),))
    return "\n".join(x for x in f.explain().splitlines() if "[map]" in x)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["product", "windows", "maxima"])
def test_nothing_is_copied(name: str) -> None:
    assert "concat" not in _maps(CASES[name])


def _sums(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x.sin(), A).relu()  # kept with channels last


VIEWS: dict[str, tuple[Fn, int]] = {  # and how many copies are left
    "channels last": (lambda x: _sums(x).permute(0, 2, 3, 1), 0),
    "rows": (lambda x: _sums(x).flatten(2).transpose(1, 2), 0),
    "reshaped": (lambda x: (x.flatten(2).softmax(-1) @ x.flatten(2).mT).flatten(), 0),
    "read by others": (lambda x: ((y := _sums(x)).permute(0, 2, 3, 1), y.sum((2, 3)), y * 2), 0),
    "a part read by others": (
        lambda x: (
            (y := (r := x.transpose(0, 1).flatten(1)) @ r.mT).flatten(),
            y[3:].sum(-1),
            y[5].exp(),
        ),
        0,
    ),
    "one element": (lambda x: ((y := x.sum().reshape(1).exp()).reshape(()), y + 1, y[0] * 2), 0),
    "two views": (lambda x: ((y := _sums(x)).permute(0, 2, 3, 1), y.permute(0, 2, 3, 1)[:]), 1),
    "in another order": (lambda x: _sums(x).permute(0, 3, 1, 2), 1),
    "a part": (lambda x: _sums(x).permute(0, 2, 3, 1)[:, 1:], 1),
    "of a result": (lambda x: ((y := x.exp()), y.flatten(1)), 1),
    "of an input": (lambda x: x.flatten(1), 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_that_are_views(name: str) -> None:
    """What is viewed is written where the result lies."""
    fn, copies = VIEWS[name]
    f = pliant.compile(
        Apply(fn), (tensor(2, 16, 6, 8),), dynamic_shapes=(({0: "n", 2: "h", 3: "w"},),)
    )
    for n, h, w in ((2, 6, 8), (1, 1, 1), (3, 7, 13), (0, 2, 3)):
        x = tensor(n, 16, h, w)
        assert_same(f(x), fn(x), tolerance=1e-4)
    made = [x.split("] ")[1] for x in f.explain().splitlines() if "[map] " in x]
    views = {"transpose", "reshape", "copy", "slice", "transpose slice"}
    assert sum(x in views for x in made) == copies, f.explain()


@pytest.mark.parametrize("made", [lambda: WEIGHT.exp(), lambda: F.conv2d(WEIGHT, A[:16])])
def test_a_part_that_is_constant(made: Callable[[], torch.Tensor]) -> None:
    """It is known when the function is compiled, and lies where every call has the whole."""
    model = Apply(lambda x: F.conv2d(torch.cat([x + 1, made()], 1), A.repeat(1, 2, 1, 1)))
    x = tensor(1, 16, 6, 7)
    f = pliant.compile(model, (x,))
    for _ in range(2):
        assert_same(f(x), model(x), tolerance=1e-4)


def test_layers_that_read_all_before_them_share_their_kernels() -> None:
    maps = _maps(_dense).split("\n")
    assert len({x.split()[1] for x in maps}) <= 4, maps


def test_what_is_joined_takes_no_memory_twice() -> None:
    x = tensor(1, 16, 64, 64)
    f = pliant.compile(Apply(CASES["product"]), (x,))
    f(x)
    channels = 16 + 120 + 8  # the input in the order of the products, what is joined, the result
    assert f.stats()["measured_peak_bytes"] <= 4 * 64 * 64 * channels + 4096
