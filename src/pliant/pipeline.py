"""The pipeline, on one page.

    model ─ import ─► graph function ─ lower ─► kernels + host ─ build ─► objects ─► Compiled

`compile` is what users call. Every stage is a function from one representation to the next; none
changes its input.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import llvmlite
import numpy as np

from pliant.base.collector import no_collection
from pliant.base.dtypes import DType, bf16, f32, from_numpy
from pliant.base.errors import (
    InternalError,
    InvalidModelError,
    PliantError,
    ResourceError,
    UnsupportedError,
)
from pliant.base.settings import NUMERICS, PRECISIONS, Emit, settings
from pliant.codegen.beside import Beside
from pliant.codegen.build import (
    Image,
    called_kernels,
    host_source,
    spec_source,
    target_factors,
)  # fmt: skip
from pliant.codegen.cache import ObjectCache, compiler_digest
from pliant.codegen.llvm.pairs import has_pairs
from pliant.codegen.llvm.target import Target
from pliant.codegen.llvm.target import target as find_target
from pliant.codegen.micro_kernels import micro_kernel, micro_kernels, multiplies
from pliant.codegen.source import Built, Source
from pliant.dump import dump_of_settings, read_stage, write_bundle
from pliant.frontend.imported import ImportedModel
from pliant.frontend.select import Request, import_model
from pliant.graph.function import Binding, Dim
from pliant.graph.operator import Operators
from pliant.ir.node import exact
from pliant.ir.tensor import own_nodes
from pliant.lower.canonical import Spec
from pliant.lower.explain import explain
from pliant.lower.function import Lowered, Split, lower_function
from pliant.ops.program import TensorProgram
from pliant.ops.table import OPERATORS
from pliant.opt.check_program import check_program
from pliant.opt.fold_scales import fold_scales
from pliant.opt.plain_numbers import plain_numbers
from pliant.opt.plain_powers import plain_powers
from pliant.opt.plain_tables import plain_tables
from pliant.opt.reassociate import reassociate
from pliant.opt.reduce_precision import reduce_precision
from pliant.opt.use_programs import Choice, use_programs
from pliant.opt.winograd import steps_for, winograd
from pliant.runtime import abi
from pliant.runtime._native import default_threads
from pliant.runtime.accuracy import accuracy
from pliant.runtime.callable import Compiled, Program, check_limits
from pliant.runtime.features import forbidden_features, missing_features
from pliant.runtime.manifest import Function, Manifest, Site, Stat, Symbol, TensorInfo, WeightInfo
from pliant.schedule.program import Program as ScheduledProgram
from pliant.schedule.recipes.choose import recipe_name
from pliant.version import VERSION
from pliant.watch import Watch
from pliant.written import Choose, check_calls, chosen_programs, program_graph

Progress = Callable[[str, int, int], None]  # phase, done, of

# Kernels from which processes for LLVM save more than they cost, which is a third of a second each
# to begin; calls from which there will be as many kernels, unless the cache has them; and how many
# processes have enough to do while one schedules.
WORTH_PROCESSES: Final = 5
WORTH_PROCESSES_AHEAD: Final = 40
MOST_PROCESSES: Final = 3


def compile(
    model: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dims: Mapping[str, Dim] | None = None,
    target: str = "native",
    precision: str | None = None,
    numerics: str = "fast",
    threads: int | None = None,
    memory_limit: int | None = None,
    programs: Mapping[str, ScheduledProgram | Choose] | None = None,
    check_programs: bool = False,
    operators: Operators | None = None,
    progress: Progress | None = None,
    emit: Emit | None = None,
) -> Compiled:
    """Compile a model once, for every shape that its symbolic dimensions allow.

    `model`: a torch module, a function of torch tensors (weights are those of the modules that it
    refers to) or an ExportedProgram (with example `args`, `kwargs` and `dynamic_shapes` as for
    torch.export), the path, bytes or ModelProto of an ONNX model, a tensor program
    (`pliant.program`), a graph function with its weights as a pair, or the path of a module of such
    functions as PLIANT_DUMP writes it (`.py`). Of an ONNX model `dynamic_shapes` names dims of
    inputs anew; those of one name are equal. `dims` refines what is known of a symbol.
    `target`: "native", this processor, or the name of a feature set that it has (`FEATURE_SETS` in
    codegen/llvm/target.py, such as "x86-64-avx2"), for files that others shall load, too.
    `threads` None: PLIANT_NUM_THREADS, OMP_NUM_THREADS, then affinity and cgroup. `memory_limit`
    bounds the bytes that one call may allocate. `progress` is called with a phase's name and how
    many of its steps are done, of how many. `emit` says where to write which stages; None: as
    PLIANT_DUMP says. `operators`: the catalogue, if not Pliant's own (`ops.table.OPERATORS`).

    `numerics`: "fast" fuses multiplications with additions, splits sums into lanes and multiplies
    3 x 3 convolutions by Winograd's minimal filtering where that is faster; "strict" rounds after
    every operation and adds in order of the indices (slow); "batch_invariant": the bits of a row do
    not depend on how many other rows there are, or on what is in them.

    `precision`: None, as the model says; "bf16" has products of f32 values (matrix products,
    convolutions, attention) multiply bf16 factors and sum in f32, and stores as bf16 what only such
    products and windows want of a value (images, in the main); "int8" has products with weights
    multiply 8-bit integers and sum in i32, with a scale for each output channel of a weight and,
    found in every call, for each row (of a convolution: each picture). It changes the inside only:
    inputs and outputs keep their types, softmax and normalisations stay f32. With example inputs
    the model is compiled as it is too, and `stats()` and `explain()` tell the accuracy against
    that on them, for each output: relative L2 and the largest absolute error.

    `programs` gives tensor programs (`pliant.program`) for operators by name (docs/operators.md),
    instead of what would be made of them: one for all bindings of that operator, or a function of
    the operands' types (`dtype`, `shape`) and the attributes that gives one, or None to leave it.
    With `check_programs` (or PLIANT_CHECK) each is run against the operator's definition, both by
    interpreters, on random arrays of a few random sizes.

    Warns where the model does something else at sizes 0 or 1, which are then refused. Raises
    UnsupportedError (everything unsupported, at once; a target or a precision that there is not),
    InvalidModelError (a model or an option that makes no sense), ShapeError, ResourceError;
    InternalError, with a bundle to see it again, where Pliant is at fault; ImportError where the
    framework of the model is not installed.
    """
    _check_options(precision, numerics, progress, emit)
    check_limits(threads, memory_limit)
    report = progress or _silent
    operators = OPERATORS if operators is None else operators
    report("import", 0, 1)
    t = find_target(target)
    missing = missing_features(t.features)
    if missing:  # weights are prepared, and calls run, in this process
        raise UnsupportedError(
            f"target {target!r} needs {', '.join(missing)}, which this CPU lacks"
        )
    forbidden = forbidden_features(t.features)
    if forbidden:
        raise UnsupportedError(
            f"target {target!r} needs {', '.join(forbidden)}, which the system does not let this "
            "process use"
        )
    watch = Watch(operators, emit or dump_of_settings(), settings().check)
    imported: ImportedModel | None = None
    try:
        if isinstance(model, str | os.PathLike) and Path(model).suffix == ".py":
            model = read_stage(Path(model))
        if isinstance(model, ScheduledProgram):
            check_calls(model.function, t, numerics)
            model = program_graph(model, operators, dims), {}
        imported = import_model(Request(model, args, kwargs, dynamic_shapes, dims), operators)
        for note in imported.notes:
            warnings.warn(note, stacklevel=2)
        if programs:
            imported = _with_programs(
                imported, chosen_programs(programs, operators, t, numerics), operators,
                check_programs or settings().check,
            )  # fmt: skip
        function = plain_numbers(imported.function, imported.weights)
        function = plain_tables(function, imported.weights)
        if numerics == "fast":
            function = reassociate(fold_scales(function, operators), operators)
        imported = replace(imported, function=function)
        if numerics == "fast" and (steps := steps_for(precision, t.features)):
            function, stay = winograd(imported.function, operators, *steps)
            notes = _counted(
                "3 x 3 filters: ", (f"conv stays a sum of products: {s}" for s in stay)
            )
            imported = replace(imported, function=function, notes=(*imported.notes, *notes))
        finish = partial(
            compile_imported, t=t, operators=operators, numerics=numerics, threads=threads,
            memory_limit=memory_limit, progress=report,
        )  # fmt: skip
        if precision is None:
            return finish(imported, watch=watch)
        reduced = _reduced(imported, precision, operators, t)
        compiled = finish(reduced, watch=watch, narrow=precision == "bf16")
        if not (args or kwargs):
            return compiled
        report("accuracy", 0, 1)
        stats = accuracy(compiled, finish(imported), args, kwargs or {})
        return compiled.noting(stats)
    except MemoryError as error:
        raise ResourceError("compiling this model needs more memory than there is") from error
    except ImportError:  # a framework that is not installed
        raise
    except Exception as error:
        if isinstance(error, PliantError) and not isinstance(error, InternalError):
            raise
        options = {"target": target, "numerics": numerics, "precision": str(precision)}
        raise _internal(error, watch, imported, options) from error


def _with_programs(
    imported: ImportedModel, programs: Mapping[str, Choice], operators: Operators, check: bool
) -> ImportedModel:
    """The model with programs called for some of its operators, each tried first if `check`."""
    calls: dict[Any, tuple[Binding, TensorProgram]] = {}

    def used(binding: Binding, program: TensorProgram) -> None:
        types = tuple(v.type for v in binding.operands())
        calls.setdefault((binding.op, types, exact(binding.attrs), program), (binding, program))

    function = use_programs(imported.function, programs, operators, used)
    for binding, program in calls.values() if check else ():
        check_program(function, binding, program, operators)
    return replace(imported, function=function)


def _reduced(
    imported: ImportedModel, precision: str, operators: Operators, t: Target
) -> ImportedModel:
    """The model with less precision inside, and notes of what stays as it is, and of a target that
    gains little from it."""
    kept: list[str] = []

    def explained(binding: Binding, reason: str) -> None:
        kept.append(f"{binding.op} stays f32: {reason}")

    function = reduce_precision(imported.function, operators, precision, explained)
    notes = _counted(f"precision={precision!r}: ", kept)
    if not multiplies(t, precision):
        factors = {"bf16": "bf16", "int8": "bytes"}[precision]
        notes += (
            f"precision={precision!r}: {t.name} has no instructions for products of {factors}; "
            "weights take less memory, but only products with few rows are sure to be faster",
        )
    return replace(imported, function=function, notes=(*imported.notes, *notes))


def _counted(of: str, reasons: Iterable[str]) -> tuple[str, ...]:
    """A note for each reason, with how often there is it."""
    return tuple(f"{of}{n} x {what}" for what, n in Counter(reasons).items())


def _internal(
    error: Exception, watch: Watch, imported: ImportedModel | None, options: Mapping[str, str]
) -> InternalError:
    """What to tell the user of an error that is ours."""
    graph = None if imported is None else (imported.function, imported.weights)
    folder = write_bundle(error, watch.stage, graph, options)
    what = str(error) if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
    where = f"; all it takes to see it again is in {folder}, please report it" if folder else ""
    return InternalError(f"internal error, last stage {watch.stage}: {what}{where}")


@no_collection()
def compile_imported(
    imported: ImportedModel,
    t: Target,
    operators: Operators,
    *,
    numerics: str = "fast",
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    constant_extents: bool = False,
    narrow: bool = False,
    watch: Watch | None = None,
) -> Compiled:
    """Compile what a frontend made; `constant_extents` is as in `lower.canonical.outline`, `narrow`
    as in `lower.function.lower_function`."""
    begun = time.perf_counter()
    report = progress or _silent
    watch = watch or Watch(operators)
    mk = micro_kernel(t, numerics)
    imported = replace(imported, function=plain_powers(imported.function, operators))
    watch.begin(imported.weights)
    watch("import", lambda: [imported.function])
    report("lower", 0, 1)
    back = _Backend(t, numerics, ObjectCache(settings().cache_dir), report, watch)
    try:
        with closing(Beside()) as beside:
            if len(imported.function.bindings) >= WORTH_PROCESSES_AHEAD:
                beside.start(_processes())
                back.begin_ahead(bf16 if narrow else f32, beside)
            split = lower_function(
                imported.function, operators, mk.columns, constant_extents=constant_extents,
                factors=target_factors(t, numerics), lanes=t.lanes(32), numerics=numerics,
                narrow=narrow, pairs=has_pairs(t.features), watch=watch,
            )  # fmt: skip
            parts = [p for p in (split.prepare, split.main) if p is not None]
            watch.programs(parts, t, numerics)
            back.begin(parts, beside)
            weights = {v.name: imported.weights[key] for v, key in imported.function.weights}
            if split.prepare is not None:
                back.finish(split.prepare, beside)
                report("prepare weights", 0, 1)
                weights |= _prepare(split.prepare, split.prepared, weights, back)
            back.finish(split.main, beside)
    finally:
        back.store()
    if back.cache.due:
        back.cache.trim()
    info = _function_info(imported, split, tuple(back.sites), back)
    info.stats["compile_seconds"] = round(time.perf_counter() - begun, 3)
    objects = back.linked(split.main)
    image = Image(objects, [info.symbol], t)
    table = [_kept(weights[n], n in split.prepared) for n in split.main.weights]
    manifest = Manifest(
        (info,), _weight_infos(split.main.weights, table), t.triple, t.features,
        {"pliant": VERSION, "llvm": llvmlite.__version__},
    )  # fmt: skip
    program = Program(
        manifest, image.entries, weights=table, objects=objects, keepalive=image, threads=threads,
        memory_limit=memory_limit,
    )  # fmt: skip
    report("done", 1, 1)
    return program.function(info.name)


@dataclass
class _Backend:
    """Makes objects, of each distinct kernel once, through the cache."""

    t: Target
    numerics: str
    cache: ObjectCache
    report: Progress
    watch: Watch
    objects: dict[str, Built] = field(default_factory=dict)
    begun: dict[str, Future[Built]] = field(default_factory=dict)
    made: deque[tuple[str, Built]] = field(default_factory=deque)  # that are not in the cache yet
    sites: dict[Site, None] = field(default_factory=dict)

    def begin_ahead(self, factors: DType, beside: Beside) -> None:
        """What is called for products of such factors, of which most models are made and for which
        LLVM takes longest. ("strict" has none that are packed.)"""
        if beside.processes and self.numerics != "strict":
            known = micro_kernels(self.t, self.numerics)
            self._micro_kernels([next(x for x in known if x.a is x.b is factors).symbol], beside)

    def begin(self, parts: Sequence[Lowered], beside: Beside) -> None:
        """All that the parts need, as far as it is known, of which other processes make some: what
        the first needs to run comes first."""
        specs = {symbol: spec for p in parts for symbol, spec in p.kernels.items()}
        for symbol in specs:
            self._take(symbol, self._found(symbol))
        missing = [symbol for symbol in specs if symbol not in self.objects]
        if len(missing) >= WORTH_PROCESSES:
            beside.start(_processes())
        done = 0
        for p in parts:
            # What calls others first, then the longest: nobody is left with it when all is done.
            own = [x for x in p.kernels if x not in self.objects and x not in self.begun]
            for symbol in sorted(own, key=lambda x: _work(specs[x]), reverse=True):
                self.report("kernels", done, len(missing))
                self.watch.stage = f"kernel {symbol}"
                if beside.waiting:
                    self.begun[symbol] = self._begin(symbol, (symbol, specs[symbol]), beside)
                else:
                    source = spec_source(symbol, specs[symbol], self.t)
                    self.begun[symbol] = self._begin(symbol, source, beside)
                    self._micro_kernels(source.calls, beside)
                self._micro_kernels(self.store(), beside)
                done += 1
            self.begun[p.host.name] = beside.make(host_source(p.host), self.t)

    def finish(self, part: Lowered, beside: Beside) -> None:
        """Wait for what a part needs. What kernels made elsewhere call becomes known with them."""
        made = (*part.kernels, part.host.name)
        self._wait(made, beside)
        called = {name for symbol in part.kernels for name in self.objects[symbol].calls}
        self._micro_kernels(called, beside)
        self._wait(called, beside)
        for name in made:
            self.sites |= dict.fromkeys(self.objects[name].sites)

    def _micro_kernels(self, called: Iterable[str], beside: Beside) -> None:
        """Begin, or take from the cache, those that are called and were not begun before."""
        missing = sorted(x for x in called if x not in self.begun and x not in self.objects)
        for reference, mk in called_kernels(missing, self.t, self.numerics).items():
            source = Source(mk.text())
            self._take(reference, self._found(source.text))
            if reference not in self.objects:
                self.begun[reference] = self._begin(source.text, source, beside)

    def _wait(self, names: Iterable[str], beside: Beside) -> None:
        """Have these objects; where there is something to wait for, help."""
        asked = [name for name in names if name not in self.objects]
        if not all(self.begun[name].done() for name in asked):
            beside.help()
        for name in asked:
            self.watch.stage = f"code of {name}"
            self._take(name, self.begun[name].result())
            self.store()

    def _take(self, symbol: str, built: Built | None) -> None:
        if built is not None:
            self.objects[symbol] = built

    def _begin(self, key: str, what: Source | tuple[str, Spec], beside: Beside) -> Future[Built]:
        """Have an object made that the cache lacks."""

        def keep(code: Future[Built]) -> None:
            if not code.cancelled() and code.exception() is None:
                self.made.append((key, code.result()))

        code = beside.make(what, self.t)
        code.add_done_callback(keep)
        return code

    def store(self) -> set[str]:
        """Put what was made so far into the cache; what it calls. Who attends to a process has no
        time for it."""
        called = set[str]()
        with suppress(IndexError):
            while True:
                key, built = self.made.popleft()
                checks = [[s.message, s.error] for s in built.sites]
                notes = {"sites": checks, "calls": built.calls}
                self.cache.put(self._key(key), built.object, notes)
                called |= set(built.calls)
        return called

    def _found(self, what: str) -> Built | None:
        """What the cache has."""
        found = self.cache.get(self._key(what))
        if found is None:
            return None
        data, notes = found
        return Built(data, tuple(Site(*pair) for pair in notes["sites"]), tuple(notes["calls"]))

    def _key(self, what: str) -> str:
        parts = (what, repr(self.t), VERSION, llvmlite.__version__, compiler_digest())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def linked(self, part: Lowered) -> list[bytes]:
        """A host function's object, after those that it needs."""
        called = dict.fromkeys(name for k in part.kernels for name in self.objects[k].calls)
        return [self.objects[n].object for n in (*called, *part.kernels, part.host.name)]


