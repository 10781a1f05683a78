"""Fixtures of the GPU's tests: the mock CUDA driver."""

from mock_cuda_driver import mock, mock_library

__all__ = ["mock", "mock_library"]
