"""The interface of generated code with the runtime, as numbers: what `native/pliant.h` says.

Code generation reads this table and not the C header, so that it works where `_native` is not
built; a test holds the two together.
"""

from __future__ import annotations

from typing import Final

ABI_VERSION: Final = 1

# Byte offsets of the fields of `pl_ctx`.
CTX: Final[dict[str, int]] = {
    "version": 0,
    "size": 4,
    "parallel": 8,
    "arena": 16,
    "scratch": 24,
    "mark": 32,
    "release": 40,
    "output": 48,
    "weights": 56,
    "num_threads": 64,
    "error_code": 72,
    "payload": 80,
    "inputs": 144,
    "poll": 152,
    "thread": 160,
    "num_inputs": 168,
    "num_outputs": 176,
}

# Byte offsets of the fields of DLPack's `DLTensor`.
TENSOR: Final[dict[str, int]] = {
    "data": 0,
    "device_type": 8,
    "device_id": 12,
    "ndim": 16,
    "dtype": 20,
    "shape": 24,
    "strides": 32,
    "byte_offset": 40,
}

ALIGNMENT: Final = 64  # of arena segments, scratch blocks, new outputs and weights
# Where weights as long as a page begin in one: not where outputs do. What is loaded from the place
# in a page that was stored to just before waits (Zen 4: layer norm of 16 KB takes 1.13 as long).
APART: Final = 256
# Where what a kernel keeps begins in a page, in scratch memory and on the stack: amid it, for the
# same reason (Zen 4: softmax of rows of 4 KB took up to 1.5 times as long, in one process of four,
# for a stack begins anywhere).
AMID: Final = 2048
PAGE: Final = 4096
MAX_NDIM: Final = 64
PAYLOAD: Final = 8

# What kernels and entries return.
OK: Final = 0
CHECK: Final = 1  # payload: site, then the values its message names
MEMORY: Final = 2  # payload: -1, bytes asked for, limit
INDEX: Final = 3  # payload: site or -1, index, extent
DIVIDE: Final = 4  # payload: site or -1
OUTPUT: Final = 5  # payload: output, one of OUTPUT_*, dimension, expected, got
INTERRUPTED: Final = 6

OUTPUT_DTYPE: Final = 1
OUTPUT_RANK: Final = 2
OUTPUT_EXTENT: Final = 3
OUTPUT_NOT_COMPACT: Final = 4
OUTPUT_SHARED: Final = 5
OUTPUT_MISSING: Final = 6
OUTPUT_NEGATIVE: Final = 7

# What the call path finds wrong before the entry runs; payload: 1 for an output, its index, values.
ARG_COUNT: Final = -1
ARG_KIND: Final = -2
ARG_DTYPE: Final = -3
ARG_RANK: Final = -4
ARG_DEVICE: Final = -5
ARG_GRAD: Final = -6
ARG_VALUE: Final = -7
ARG_LAYOUT: Final = -8
ARG_ORDER: Final = -9
ARG_READ_ONLY: Final = -10
ARG_MEMORY: Final = -11
