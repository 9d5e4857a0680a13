"""What definitions share: requirements on sizes, broadcasting, accumulation types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pliant.base.dtypes import DType, f32
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr
from pliant.ir.tensor import Compute, Tensor, compute
from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int, IntLike, as_int, const, maximum, minimum

Shape = tuple[Int, ...]
Requirement = tuple[Int, Int, str]


def shape_of(sizes: Sequence[IntLike]) -> Shape:
    """Sizes as symbolic integers."""
    return tuple(as_int(s) for s in sizes)


def product(sizes: Sequence[IntLike]) -> Int:
    """The product; 1 of nothing."""
    result = const(1)
    for s in sizes:
        result = result * s
    return result


def equal(a: IntLike, b: IntLike, message: str) -> tuple[Requirement, ...]:
    """Nothing where `a` and `b` are the same expression, else the requirement that they are equal.

    Raises InvalidModelError where they never are.
    """
    a, b = as_int(a), as_int(b)
    if a == b:
        return ()
    if (a - b).is_const:
        raise InvalidModelError(f"{message} ({a} and {b})")
    return ((a, b, message),)


def at_least(a: IntLike, b: IntLike, message: str) -> tuple[Requirement, ...]:
    """The requirement a >= b, written as max(a, b) == a."""
    return equal(maximum(a, b), a, message)


def not_empty(extent: IntLike, what: str) -> tuple[Requirement, ...]:
    """The requirement that a dimension is not empty."""
    return equal(minimum(extent, 1), 1, f"{what} may not be empty")


def positive(extent: IntLike) -> Int:
    """A divisor: the extent, which counts only where it is at least 1."""
    extent = as_int(extent)
    return maximum(extent, 1) if extent.is_const else extent


def nonnegative(extent: Int) -> Int:
    """An extent that a formula makes negative where the operand is too small: 0 then."""
    return extent if _plainly_nonnegative(extent) else maximum(extent, 0)


def _plainly_nonnegative(x: Int) -> bool:
    """Whether no term is negative, sizes being nonnegative."""
    return all(c >= 0 and all(_nonnegative_atom(a) for a, _ in f) for c, f in x.terms())


def _nonnegative_atom(atom: Atom) -> bool:
    match atom:
        case VarAtom() | ModAtom():
            return True
        case DivAtom(num, _):
            return _plainly_nonnegative(num)
        case MinAtom(args):
            return all(map(_plainly_nonnegative, args))
        case MaxAtom(args):
            return any(map(_plainly_nonnegative, args))


def without(index: Sequence[Int], *axes: int) -> Shape:
    """`index` without the positions `axes`."""
    return tuple(i for k, i in enumerate(index) if k not in axes)


def replaced(index: Sequence[Int], axis: int, new: IntLike) -> Shape:
    """`index` with another value at `axis`."""
    return (*index[:axis], as_int(new), *index[axis + 1 :])


def broadcast(shapes: Sequence[Shape]) -> tuple[Shape, tuple[Requirement, ...]]:
    """The common shape of NumPy's rules, and what must hold for it to exist.

    Of different symbols each may be 1: the extent is max(a, b) * min(1, a, b), which is right for
    0 and 1 too, and (a - b)*(a - 1)*(b - 1) must be 0.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: list[Int] = []
    requires: list[Requirement] = []
    for at in range(-rank, 0):
        met = [s[at] for s in shapes if len(s) >= -at and s[at] != 1]
        dims = _all_parts(met)
        out.append(joined(dims))
        for k, a in enumerate(dims):
            for b in dims[k + 1 :]:
                requires += _compatible(a, b)
    return tuple(out), tuple(requires)


def joined(dims: Sequence[Int]) -> Int:
    """What extents that differ make together; of extents that were joined before, those."""
    dims = _all_parts(dims)
    if len(dims) <= 1:
        return dims[0] if dims else const(1)
    for d in dims:
        if d.is_const:
            return d
    for d in dims:
        if all(d is e or _clips(e, d) or e is minimum(1, d) for e in dims):
            return d
    return maximum(*dims) * minimum(1, *dims)


def _all_parts(dims: Iterable[Int]) -> list[Int]:
    return list(dict.fromkeys(d for x in dims for d in _parts(x)))


