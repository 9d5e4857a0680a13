"""The systems of the standing benchmark, each in a process of its own.

    python -m bench.systems build SYSTEM MODEL FOLDER SIZES     makes what it loads, once
    python -m bench.systems run SYSTEM MODEL FOLDER THREADS     loads and calls it, as it is told

`run` reads a line of JSON from standard input for every order and answers with one. What a system
writes to standard output goes to standard error. Libraries are imported where they are used: a
process has no more than its own in memory, and its peak is the system's.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]
Sizes = dict[str, int]
Call = Callable[[], list[Any]]
PR_SET_PDEATHSIG: Final = 1
OPSET: Final = 17  # what importers of ONNX files expect
STACK: Final = 1 << 20  # bytes that IREE's kernels may take of it; by default too few for MiniLM


class UnavailableError(Exception):
    """Why a system cannot run a model here."""


def key_of(sizes: Sizes) -> str:
    """Sizes as part of a file's name."""
    return "_".join(f"{name}{n}" for name, n in sizes.items())


def read_inputs(folder: Path, sizes: Sizes) -> Arrays:
    """The inputs that `build inputs` left."""
    with np.load(folder / f"inputs_{key_of(sizes)}.npz") as data:
        return {name: data[name] for name in data.files}


def case_of(model: str) -> Any:
    """The model, from its framework."""
    from bench.kernel_models import KERNEL_MODELS
    from bench.onnx_models import ALL_MODELS

    return (KERNEL_MODELS.get(model) or ALL_MODELS[model])()


@dataclass(frozen=True)
class System(ABC):
    """A way to run a model. `needs` are the packages without which it is left out."""

    needs: tuple[str, ...] = ()
    bf16: bool = False

    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def build(self, model: str, folder: Path, each: list[Sizes]) -> None:
        """Make the files that `open` reads. Raises UnavailableError where there can be none."""
        return

    @abstractmethod
    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        """Load the model; what comes back makes a call for given sizes."""


def reference_of(folder: Path, sizes: Sizes) -> Path:
    """The file of the results that others are compared with."""
    return folder / f"reference_{key_of(sizes)}.npz"


@dataclass(frozen=True)
class Inputs(System):
    """Not a system: the inputs of all of them, and what the model's own framework makes of them in
    f32, which tells how far off the others are."""

    def build(self, model: str, folder: Path, each: list[Sizes]) -> None:
        case = case_of(model)
        for sizes in each:
            arrays = {name: t.numpy() for name, t in case.make(**sizes).items()}
            np.savez(folder / f"inputs_{key_of(sizes)}.npz", **arrays)
        source = OnnxRuntime() if getattr(case, "module", None) is None else Torch()
        source.build(model, folder, each)
        call_for = source.open(model, folder, threads=1)
        for sizes in each:
            results = [_array(r) for r in call_for(sizes)()]
            np.savez(reference_of(folder, sizes), *results)

    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        raise UnavailableError("inputs do not run")


@dataclass(frozen=True)
class Pliant(System):
    """This compiler: one compilation for all sizes, or one for each (`static`)."""

    static: bool = False

    def build(self, model: str, folder: Path, each: list[Sizes]) -> None:
        import pliant

        more = {}
        if self.bf16:
            more["precision"] = "bf16"
        case = case_of(model)
        dims = {n: pliant.Dim(**known) for n, known in case.dims.items()}
        torch_module = getattr(case, "module", None)
        for sizes in each if self.static else [{}]:
            if self.static and torch_module is None:
                fixed = {n: tuple(x.shape) for n, x in case.make(**sizes).items()}
                f = pliant.compile(case.path, dynamic_shapes=fixed, **more)
            elif torch_module is None:
                f = pliant.compile(case.path, dims=dims, **more)
            elif self.static:
                f = pliant.compile(torch_module, (), case.make(**sizes), **more)
            else:
                shapes = case.dynamic_shapes
                f = pliant.compile(
                    torch_module, (), case.inputs, dynamic_shapes=shapes, dims=dims, **more
                )
            f.save(self._file(folder, sizes))

    def _file(self, folder: Path, sizes: Sizes) -> Path:
        kind = ("static_" if self.static else "") + ("bf16_" if self.bf16 else "")
        return folder / f"pliant_{kind}{key_of(sizes)}.so"

    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        import pliant

        def load(sizes: Sizes) -> Any:
            return pliant.load(self._file(folder, sizes), threads=threads)

        whole = None if self.static else load({})

        def prepare(sizes: Sizes) -> Call:
            f, inputs = whole or load(sizes), read_inputs(folder, sizes)
            return lambda: list(f.run(inputs).values())

        return prepare


