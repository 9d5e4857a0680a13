"""Small programs in LLVM IR text, as code generation would emit them, compiled to objects.

`add_one(x: f32["n"]) -> f32["n"]` checks n != 13, runs in parallel and uses every kind of memory.
`add(x: f32["n"], y: f32["m"]) -> f32["n"], f32["n"]` checks n == m; returns x + y and x - y.
"""

from __future__ import annotations

from functools import cache
from string import Template
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from pliant.runtime import abi
from pliant.runtime.callable import Program
from pliant.runtime.manifest import Function, Manifest, Site, Symbol, TensorInfo, WeightInfo

F32 = 2 << 8 | 32

NOT_THAT = Site("x: dim n must not be {0}", span="model.py:7")
DIFFER = Site("x and y differ: n = {0}, m = {1}")

HELPERS = Template("""
define internal ptr @field(ptr %base, i64 %at) alwaysinline {
  %p = getelementptr i8, ptr %base, i64 %at
  %v = load ptr, ptr %p
  ret ptr %v
}
define internal ptr @input(ptr %ctx, i64 %i) alwaysinline {
  %table = call ptr @field(ptr %ctx, i64 $inputs)
  %at = shl i64 %i, 3
  %t = call ptr @field(ptr %table, i64 %at)
  ret ptr %t
}
define internal i64 @extent(ptr %t) alwaysinline {
  %shape = call ptr @field(ptr %t, i64 $shape)
  %n = load i64, ptr %shape
  ret i64 %n
}
define internal i64 @stride(ptr %t) alwaysinline {
  %strides = call ptr @field(ptr %t, i64 $strides)
  %s = load i64, ptr %strides
  ret i64 %s
}
define internal i32 @error(ptr %ctx) alwaysinline {
  %p = getelementptr i8, ptr %ctx, i64 $error_code
  %e = load i32, ptr %p
  ret i32 %e
}
define internal void @note(ptr %ctx, i64 %site, i64 %a, i64 %b) alwaysinline {
  %p = getelementptr i8, ptr %ctx, i64 $payload
  store i64 %site, ptr %p
  %pa = getelementptr i64, ptr %p, i64 1
  store i64 %a, ptr %pa
  %pb = getelementptr i64, ptr %p, i64 2
  store i64 %b, ptr %pb
  ret void
}
define internal ptr @new_output(ptr %ctx, i64 %index, i64 %n) alwaysinline {
  %shape = alloca i64
  store i64 %n, ptr %shape
  %f = call ptr @field(ptr %ctx, i64 $output)
  %data = call ptr %f(ptr %ctx, i64 %index, i64 $f32, i64 1, ptr %shape)
  ret ptr %data
}
""").substitute(abi.CTX, shape=abi.TENSOR["shape"], strides=abi.TENSOR["strides"], f32=F32)

ADD_ONE = Template("""
%closure = type { ptr, ptr, i64 }
define internal i32 @add_one_body(ptr %ctx, ptr %c, i64 %begin, i64 %end) {
entry:
  %takes = call ptr @field(ptr %ctx, i64 $scratch)
  %room = call ptr %takes(ptr %ctx, i64 256)
  %x = load ptr, ptr %c
  %py = getelementptr %closure, ptr %c, i64 0, i32 1
  %y = load ptr, ptr %py
  %ps = getelementptr %closure, ptr %c, i64 0, i32 2
  %s = load i64, ptr %ps
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%j, %loop]
  %at = mul i64 %i, %s
  %p = getelementptr float, ptr %x, i64 %at
  %v = load float, ptr %p, align 4
  store float %v, ptr %room
  %v2 = load float, ptr %room
  %w = fadd float %v2, 1.0
  %q = getelementptr float, ptr %y, i64 %i
  store float %w, ptr %q
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
define i32 @add_one(ptr %ctx) {
  %c = alloca %closure
  %t = call ptr @input(ptr %ctx, i64 0)
  %n = call i64 @extent(ptr %t)
  %bad = icmp eq i64 %n, 13
  br i1 %bad, label %fail, label %good
fail:
  call void @note(ptr %ctx, i64 $site, i64 %n, i64 0)
  ret i32 1
good:
  %y = call ptr @new_output(ptr %ctx, i64 0, i64 %n)
  %null = icmp eq ptr %y, null
  br i1 %null, label %stop, label %segment
segment:
  %size = shl i64 %n, 2
  %takes = call ptr @field(ptr %ctx, i64 $arena)
  %room = call ptr %takes(ptr %ctx, i64 %size)
  %none = icmp eq ptr %room, null
  br i1 %none, label %stop, label %run
stop:
  %e = call i32 @error(ptr %ctx)
  ret i32 %e
run:
  call void @llvm.memset.p0.i64(ptr %room, i8 0, i64 %size, i1 false)
  %x = call ptr @field(ptr %t, i64 0)
  %s = call i64 @stride(ptr %t)
  store ptr %x, ptr %c
  %py = getelementptr %closure, ptr %c, i64 0, i32 1
  store ptr %y, ptr %py
  %ps = getelementptr %closure, ptr %c, i64 0, i32 2
  store i64 %s, ptr %ps
  %parallel = call ptr @field(ptr %ctx, i64 $parallel)
  %r = call i32 %parallel(ptr %ctx, ptr @add_one_body, ptr %c, i64 %n, i64 1024)
  ret i32 %r
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
""").substitute(abi.CTX, site=NOT_THAT.id)

