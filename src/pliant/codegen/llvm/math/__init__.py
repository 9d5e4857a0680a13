"""Vector elementary functions as LLVM IR text: any width, generic instructions, no libm."""

from pliant.codegen.llvm.math.library import (
    MATH_FUNCTIONS,
    MathFunction,
    definitions,
    math_function,
)

__all__ = ["MATH_FUNCTIONS", "MathFunction", "definitions", "math_function"]
