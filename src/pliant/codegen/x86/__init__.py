"""x86-64: micro-kernels."""