def _processes() -> int:
    return min(default_threads() - 1, MOST_PROCESSES)


def _work(spec: Spec) -> tuple[bool, int]:
    """Whether there are micro-kernels to be made for it, and how much code of its own, about."""
    return bool(spec.plans), sum(1 for _, tensor in spec.members for _ in own_nodes(tensor))


def _prepare(
    part: Lowered, names: tuple[str, ...], weights: Mapping[str, np.ndarray], back: _Backend
) -> dict[str, np.ndarray]:
    """Run, now, everything that is constant (`lower.constants`)."""
    image = Image(back.linked(part), [part.host.name], back.t)
    outputs = tuple(
        TensorInfo(n, part.types[n].dtype.name, tuple(map(str, part.types[n].dims))) for n in names
    )
    info = Function(part.host.name, part.host.name, (), outputs, sites=tuple(back.sites))
    table = [np.ascontiguousarray(weights[n]) for n in part.weights]
    manifest = Manifest((info,), _weight_infos(part.weights, table))
    program = Program(manifest, image.entries, weights=table, keepalive=image)
    results = program.function(info.name)()
    return dict(zip(names, results if len(names) > 1 else (results,), strict=True))


def _kept(a: np.ndarray, ours: bool) -> np.ndarray:
    """A weight as it is now, whatever its owner does with it later."""
    owner: Any = a
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if ours or isinstance(owner, bytes):
        return np.ascontiguousarray(a)
    return np.array(a, order="C")


