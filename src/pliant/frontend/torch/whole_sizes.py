"""Sizes stay symbols while a module is traced, also where torch's own code wants plain numbers.

F.avg_pool2d(x, x.shape[2:])         is a mean: a window has a constant size
torch.linspace(0, 1, x.shape[1])     is made of an arange
F.max_pool1d(x, 2)                   is a pool of images of one row
F.adaptive_max_pool2d(x, (None, 4))  is one along rows
y[n - 1] = 1                         is a copy to y.select(0, n - 1)
torch.as_tensor(x.shape)             is torch.tensor of them
torch.istft(y, 64, length=n)         is made of frames

Each would make the sizes that it meets constants of the example. What is written here with others
computes the same; what none of these rules takes is torch's as before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class WholeSizes(TorchFunctionMode):
    """Meanwhile the functions below are written with others where they are given symbols."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        kwargs = dict(kwargs or {})
        rule = _RULES.get(func)
        result = None if rule is None else rule(*args, **kwargs)
        return func(*args, **kwargs) if result is None else result


def is_symbol(*sizes: Any) -> bool:
    """Whether one of them is symbolic."""
    return any(isinstance(n, torch.SymInt) for n in sizes)


def _greater(a: Any, b: Any) -> Any:
    return torch.sym_max(a, b)  # type: ignore[no-untyped-call]


def _less(a: Any, b: Any) -> Any:
    return torch.sym_min(a, b)  # type: ignore[no-untyped-call]


def _max_pool1d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | None:  # fmt: skip
    """Of rows: of images of one row."""
    if not is_symbol(*x.shape) or return_indices:
        return None
    size, step, pad, apart = (_only(n) for n in (kernel_size, stride, padding, dilation))
    step = size if step is None else step
    image = x.unsqueeze(-2)
    return torch.max_pool2d(
        image, (1, size), (1, step), (0, pad), (1, apart), ceil_mode
    ).squeeze(-2)  # fmt: skip


def _only(n: Any) -> Any:
    """The number in a list of one; None of an empty one."""
    if isinstance(n, list | tuple):
        return n[0] if n else None
    return n


