"""Recurrences over time as loop programs: plain, LSTM and GRU cells.

    state[b] = start[b] of every sequence b of the batch
    for every step:
        sums[b] = bias + state[b] . weights                     (all gates at once)
        for every sequence b:
            within its length, forwards or backwards, t its place in time:
                state[b] = cell(gates of input[t, b], gates of sums[b], state[b])
                y[t, b] = state[b]
            past its length: y[step, b] = 0
    last[b] = state[b]

The sums are made for some columns of the weights and all sequences, a few of these at a time with
their totals in registers: a step reads the weights once, whatever the batch, and one after another:
they come as `panels` of so many columns, and so do the sums, with zeros where there are no columns.
Threads share a step's panels, and then its sequences, where there is enough to do.
What does not depend on the state is not in here: `input` is the product of all steps with the
input's weights. The gates lie one after the other in blocks of the state's width H.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from pliant.base.dtypes import DType, i64
from pliant.ir.expr import Binary, Expr, Load, Var, as_expr
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Alloc, Buffer, For, Function, If, Let, Stmt, Store, buffer, seq
from pliant.ops.lines import grain
from pliant.sym.expr import Int, as_int, ceildiv, var

GATES: Final[Mapping[str, int]] = {"rnn": 1, "lstm": 4, "gru": 3}
"""Gates of a cell. LSTM: input, forget, cell, output; GRU: reset, update, new."""

LANES: Final = 64
"""Neighbouring sums that are made at once: as many vectors as hide the latency of one sum."""

ROWS: Final = 4
"""Sequences whose sums are made at once: each vector of weights that is read serves all of them."""

DEAR: Final = 16
"""Multiply-adds that take as long as a gate of one element."""

Activation = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Cell:
    """What is done in one step.

    `activations`: of an RNN one; LSTM: of the gates, of the cell, of the output; GRU: of the gates,
    of the new state. `reset_first` (GRU): the reset gate scales the state before its product with
    the weights, not the product. `peepholes` (LSTM): the gates see the cell's state. `coupled`
    (LSTM): what is not forgotten is what the input gate leaves of 1.
    """

    kind: str
    activations: tuple[Activation, ...]
    reset_first: bool = False
    peepholes: bool = False
    coupled: bool = False

    @property
    def gates(self) -> int:
        """How many blocks of sums a step needs."""
        return GATES[self.kind]

    def products(self, width: Int) -> tuple[tuple[Int, Int], ...]:
        """The first column and the number of columns of each product with the state. Every product
        has panels of its own, of which the last may be partly empty."""
        if self.reset_first:
            return (as_int(0), 2 * width), (2 * width, width)
        return ((as_int(0), self.gates * width),)


def recurrence(cell: Cell, dtype: DType, reverse: bool) -> Function:
    """The program: operands `input` [T, B, G*H], `panels` [P, H, LANES] of the weights' columns,
    `bias` [P, LANES], `lengths` i64 [B], `start` [B, H], and of an LSTM `start_c` [B, H] and with
    peepholes `peep` [3*H] (input, forget, output); results `y` [T, B, H], `last` [B, H] and of an
    LSTM `last_c` [B, H]."""
    return _Recurrence(cell, dtype, reverse).function()


class _Recurrence:
    def __init__(self, cell: Cell, dtype: DType, reverse: bool) -> None:
        self.cell, self.reverse = cell, reverse
        self.j = LANES * var("some") + var("lane")
        t, b, h = self.steps, self.batch, self.width = var("t"), var("b"), var("h")
        wide = cell.gates * h
        self.input = buffer("input", (t, b, wide), dtype)
        # Panels of the product with the state itself, which are first, and all of them.
        counts = [ceildiv(count, LANES) for _, count in cell.products(h)]
        self.of_state, self.all = counts[0], sum(counts, as_int(0))
        self.panels = buffer("panels", (self.all, h, LANES), dtype)
        self.bias = buffer("bias", (self.all, LANES), dtype)
        self.lengths = buffer("lengths", (b,), i64)
        names = ("", "_c") if cell.kind == "lstm" else ("",)
        self.starts = [buffer(f"start{n}", (b, h), dtype) for n in names]
        self.lasts = [buffer(f"last{n}", (b, h), dtype) for n in names]
        self.states = [buffer(f"state{n}", (b, h), dtype, scope="scratch") for n in names]
        self.peep = buffer("peep", (3 * h,), dtype)
        self.y = buffer("y", (t, b, h), dtype)
        self.sums = buffer("sums", (b, LANES * self.all), dtype, scope="scratch")
        self.scaled = buffer("scaled", (b, h), dtype, scope="scratch")

    def function(self) -> Function:
        """The program."""
        past = self._along(self.width, Store(self.y, self._at("step"), as_expr(0, self.y.dtype)))
        step = seq(*self._sums(), self._rows(self._cell(), past))
        body: Stmt = seq(
            *[self._copy(s, f) for s, f in zip(self.states, self.starts, strict=True)],
            For("step", self.steps, step),
            *[self._copy(f, s) for s, f in zip(self.states, self.lasts, strict=True)],
        )
        scratch = [*self.states, self.sums, *([self.scaled] if self.cell.reset_first else [])]
        body = reduce(lambda s, b: Alloc(b, s), scratch, body)
        inputs = [self.input, self.panels, self.bias, self.lengths, *self.starts]
        inputs += [self.peep] if self.cell.peepholes else []
        buffers = (*inputs, self.y, *self.lasts)
        return Function(self.cell.kind, buffers, ("t", "b", "h"), body)

    def _copy(self, to: Buffer, source: Buffer) -> Stmt:
        place = (at("i"), as_expr(self.j))
        copied = self._along(self.width, Store(to, place, Load(source, place)))
        return For("i", self.batch, copied)

    def _rows(self, live: Stmt, past: Stmt) -> Stmt:
        """For every sequence what is done within its length, or past it."""
        place = var("length") - 1 - var("step") if self.reverse else var("step")
        within = Let(Var("at", i64), as_expr(place), live)
        # No more than there are: a length is data, and decides what is read.
        known = Binary("min", self.lengths[var("i")], as_expr(self.steps))
        chosen = Let(Var("length", i64), known, If(at("step") < at("length"), within, past))
        work = DEAR * self.cell.gates * self.width
        return For("i", self.batch, chosen, "parallel", grain(work))

    def _at(self, time: str) -> tuple[Expr, Expr, Expr]:
        return at(time), at("i"), as_expr(self.j)

    def _sums(self) -> list[Stmt]:
        """The sums of all sequences for one step."""
        h = self.width
        product = self._product(self.states[0], as_int(0), self.of_state)
        if not self.cell.reset_first:
            return [product]
        place = (at("i"), as_expr(self.j))
        value = self.cell.activations[0](self._gate(0)) * Load(self.states[0], place)
        scaled = self._along(h, Store(self.scaled, place, value))
        unused = self._along(h, Store(self.scaled, place, as_expr(0, self.y.dtype)))
        of_scaled = self._product(self.scaled, self.of_state, self.all - self.of_state)
        return [product, self._rows(scaled, unused), of_scaled]

    def _product(self, state: Buffer, first: Int, blocks: Int) -> Stmt:
        """sums = bias + state . weights, in so many panels from the first one.

        Every sum is made in the same order, whether alone or with those of other sequences.
        """
        tiles, tile, row = self.batch // ROWS, var("tile"), var("row")
        sums = partial(self._tile, state, first + var("some"))
        several = sums([ROWS * tile + r for r in range(ROWS)])
        alone = sums([ROWS * tiles + row])
        each = seq(For("tile", tiles, several), For("row", self.batch - ROWS * tiles, alone))
        # Forwards and backwards in turn: of weights that a cache holds in part, the panels that a
        # step has used last are still there.
        back = subst(each, {"some": blocks - 1 - var("some")})
        even = as_expr(var("step") % 2) < as_expr(1)
        shared = grain(self.batch * self.width * LANES)
        return If(
            even,
            For("some", blocks, each, "parallel", shared),
            For("some", blocks, back, "parallel", shared),
        )

    def _tile(self, state: Buffer, panel: Int, rows: list[Int]) -> Stmt:
        """The sums of some sequences in the columns of a panel."""
        k, lane = var("k"), var("lane")
        total = buffer("total", (len(rows),), self.y.dtype, scope="register")
        places = [(as_expr(as_int(r)),) for r in range(len(rows))]
        begun = [Store(total, p, self.bias[panel, lane]) for p in places]
        more = [
            Store(total, p, Load(total, p) + state[i, k] * self.panels[panel, k, lane])
            for i, p in zip(rows, places, strict=True)
        ]
        column = as_expr(LANES * panel + lane)
        done = [
            Store(self.sums, (as_expr(i), column), Load(total, p))
            for i, p in zip(rows, places, strict=True)
        ]
        one = seq(*begun, For("k", self.width, seq(*more)), *done)
        return For("lane", as_int(LANES), Alloc(total, one), "vectorized")

    def _along(self, count: Int, body: Stmt) -> Stmt:
        """The body for every j < count."""
        return For("some", ceildiv(count, LANES), self._lanes(count, body))

    def _lanes(self, count: Int, body: Stmt) -> Stmt:
        return For("lane", as_int(LANES), If(as_expr(self.j) < as_expr(count), body), "vectorized")

    def _given(self, gate: int) -> Expr:
        return Load(self.input, (at("at"), at("i"), as_expr(gate * self.width + self.j)))

    def _sum(self, gate: int) -> Expr:
        apart = self.cell.reset_first and gate == 2
        first = LANES * self.of_state if apart else gate * self.width
        return self.sums[var("i"), first + self.j]

    def _gate(self, gate: int) -> Expr:
        return self._given(gate) + self._sum(gate)

    def _cell(self) -> Stmt:
        j = (at("i"), as_expr(self.j))
        done = {"rnn": self._rnn, "lstm": self._lstm, "gru": self._gru}[self.cell.kind]()
        out = Store(self.y, self._at("at"), Load(self.states[0], j))
        return self._along(self.width, seq(*[Store(b, j, v) for b, v in done], out))

    def _rnn(self) -> list[tuple[Buffer, Expr]]:
        return [(self.states[0], self.cell.activations[0](self._gate(0)))]

    def _gru(self) -> list[tuple[Buffer, Expr]]:
        of_gates, of_new = self.cell.activations
        old = self.states[0][var("i"), self.j]
        summed = self._sum(2)
        if not self.cell.reset_first:
            summed = of_gates(self._gate(0)) * summed
        new = of_new(self._given(2) + summed)
        update = of_gates(self._gate(1))
        return [(self.states[0], (as_expr(1.0, old.dtype) - update) * new + update * old)]

    def _lstm(self) -> list[tuple[Buffer, Expr]]:
        of_gates, of_cell, of_out = self.cell.activations
        c = self.states[1][var("i"), self.j]
        let_in = of_gates(self._seeing(0, 0, c))
        if self.cell.coupled:
            kept = (as_expr(1.0, c.dtype) - let_in) * c
        else:
            kept = of_gates(self._seeing(1, 1, c)) * c
        new_c = kept + let_in * of_cell(self._gate(2))
        new_h = of_gates(self._seeing(3, 2, c)) * of_out(c)  # the cell has been stored by then
        return [(self.states[1], new_c), (self.states[0], new_h)]

    def _seeing(self, gate: int, peep: int, c: Expr) -> Expr:
        """A gate's sum, with what it sees of the cell."""
        value = self._gate(gate)
        if not self.cell.peepholes:
            return value
        return value + self.peep[peep * self.width + self.j] * c


def at(name: str) -> Expr:
    """A loop variable as an index."""
    return as_expr(var(name))
