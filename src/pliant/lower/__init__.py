"""Graph functions to kernels and a host function."""