def _whole_pool(rank: int, pool: Any, whole: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """A pool whose windows are as long as the image: that is a reduction of the dimension."""

    def rule(
        x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *args: Any, **kwargs: Any
    ) -> Tensor | None:
        sizes = _each(kernel_size, rank)
        if not is_symbol(*sizes) or any(_each(padding, rank)):
            return None
        steps = _each(stride, rank) if stride is not None and stride != [] else sizes
        shape = x.shape[x.ndim - rank :]
        reduced = [k for k in range(rank) if statically_known_true(sizes[k] == shape[k])]
        y = whole(x, [k - rank for k in reduced])
        if len(reduced) == rank:
            return y
        left = [1 if k in reduced else n for k, n in enumerate(sizes)]
        if is_symbol(*left):
            return None
        step = [1 if k in reduced else n for k, n in enumerate(steps)]
        result: Tensor = pool(y, left, step, 0, *args, **kwargs)
        return result

    return rule


def _each(n: Any, rank: int) -> list[Any]:
    """An entry for each dimension."""
    given = list(n) if isinstance(n, list | tuple | torch.Size) else [n]
    return given * rank if len(given) == 1 else given


def _mean(x: Tensor, dims: list[int]) -> Tensor:
    return x.mean(dims, keepdim=True) if dims else x


def _greatest(x: Tensor, dims: list[int]) -> Tensor:
    return x.amax(dims, keepdim=True) if dims else x


def _adaptive_avg_pool1d(x: Tensor, output_size: Any) -> Tensor | None:
    """Of rows: of images of one row."""
    size = _only(output_size)
    if not is_symbol(size):
        return None
    result: Tensor = F.adaptive_avg_pool2d(x.unsqueeze(-2), (1, size)).squeeze(-2)
    return result


def _adaptive_max_pool(rank: int) -> Callable[..., Tensor | None]:
    """One dim after another; those that keep their sizes are left out."""

    def rule(x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor | None:
        first = x.ndim - rank
        given = _each(output_size, rank)
        kept = [m is None or statically_known_true(m == n)
                for m, n in zip(given, x.shape[first:], strict=True)]  # fmt: skip
        left = {first + k: m for k, m in enumerate(given) if not kept[k]}
        if return_indices or not is_symbol(*x.shape[first:]) or is_symbol(*left.values()):
            return None
        if len(left) == rank:
            return None
        for dim, size in left.items():
            rows = x.movedim(dim, -1)
            outer = rows.shape[:-1]
            flat = rows.reshape(1, math.prod(outer), rows.shape[-1])
            x = F.adaptive_max_pool1d(flat, size).reshape([*outer, size]).movedim(-1, dim)
        return x if left else x.clone()

    return rule


def _linspace(start: Any, end: Any, steps: Any, *, dtype: Any = None, **_: Any) -> Tensor | None:
    """From both ends, as torch's, so that the last value is exactly `end`; one step is `start`."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not is_symbol(steps) or not dtype.is_floating_point:
        return None
    at = torch.arange(steps)
    step = (end - start) / _greater(steps - 1, 1)
    first, last = start + step * at.to(dtype), end - step * (steps - 1 - at).to(dtype)
    return torch.where(at < _greater(steps // 2, 1), first, last).to(dtype)


def _logspace(
    start: Any, end: Any, steps: Any, base: float = 10.0, *, dtype: Any = None, **_: Any
) -> Tensor | None:
    exponents = _linspace(start, end, steps, dtype=dtype)
    return None if exponents is None else torch.pow(base, exponents)


def _one_hot(x: Tensor, num_classes: Any = -1) -> Tensor | None:
    if not is_symbol(num_classes):
        return None
    return (x.unsqueeze(-1) == torch.arange(num_classes)).to(torch.int64)


def _kron(a: Tensor, b: Tensor) -> Tensor | None:
    """Every element of `a` times all of `b`, side by side."""
    if not is_symbol(*a.shape, *b.shape):
        return None
    rank = max(a.ndim, b.ndim)
    wide, small = ((1,) * (rank - x.ndim) + tuple(x.shape) for x in (a, b))
    left = a.reshape([n for pair in zip(wide, (1,) * rank, strict=True) for n in pair])
    right = b.reshape([n for pair in zip((1,) * rank, small, strict=True) for n in pair])
    return (left * right).reshape([m * n for m, n in zip(wide, small, strict=True)])


def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: Any = None) -> Tensor | None:
    """Places in [-1, 1] of every pixel, as (x, y, 1) or (x, y, z, 1), times theta."""
    sizes = list(size)
    if not is_symbol(*sizes):
        return None
    batch, _, *image = sizes
    rank = len(image)
    columns = []
    for k, n in enumerate(image):
        places = torch.linspace(-1, 1, n) if not is_symbol(n) else _linspace(-1, 1, n)
        assert places is not None
        inside = _less(n - 1, 1) if align_corners else (n - 1) / n  # one pixel is in the middle
        places = places * inside
        columns.append(places.to(theta.dtype).reshape([-1] + [1] * (rank - 1 - k)).expand(image))
    ones = torch.ones(image, dtype=theta.dtype)
    base = torch.stack([*reversed(columns), ones], -1).reshape(1, math.prod(image), rank + 1)
    return (base @ theta.transpose(1, 2)).reshape([batch, *image, rank])


def _interpolate(
    x: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: Any = None, recompute_scale_factor: Any = None, antialias: bool = False,
) -> Tensor | None:  # fmt: skip
    """With antialias: the operator that takes the sizes, which F.interpolate does not call. Means
    of rows: of images of one row."""
    if mode == "area" and x.ndim == 3:
        (n,) = _each(size, 1) if size is not None else [
            math.floor(x.shape[2] * f) for f in _each(scale_factor, 1)
        ]  # fmt: skip
        return _adaptive_avg_pool1d(x, n)
    if not antialias or x.ndim != 4:
        return None
    scales: list[Any] = [None, None]
    if size is not None:
        sizes = _each(size, 2)
    else:
        factors = _each(scale_factor, 2)
        sizes = [math.floor(n * f) for n, f in zip(x.shape[2:], factors, strict=True)]
        scales = scales if recompute_scale_factor else factors
    if not is_symbol(*sizes):
        return None
    by_mode = {"bilinear": torch.ops.aten._upsample_bilinear2d_aa,
               "bicubic": torch.ops.aten._upsample_bicubic2d_aa}  # fmt: skip
    result: Tensor = by_mode[mode].default(x, sizes, bool(align_corners), *scales)
    return result


def _take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor | None:
    """A gather of what is expanded to one shape in the other dims."""
    if not is_symbol(*x.shape, *indices.shape) or x.ndim != indices.ndim:
        return None
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    sizes = [
        m if statically_known_true(n == 1) else n
        for m, n in zip(x.shape, indices.shape, strict=True)
    ]
    wide, places = list(sizes), list(sizes)
    wide[dim], places[dim] = x.shape[dim], indices.shape[dim]
    return x.expand(wide).gather(dim, indices.expand(places))


def _vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor | None:
    """Products of ever more of the same."""
    columns = x.shape[-1] if N is None else N
    if not is_symbol(*x.shape) or (not is_symbol(columns) and columns < 1):
        return None
    wide = x.dtype if x.dtype.is_floating_point else torch.int64
    first = torch.ones([*x.shape, 1], dtype=wide)
    factors = x.to(wide).unsqueeze(-1).expand([*x.shape, columns - 1])
    powers = torch.cat([first, factors], -1).cumprod(-1)
    return powers if increasing else powers.flip(-1)


def _products(*matrices: Any) -> Tensor | None:
    """One after another: which order is best, sizes say that are not known."""
    several = list(matrices[0]) if isinstance(matrices[0], list | tuple) else list(matrices)
    if not is_symbol(*(n for m in several for n in m.shape)):
        return None
    result: Tensor = functools.reduce(torch.matmul, several)
    return result


def _cov(
    x: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Tensor | None:
    """Products of the rows' distances from their means."""
    if not is_symbol(*x.shape) or fweights is not None or aweights is not None:
        return None
    rows = x.unsqueeze(0) if x.ndim < 2 else x
    apart = rows - rows.mean(1, keepdim=True)
    count = _greater(rows.shape[1] - correction, 0)
    result: Tensor = apart @ apart.t() / count
    return result.reshape([]) if x.ndim < 2 else result


def _corrcoef(x: Tensor) -> Tensor | None:
    found = _cov(x)
    if found is None or x.ndim < 2:
        return None if found is None else found / found
    deviations = found.diagonal().sqrt()
    return (found / deviations.unsqueeze(1) / deviations).clip(-1, 1)


def _istft(
    x: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False,
    onesided: bool | None = None, length: Any = None, return_complex: bool = False,
) -> Tensor | None:  # fmt: skip
    """To a length: windows of frames added up, over what the windows' squares add up to."""
    if not is_symbol(length) or x.shape[-2] not in (n_fft, n_fft // 2 + 1):
        return None
    hop, wide = hop_length or n_fft // 4, win_length or n_fft
    shape = torch.ones(wide) if window is None else window
    left = (n_fft - wide) // 2
    shape = F.pad(shape, (left, n_fft - wide - left))
    norm, bins = "ortho" if normalized else None, x.mT
    half = x.shape[-2] != n_fft if onesided is None else onesided
    frames = torch.fft.irfft(bins, n_fft, norm=norm) if half else torch.fft.ifft(bins, norm=norm)
    frames = frames if half or return_complex else frames.real
    start = n_fft // 2 if center else 0

    def added(windows: Tensor, beyond: float) -> Tensor:
        pieces = -(-n_fft // hop)
        windows = F.pad(windows, (0, pieces * hop - n_fft))
        lines = (windows[..., k * hop : (k + 1) * hop].flatten(-2) for k in range(pieces))
        total = sum(F.pad(v, (k * hop, (pieces - 1 - k) * hop)) for k, v in enumerate(lines))
        assert isinstance(total, Tensor)
        total = total[..., start : total.shape[-1] - (pieces * hop - n_fft)]
        return F.pad(total, (0, length), value=beyond).narrow(-1, 0, length)

    return added(frames * shape, 0.0) / added((shape * shape).expand(x.shape[-1], n_fft), 1.0)


def _as_tensor(data: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor | None:
    """Of sizes: what torch.export has for torch.tensor of them."""
    if isinstance(data, Tensor) or not is_symbol(*pytree.tree_leaves(data)):
        return None
    made: Tensor = torch._refs.tensor(data, dtype=dtype)  # type: ignore[no-untyped-call]
    return made


def _unravel_index(at: Tensor, shape: Any) -> tuple[Tensor, ...] | None:
    """A digit for each dim, the last ones first."""
    if isinstance(shape, int | torch.SymInt | Tensor) or not is_symbol(*shape):
        return None
    places = []
    for n in reversed(shape):
        places.append(at % n)
        at = torch.div(at, n, rounding_mode="floor")
    return tuple(reversed(places))


def _triangle(lower: bool) -> Callable[..., Tensor | None]:
    """The places of tril_indices or triu_indices, row by row: of each, in which row it is, by how
    many places there are up to the end of every row."""

    def rule(
        row: Any, col: Any, offset: Any = 0, *, dtype: torch.dtype = torch.int64, **_: Any
    ) -> Tensor | None:
        if not is_symbol(row, col):
            return None
        rows = torch.arange(row)
        first = torch.zeros_like(rows) if lower else (rows + offset).clamp(0, col)
        last = (rows + offset + 1).clamp(0, col) if lower else torch.zeros_like(rows) + col
        ends = (last - first).cumsum(0)
        inside = _above(row, col, offset)  # on the diagonal and above
        count = row * col - _above(row, col, offset + 1) if lower else inside
        at = torch.arange(count)
        r = torch.searchsorted(ends, at, right=True)
        return torch.stack([r, at - ends[r] + last[r]]).to(dtype)

    return rule


def _above(rows: Any, columns: Any, offset: Any) -> Any:
    """How many places of a matrix are on the diagonal at `offset` and above it: whole rows first,
    then each is shorter by one."""
    whole = _less(rows, _greater(-offset, 0))
    longest = _less(columns, _greater(columns - offset, 0))
    shorter = _less(_greater(rows - whole, 0), longest)
    return whole * columns + shorter * longest - shorter * (shorter - 1) // 2


def _fftfreq(n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """0, 1 … and then those below 0, over the length."""
    if not is_symbol(n):
        return None
    at = torch.arange(n)
    signed = torch.where(at < (n + 1) // 2, at, at - n)
    return signed.to(dtype or torch.get_default_dtype()) * (1.0 / (n * d))


def _rfftfreq(n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    if not is_symbol(n):
        return None
    return torch.arange(n // 2 + 1, dtype=dtype or torch.get_default_dtype()) * (1.0 / (n * d))


def _set_item(x: Tensor, index: Any, value: Any) -> Any:
    """At places that are sizes: a copy to what numbers and slices choose, one after another."""
    entries = list(index) if isinstance(index, tuple) else [index]
    plain = (int, slice, torch.SymInt, type(None), type(Ellipsis))
    if not is_symbol(*entries) or not all(isinstance(i, plain) for i in entries):
        return None
    at, dim = x, 0
    for k, i in enumerate(entries):
        if isinstance(i, bool):
            return None
        if i is Ellipsis:
            dim = at.ndim - sum(n is not None for n in entries[k + 1 :])
        elif i is None:
            at, dim = at.unsqueeze(dim), dim + 1
        elif isinstance(i, slice):
            at, dim = at[(slice(None),) * dim + (i,)], dim + 1
        else:
            at = at.select(dim, i)
    if not isinstance(value, Tensor):
        value = _as_tensor(value) if is_symbol(value) else torch.as_tensor(value)
    return at.copy_(value)


def _attention(q: Tensor, *args: Any, scale: Any = None, **kwargs: Any) -> Tensor | None:
    """With a scale made of sizes: of the queries."""
    is_plain = not isinstance(scale, torch.SymFloat | torch.SymInt)
    if is_plain:
        return None
    return F.scaled_dot_product_attention(q * scale, *args, **{**kwargs, "scale": 1.0})


def _complex_mean(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor | None:
    """A sum over a size: torch divides by a plain number."""
    if not x.is_complex() or not is_symbol(*x.shape) or dtype is not None:
        return None
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    count = math.prod(x.shape[d] for d in dims)
    total = x.sum() if dim is None else x.sum(dim, keepdim)
    return total / count


_RULES: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((F.max_pool1d, torch.max_pool1d), _max_pool1d),
    F.avg_pool1d: _whole_pool(1, F.avg_pool1d, _mean),
    F.avg_pool2d: _whole_pool(2, F.avg_pool2d, _mean),
    F.avg_pool3d: _whole_pool(3, F.avg_pool3d, _mean),
    F.max_pool2d: _whole_pool(2, F.max_pool2d, _greatest),
    F.max_pool3d: _whole_pool(3, F.max_pool3d, _greatest),
    **dict.fromkeys((F.adaptive_avg_pool1d, torch.adaptive_avg_pool1d), _adaptive_avg_pool1d),
    F.adaptive_max_pool1d: _adaptive_max_pool(1),
    F.adaptive_max_pool2d: _adaptive_max_pool(2),
    F.adaptive_max_pool3d: _adaptive_max_pool(3),
    torch.linspace: _linspace,
    torch.logspace: _logspace,
    F.one_hot: _one_hot,
    torch.kron: _kron,
    F.affine_grid: _affine_grid,
    F.interpolate: _interpolate,
    **dict.fromkeys((torch.take_along_dim, Tensor.take_along_dim), _take_along_dim),
    torch.vander: _vander,
    torch.linalg.vander: functools.partial(_vander, increasing=True),
    **dict.fromkeys((torch.linalg.multi_dot, torch.chain_matmul), _products),
    **dict.fromkeys((torch.cov, Tensor.cov), _cov),
    **dict.fromkeys((torch.istft, Tensor.istft), _istft),
    **dict.fromkeys((torch.mean, Tensor.mean), _complex_mean),
    **dict.fromkeys((torch.as_tensor, torch.asarray), _as_tensor),
    Tensor.__setitem__: _set_item,
    F.scaled_dot_product_attention: _attention,
    torch.unravel_index: _unravel_index,
    torch.tril_indices: _triangle(lower=True),
    torch.triu_indices: _triangle(lower=False),
    torch.fft.fftfreq: _fftfreq,
    torch.fft.rfftfreq: _rfftfreq,
    **dict.fromkeys((torch.corrcoef, Tensor.corrcoef), _corrcoef),
}
"""By the functions of torch; a rule that is not meant answers None."""
