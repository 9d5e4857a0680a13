"""What is particular to AArch64: the steps of its micro-kernels."""
