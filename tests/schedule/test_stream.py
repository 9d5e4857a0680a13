"""Stores past the caches: what may be stored so, and that the code does it."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.llvm.emitter import Options, emit_kernel
from pliant.loop.lower_blocks import lower_blocks
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from tests.codegen.native import run_native
from tests.schedule.programs import chain, matmul, rows, same
