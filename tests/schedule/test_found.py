"""Small programs that random schedules found to be wrong once."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.loop.interpret import interpret
from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.primitives import program
from pliant.sym.expr import minimum, var
from tests.schedule.by_hand import BY_HAND
from tests.schedule.native import native
from tests.schedule.programs import chain, same, softmax


def test_a_reduction_starts_whatever_is_asked_of_what_is_reduced() -> None:
    """Its condition spoke of the reduction's own iterator, of which the start knows nothing."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["k"], y: f32[1], k: i64):\n'
            "    for r in grid(k):\n"
            '        with block("y", R(r, k), where=(c < k) & (0 < k)) as (c,):\n'
            "            with init():\n"
            "                y[0] = 0.0\n"
            "            y[0] = y[0] + x[c]\n"
        )
    )
    q = p.decompose_reduction("y", "r")
    assert q.block("y_init").where is not None  # what does not depend on r still counts
    same(p, q, [(0,), (1,), (5,)])
    same(p, p.split("r", 2), [(0,), (1,), (5,)])


def test_store_in_a_loop_of_varying_extent_is_refused() -> None:
    p = softmax().split("y_j", 4, tail="clip")
    with pytest.raises(SchedulingError, match="block y may write a place of y twice"):
        p.store_in("e", "y")


def test_loops_of_no_lanes_compile() -> None:
    """LLVM has no vectors of length 0."""
    f = parse_function(
        "@loop\n"
        'def random(x: f32["n", 0], y: f32["n"], n: i64):\n'
        "    for i in grid(n):\n"
        "        for j in vectorized(0):\n"
        '            with block("y", S(i, n), S(j, 0)) as (a, b):\n'
        "                y[a] = x[a, b]\n"
    )
    y = np.ones(3, np.float32)
    native(f, [np.ones((3, 0), np.float32), y], {"n": 3})
    assert (y == 1).all()


def test_cache_index_of_what_a_sum_within_runs_over_is_refused() -> None:
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32[4, "n", 8], y: f32["n"], n: i64):\n'
            "    for i, r in grid(n, 8):\n"
            '        with block("y", S(i, n), R(r, 8)) as (a, b):\n'
            "            with init():\n"
            "                y[a] = 0.0\n"
            "            y[a] = y[a] + sum(x[s, a, b] for s in grid(4))\n"
        )
    )
    with pytest.raises(SchedulingError, match="where a row of x begins depends on s too"):
        p.cache_index("y", "x", "i", "r", ())


GATHER = """\
@loop
def gather(at: i64["n"], x: f32["k"], y: f32["n"], n: i64, k: i64):
    for i in grid(n):
        with block("y", S(i, n)) as (a,):
            y[a] = select((0 <= at[a]) & (at[a] < k), x[at[a]], 0.0)
"""


def test_what_is_read_only_where_data_allow_it_is_not_copied() -> None:
    """The copy read at all places, those outside too."""
    p = program(parse_function(GATHER))
    with pytest.raises(SchedulingError, match="only where a condition holds, which it may need"):
        p.reindex("y", "x")


def test_padding_that_depends_on_data_stays() -> None:
    """The condition was asked where the loop's own condition did not hold."""
    p = program(parse_function(GATHER))
    with pytest.raises(SchedulingError, match="its choice depends on data"):
        p.decompose_padding("y", "i")