@dataclass(frozen=True)
class Torch(System):
    """PyTorch: eager, or compiled for each size (frozen or not), or once for all (`dynamic`)."""

    needs: tuple[str, ...] = ("torch",)
    compiled: bool = False
    frozen: bool = False
    dynamic: bool = False
    channels_last: bool = False

    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        import torch

        torch.set_num_threads(threads)
        module = getattr(case_of(model), "module", None)
        if module is None:
            raise UnavailableError("the model is an ONNX file")
        kind = torch.channels_last
        if self.channels_last:
            module = module.to(memory_format=kind)
        if self.compiled:
            import torch._inductor.config

            torch._inductor.config.freezing = self.frozen
            torch._dynamo.config.cache_size_limit = 1000  # as many sizes as there are
            module = torch.compile(module, dynamic=self.dynamic)

        def prepare(sizes: Sizes) -> Call:
            inputs = {n: torch.from_numpy(a) for n, a in read_inputs(folder, sizes).items()}
            if self.channels_last:
                if all(t.ndim != 4 for t in inputs.values()):
                    raise UnavailableError("no input is a picture")
                inputs = {
                    n: t.to(memory_format=kind) if t.ndim == 4 else t for n, t in inputs.items()
                }

            def call() -> list[Any]:
                with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                    return torch.utils._pytree.tree_leaves(module(**inputs))

            return call

        return prepare


def onnx_file(model: str, folder: Path, sizes: Sizes) -> Path:
    """The ONNX file of a model: its own, or what torch exports for these sizes."""
    from bench.onnx_models import OnnxCase

    case = case_of(model)
    if isinstance(case, OnnxCase):
        return case.path
    import torch

    path = folder / f"{key_of(sizes)}.onnx"
    if not path.exists():
        inputs = case.make(**sizes)
        torch.onnx.export(case.module, (), path, kwargs=inputs, dynamo=True, verbose=False)
    return path


@dataclass(frozen=True)
class OnnxRuntime(System):
    """ONNX Runtime on a file of the row's sizes."""

    needs: tuple[str, ...] = ("onnxruntime",)

    def build(self, model: str, folder: Path, each: list[Sizes]) -> None:
        for sizes in each:
            path = onnx_file(model, folder, sizes)
            (folder / f"ort_{key_of(sizes)}.path").write_text(str(path))

    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4

        def prepare(sizes: Sizes) -> Call:
            path = (folder / f"ort_{key_of(sizes)}.path").read_text()
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
            given = read_inputs(folder, sizes)
            feed = {i.name: given[i.name] for i in session.get_inputs()}
            return lambda: session.run(None, feed)

        return prepare


@dataclass(frozen=True)
class OpenVino(System):
    """OpenVINO on its own file of the row's sizes, in the precision that is asked for."""

    needs: tuple[str, ...] = ("openvino",)

    def build(self, model: str, folder: Path, each: list[Sizes]) -> None:
        import openvino

        case = case_of(model)
        for sizes in each:
            inputs = case.make(**sizes)
            if hasattr(case, "module"):
                converted = openvino.convert_model(case.module, example_input=dict(inputs))
                order = list(inputs.values())
                found = {p: list(t.shape) for p, t in zip(converted.inputs, order, strict=True)}
            else:
                converted = openvino.Core().read_model(case.path)
                found = {p: list(inputs[p.any_name].shape) for p in converted.inputs}
            converted.reshape(found)
            path = folder / f"openvino_{key_of(sizes)}.xml"
            openvino.save_model(converted, path, compress_to_fp16=False)

    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        import openvino

        core = openvino.Core()
        options = {
            "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if self.bf16 else "f32",
        }  # fmt: skip

        def prepare(sizes: Sizes) -> Call:
            path = folder / f"openvino_{key_of(sizes)}.xml"
            request = core.compile_model(path, "CPU", options).create_infer_request()
            feed = list(read_inputs(folder, sizes).values())  # as its inputs were made, in order

            def call() -> list[Any]:
                return list(request.infer(feed, share_inputs=True, share_outputs=True).values())

            return call

        return prepare


