"""Calls of an executable on numpy arrays, whatever machine it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.runtime import arrays, settings
from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.output_pool import OutputPool
from tilewright.runtime.program import Package


class HostCalls:
    """Checks numpy arrays against a package's specs and hands their addresses to `run`, which a subclass has."""

    def __init__(self, package: Package):
        self.package = package
        self.inputs, self.outputs = package.inputs, package.outputs
        keep_bytes = settings.output_pool_bytes()
        self.pool = OutputPool(keep_bytes and max(keep_bytes, sum(spec.nbytes for spec in package.outputs)))
        self._input_dtypes = [arrays.numpy_dtype(spec.dtype) for spec in package.inputs]
        self._output_bytes = [spec.nbytes for spec in package.outputs]
        self._output_dtypes = [arrays.numpy_dtype(spec.dtype) for spec in package.outputs]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"`{type(self).__name__}` is bound to memory of this process, which is neither copied nor pickled; copy "
            "or pickle the compiled model that holds it, or save that"
        )

    def run(self, input_pointers: Sequence[int], output_pointers: Sequence[int]) -> None:
        """Runs on dense row-major host memory at the given addresses."""
        raise NotImplementedError

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Runs on numpy arrays of the package's input specs; returns new arrays from the output pool.

        Raises ArgumentError for a wrong count, dtype or shape. bf16 is `ml_dtypes.bfloat16` or uint16.
        """
        dense = self.checked(inputs)
        leases = [self.pool.take(nbytes) for nbytes in self._output_bytes]
        self.run([array.ctypes.data for array in dense], [lease.address for lease in leases])
        return [
            np.ndarray(spec.shape, dtype, lease)
            for spec, dtype, lease in zip(self.outputs, self._output_dtypes, leases)
        ]

    def output(self, position: int) -> np.ndarray:
        """An uninitialised array for output number `position`, from memory of earlier outputs where free."""
        spec = self.outputs[position]
        return np.ndarray(spec.shape, self._output_dtypes[position], self.pool.take(spec.nbytes))

    def checked(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """The inputs as dense arrays of their specs; raises ArgumentError."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(spec.name for spec in self.inputs)
            raise ArgumentError(f"expected {len(self.inputs)} inputs ({names}), found {len(inputs)}")
        return [
            array
            if type(array) is np.ndarray
            and array.dtype == dtype
            and array.shape == spec.shape
            and array.flags.c_contiguous
            else arrays.checked_input(array, spec, position)
            for position, (array, spec, dtype) in enumerate(zip(inputs, self.inputs, self._input_dtypes))
        ]

    def example_inputs(self, given: Sequence[Any]) -> list[np.ndarray]:
        """`given` checked, or zeros where nothing is given."""
        if given:
            return self.checked(given)
        return [np.zeros(s.shape, dtype) for s, dtype in zip(self.inputs, self._input_dtypes)]
