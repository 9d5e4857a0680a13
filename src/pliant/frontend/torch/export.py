"""From a torch module and example arguments to an exported program that holds at every size."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Mod, PythonMod

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.select import not_a_model
from pliant.frontend.torch.dims import Forward, Leaf, Request, leaves_of
from pliant.frontend.torch.examples import example_sizes, groups, grown_sizes, key_of, set_apart
from pliant.frontend.torch.guards import assumed_equal, tight_symbols
from pliant.frontend.torch.mutation import functional
from pliant.frontend.torch.probe import Probe
from pliant.frontend.torch.trial import Trial
from pliant.graph.function import Dim


@dataclass(frozen=True)
class Exported:
    """An exported program with what the user said of its dimensions.

    `requests` go with the leaves of the arguments in order. `notes` are findings that the user
    should see: sizes 0 and 1 at which the model behaves differently. `needless` guards of the
    trace restrict nothing. `probe` found that by running the model beside the program.
    """

    program: ExportedProgram
    names: tuple[str, ...]
    requests: tuple[Mapping[int, Request], ...]
    notes: tuple[str, ...] = ()
    needless: frozenset[Any] = frozenset()
    probe: Probe | None = None

    def written_as(self, program: ExportedProgram) -> Exported:
        """With the program in other operators: which sizes it is right for is found again, since
        torch may have written it for sizes like the example's."""
        other = replace(self, program=program)
        return other if self.probe is None else _fitted(other, self.probe.written_as(program))


def export_program(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dims: Mapping[str, Dim] | None = None,
    probe_small: bool = True,
) -> Exported:
    """Export a module (or take an exported program as it is).

    Example sizes of 0 and 1 in dynamic dims are replaced by larger ones, since torch would take
    them for constants. With `probe_small`, the model and the exported program are run at sizes 1
    and 0 where these are legal, and beyond the sizes that the model's code asked about, to find
    out whether the model takes another path there.
    """
    kwargs, dims = dict(kwargs or {}), dict(dims or {})
    if isinstance(model, ExportedProgram):
        return _given(model, dynamic_shapes, dims)
    _check_example(model, args, kwargs)
    forward = Forward(model.forward)
    flat = forward.flat(dynamic_shapes, len(args), kwargs)
    leaves = leaves_of(forward, args, kwargs, flat, dims)
    spec = None if dynamic_shapes is None else forward.nested(flat, args, kwargs)
    trial = Trial(model, args, kwargs, leaves, spec, dims)
    program = _widest(trial)
    stateless = functional(program)  # raises: running the model would change it
    probe = trial.probe(stateless)
    names = tuple(forward.names(len(args)))
    exported = Exported(stateless, names, tuple(leaf.requests for leaf in leaves))
    if not (probe_small and probe.possible):
        return exported
    exported = _fitted(exported, probe)
    missed = probe.missed(exported.needless)
    if missed is not None:
        raise UnsupportedError(_missed(leaves, missed))
    return exported


def _fitted(exported: Exported, probe: Probe) -> Exported:
    """With the sizes that the probe's program is right for."""
    least, needless = probe.least(), probe.needless()
    requests = tuple(_raised(leaf, least) for leaf in probe.leaves)
    notes = tuple(
        f"where {name} is below {size} the model takes another path: these sizes are refused"
        for name, size in least.items()
    )
    return replace(exported, requests=requests, notes=notes, needless=needless, probe=probe)