def test_partial_results_of_a_tuple_reduction_are_padded_each_with_its_identity() -> None:
    """One number was sought for the copies of all of them, of whatever type."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["n"], t: i64[()], n: i64):\n'
            "    @reducer(-inf, 9223372036854775807)\n"
            "    def least(a: f32, i: i64, b: f32, j: i64):\n"
            "        return select(a < b, b, a), select(a < b, j, i)\n"
            '    best = alloc(f32[()], scope="scratch")\n'
            "    for r in grid(n):\n"
            '        with block("t", R(r, n)) as (c,):\n'
            "            with init():\n"
            "                best[()] = -inf\n"
            "                t[()] = 7\n"
            "            best[()], t[()] = least(best[()], t[()], x[c], c)\n"
        )
    )
    q = p.rfactor("r").pad_einsum("t", (4,))
    assert {"-inf", "9223372036854775807"} <= set(str(q).replace(")", " ").split())
    same(p, q, [(0,), (1,), (2,), (5,)])


def test_nothing_is_padded_along_what_says_not_where_to_write() -> None:
    """An iterator that ran once became two: everything was added twice."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["k", 3], y: f32["k"], k: i64):\n'
            "    for i, u, r in grid(k, 1, 3):\n"
            '        with block("y", S(i, k), S(u, 1), R(r, 3)) as (a, v, c):\n'
            "            with init():\n"
            "                y[a] = 0.0\n"
            "            y[a] = y[a] + x[a, c]\n"
        )
    )
    with pytest.raises(SchedulingError, match="it would write y again along iterator v"):
        p.pad_einsum("y", (4, 2, 4))
    same(p, p.pad_einsum("y", (4, 1, 4)), [(0,), (1,), (5,)])


def test_padding_of_what_never_runs_is_refused() -> None:
    """A load's condition that never holds was taken for an error."""
    p = program(
        parse_function(
            "@loop\n"
            "def random(x: f32[4, 1], y: f32[4, 1]):\n"
            "    for i, j in grid(4, 3):\n"
            '        with block("y", S(i, 3), S(j, 3), where=(i < 3) & (j < 1)) as (a, b):\n'
            "            y[a, b] = select(0 <= b - 1, x[a, b - 1], 0.0)\n"
        )
    )
    with pytest.raises(SchedulingError, match="it writes y, which is a parameter"):
        p.pad_block("y")


def test_a_copy_is_not_filled_after_the_reduction_in_it_has_started() -> None:
    """Its start went in front of the loop in which the copy is made, and was overwritten."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):\n'
            "    for i, r in grid(n, k):\n"
            "        for u in grid(1):\n"
            '            with block("y", S(i, n), R(r, k)) as (a, c):\n'
            "                with init():\n"
            "                    y[a] = 0.0\n"
            "                y[a] = y[a] + x[a, c]\n"
        )
    )
    with pytest.raises(SchedulingError, match="it starts in front of loop r; decompose_reduction"):
        p.loop_partition("u", 1).cache_inplace("y", "y")
    q = p.decompose_reduction("y", "r").loop_partition("u", 1).cache_inplace("y", "y")
    same(p, q, [(2, 0), (2, 1), (3, 4)])


def test_new_loops_do_not_go_where_a_reduction_has_started() -> None:
    """Its start went with them into a loop that never ran."""
    text = (
        "@loop\n"
        "def random(x: f32[{k}], y: f32[()]):\n"
        '    t = alloc(f32[{k}], scope="scratch")\n'
        "    for r in grid({k}):\n"
        '        with block("t", S(r, {k})) as (c,):\n'
        "            t[c] = x[c]\n"
        '        with block("y", R(r, {k})) as (c,):\n'
        "            with init():\n"
        "                y[()] = -inf\n"
        "            y[()] = max(y[()], t[c])\n"
    )
    parts = (var("_0") % 2, var("_0") // 2)
    p = program(parse_function(text.format(k=0)))
    with pytest.raises(SchedulingError, match="it starts in front of loop r, in which there is mo"):
        p.transform_block_layout("y", parts)
    p = program(parse_function(text.format(k=1)))
    same(p, p.transform_block_layout("y", parts), [()])


def test_new_loops_need_all_uses_of_the_old_ones_in_iterators() -> None:
    """What cache_index had left in the body named a loop that was gone."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32[0, "n"], y: f32[0, "n"], n: i64):\n'
            "    for i, j in grid(0, n):\n"
            '        with block("y", S(i, 0), S(j, n)) as (a, b):\n'
            "            y[a, b] = x[a, b]\n"
        )
    )
    with pytest.raises(SchedulingError, match="it uses loop j itself, not by an iterator"):
        p.cache_index("y", "x", "i", "j", ()).transform_block_layout("y", (var("_0"), var("_1")))