def _weight_infos(names: tuple[str, ...], arrays: list[np.ndarray]) -> tuple[WeightInfo, ...]:
    out, offset = [], abi.APART
    for name, a in zip(names, arrays, strict=True):
        out.append(WeightInfo(name, from_numpy(a.dtype).name, a.shape, offset, a.nbytes))
        offset += -(-a.nbytes // abi.ALIGNMENT) * abi.ALIGNMENT
    return tuple(out)


def _function_info(
    imported: ImportedModel, split: Split, sites: tuple[Site, ...], back: _Backend
) -> Function:
    f, main = imported.function, split.main
    stats: dict[str, Stat] = {
        "compiles": 1,
        "kernels": len(main.kernels),
        "launches": len(main.launches),
        "cache_hits": back.cache.hits,
        "cache_misses": back.cache.misses,
        "code_bytes": sum(len(back.objects[n].object) for n in main.kernels),
        "peak_memory": str(main.memory.bytes),
        "numerics": back.numerics,
    }
    return Function(
        f.name, f.name,
        tuple(TensorInfo(n, v.dtype.name, tuple(map(str, v.shape)), compact=True)
              for n, v in zip(imported.inputs, f.params, strict=True)),
        tuple(TensorInfo(n, v.dtype.name, tuple(map(str, v.shape)))
              for n, v in zip(imported.outputs, f.results, strict=True)),
        imported.parameters, imported.result, sites,
        tuple(Symbol(n, d.min, d.max, d.multiple) for n, d in f.dims),
        explain(f, main, split.prepare, imported.notes, recipe_name), stats,
    )  # fmt: skip


def _check_options(
    precision: str | None, numerics: str, progress: Progress | None, emit: Emit | None
) -> None:
    if not isinstance(emit, Emit | None):
        raise InvalidModelError(
            "emit must be a pliant.base.settings.Emit: a folder, and kinds of stages, not "
            f"{emit!r:.60}"
        )
    if progress is not None and not callable(progress):
        raise InvalidModelError(
            f"progress must be a function of (phase, done, of), not {progress!r}"
        )
    if precision is not None and precision not in PRECISIONS:
        raise UnsupportedError(
            f"precision={precision!r} is not available; there are: None (as the model says), "
            + ", ".join(map(repr, PRECISIONS))
        )
    if numerics not in NUMERICS:
        raise InvalidModelError(f"numerics must be one of {', '.join(NUMERICS)}, not {numerics!r}")


def _silent(phase: str, done: int, of: int) -> None:
    pass
