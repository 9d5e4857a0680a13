"""`Compiled`: what `pliant.compile` and `pliant.load` return."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DTYPES
from pliant.base.errors import InvalidModelError, ResourceError, ShapeError, UnsupportedError
from pliant.base.load import load_module
from pliant.runtime import _native, abi
from pliant.runtime.artifact import Artifact, Bytes, copy_artifact, write_artifact
from pliant.runtime.manifest import Function, Manifest, Stat, TensorInfo
from pliant.runtime.messages import Messages
from pliant.runtime.tree import flatten, unflatten

HUGE_PAGE: Final = 2 << 20
MOST: Final = (1 << 63) - 1  # the runtime's numbers


def check_limits(threads: int | None, memory_limit: int | None) -> None:
    """Raises InvalidModelError for what is neither None nor a number from 1 up."""
    for name, value in (("threads", threads), ("memory_limit", memory_limit)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidModelError(
                f"{name} must be None or a whole number, at least 1, not {value!r:.60}"
            )


def aligned_empty(size: int) -> Bytes:
    """Memory for a weight: aligned as generated code expects, to a huge page when it fills one."""
    alignment = next((a for a in (HUGE_PAGE, abi.PAGE) if size >= a), abi.ALIGNMENT)
    room = np.empty(size + alignment, np.uint8)
    start = (abi.APART * (alignment == abi.PAGE) - address_of(room)) % alignment
    return room[start : start + size]


def address_of(array: Bytes) -> int:
    """Where an array's data begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def bytes_of(weight: object) -> Bytes:
    """The bytes of an array or buffer; copied only when they are scattered or badly aligned."""
    if isinstance(weight, np.ndarray):
        # Types from ml_dtypes have no buffer protocol; views of their bytes do.
        data = np.ascontiguousarray(weight).reshape(-1).view(np.uint8)
    else:
        data = np.frombuffer(weight, np.uint8)  # type: ignore[call-overload]
    if address_of(data) % abi.ALIGNMENT == 0:
        return data
    copy = aligned_empty(data.nbytes)
    copy[:] = data
    return copy


