"""RNN, GRU and LSTM: the input's product for all steps, then the recurrence of each direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Lowering, Results, Site
from pliant.graph.function import Value
from pliant.sym.expr import IntLike, as_int

DEFAULTS: Final = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
FUNCTIONS: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    "Affine": ("affine", (1.0, 0.0)),
    "Elu": ("elu", (1.0,)),
    "HardSigmoid": ("hardsigmoid", (0.2, 0.5)),
    "LeakyRelu": ("leaky_relu", (0.01,)),
    "Relu": ("relu", ()),
    "ScaledTanh": ("scaled_tanh", (1.0, 1.0)),
    "Sigmoid": ("sigmoid", ()),
    "Softplus": ("softplus", ()),
    "Softsign": ("softsign", ()),
    "Tanh": ("tanh", ()),
    "ThresholdedRelu": ("thresholded_relu", (1.0,)),
}
"""What the catalogue calls them, and what alpha and beta are where a node has none."""

ORDER: Final = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""Where ONNX has the catalogue's gates: z r h, and i o f c."""


_WAYS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

Named = str | tuple[str | float, ...]


def lower_recurrent(s: Site) -> Results:
    """All three, in one direction or both."""
    batch_first = bool(s.int_attr("layout", 0))
    x = s.x(0)
    if batch_first:
        x = s.call("transpose", x, perm=(1, 0, 2))
    ways = _WAYS.get(s.str_attr("direction", "forward"))
    if ways is None:
        raise InvalidModelError(f"{s.span}: direction {s.str_attr('direction')!r}")
    functions = _activations(s, len(ways))
    done = [_direction(s, x, k, functions, back) for k, back in enumerate(ways)]
    stacked = [
        s.call("concat", tuple([s.call("unsqueeze", r, axes=(axis,)) for r in parts]), axis=axis)
        for axis, parts in zip((1, 0, 0), zip(*done, strict=True), strict=False)
    ]
    if batch_first:
        y, *last = stacked
        flipped = [s.call("transpose", t, perm=(1, 0, 2)) for t in last]
        stacked = [s.call("transpose", y, perm=(2, 0, 1, 3)), *flipped]
    return tuple(stacked)


def _direction(
    s: Site, x: Value, k: int, functions: tuple[Named, ...], back: bool
) -> tuple[Value, ...]:
    """The results of one direction, without the direction's dimension."""
    order = ORDER[s.op]
    gates = len(order)
    w, r = (_gates(s, _part(s, s.x(i), k), order) for i in (1, 2))
    width = r.shape[1]
    steps, batch, _ = x.shape
    given = s.call("matmul", x, s.call("transpose", w, perm=(1, 0)))
    zero = s.full((gates * width,), 0.0, x.dtype)
    inner = zero
    if s.has(3):
        both = s.reshape(_part(s, s.x(3), k), (2, gates * width))
        given = s.call("add", given, _gates(s, _part(s, both, 0), order))
        inner = _gates(s, _part(s, both, 1), order)
    given_lengths = s.opt(4)
    if given_lengths is None:
        given_lengths = s.call("expand", s.size(steps), shape=(batch,))
    lengths = s.cast(given_lengths, i64)
    start = [_start(s, i, k, (batch, width)) for i in ((5, 6) if s.op == "LSTM" else (5,))]
    count = len(DEFAULTS[s.op])
    mine = functions[k * count : (k + 1) * count]
    attrs: dict[str, object] = {"activations": mine, "reverse": back}
    if s.float_attr("clip", 0.0):
        attrs["clip"] = s.float_attr("clip")
    if s.op == "LSTM" and s.int_attr("input_forget", 0):
        attrs["coupled"] = True
    more: list[Value] = []
    if s.op == "GRU":
        attrs["reset_first"] = not s.int_attr("linear_before_reset", 0)
    if s.op == "LSTM" and s.has(7):
        more.append(_gates(s, _part(s, s.x(7), k), (0, 2, 1)))  # from i o f
    weights = s.call("transpose", r, perm=(1, 0))
    return s.call_many(s.op.lower(), given, weights, inner, lengths, *start, *more, **attrs)


def _start(s: Site, index: int, k: int, shape: tuple[IntLike, ...]) -> Value:
    """The state that direction `k` begins with."""
    if not s.has(index):
        return s.full(shape, 0.0, s.item(0).dtype)
    given = s.x(index)
    if s.int_attr("layout", 0):
        given = s.call("transpose", given, perm=(1, 0, 2))
    return _part(s, given, k)


def _part(s: Site, x: Value, k: int) -> Value:
    """`x[k]`."""
    return s.call("squeeze", s.part(x, 0, k, k + 1), axes=(0,))


def _gates(s: Site, x: Value, order: tuple[int, ...]) -> Value:
    """The blocks of the first dimension in this order."""
    if order == tuple(range(len(order))):
        return x
    h = s.sizes.divide(x.shape[0], as_int(len(order)))
    return s.call("concat", tuple([s.part(x, 0, g * h, (g + 1) * h) for g in order]), axis=0)


def _activations(s: Site, ways: int) -> tuple[Named, ...]:
    """Those of all directions, as the catalogue names them. Each takes the next alpha, and the next
    beta, of the node, if it has one."""
    default = DEFAULTS[s.op] * ways
    names = s.strings_attr("activations", default)
    if len(names) != len(default):
        raise InvalidModelError(f"{s.span}: {len(names)} activations, it has {len(default)}")
    given = [iter(s.floats_attr(f"activation_{n}", ())) for n in ("alpha", "beta")]
    known = {n.lower(): f for n, f in FUNCTIONS.items()}
    found: list[Named] = []
    for name in names:
        if name.lower() not in known:
            raise s.unsupported(f"the activation {name!r} is not supported")
        ours, numbers = known[name.lower()]
        each = tuple(next(g, n) for g, n in zip(given, numbers, strict=False))
        found.append((ours, *each) if each else ours)
    return tuple(found)


RECURRENT: Final[Mapping[str, Lowering]] = dict.fromkeys(DEFAULTS, lower_recurrent)