def static_onnx(model: str, folder: Path, sizes: Sizes) -> Path:
    """The ONNX file with these sizes as numbers, of operators as of version OPSET or later; the
    order of its inputs is left for `in_order`."""
    import onnx
    import onnx.version_converter

    path = onnx_file(model, folder, sizes)
    found = onnx.load(path, load_external_data=False)
    held = {x.name for x in found.graph.initializer}
    inputs = [x for x in found.graph.input if x.name not in held]
    _names_of(folder, sizes).write_text(json.dumps([x.name for x in inputs]))
    recent = all(x.version >= OPSET for x in found.opset_import if not x.domain)
    fixed = all(d.HasField("dim_value") for x in inputs for d in x.type.tensor_type.shape.dim)
    if recent and fixed:
        return path
    found, given = onnx.load(path), read_inputs(folder, sizes)
    if not recent:
        found = onnx.version_converter.convert_version(found, OPSET)
    for value in found.graph.input:
        if value.name in given:
            shape = zip(value.type.tensor_type.shape.dim, given[value.name].shape, strict=True)
            for dim, size in shape:
                dim.dim_value = size
    for value in found.graph.output:  # of the inputs it follows
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    del found.graph.value_info[:]
    made = folder / f"static_{key_of(sizes)}.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(found), made)
    return made


def in_order(folder: Path, sizes: Sizes) -> list[Any]:
    """The inputs of the row in the order of those of `static_onnx`."""
    given = read_inputs(folder, sizes)
    return [given[name] for name in json.loads(_names_of(folder, sizes).read_text())]


def _names_of(folder: Path, sizes: Sizes) -> Path:
    return folder / f"static_{key_of(sizes)}.names"


@dataclass(frozen=True)
class Iree(System):
    """IREE on the row's sizes, compiled for this processor: as it comes, or with its matrix
    products in tiles of their own layout (`tiled`)."""

    needs: tuple[str, ...] = ("iree", "onnx")
    tiled: bool = False

    def build(self, model: str, folder: Path, each: list[Sizes]) -> None:
        from iree.compiler import compile_file
        from iree.compiler.tools.import_onnx import __main__ as import_onnx

        tiles = "true" if self.tiled else "false"
        for sizes in each:
            path = static_onnx(model, folder, sizes)
            source = folder / f"iree_{key_of(sizes)}.mlir"
            if not source.exists():
                import_onnx.main(import_onnx.parse_arguments([str(path), "-o", str(source)]))
            compile_file(
                str(source), target_backends=["llvm-cpu"],
                output_file=str(self._file(folder, sizes)),
                extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3",
                            f"--iree-llvmcpu-stack-allocation-limit={STACK}",
                            f"--iree-opt-data-tiling={tiles}"],
            )  # fmt: skip

    def _file(self, folder: Path, sizes: Sizes) -> Path:
        return folder / f"iree_{'tiled_' if self.tiled else ''}{key_of(sizes)}.vmfb"

    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        from iree import runtime

        runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
        device = runtime.get_device("local-sync" if threads == 1 else "local-task")

        def prepare(sizes: Sizes) -> Call:
            config = runtime.Config(device=device)
            context = runtime.SystemContext(config=config)
            module = runtime.VmModule.mmap(config.vm_instance, str(self._file(folder, sizes)))
            context.add_vm_module(module)
            name = next(n for n in module.function_names if "$" not in n and n[0] != "_")
            function = context.modules[module.name][name]
            feed = [runtime.asdevicearray(device, x) for x in in_order(folder, sizes)]

            def call() -> list[Any]:
                results = function(*feed)
                several = isinstance(results, tuple | list)
                return [r.to_host() for r in (results if several else (results,))]

            return call

        return prepare


