"""What recipes do about memory: large outputs go past the caches, rows to come are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pliant.frontend.select import Request, import_model
from pliant.ir.expr import loads_of
from pliant.loop.stmt import PARTS, PREFETCH, STREAM, For, statements
from pliant.lower.canonical import Spec
from pliant.lower.function import lower_function
from pliant.lower.row_facts import NEAR
from pliant.ops.table import OPERATORS
from pliant.schedule.program import Program
from pliant.schedule.recipes import row
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.row import row_recipe
from pliant.sym.expr import as_int, maximum
from tests.schedule.native import native

LANES = 16


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


def scheduled(
    module: nn.Module, rows: int = 0, columns: int = 100, *, any_length: bool = False,
    large: bool = False, lanes: int = LANES, near: int = NEAR,
) -> Program:  # fmt: skip
    """The last kernel of a module on rows, any number of them or so many; `large`: as if it were
    known that there are many."""
    dynamic: Any = {} if rows else {0: "rows"}
    dynamic = ({**dynamic, 1: "columns"} if any_length else dynamic,)
    args = (torch.ones(rows or 4, columns),)
    imported = import_model(Request(module.eval(), args, None, dynamic), OPERATORS)
    *_, (_, launch) = lower_function(imported.function, OPERATORS, 32).main.launches
    recipe = {"row": row_recipe, "map": map_recipe}[launch.spec.kind]
    return recipe(known(launch.spec, large), lanes, 1000, near)


def known(spec: Spec, large: bool) -> Spec:
    return replace(spec, known=replace(spec.known, large=spec.known.large or large))


def noted(p: Program, note: str) -> list[Any]:
    """What loops have as this note, in program order."""
    loops = [s for s in p.statements() if isinstance(s, For)]
    return [dict(s.notes)[note] for s in loops if note in dict(s.notes)]


def test_what_is_written_once_streams() -> None:
    """Whole vectors and the rest of a row alike; the size is decided when the kernel runs."""
    for p in map(scheduled, (Twice(), nn.LayerNorm(100), nn.LogSoftmax(-1))):
        assert set(noted(p, STREAM)) == {1000}


def test_what_is_read_again_does_not() -> None:
    """Softmax keeps the row of its exponentials in its output."""
    assert not noted(scheduled(nn.Softmax(-1)), STREAM)


def test_one_pass_asks_for_rows_to_come() -> None:
    """The second one, for what the first will read; a single pass leaves it to the processor.
    Softmax asks for its output too, where it keeps the row of its exponentials."""
    for module, outputs in ((nn.Softmax(-1), 1), (nn.LogSoftmax(-1), 0), (nn.LayerNorm(100), 0)):
        p = scheduled(module)
        asked = noted(p, PREFETCH)
        x, *_, y = p.function.buffers
        assert [name for name, *_ in asked] == [x.name, y.name][: 1 + outputs]
        assert all(ahead is maximum(x.strides[0], 1280) for _, ahead, *_ in asked)
        assert all(cache == 1 for *_, cache, _ in asked)
    assert not noted(scheduled(Twice()), PREFETCH)


def test_long_rows_come_to_the_second_cache() -> None:
    """Where four of them leave no room in the first."""
    for columns, level in ((1024, 1), (2047, 1), (2048, 2), (5000, 2)):
        for module in (nn.Softmax(-1), nn.LogSoftmax(-1), nn.LayerNorm(columns)):
            if isinstance(module, nn.LayerNorm) and columns % 16:
                continue  # its second pass begins where a line does, each row elsewhere
            asked = noted(scheduled(module, columns=columns), PREFETCH)
            assert asked
            assert all(cache == level for *_, cache, _ in asked)


def asked_for(p: Program) -> set[tuple[str, Any, int]]:
    """The buffers, how much further on, and for which cache."""
    return {(name, ahead, cache) for name, ahead, _, cache, _ in noted(p, PREFETCH)}


def test_what_one_pass_over_three_rows_asks_for() -> None:
    """The last row, further on, and the lines that the next row is stored to; where memory is the
    limit all who read a row, each at another place, for the second cache, and for no lines that go
    past it. Softmax, of which only two read, asks for each vector twice."""
    for module in (nn.Softmax(-1), nn.LogSoftmax(-1)):
        p = scheduled(module, columns=1024)
        x, *_, y = p.function.buffers
        assert asked_for(p) == {(x.name, as_int(2048), 1), (y.name, as_int(1280), 1)}
    p = scheduled(nn.Softmax(-1), columns=1024, large=True)
    assert asked_for(p) == {(x.name, as_int(k), 2) for k in (2048, 3072, 4096, 5120)}
    p = scheduled(nn.LogSoftmax(-1), columns=1024, large=True)
    two_rows_behind = as_int(2 * 1024 + 2048)
    assert asked_for(p) == {(x.name, as_int(k), 2) for k in (3072, 4096)} | {
        (x.name, two_rows_behind, 2)
    }


@pytest.mark.parametrize("columns", [384, 784, 1024, 1040])
@pytest.mark.parametrize("module", [nn.LayerNorm, nn.RMSNorm])
def test_where_memory_is_the_limit_all_of_a_row_is_asked_for(
    columns: int, module: type[nn.Module]
) -> None:
    """What is left of a row behind whole blocks of columns, too, and by each who reads it."""
    p = scheduled(module(columns), 1 << 16, columns)
    x, *_, y = p.function.buffers
    row = p.loops(y.name)[1]
    loops = [s for s in statements(p.loop(row).body) if isinstance(s, For)]
    reads = [
        s for s in loops
        if s.kind == "vectorized" and any(n.source.name == x.name for n in loads_of(s))
    ]  # fmt: skip
    assert len(reads) > (2 if columns % 64 else 1)
    asked = [dict(s.notes).get(PREFETCH) for s in reads]
    assert all(ask is not None and ask[0] == x.name and ask[3] == 2 for ask in asked)
    assert len(noted(p, PREFETCH)) >= 3


def test_rows_that_are_stored_apart_come_by_themselves() -> None:
    """They may begin anywhere in a line; long ones are asked for all the same."""
    for columns, asked in ((1000, False), (1023, False), (4001, True)):
        p = scheduled(nn.RMSNorm(columns), (64 << 20) // columns, columns)
        assert noted(p, PARTS)
        assert bool(noted(p, PREFETCH)) is asked


def test_blocks_of_one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no other loop that could ask again."""
    monkeypatch.setattr(row, "UNROLL", 1)
    p = scheduled(nn.RMSNorm(1024), 1 << 14, 1024)
    x = p.function.buffers[0]
    assert asked_for(p) == {(x.name, as_int(3072), 2)}  # of the row before, 2048 of the next one