def _missed(leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> str:
    """What is said of a trace that is not the model, at these sizes of dims; at all for none."""
    if not sizes:
        return (
            "traced, the model does not compute what it computes otherwise: it asks whether it is "
            "being traced, or keeps something from call to call; compute that from the inputs"
        )
    words = {
        key_of(leaf, axis): f"dim {axis} of {leaf.name}"
        for leaf in leaves
        for axis in leaf.requests
    }
    places = ", ".join(f"{words[key]} = {size}" for key, size in sizes.items())
    return (
        f"traced once, the model does not compute the same at other sizes ({places}): it may keep "
        "what it computed in an earlier call (a mask, a table of positions); compute that from the "
        "inputs, or leave these dims out of dynamic_shapes"
    )


def _raised(leaf: Leaf, least: Mapping[str, int]) -> Mapping[int, Request]:
    """What was asked for, without the small sizes that the trace is wrong for."""
    return {
        axis: replace(r, known=r.known.merged(Dim(min=least.get(key_of(leaf, axis), 0))))
        for axis, r in leaf.requests.items()
    }


def _check_example(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if not isinstance(model, torch.nn.Module | torch.jit.ScriptFunction):
        raise not_a_model(model)
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise UnsupportedError(
            "TorchScript cannot be traced: give the torch module that it was made from"
        )
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidModelError(
            f"the example inputs do not fit {type(model).__name__}.forward: {error}"
        ) from error


def _given(program: ExportedProgram, dynamic_shapes: Any, dims: Mapping[str, Dim]) -> Exported:
    entry = program.module_call_graph[0].signature
    names = tuple(entry.forward_arg_names or ()) if entry is not None else ()
    spec = program.call_spec.in_spec
    assert spec is not None
    values = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"]
    tail = values[len(values) - spec.num_leaves :]
    args, kwargs = pytree.tree_unflatten(tail, spec)
    names = names or tuple(f"arg{k}" for k in range(len(args)))
    forward = Forward(names)
    flat = forward.flat(dynamic_shapes, len(args), kwargs)
    leaves = leaves_of(forward, args, kwargs, flat, dims)
    for leaf in leaves:
        for axis in leaf.requests:
            if isinstance(leaf.value.shape[axis], int):
                raise InvalidModelError(
                    f"dynamic_shapes: dim {axis} of {leaf.name} is always "
                    f"{leaf.value.shape[axis]} in the exported program; export it again with "
                    "that dim dynamic"
                )
    return Exported(functional(program), names, tuple(leaf.requests for leaf in leaves))


def _widest(trial: Trial) -> ExportedProgram:
    """Trace with examples in which nothing is equal by accident.

    No two dims with names of their own have the same size, if the model takes such examples, and
    no size computed inside is 0 or 1, or equal to another one that it need not be.
    """
    sizes = example_sizes(trial.leaves)
    apart = set_apart(trial.leaves, sizes)
    begun = trial.attempt(apart) if apart != sizes else None
    if begun is not None:
        functional(begun)  # raises: running the model would change it
        probe = trial.probe(begun)
        if probe.possible and probe.verdict({}) == "differs":  # the example takes another path
            begun = None
    program, sizes = begun, sizes if begun is None else apart
    smaller = sizes
    failure: InvalidModelError | None = None
    for growth in range(_GROWTHS):
        try:
            if growth or begun is None:
                traced = trial.trace(sizes)
                if growth and not _takes_example(trial, traced):
                    program, sizes = _nearer(trial, smaller, sizes) or (program or traced, smaller)
                    break
                program = traced
            assert program is not None
            grown = grown_sizes(trial.leaves, sizes, _tight_places(program))
        except InvalidModelError as error:  # fixed by the model, by its code, or by the example
            if failure is None:
                failure = error
                program = _by_dynamo(trial, apart)
                if program is not None:
                    break
            if growth >= _GROWTHS_OF_ALL:
                break
            grown = grown_sizes(trial.leaves, sizes, None)
        except UnsupportedError:  # the model does not like this size
            if failure is None and program is None:
                trial.run_example()
                raise
            break
        if grown == sizes:
            break
        smaller, sizes = sizes, grown
    if program is None:
        assert failure is not None
        raise failure
    if failure is None and assumed_equal(program):
        return _less_assumed(trial, program, sizes, apart)
    return program


def _takes_example(trial: Trial, program: ExportedProgram) -> bool:
    """Whether the trace holds at the user's own sizes, as far as that can be found out."""
    functional(program)  # raises: running the model would change it
    probe = trial.probe(program)
    return not probe.possible or probe.covers({})


def _nearer(
    trial: Trial, smaller: Mapping[str, int], grown: Mapping[str, int]
) -> tuple[ExportedProgram, dict[str, int]] | None:
    """A trace that holds at the user's own sizes, at sizes a little above these: twice as many
    elements may make another number of parts of them."""
    known = groups(trial.leaves)
    for more in range(1, _NEAR):
        at = dict(grown)
        for key in grown:
            dim, own = known[key][0], next(iter(known[key][1]))
            before = smaller.get(key, own)
            if grown[key] != before:
                at[key] = before + more * dim.multiple
        traced = trial.attempt(at)
        if traced is None or _tight_places(traced):
            continue
        if _takes_example(trial, traced):
            return traced, at
    return None


def _by_dynamo(trial: Trial, apart: Mapping[str, int]) -> ExportedProgram | None:
    """The trace of one that reads the code, if it does what the model does: at sizes set apart,
    else at the example's.

    It follows what plain Python makes of sizes (`int(n * 0.5)`, `math.sqrt(n)`), which is a number
    to one that runs the code.
    """
    sizes = example_sizes(trial.leaves)
    found: list[ExportedProgram] = []
    for at in (apart, sizes) if apart != sizes else (sizes,):
        program = trial.attempt(at, strict=True)
        if program is None or _tight_places(program):
            continue
        functional(program)  # raises: running the model would change it
        probe = trial.probe(program)
        if not probe.possible or probe.covers({}):
            found.append(program)
            if not _takes_numbers(program):
                break
    return min(found, key=lambda p: len(assumed_equal(p)), default=None)


def _takes_numbers(program: ExportedProgram) -> bool:
    """Whether it holds only where some size, or what was computed of sizes, is a number: a rest of
    a division is none."""
    numbers = [e for e in assumed_equal(program) if e.rhs.is_number or e.lhs.is_number]
    return any(not e.has(Mod, PythonMod) for e in numbers)


def _less_assumed(
    trial: Trial, program: ExportedProgram, sizes: Mapping[str, int], apart: Mapping[str, int]
) -> ExportedProgram:
    """A trace that holds at more sizes than this one, if there is one: by Dynamo where a size was
    taken for a number; where sizes happened to be equal (n and n // 4 * 4 at 12) at others, which
    the model takes too."""
    best = program
    if _takes_numbers(program):
        best = _lesser(best, _by_dynamo(trial, apart))
    strict = best is not program
    for _ in range(_STEPS):
        better = _elsewhere(trial, best, sizes, strict)
        if better is None:
            break
        best, sizes = better
    return best


def _elsewhere(
    trial: Trial, best: ExportedProgram, sizes: Mapping[str, int], strict: bool
) -> tuple[ExportedProgram, dict[str, int]] | None:
    """A trace by the same tracer that is right where `best` is and at other sizes, which it was
    made at: some of what `best` assumes does not hold there."""
    probe = trial.probe(best)
    beyond = probe.taken(assumed_equal(best)) if probe.possible else iter(())
    for other in itertools.islice(beyond, _TRACES):
        at = {**sizes, **other}
        traced = trial.attempt(at, strict=strict)
        if traced is None or _tight_places(traced):
            continue
        if all(map(trial.probe(traced).covers, ({}, sizes, at))):
            return traced, at
    return None


def _lesser(a: ExportedProgram, b: ExportedProgram | None) -> ExportedProgram:
    """The trace that assumes fewer equalities."""
    return a if b is None or len(assumed_equal(b)) >= len(assumed_equal(a)) else b


_GROWTHS = 5
_NEAR = 4  # so many sizes above the example's are tried where twice its size is another matter
_TRACES = 2  # at other sizes, to assume less
_STEPS = 3  # from one such trace to the next
_GROWTHS_OF_ALL = 2  # what fixes all dims is seldom their size


def _tight_places(program: ExportedProgram) -> frozenset[tuple[int, int]]:
    """The dims of inputs, as (leaf, axis), that made some inner size 0 or 1."""
    tight = tight_symbols(program)
    signature = program.graph_signature.input_specs
    inputs = [s.arg.name for s in signature if s.kind is InputKind.USER_INPUT]
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    return frozenset(
        (k, axis)
        for k, name in enumerate(inputs)
        if isinstance(values[name], torch.Tensor)
        for axis, size in enumerate(values[name].shape)
        if isinstance(size, torch.SymInt) and tight & {s.name for s in size.node.expr.free_symbols}
    )