@dataclass(frozen=True)
class Tvm(System):
    """TVM on the row's sizes, compiled for this processor, not tuned."""

    needs: tuple[str, ...] = ("tvm", "onnx")

    def build(self, model: str, folder: Path, each: list[Sizes]) -> None:
        import onnx
        import tvm
        from tvm.relax.frontend.onnx import from_onnx

        processor = tvm.get_global_func("target.llvm_get_system_cpu")()
        target = tvm.target.Target({"kind": "llvm", "mcpu": str(processor)})
        for sizes in each:
            path = static_onnx(model, folder, sizes)
            module = from_onnx(onnx.load(path), keep_params_in_input=False)
            made = tvm.compile(module, target=target)
            made.export_library(str(self._file(folder, sizes)))

    def _file(self, folder: Path, sizes: Sizes) -> Path:
        return folder / f"tvm_{key_of(sizes)}.so"

    def open(self, model: str, folder: Path, threads: int) -> Callable[[Sizes], Call]:
        os.environ["TVM_NUM_THREADS"] = str(threads)  # read when it is loaded
        import tvm
        from tvm import relax

        def prepare(sizes: Sizes) -> Call:
            library = tvm.runtime.load_module(str(self._file(folder, sizes)))
            machine = relax.VirtualMachine(library, tvm.cpu())
            feed = [tvm.runtime.tensor(x) for x in in_order(folder, sizes)]

            def call() -> list[Any]:
                results = machine["main"](*feed)
                several = not hasattr(results, "numpy")
                return [r.numpy() for r in (results if several else (results,))]

            return call

        return prepare


INPUTS: Final = "inputs"
OURS: Final = {"f32": "pliant", "bf16": "pliant bf16"}
SYSTEMS: Final[Mapping[str, System]] = {
    "pliant": Pliant(),
    "pliant static": Pliant(static=True),
    "eager": Torch(),
    "channels_last": Torch(channels_last=True),
    "compile": Torch(compiled=True),
    "compile dynamic": Torch(compiled=True, dynamic=True),
    "frozen": Torch(compiled=True, frozen=True),
    "frozen channels_last": Torch(compiled=True, frozen=True, channels_last=True),
    "onnxruntime": OnnxRuntime(),
    "openvino": OpenVino(),
    "iree": Iree(),
    "iree tiled": Iree(tiled=True),
    "tvm": Tvm(),
    "pliant bf16": Pliant(bf16=True),
    "eager bf16": Torch(bf16=True),
    "frozen bf16": Torch(bf16=True, compiled=True, frozen=True),
    "openvino bf16": OpenVino(bf16=True),
}


def peak_memory() -> int:
    """The largest resident size of this process so far, bytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(x.split()[1]) * 1024 for x in status.splitlines() if x.startswith("VmHWM"))


def serve(system: System, model: str, folder: Path, threads: int) -> None:
    """Answer orders until standard input ends.

    {"open": sizes} prepares and makes a first call, leaves its results in a file, and tells seconds
    and peak memory; {"time": n} gives the median seconds of n calls, after one that is not timed.
    """
    # A stopped process does not see that who asks has ended: it goes with it (prctl(2)).
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepare: Callable[[Sizes], Call] | None = None
    call: Call | None = None
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any]
        try:
            if "open" in order:
                call = None  # a system's memory for one size at a time
                begun = time.perf_counter()
                prepare = prepare or system.open(model, folder, threads)
                call = prepare(order["open"])
                loaded = time.perf_counter() - begun
                results = [_array(r) for r in call()]
                answer = {"load": loaded, "peak": peak_memory(), "results": order["results"]}
                np.savez(order["results"], *results)
            else:
                assert call is not None
                answer = {"seconds": _seconds(call, order["time"])}
        except Exception as e:  # told to who asked: the other systems go on
            answer = {"error": f"{type(e).__name__}: {str(e)[:300]}"}
        print(json.dumps(answer), file=answers, flush=True)


def _array(result: Any) -> np.ndarray[Any, Any]:
    return np.asarray(result.float() if hasattr(result, "float") else result, np.float32)


def _seconds(call: Call, count: int) -> float:
    call()
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def main() -> int:
    """One process's part."""
    action, name, model, folder, last = sys.argv[1:]
    if action == "run":
        serve(SYSTEMS[name], model, Path(folder), int(last))
        return 0
    system: System = Inputs() if name == INPUTS else SYSTEMS[name]
    try:
        system.build(model, Path(folder), json.loads(last))
    except UnavailableError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
