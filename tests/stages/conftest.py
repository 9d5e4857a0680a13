"""Compiled kernels of these tests are kept in a folder of their own."""

from tests.pipeline.conftest import _cache as _cache