PREFIXES = """\
@loop
def prefixes(x: f32["n", "n"], z: f32["n", "n"], n: i64):
    t = alloc(f32[n], scope="scratch")
    for r in grid(n):
        for i in grid(n):
            with block("t", S(i, n), R(r, n)) as (v, w):
                with init():
                    t[v] = 0.0
                t[v] = t[v] + x[v, w]
        for j in grid(n):
            with block("z", S(j, n), S(r, n)) as (a, b):
                z[a, b] = t[a]
"""


def test_a_sum_that_goes_on_is_not_computed_at_a_use() -> None:
    """All of it was, in each iteration of a loop around both."""
    p = program(parse_function(PREFIXES))
    with pytest.raises(SchedulingError, match="it still reduces over loop r, which is around both"):
        p.compute_at("t", "j")


def test_an_iterator_of_a_loop_that_stays_is_that_loops() -> None:
    """A loop over all of its domain was made, inside the other."""
    p = program(
        parse_function(
            "@loop\n"
            'def rows(x: f32["n", 4], y: f32["n", 4], n: i64):\n'
            "    for i in grid(n):\n"
            '        t = alloc(f32[4], scope="scratch")\n'
            "        for j in grid(4):\n"
            '            with block("t", S(j, 4)) as (b,):\n'
            "                t[b] = x[i, b]\n"
            "        for k in grid(4):\n"
            '            with block("y", S(i, n), S(k, 4)) as (c, d):\n'
            "                y[c, d] = t[d]\n"
        )
    )
    same(p, p.reverse_compute_at("y", "j"), [(0,), (1,), (5,)])


def test_new_loops_are_not_called_as_the_blocks_iterators() -> None:
    p = program(
        parse_function(
            "@loop\n"
            'def twice(x: f32["n"], y: f32["n"], n: i64):\n'
            '    t = alloc(f32[n], scope="scratch")\n'
            "    for i in grid(n):\n"
            '        with block("t", S(i, n)) as (v,):\n'
            "            t[v] = x[v]\n"
            "    for j, k in grid(n//4 + 1, 4):\n"
            '        with block("y", S(4*j + k, n), where=4*j + k < n) as (w,):\n'
            "            y[w] = 2.0 * t[w]\n"
        )
    ).split("i", 4)
    same(p, p.reverse_compute_at("y", "i_0"), [(0,), (1,), (5,)])
    same(p, p.compute_at("t", "j"), [(0,), (1,), (5,)])


def test_a_read_that_never_happens_is_no_reason_against_a_smaller_buffer() -> None:
    """What it would mean for it to be inside the buffer contradicts what is known."""
    p = program(
        parse_function(
            "@loop\n"
            "def random(x: f32[5, 2], y: f32[5, 1]):\n"
            '    t = alloc(f32[5, 1], scope="scratch")\n'
            "    for i, j in grid(5, 1):\n"
            '        with block("t", S(i, 5), S(j, 1)) as (a, b):\n'
            "            t[a, b] = x[a, 2*b]\n"
            "    for k, l in grid(5, 1):\n"
            '        with block("y", S(k, 5), S(l, 1)) as (a, b):\n'
            "            y[a, b] = t[a, b] + select((0 <= b + 1) & (b + 1 < 1), t[a, b + 1], 0.0)\n"
        )
    )
    q = p.compute_at("t", "l")
    same(q, q.shrink_buffer("t"), [()])


def test_a_part_of_a_loop_stages_nothing_that_only_it_may_read() -> None:
    """There the condition that keeps the other part inside the buffer is left out."""
    p = program(
        parse_function(
            "@loop\n"
            "def random(x: f32[4], y: f32[4]):\n"
            "    for i, r in grid(4, 3):\n"
            '        with block("y", S(i, 4), R(r, 3)) as (a, c):\n'
            "            with init():\n"
            "                y[a] = 0.0\n"
            "            y[a] = y[a] + select((0 <= a + c) & (a + c < 4), x[a + c], 0.0)\n"
        )
    ).loop_partition("i", 0)
    with pytest.raises(
        SchedulingError,
        match="x may need",
    ):
        p.stage_operand("y", "x")