class Program:
    """Machine code in this process with its manifest and weights, shared by its functions.

    `entries` maps a function's symbol to its address; `keepalive` owns that code. `objects` are the
    relocatable object files to link when the program is saved.
    """

    def __init__(
        self,
        manifest: Manifest,
        entries: Mapping[str, int],
        *,
        weights: Sequence[object] = (),
        objects: Sequence[bytes] = (),
        keepalive: object = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        artifact: Artifact | None = None,
    ) -> None:
        if len(weights) != len(manifest.weights):
            raise InvalidModelError(
                f"the manifest lists {len(manifest.weights)} weights, {len(weights)} are given"
            )
        check_limits(threads, memory_limit)
        self.manifest = manifest
        self.weights = tuple(map(bytes_of, weights))
        for info, data in zip(manifest.weights, self.weights, strict=True):
            if data.nbytes != info.bytes:
                raise InvalidModelError(
                    f"weight {info.name}: {data.nbytes} bytes, not {info.bytes}"
                )
        self.objects = tuple(objects)
        self.threads = threads
        self.memory_limit = memory_limit
        self.artifact = artifact
        self._keepalive = (keepalive, self.weights)
        self._addresses = [address_of(w) for w in self.weights]
        self._entries = dict(entries)
        self._natives: dict[str, _native.Callable] = {}

    def function(self, name: str) -> Compiled:
        """The callable of a function. Raises ShapeError when there is none of that name."""
        return Compiled(self, self.manifest.function(name))

    def replaced(self, function: Function) -> Program:
        """The program with another description of one of its functions, and counters of its own."""
        functions = tuple(
            function if f.name == function.name else f for f in self.manifest.functions
        )
        return Program(
            replace(self.manifest, functions=functions), self._entries, weights=self.weights,
            objects=self.objects, keepalive=self._keepalive, threads=self.threads,
            memory_limit=self.memory_limit, artifact=self.artifact,
        )  # fmt: skip

    def native(self, function: Function) -> _native.Callable:
        """The call path of a function, with its counters: one, however often it is asked for."""
        if function.name not in self._natives:
            self._natives[function.name] = self._new_native(function)
        return self._natives[function.name]

    def _new_native(self, function: Function) -> _native.Callable:
        return _native.Callable(
            self._entries[function.symbol],
            inputs=[_spec(i) for i in function.inputs],
            outputs=[_spec(o) for o in function.outputs],
            weights=self._addresses,
            fail=Messages(function),
            keepalive=self._keepalive,
            threads=min(self.threads or 0, MOST),
            memory_limit=min(self.memory_limit or 0, MOST),
            single=function.result_tree.kind == "leaf",
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program as one file."""
        if self.artifact is not None:
            copy_artifact(self.artifact.file, path)
            return
        if not self.objects:
            raise ResourceError(
                "this program was compiled without keeping its objects: it cannot be saved"
            )
        link = load_module("pliant.runtime.link").link_shared  # who only loads links nothing
        code: bytes = link(self.objects, [f.symbol for f in self.manifest.functions])
        write_artifact(path, code, self.manifest, self.weights)


class Compiled:
    """A compiled function. Call it like the model it came from; many threads may at once."""

    def __init__(self, program: Program, function: Function) -> None:
        self._program = program
        self._function = function
        self._parameters = function.all_parameters
        self._result = function.result_tree
        single = self._result.kind == "leaf"
        self._is_plain_result = single or self._result.is_flat_tuple
        self._is_plain_call = all(
            p.tree.kind == "leaf" and not p.keyword_only for p in self._parameters
        )
        self._native = program.native(function)
        self._call: Callable[[tuple[object, ...], object], Any] = self._native.call

    def __call__(self, *args: object, out: object = None, **kwargs: object) -> Any:
        """Runs the function with the arguments of the one that it was compiled from.

        A tensor is one of torch on the CPU, a NumPy array (of ml_dtypes' types, too) or an object
        with `__dlpack__`, of exactly the input's type, in any strides (where the code reads rows,
        it is copied: `stats()["input_copies"]`). Results are torch tensors if an input is one, else
        NumPy arrays, in the structure that the model returns, and the caller's own.

        `out`: buffers for the results, in their structure or as a flat list, row-major, of their
        types and shapes, each with memory of its own; they are written to and returned. Inputs may
        share memory with them: then the results are put there when all of them are known.

        Raises ShapeError for arguments of a wrong number, name, rank, type, size or device, for
        sizes that break a guard, and for a value that the model cannot take (an index outside its
        range, a division of integers by 0); ResourceError where `memory_limit`, or the system's
        memory, does not suffice. Nothing is computed with arguments that are refused.
        """
        if kwargs or not self._is_plain_call:
            args = self._bind(args, kwargs)
        if self._is_plain_result:
            return self._call(args, out)
        if out is not None:
            out = self._flatten_out(out)
        return unflatten(self._result, self._call(args, out))

    def __reduce_ex__(self, protocol: object) -> Any:
        raise UnsupportedError(
            "a compiled function is code in this process, which is not copied or pickled: "
            "save(path) it and load the file with pliant.load"
        )

    def run(
        self, inputs: Mapping[str, object], out: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Runs the function on tensors by name, as `manifest` has them; results by name.

        `out` maps names of outputs to buffers, as in a call; it may leave some out, which are made.
        Raises what a call raises, and ShapeError for names that are missing or unknown.
        """
        for what, given in (("inputs", inputs), ("out", out)):
            if not isinstance(given, Mapping) and not (what == "out" and given is None):
                raise ShapeError(
                    f"{self._function.name}.run: {what} must be a dict of tensors by name, not "
                    f"a {type(given).__name__}"
                )
        tensors = tuple(_by_name(inputs, self._function.inputs, "input", optional=False))
        buffers = (
            None if out is None else _by_name(out, self._function.outputs, "output", optional=True)
        )
        results = self._call(tensors, buffers)
        if self._result.kind == "leaf":
            results = (results,)
        names = (o.name for o in self._function.outputs)
        return dict(zip(names, results, strict=True))

    def stats(self) -> dict[str, Stat]:
        """What compiling found and what calls counted, as one dict.

        Of compiling: "compiles" (1; 0 of a loaded file), "kernels" (in a call), "compile_seconds"
        and the like, and with a `precision` what it costs in accuracy. Of memory, in bytes:
        "weights_bytes", and "measured_peak_bytes", the most that one call had allocated. "threads":
        how many a call uses. Of calls, since this program was made: "calls" and "input_copies", the
        inputs that were copied first.
        """
        compiles: dict[str, Stat] = {} if self._program.artifact is None else {"compiles": 0}
        return {
            **self._function.stats,
            **compiles,
            "weights_bytes": self._program.manifest.weights_bytes,
            "threads": self._program.threads or _native.default_threads(),
            "calls": self._native.calls,
            "input_copies": self._native.copies,
            "measured_peak_bytes": self._native.peak_bytes,
        }

    def noting(self, stats: Mapping[str, float]) -> Compiled:
        """The same function, not called yet, with more that was found of it when it was compiled;
        `stats` and `explain` tell it, also of the saved file."""
        lines = [f"{name}: {value:.3g}" for name, value in stats.items()]
        noted = replace(
            self._function, stats={**self._function.stats, **stats},
            explain="\n".join([*lines, self._function.explain]),
        )  # fmt: skip
        return self._program.replaced(noted).function(noted.name)

    def explain(self) -> str:
        """Symbols, guards, kernels and what caused them."""
        return self._function.explain or str(self._function)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program, with all its functions, as one file for `pliant.load`.

        The file is a shared library with the weights behind it; it appears whole or not at all.
        Raises ResourceError where it cannot be written or linked.
        """
        self._program.save(path)

    @property
    def manifest(self) -> Manifest:
        """What is in the program: functions with their inputs, outputs and symbols, the weights,
        the target and the versions that made it."""
        return self._program.manifest

    @property
    def function(self) -> Function:
        """This function's part of the manifest."""
        return self._function

    def __getitem__(self, name: str) -> Compiled:
        """Another function of the same program. Raises ShapeError when there is none."""
        return self._program.function(name)

    def __repr__(self) -> str:
        return f"<pliant.Compiled {self._function}>"

    def _bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """The inputs, in order, of a call with the parameters of the user's function."""
        positional = [p for p in self._parameters if not p.keyword_only]
        if len(args) > len(positional):
            raise ShapeError(
                f"{self._function.name}: takes {len(positional)} positional arguments, got "
                f"{len(args)}: {self._function}"
            )
        values = {p.name: a for p, a in zip(positional, args)}
        for name, value in kwargs.items():
            if name in values:
                raise ShapeError(f"{self._function.name}: argument {name!r} is given twice")
            values[name] = value
        leaves: list[object] = []
        for p in self._parameters:
            if p.name not in values:
                if p.tree.kind == "const":  # it can only have that value
                    continue
                raise ShapeError(f"{self._function.name}: argument {p.name!r} is missing")
            leaves.extend(flatten(p.tree, values.pop(p.name), p.name))
        if values:
            known = ", ".join(p.name for p in self._parameters)
            raise ShapeError(
                f"{self._function.name}: unknown arguments {', '.join(values)}; it has {known}"
            )
        return tuple(leaves)

    def _flatten_out(self, out: object) -> list[object]:
        """Buffers in the result's structure, or as a flat list of them."""
        flat = isinstance(out, list | tuple) and len(out) == len(self._function.outputs)
        if (
            isinstance(out, list | tuple)
            and flat
            and not any(isinstance(o, list | tuple | dict) for o in out)
        ):
            return list(out)
        return flatten(self._result, out, "out")


def _spec(info: TensorInfo) -> tuple[str, int, int, bool]:
    return info.name, DTYPES[info.dtype].dlpack, len(info.shape), info.compact


def _by_name(
    given: Mapping[str, object], infos: Sequence[TensorInfo], what: str, *, optional: bool
) -> list[object]:
    names = [i.name for i in infos]
    missing = [] if optional else [n for n in names if n not in given]
    unknown = [n for n in given if n not in names]
    if missing or unknown:
        parts = [f"missing {', '.join(missing)}"] * bool(missing)
        parts += [f"unknown {', '.join(map(str, unknown))}"] * bool(unknown)
        raise ShapeError(f"{what}s: {'; '.join(parts)}; there are: {', '.join(names)}")
    return [given.get(n) for n in names]
