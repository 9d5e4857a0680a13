"""Models written out in plain torch, for tests and benchmarks."""