def test_a_loop_beside_another_proves_nothing_of_it() -> None:
    """That whole vectors exist says nothing of the rest, which is there without them, too."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["m", "m"], y: f32["m", "m"], m: i64):\n'
            "    for i, j in grid(m, m):\n"
            '        with block("y", S(i, m), S(j, m)) as (a, b):\n'
            "            y[a, b] = select((0 <= b - 2) & (b - 2 < m), x[a, b - 2], 0.0)\n"
        )
    )
    same(p, p.split("j", 4, tail="peel").loop_partition("i", 0), [(0,), (1,), (3,), (4,), (6,)])


def test_what_a_call_inside_a_block_reads_stays_in_memory() -> None:
    copy = parse_function(
        '@loop\ndef copy_row(a: f32["m"], c: f32["m"], m: i64):\n'
        "    for i in grid(m):\n        c[i] = a[i]\n"
    )
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["m", 8], y: f32["m", 8], m: i64):\n'
            '    t = alloc(f32["m", 8], scope="scratch")\n'
            "    for i, j in grid(m, 8):\n"
            '        with block("t", S(i, m), S(j, 8)) as (a, b):\n'
            "            t[a, b] = x[a, b] + 1.0\n"
            "    for k, l in grid(m, 8):\n"
            '        with block("y", S(k, m), S(l, 8)) as (c, d):\n'
            "            y[c, d] = t[c, d]\n"
        ),
        intrinsics=[Intrinsic("copy_row", copy)],
    )
    q = p.cache_read("y", "t").tensorize("t_cache_1", "copy_row").blockize("t_cache_0")
    with pytest.raises(SchedulingError, match="a call takes the address of t"):
        q.compute_inline("t", keep=False)


def test_that_a_sum_runs_proves_nothing_of_its_start() -> None:
    """It started at the first place of none: k >= 1 was known, in the loop over r."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["k", "k"], y: f32["k"], k: i64):\n'
            "    for r, i in grid(k, k):\n"
            '        with block("y", S(i, k), R(r, k)) as (a, c):\n'
            "            with init():\n"
            "                y[a] = 0.0\n"
            "            y[a] = y[a] + x[a, c]\n"
        )
    )
    with pytest.raises(SchedulingError, match="1 is not known to be from 0 to k"):
        p.loop_partition("i", 1)
    with pytest.raises(SchedulingError, match="the factor k is not known to be at least 1"):
        p.split("i", var("k"))
    q = p.decompose_reduction("y", "r")
    for done in (q.loop_partition("i", 1), q.split("i", var("k"))):
        same(p, done, [(0,), (1,), (5,)])


def test_what_each_lane_looks_up_in_its_own_memory_compiles() -> None:
    """Private memory was read at affine places only, and was only ever in registers."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32[2, "n"], at: i64[2], y: f32[2, 2], n: i64):\n'
            '    t = alloc(f32[2, "n"], scope="scratch")\n'
            "    for i, j in grid(2, n):\n"
            '        with block("t", S(i, 2), S(j, n)) as (a, b):\n'
            "            t[a, b] = x[a, b] + 1.0\n"
            "    for k, l in grid(2, 2):\n"
            '        with block("y", S(k, 2), S(l, 2)) as (a, b):\n'
            "            y[a, b] = select((0 <= at[b]) & (at[b] < n), t[a, at[b]], 0.0)\n"
        )
    )
    q = p.compute_at("t", "l").shrink_buffer("t").vectorize("l")
    for n in (0, 1, 5):
        x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
        at, y, wanted = np.array([0, 3]), *np.empty((2, 2, 2), np.float32)
        native(q.function, [x, at, y], {"n": n})
        interpret(p.function, [x, at, wanted], {"n": n})
        np.testing.assert_array_equal(y, wanted)


def test_lanes_have_loops_of_the_same_length_inside_blocks_too() -> None:
    """There the extent names the block's iterator."""
    p = program(
        parse_function(
            "@loop\n"
            "def random(x: f32[10], y: f32[10]):\n"
            "    for i in grid(10):\n"
            '        with block("y", S(i, 10)) as (a,):\n'
            "            y[a] = x[a] + 1.0\n"
        )
    ).split("i", 4, tail="clip")
    with pytest.raises(SchedulingError, match="loop i_0: the extent of i_1 depends on it"):
        p.blockize("i_1").vectorize("i_0")