def _parts(x: Int) -> tuple[Int, ...]:
    """The extents that were joined to this one; itself, if it is none of these."""
    if len(x.pairs) == 1 and x.pairs[0][1] == 1:
        match x.pairs[0][0].factors:
            case ((MaxAtom(args), 1), (MinAtom(least), 1)) | (
                (MinAtom(least), 1),
                (MaxAtom(args), 1),
            ):
                if set(least) == {*args, const(1)}:
                    return args
    return (x,)


def _clips(a: Int, b: Int) -> bool:
    """Whether a is min(b, …): where they may meet at all, they are equal."""
    atom = a.sole_atom
    return isinstance(atom, MinAtom) and b in atom.args


def _compatible(a: Int, b: Int) -> tuple[Requirement, ...]:
    if a is minimum(1, b) or b is minimum(1, a):  # 1, or both are empty
        return ()
    message = f"dims {a} and {b} meet in a broadcast: they must be equal, or one of them 1"
    if _clips(a, b) or _clips(b, a):
        return equal(a, b, message)
    if (a - b).is_const and a.is_const:
        raise InvalidModelError(message)
    return (((a - b) * (a - 1) * (b - 1), const(0), message),)


def aligned(index: Sequence[Int], shape: Shape, out: Shape) -> Shape:
    """Where an operand of `shape` is read for element `index` of the broadcast shape `out`."""
    skip = len(out) - len(shape)
    return tuple(
        _aligned_dim(i, d, e) for i, d, e in zip(index[skip:], shape, out[skip:], strict=True)
    )


def _aligned_dim(i: Int, dim: Int, out: Int) -> Int:
    if dim == out:
        return i
    if dim == 1:
        return const(0)
    return i if dim.is_const else minimum(i, dim - 1)


def broadcast_to(shape: Shape, out: Shape) -> tuple[Requirement, ...]:
    """What must hold for an operand of `shape` to be read at `aligned` places of `out`."""
    if len(shape) > len(out):
        raise InvalidModelError(f"rank {len(shape)} does not broadcast to rank {len(out)}")
    requires: list[Requirement] = []
    for dim, extent in zip(shape, out[len(out) - len(shape) :], strict=True):
        if dim in (1, extent):
            continue
        message = f"dim {dim} does not broadcast to {extent}"
        if dim.is_const:
            requires += equal(dim, extent, message)
        else:
            requires.append(((dim - extent) * (dim - 1), const(0), message))
    return tuple(requires)


def accumulator(dtype: DType) -> DType:
    """The type in which sums of `dtype` are made: f32 for the 16-bit floats."""
    return f32 if dtype.is_float and dtype.bits == 16 else dtype


def cast_tensor(x: Tensor, dtype: DType, name: str = "cast") -> Tensor:
    """`x` converted; itself if it has that type."""
    if x.dtype is dtype:
        return x
    return compute(x.shape, lambda *i: x[i].cast(dtype), name)


def same_type(*tensors: Tensor | None) -> DType:
    """The one element type of the operands; raises where they differ."""
    types = list(dict.fromkeys(t.dtype for t in tensors if t is not None))
    if len(types) != 1:
        raise InvalidModelError(f"operands of types {', '.join(map(str, types))}: cast first")
    return types[0]


def needs_float(x: Tensor) -> None:
    """Raise unless the elements are floats."""
    if not x.dtype.is_float:
        raise InvalidModelError(f"needs a float, not {x.dtype}")


def check_axis(axis: int, rank: int) -> None:
    """Raise unless 0 <= axis < rank."""
    if not 0 <= axis < rank:
        raise InvalidModelError(f"axis {axis} of a tensor of rank {rank}")


def check_axes(axes: Sequence[int], rank: int) -> None:
    """Raise unless all are axes and no two the same."""
    for a in axes:
        check_axis(a, rank)
    if len(set(axes)) != len(axes):
        raise InvalidModelError(f"axes {tuple(axes)} repeat")


def check_rank(x: Tensor, rank: int, what: str = "operand") -> None:
    """Raise unless `x` has that rank."""
    if x.rank != rank:
        raise InvalidModelError(f"{what} has rank {x.rank}, not {rank}")


def elementwise(x: Tensor, fn: Callable[[Expr], Expr], name: str) -> Compute:
    """`out[i] = fn(x[i])`, 16-bit floats computed in f32 and rounded once."""
    wide = accumulator(x.dtype)

    def body(*i: Int) -> Expr:
        result = fn(x[i].cast(wide))
        return result.cast(x.dtype) if result.dtype is wide else result

    return compute(x.shape, body, name)