ADD = Template("""
define i32 @add(ptr %ctx) {
entry:
  %tx = call ptr @input(ptr %ctx, i64 0)
  %ty = call ptr @input(ptr %ctx, i64 1)
  %n = call i64 @extent(ptr %tx)
  %m = call i64 @extent(ptr %ty)
  %same = icmp eq i64 %n, %m
  br i1 %same, label %good, label %fail
fail:
  call void @note(ptr %ctx, i64 $site, i64 %n, i64 %m)
  ret i32 1
good:
  %s = call ptr @new_output(ptr %ctx, i64 0, i64 %n)
  %none = icmp eq ptr %s, null
  br i1 %none, label %stop, label %second
second:
  %d = call ptr @new_output(ptr %ctx, i64 1, i64 %n)
  %null = icmp eq ptr %d, null
  br i1 %null, label %stop, label %run
stop:
  %e = call i32 @error(ptr %ctx)
  ret i32 %e
run:
  %x = call ptr @field(ptr %tx, i64 0)
  %y = call ptr @field(ptr %ty, i64 0)
  %sx = call i64 @stride(ptr %tx)
  %sy = call i64 @stride(ptr %ty)
  br label %head
head:
  %i = phi i64 [0, %run], [%j, %loop]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %loop, label %done
loop:
  %ax = mul i64 %i, %sx
  %px = getelementptr float, ptr %x, i64 %ax
  %vx = load float, ptr %px, align 4
  %ay = mul i64 %i, %sy
  %py = getelementptr float, ptr %y, i64 %ay
  %vy = load float, ptr %py, align 4
  %sum = fadd float %vx, %vy
  %difference = fsub float %vx, %vy
  %ps = getelementptr float, ptr %s, i64 %i
  store float %sum, ptr %ps
  %pd = getelementptr float, ptr %d, i64 %i
  store float %difference, ptr %pd
  %j = add i64 %i, 1
  br label %head
done:
  ret i32 0
}
""").substitute(site=DIFFER.id)


@cache
def target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


@cache
def compile_object(text: str) -> bytes:
    module = llvm.parse_assembly(text)
    module.verify()
    machine = target().create_target_machine(opt=2, reloc="pic", codemodel="small")
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)


def objects() -> tuple[bytes, ...]:
    return compile_object(HELPERS + ADD_ONE), compile_object(HELPERS + ADD)


def link(name: str, code: bytes) -> tuple[int, object]:
    """Puts an object into this process: the address of `name`, and what keeps it there."""
    machine = target().create_target_machine(opt=2, reloc="pic", codemodel="jitdefault")
    jit = llvm.create_lljit_compiler(target_machine=machine)
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    library = builder.export_symbol(name).link(jit, f"lib_{name}")
    return library[name], (jit, library)


@cache
def entries() -> tuple[dict[str, int], object]:
    """Addresses of both entries, and their keepalive."""
    linked = {
        name: link(name, code) for name, code in zip(("add_one", "add"), objects(), strict=True)
    }
    return {k: a for k, (a, _) in linked.items()}, [keep for _, keep in linked.values()]


def manifest(**changes: Any) -> Manifest:
    x, y = TensorInfo("x", "f32", ("n",)), TensorInfo("y", "f32", ("m",))
    add_one = Function(
        "add_one",
        "add_one",
        inputs=(x,),
        outputs=(TensorInfo("z", "f32", ("n",)),),
        sites=(NOT_THAT,),
        symbols=(Symbol("n"),),
        explain="one loop",
        stats={"compiles": 1, "kernels": 1},
    )
    add = Function(
        "add",
        "add",
        inputs=(x, y),
        outputs=(TensorInfo("sum", "f32", ("n",)), TensorInfo("difference", "f32", ("n",))),
        sites=(DIFFER,),
    )
    weight = WeightInfo("w", "f32", (3,), 64, 12)
    fields = {"functions": (add_one, add), "weights": (weight,), "versions": {"pliant": "0.1.0"}}
    return Manifest(**{**fields, **changes})


def program(**changes: Any) -> Program:
    """Both entries in this process, with a weight that they do not use."""
    addresses, keepalive = entries()
    return Program(
        changes.pop("manifest", None) or manifest(),
        addresses,
        weights=[np.arange(3, dtype=np.float32)],
        objects=objects(),
        keepalive=keepalive,
        **changes,
    )