def test_lanes_make_no_calls() -> None:
    """All of them would make one, with the address of what each has for itself."""
    add = parse_function(
        "@loop\ndef add(a: f32[4], c: f32[1]):\n    for i in grid(4):\n        c[0] = c[0] + a[i]\n"
    )
    p = program(
        parse_function(
            "@loop\n"
            "def random(x: f32[4], y: f32[8]):\n"
            "    for i in grid(8):\n"
            "        t = alloc(f32[1])\n"
            '        with block("t", S(i, 8)) as (a,):\n'
            "            t[0] = 0.0\n"
            "        for r in grid(4):\n"
            '            with block("s", S(i, 8), R(r, 4)) as (a, c):\n'
            "                t[0] = t[0] + x[c]\n"
            '        with block("y", S(i, 8)) as (a,):\n'
            "            y[a] = t[0]\n"
        ),
        intrinsics=[Intrinsic("add", add)],
    )
    with pytest.raises(SchedulingError, match="loop i: there is a call of add inside"):
        p.tensorize("r", "add").vectorize("i")
    with pytest.raises(SchedulingError, match="then loop i could not be vectorized: there is a ca"):
        p.vectorize("i").tensorize("r", "add")


STARTED = """\
@loop
def sums(x: f32["n", "k"], z: f32["n"], y: f32["n"], n: i64, k: i64):
    t = alloc(f32[n], scope="scratch")
    for j in grid(n):
        with block("t", S(j, n)) as (v,):
            t[v] = z[v] + 1.0
    for i, r in grid(n, k):
        with block("y", S(i, n), R(r, k)) as (a, c):
            with init():
                y[a] = t[a]
            y[a] = y[a] + x[a, c]
"""


def test_what_a_sum_starts_with_is_not_computed_where_it_goes_on() -> None:
    """The start is written inside the loops that it comes before."""
    p = program(parse_function(STARTED))
    with pytest.raises(SchedulingError, match="block y reads t before loop r begins"):
        p.compute_at("t", "r")
    with pytest.raises(SchedulingError, match="block y reads t before loop r begins"):
        p.reorder("r", "i").compute_at("t", "i")
    same(p, p.compute_at("t", "i"), [(0, 0), (1, 0), (3, 2)])


def test_a_loop_that_runs_once_is_not_merged_with_the_sum_that_starts_with_what_it_makes() -> None:
    p = program(
        parse_function(
            "@loop\n"
            "def once(x: f32[1], z: f32[1], y: f32[1]):\n"
            '    t = alloc(f32[1], scope="scratch")\n'
            "    for j in grid(1):\n"
            '        with block("t", S(j, 1)) as (v,):\n'
            "            t[v] = z[v] + 1.0\n"
            "    for r in grid(1):\n"
            '        with block("y", R(r, 1)) as (c,):\n'
            "            with init():\n"
            "                y[0] = t[0]\n"
            "            y[0] = y[0] + x[c]\n"
        )
    )
    with pytest.raises(SchedulingError, match="block y starts before its loop, and block t writes"):
        p.merge("j", "r")


ONWARD = """\
@loop
def sums(x: f32["k"], z: f32["k"], b: f32[1], y: f32[1], k: i64):
    with block("b0") as ():
        b[0] = 1.0
    for r in grid(k):
        with block("y", R(r, k)) as (c,):
            with init():
                y[0] = b[0]
            y[0] = y[0] + x[c]*b[0]
        with block("b", O(r, k)) as (v,):
            b[0] = z[v]
"""


