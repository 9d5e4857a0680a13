"""Masked stores of which one lane is known to be active (`codegen.llvm.compile`)."""

from __future__ import annotations

import pytest

from pliant.codegen.llvm.compile import assembly, compile_text
from pliant.codegen.llvm.target import target


def stores(mask: str, kind: str = "i16") -> str:
    return f"""
define void @f(<4 x i32> %x, ptr %p) {{
  %t = trunc <4 x i32> %x to <4 x {kind}>
  call void @llvm.masked.store.v4{kind}.p0(<4 x {kind}> %t, ptr align 1 %p, <4 x i1> <{mask}>)
  ret void
}}
declare void @llvm.masked.store.v4{kind}.p0(<4 x {kind}>, ptr, <4 x i1>)
"""


@pytest.mark.parametrize(("kind", "width"), [("i16", "w"), ("i8", "b")])
@pytest.mark.parametrize("lane", range(4))
def test_one_is_stored_as_wide_as_it_is(kind: str, width: str, lane: int) -> None:
    mask = ", ".join("i1 true" if k == lane else "i1 false" for k in range(4))
    code = assembly(stores(mask, kind), target("x86-64-avx512"))
    (store,) = [x for x in code.splitlines() if "(%rdi)" in x]
    assert store.split()[0] in (f"vpextr{width}", f"mov{width}"), store


def test_others_stay() -> None:
    text = stores("i1 true, i1 true, i1 false, i1 false")
    assert "{%k" in assembly(text, target("x86-64-avx512"))
    assert compile_text(text, target("x86-64-avx512"))
