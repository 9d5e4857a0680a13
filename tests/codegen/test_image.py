"""Linking into a process whose address space is in pieces, or used up.

In a child each, because a linker that cannot do it might end the process."""

import subprocess
import sys

import pytest

LINK = """
import ctypes, mmap, resource
import pliant
from pliant.codegen.build import Image
from pliant.codegen.llvm.compile import compile_text
from pliant.codegen.llvm.target import target

SQUARES = ", ".join(f"i32 {k * k}" for k in range(64))
TEXT = f'''
@squares = internal constant [64 x i32] [{SQUARES}]
define i32 @square(i64 %i) prefix [16777216 x i8] zeroinitializer {{
  %p = getelementptr [64 x i32], ptr @squares, i64 0, i64 %i
  %v = load i32, ptr %p
  ret i32 %v
}}
'''
code = compile_text(TEXT, target())
"""

# Where a page is free it is far above where 16 MB are free: code and constants must not part.
PIECES = """
page, none = mmap.PAGESIZE, dict(flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
keep = [mmap.mmap(-1, page, **none) for _ in range(400)]
for hole in keep[::2]:
    hole.close()
keep.append(mmap.mmap(-1, 3 << 30, **none))
image = Image([code], ["square"], target())
print(ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(image.entries["square"])(9))
"""

USED_UP = """
used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20),) * 2)
try:
    Image([code], ["square"], target())
except pliant.ResourceError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("state", "says"),
    [(PIECES, "81\n"), (USED_UP, "bytes of code in this process, is there memory left?")],
    ids=["pieces", "used_up"],
)
def test_linking_into_an_address_space(state: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINK + state], capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert done.stderr == ""