def test_a_sum_starts_with_what_is_there_before_its_loops() -> None:
    """Partial sums were added to what the loop left, and a copy was read before it was filled."""
    p = program(parse_function(ONWARD))
    with pytest.raises(SchedulingError, match="b, on which its start or its place depends, is wri"):
        p.rfactor("r")
    with pytest.raises(SchedulingError, match="b is written where it is read"):
        p.cache_read("y", "b")


AGAIN = """\
@loop
def sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    for i in grid(n):
        for r in grid(k):
            with block("y", S(i//2, n), R(r, k)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[i, c]
"""


@pytest.mark.parametrize("where", ["i//2", "0"])
def test_a_sum_that_starts_again_starts_again(where: str) -> None:
    """With the loops the other way round, or as one, or with the start outside, it went on."""
    p = program(parse_function(AGAIN.replace("i//2", where)))
    with pytest.raises(SchedulingError, match="block y may start an element again in loop i"):
        p.reorder("r", "i")
    with pytest.raises(SchedulingError, match="it may start an element again in loop i"):
        p.decompose_reduction("y", "i")
    with pytest.raises(SchedulingError, match="block y reduces over some of them only"):
        p.fuse("i", "r")
    same(p, p.decompose_reduction("y", "r"), [(0, 0), (1, 0), (3, 2)])


def test_a_sum_is_not_started_before_what_it_starts_with_is_there() -> None:
    p = program(parse_function(STARTED)).compute_at("t", "i")
    with pytest.raises(SchedulingError, match="t, with which it starts, is written in loop i"):
        p.decompose_reduction("y", "i")
    same(p, p.decompose_reduction("y", "r"), [(0, 0), (1, 0), (3, 2)])


def test_memory_of_what_nobody_writes_has_no_negative_size() -> None:
    """Places 1, 3 … up to 2*n - 1 are so many elements from the first to the last, but of none."""
    p = program(
        parse_function(
            "@loop\n"
            'def random(x: f32["n"], y: f32["n"], n: i64):\n'
            '    t = alloc(f32["n"], scope="scratch")\n'
            "    for i in grid(n):\n"
            '        with block("t", S(i, n)) as (a,):\n'
            "            t[a] = x[a] + 1.0\n"
            "    for j in grid(n):\n"
            '        with block("y", S(j, n)) as (b,):\n'
            "            y[b] = t[b] * 2.0\n"
        )
    )
    q = p.transform_layout("t", (2 * var("_0") + 1,), None).shrink_buffer("t")
    same(p, q, [(0,), (1,), (5,)])
    for n in (0, 1, 5):
        x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        native(q.function, [x, y], {"n": n})
        np.testing.assert_array_equal(y, (x + 1) * 2)


NAMED = """\
@loop
def named(x: f32["n"], idx: i64["n"], y: f32["2*n"], n: i64):
    for j in grid(2*n):
        with block("zero", S(j, 2*n)) as (b,):
            y[b] = 0.0
    for i in grid(n):
        v: i64 = WHERE
        with block("y", S(i, n)) as (a,):
            y[a + v] = x[a]
"""


def test_what_data_name_differs_between_iterations() -> None:
    """The name was taken for one number in all of them, and so a + v for another place in each."""
    p = program(parse_function(NAMED.replace("WHERE", "idx[i]")))
    for mark in (lambda: p.parallel("i"), lambda: p.bind("i", "blockIdx.x")):
        with pytest.raises(SchedulingError, match="block y may touch an element of y twice in dif"):
            mark()
    for where in ("i", "n", "n - 1 - i"):
        q = program(parse_function(NAMED.replace("WHERE", where)))
        if where == "n - 1 - i":  # all at one place
            with pytest.raises(SchedulingError, match="block y may touch an element of y twice"):
                q.parallel("i")
        else:
            same(q, q.parallel("i"), [(0,), (1,), (5,)])