def test_passes_share_what_they_ask_for() -> None:
    """Where memory is the limit, no pass computes for long and none stores late: one half each."""
    p = scheduled(nn.LayerNorm(16384), rows=1024, columns=16384, lanes=8)
    x = p.function.buffers[0]
    first, second = noted(p, PREFETCH)
    assert first == (x.name, maximum(x.strides[0], 1280), "", 2, 2)
    assert second == (x.name, maximum(x.strides[0], 1280) + x.strides[0] // 2, "", 2, 2)
    from_memory = scheduled(nn.LayerNorm(4096), rows=4096, columns=4096, lanes=8)
    assert [share for *_, share in noted(from_memory, PREFETCH)] == [2, 2]  # it has three passes
    for module, rows in ((nn.LogSoftmax(-1), 4096), (nn.LayerNorm(4096), 16)):
        shares = [share for *_, share in noted(scheduled(module, rows, 4096), PREFETCH)]
        assert shares == [1]


@pytest.mark.parametrize(("columns", "rows"), [(480, 2), (384, 4), (256, 4)])
def test_of_short_rows_one_pass_asks_for_the_next(columns: int, rows: int) -> None:
    """Or for the next few, where they are gone over together; with few lanes."""
    p = scheduled(nn.LayerNorm(columns), (64 << 20) // (4 * columns), columns, lanes=8)
    x = p.function.buffers[0]
    assert set(noted(p, PREFETCH)) == {(x.name, rows * x.strides[0], "", 1, 1)}
    long = scheduled(nn.LayerNorm(16384), 1024, 16384, lanes=8)
    assert [share for *_, share in noted(long, PREFETCH)] == [2, 2]


class Total(nn.Module):
    """The sum of a row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1)


def test_the_only_pass_asks_where_no_cache_has_the_rows() -> None:
    for columns in (4096, 256):
        many = scheduled(Total(), (32 << 20) // (4 * columns), columns)
        x = many.function.buffers[0]
        assert asked_for(many) == {(x.name, as_int(k), 2) for k in (2048, 3072)}
        for few in (scheduled(Total(), 64, columns), scheduled(Total(), columns=columns)):
            assert not noted(few, PREFETCH)
        assert not noted(
            scheduled(Total(), (32 << 20) // (4 * columns), columns, lanes=8), PREFETCH
        )


class AddedTo(nn.Module):
    """RMS norm of a sum of two inputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x + y, x.shape[-1:])


def test_where_memory_is_the_limit_each_of_two_is_asked_for_in_turn() -> None:
    args = (torch.empty(1 << 14, 1024), torch.empty(1 << 14, 1024))
    imported = import_model(Request(AddedTo(), args), OPERATORS)
    *_, (_, launch) = lower_function(imported.function, OPERATORS, 32).main.launches
    p = row_recipe(launch.spec, LANES, 1000)
    asked = asked_for(p)
    found = [{far for n, far, _ in asked if n == x.name} for x in p.function.buffers]
    stored, summed = {as_int(1024 + k) for k in (2048, 3072)}, {as_int(k) for k in (2048, 3072)}
    assert found in ([stored, summed, set()], [summed, stored, set()])


class Added(nn.Module):
    """Layer norm of a sum of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Parameter(torch.ones(40, 100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x + self.more, (100,))


def test_each_of_two_is_asked_for() -> None:
    """A loop asks for one thing: the second buffer's rows are a later loop's to ask for."""
    p = scheduled(Added(), rows=40)
    asked = [name for name, *_ in noted(p, PREFETCH)]
    assert sorted(asked) == sorted(b.name for b in p.function.buffers[:2])


class Chosen(nn.Module):
    """Rows of a table, by a column of the input."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, 40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x[:, 0].long()]


def test_rows_that_are_chosen() -> None:
    """Those of so many rows to come as two pages hold; not of a table that is in the cache."""
    p = scheduled(Chosen(1000))
    ((name, ahead, loop, *_),) = set(noted(p, PREFETCH))
    table = next(b for b in p.function.buffers if b.name == name)
    assert ahead is maximum(1, as_int(2048) // maximum(1, table.shape[1]))
    assert p.loop(loop).kind == "parallel"
    assert not noted(scheduled(Chosen(8)), PREFETCH)


def test_rows_that_are_kept() -> None:
    """In the rows of an output; by themselves where it is known to go past the caches."""
    for rows, streams in [(0, False), (1000, False), (50_000, True)]:
        p = scheduled(nn.Softmax(-1), rows)
        assert bool(noted(p, STREAM)) is streams


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("module", "columns", "large"),
    [
        (nn.Softmax(-1), 1088, False),
        (nn.Softmax(-1), 1000, False),
        (nn.Softmax(-1), 1024, True),
        (nn.Softmax(-1), 131, False),
        (nn.Softmax(-1), 112, False),
        (nn.Softmax(-1), 16, False),
        (nn.Softmax(-1), 1088, True),
        (nn.Softmax(-1), 112, True),
        (nn.LogSoftmax(-1), 1088, False),
        (nn.LogSoftmax(-1), 1023, False),
        (nn.LogSoftmax(-1), 112, False),
        (nn.LogSoftmax(-1), 16, False),
        (nn.RMSNorm(1088, elementwise_affine=False), 1088, True),
        (nn.LayerNorm(1088, elementwise_affine=False), 1088, True),
        (nn.LayerNorm(1040, elementwise_affine=False), 1040, True),
    ],
)
@pytest.mark.parametrize("lanes", [8, 16])
def test_rows_are_stored_while_the_next_is_computed(
    module: nn.Module, columns: int, large: bool, lanes: int
) -> None:
    """In the loop of a dear pass, with the pass before it or without, or of that one where memory
    is the limit; and nothing around the rows is written."""
    p = scheduled(module, columns=columns, large=large, lanes=lanes)
    stored = p.loops(p.function.buffers[-1].name)[:3]  # parts, rows, blocks of columns
    assert [p.loop(x).kind for x in stored] == ["parallel", "serial", "serial"]
    assert sum(p.loops(n)[:3] == stored for n in p.blocks) > 1
    for rows in (0, 1, 2, 3, 16, 17, 33, 300):
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        x[1:2, ::5], x[2:3, 1], x[3:4] = -np.inf, np.nan, np.inf
        whole = np.full((rows + 2, columns), np.pi, np.float32)
        shape = zip(p.function.buffers[0].shape, x.shape, strict=True)
        native(p.function, [x, whole[1:-1]], {str(n): size for n, size in shape})
        want = module(torch.tensor(x)).detach()
        np.testing.assert_allclose(whole[1:-1], want, rtol=1e-5, atol=1e-6)
        assert (whole[[0, -1]] == np.float32(np.pi)).all()


@pytest.mark.parametrize(("columns", "lanes", "late"), [
    (384, 16, True), (4096, 16, True), (500, 16, False), (128, 16, False), (384, 8, False),
])  # fmt: skip
def test_a_pass_may_lie_between(columns: int, lanes: int, late: bool) -> None:
    """Rows that come from memory are stored as the next one's are read first, and a pass between
    the two goes over the next one alone; not short ones."""
    module = nn.LayerNorm(columns)
    nn.init.normal_(module.weight)
    nn.init.normal_(module.bias)
    p = scheduled(module, (64 << 20) // columns, columns, lanes=lanes)
    *_, y = p.function.buffers
    stored = p.loops(y.name)[:3]
    beside = [n for n in p.blocks if n != y.name and p.loops(n)[:3] == stored]
    assert bool(beside) is late
    for rows in (1, 2, 5):
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        out = np.full((rows, columns), np.nan, np.float32)
        weights = [module.weight.detach().numpy(), module.bias.detach().numpy()]
        shape = zip(p.function.buffers[0].shape, x.shape, strict=True)
        native(p.function, [x, *weights, out], {str(n): size for n, size in shape})
        np.testing.assert_allclose(out, module(torch.tensor(x)).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("columns", "lanes", "passes"), [
    (1024, 16, 3), (1000, 16, 3), (112, 16, 3), (1024, 8, 2), (1000, 8, 2), (1088, 16, 2),
])  # fmt: skip
def test_three_rows_at_once(columns: int, lanes: int, passes: int) -> None:
    """One is stored, the next computed, the maximum of the third found, where it is known that they
    fit; what is read of the third and where the next is stored is asked for."""
    p = scheduled(nn.Softmax(-1), columns=columns, lanes=lanes)
    x, *_, y = p.function.buffers
    stored = p.loops(y.name)[:3]
    rows = {p.block(n).bindings[0] for n in p.blocks if p.loops(n)[:3] == stored}
    assert {r.subs(dict.fromkeys(stored, 0)) for r in rows} == {as_int(k) for k in range(passes)}
    if passes == 3:
        asked = {name: ahead for name, ahead, *_ in noted(p, PREFETCH)}
        assert asked == {x.name: as_int(2048), y.name: maximum(columns, 1280)}


@pytest.mark.parametrize(("module", "columns", "lanes", "late"), [
    (nn.RMSNorm(1024, elementwise_affine=False), 1024, 16, True),
    (nn.RMSNorm(1000, elementwise_affine=False), 1000, 16, True),
    (nn.LayerNorm(1000, elementwise_affine=False), 1000, 16, True),
    (nn.LayerNorm(1024, elementwise_affine=False), 1024, 16, False),
    (nn.RMSNorm(64, elementwise_affine=False), 64, 16, False),
    (nn.RMSNorm(1024, elementwise_affine=False), 1024, 8, False),
])  # fmt: skip
def test_rows_are_stored_as_sums_are_read(
    module: nn.Module, columns: int, lanes: int, late: bool
) -> None:
    """In the caches where nothing comes before the sums, or where rows straddle lines."""
    p = scheduled(module, columns=columns, lanes=lanes)
    stored = p.loops(p.function.buffers[-1].name)[:3]
    assert (sum(p.loops(n)[:3] == stored for n in p.blocks) > 1) is late
    for rows in (1, 2, 5):
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        y = np.full((rows, columns), np.nan, np.float32)
        native(p.function, [x, y], {"n0": rows})
        np.testing.assert_allclose(y, module(torch.tensor(x)), rtol=1e-5, atol=1e-6)


def test_long_rows_are_stored_by_themselves_where_the_first_cache_is_large() -> None:
    """Those of which four leave no room in it: nothing of the next one is summed meanwhile."""
    for module, columns, late in [
        (nn.LayerNorm(4096), 4096, False), (nn.RMSNorm(4096), 4096, False),
        (nn.LayerNorm(2560), 2560, True), (nn.Softmax(-1), 4096, True),
    ]:  # fmt: skip
        for near, found in ((NEAR, True), (48 << 10, late)):
            p = scheduled(module, columns=columns, large=True, near=near)
            assert any(n.endswith("_p") for n in p.blocks) is found
            assert noted(p, PREFETCH)


@pytest.mark.parametrize(("large", "lanes", "depth"), [(True, 8, 6), (True, 16, 5), (False, 8, 5)])
def test_runs_are_stored_past_the_caches(large: bool, lanes: int, depth: int) -> None:
    """Before as many columns are computed, where a block of columns is less than some lines."""
    p = scheduled(nn.Softmax(-1), columns=1024, large=large, lanes=lanes)
    loops = p.loops(p.function.buffers[-1].name)
    assert len(loops) == depth
    if depth == 6:
        assert p.loop(loops[3]).extent * p.loop(loops[4]).extent * lanes == 256


def test_rows_that_are_stored_at_once() -> None:
    """What computes little has its own pass, where lengths are parameters; so have long rows that
    begin anywhere in a line."""
    few = [(nn.LayerNorm(n), n) for n in (1087, 1088)] + [(nn.RMSNorm(n), n) for n in (1087, 1088)]
    for module, columns in (*few, (nn.LogSoftmax(-1), 2049)):
        p = scheduled(module, columns=columns)
        assert not [n for n in p.blocks if n.endswith("_p")]


def test_rows_in_whole_lines() -> None:
    """Rows may begin anywhere in a line; each vector between the first and the last is whole."""
    p = scheduled(nn.LogSoftmax(-1), any_length=True)
    same = [n for n in p.blocks if n.startswith(p.function.buffers[-1].name)]
    assert len(same) == 4  # before a line, lines, single vectors, the rest
    assert sum(p.block(n).where is None for n in same) == 2
    assert noted(p, PARTS) == [1000, 1000]  # what shares lines with other rows goes past, too
    q = scheduled(nn.LayerNorm(1088), columns=1088)  # which are lines
    assert len([n for n in q.blocks if n.startswith(q.function.buffers[-1].name)]) == 2
    for rows, columns in [(1, 1), (3, 7), (9, 16), (5, 33), (17, 64), (16, 100), (7, 250), (4, 0)]:
        x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
        whole = np.full(rows * columns + 48, np.nan, np.float32)  # and what lies around
        for start in (16, 17, 23):
            y = whole[start : start + rows * columns].reshape(rows, columns)
            native(p.function, [x, y], {"n0": rows, "n1": columns})
            np.testing.assert_allclose(y, torch.tensor(x).log_softmax(-1), rtol=1e-5, atol=1e-5)
            assert np.isnan(whole[:start]).all() and np.isnan(whole[start + rows * columns :]).all()
            whole[:] = np.nan