def test_loops_as_long_as_data_say_tell_nothing_apart() -> None:
    """With v iterations in each, v*i + j were other places for all i and j."""
    text = (
        "@loop\n"
        'def varying(idx: i64["n"], y: f32["n"], n: i64):\n'
        "    for i in grid(n):\n"
        "        v: i64 = idx[i]\n"
        "        for j in grid(v):\n"
        '            with block("y", S(i, n), O(j, v)) as (a, b):\n'
        "                y[a*v + b] = 1.0\n"
    )
    with pytest.raises(SchedulingError, match="block y may touch an element of y twice"):
        program(parse_function(text)).parallel("i")
    once = text.replace("    for i in grid(n):\n        v", "    v").replace("idx[i]", "idx[0]")
    once = once.replace("        for j", "    for i in grid(n):\n        for j")
    p = program(parse_function(once))
    assert p.parallel("i").loop("i").kind == "parallel"


CHOSEN = """\
@loop
def chosen(x: f32["n", "k"], idx: i64["n"], y: f32["n"], n: i64, k: i64):
    flag = alloc(i64[n], scope="scratch")
    for j in grid(n):
        with block("flag", S(j, n)) as (b,):
            flag[b] = idx[b]
    for j in grid(n):
        with block("none", S(j, n)) as (b,):
            y[b] = 1.0
    for i, r in grid(n, k):
        with block("y", S(i, n), R(r, k), where=flag[i] < n) as (a, c):
            with init():
                y[a] = 0.0
            y[a] = y[a] + x[a, c]
"""


def test_a_condition_on_data_is_asked_where_the_others_hold() -> None:
    """Beyond the last row there is nothing to be asked: the flag was read behind the buffer."""
    p, sizes = program(parse_function(CHOSEN)), [(0, 0), (3, 0), (3, 2), (2, 5), (9, 4)]
    q = p.split("i", 4)
    same(p, q, sizes)
    same(p, q.decompose_reduction("y", "i_1").vectorize("i_1_init"), sizes)
    same(p, p.split("i", 4, tail="peel"), sizes)
    for n, k in sizes:
        rng = np.random.default_rng(n + k)
        x, idx = rng.standard_normal((n, k)).astype(np.float32), rng.integers(-4, 5, n)
        got, want = np.zeros(n, np.float32), np.where(idx < n, x.sum(1), 1).astype(np.float32)
        native(q.function, [x, idx, got], {"n": n, "k": k})
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_condition_on_a_size_is_one_on_the_start() -> None:
    """Where the size stands beside loops in what is reduced over, too: the start reads it first."""
    p = program(parse_function(CHOSEN))
    for q, loop in ((p, "r"), (p.split("r", var("n") + 1), "r_0")):
        with pytest.raises(SchedulingError, match=f"block y reads flag before loop {loop} begins"):
            q.compute_at("flag", loop)
        same(p, q.compute_at("flag", "i"), [(0, 0), (3, 0), (3, 2), (2, 5)])


def test_a_start_is_inside_of_memory_where_its_sum_does_not_run() -> None:
    """In t of n + k + 6 elements a whole last tile had room, as k >= 1 in the loop over r: the
    start went beyond it where k was 0."""
    text = (
        "@loop\n"
        'def sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):\n'
        '    t = alloc(f32[n + k + 6], scope="scratch")\n'
        "    for i, r in grid(n, k):\n"
        '        with block("t", S(i, n), R(r, k)) as (a, c):\n'
        "            with init():\n"
        "                t[a] = 0.0\n"
        "            t[a] = t[a] + x[a, c]\n"
        "    for j in grid(n):\n"
        '        with block("y", S(j, n)) as (b,):\n'
        "            y[b] = t[b]\n"
    )
    p, at = program(parse_function(text)), [var(f"_{d}") for d in range(2)]
    q = p.cache_read("t", "x", layout=(at[0] // 8, at[0] % 8, at[1]), pad=0.0)
    q = q.split("i", 8).pad_block("t")
    same(p, q, [(0, 0), (1, 0), (1, 1), (8, 0), (9, 3)])


def test_starts_meet_where_their_sums_do_not_run() -> None:
    """k*i is another place for each i, but where k is 0; each starts there all the same."""
    p = program(
        parse_function(
            "@loop\n"
            'def apart(x: f32["n", "k"], w: f32["n"], y: f32["n*k + 1"], n: i64, k: i64):\n'
            "    for i, r in grid(n, k):\n"
            '        with block("y", S(i, n), R(r, k)) as (a, c):\n'
            "            with init():\n"
            "                y[a*k] = w[a]\n"
            "            y[a*k] = y[a*k] + x[a, c]\n"
        )
    )
    with pytest.raises(SchedulingError, match="block y may touch an element of y twice in differ"):
        p.parallel("i")
    with pytest.raises(SchedulingError, match="block y may start an element again in loop i"):
        p.reorder("r", "i")
    with pytest.raises(SchedulingError, match="it may start an element again in loop i"):
        p.decompose_reduction("y", "i")
    same(p, p.decompose_reduction("y", "r"), [(0, 0), (3, 0), (3, 2)])


def test_a_sum_over_nothing_starts_with_other_iterators_too() -> None:
    """The iterator of no values was 0, and 0 < 0 a condition on the start as well."""
    p = program(
        parse_function(
            "@loop\n"
            'def nothing(x: f32["n", 0, 3], y: f32["n"], n: i64):\n'
            "    for i, r, s in grid(n, 0, 3):\n"
            '        with block("y", S(i, n), R(r, 0), R(s, 3)) as (a, b, c):\n'
            "            with init():\n"
            "                y[a] = 0.0\n"
            "            y[a] = y[a] + x[a, b, c]\n"
        )
    )
    q = p.transform_block_layout("y", (3 * var("_1") + var("_2"), var("_0")))
    same(p, q, [(0,), (1,), (5,)])


def test_registers_that_become_of_any_size_are_none() -> None:
    """What is used of them was 3 rows at most; then, in tiles of n + 1, as many as that."""
    p = program(
        parse_function(
            "@loop\n"
            'def rows(x: f32["n", 2], y: f32["n", 2], n: i64):\n'
            '    t = alloc(f32[n, 2], scope="scratch")\n'
            "    for i, j in grid(n, 2):\n"
            '        with block("t", S(i, n), S(j, 2)) as (a, b):\n'
            "            t[a, b] = x[a, b] + 1.0\n"
            "    for g, h in grid(n, 2):\n"
            '        with block("y", S(g, n), S(h, 2)) as (a, b):\n'
            "            y[a, b] = t[a, b] * 2.0\n"
        )
    )
    n = var("n")
    p = p.name_size("few", minimum(3, n + 1)).split("i", var("few"))
    q = p.reverse_compute_at("y", "i_0").shrink_buffer("t")
    assert q.buffer("t").scope == "register"
    q = q.name_size("many", n + 1).split("g", var("many")).shrink_buffer("t")
    assert q.buffer("t").scope == "scratch"
    same(p, q, [(0,), (1,), (2,), (7,)])


def test_memory_that_a_loop_says_the_size_of_is_not_used_in_a_block_of_its_own() -> None:
    """The block had an iterator for the loop, and what it stored to was of another shape."""
    p = chain().split("b_i", var("n") + 1, tail="clip").compute_at("a", "b_i_0").shrink_buffer("a")
    assert "b_i_0" in p.buffer("a").shape[0].names
    with pytest.raises(SchedulingError, match="the shape of a depends on loop b_i_0"):
        p.blockize("b_j")


def test_a_start_reads_no_copy_by_what_is_reduced_over() -> None:
    p = BY_HAND["apart"]()
    at = [var(f"_{d}") for d in range(2)]
    with pytest.raises(SchedulingError, match="its start reads the part, before there is an iter"):
        p.reindex_cache_read("y", "w", tuple(at))
    same(p, p.reindex_cache_read("y", "w", (at[0],)), [(0, 0), (3, 0), (3, 2)])
