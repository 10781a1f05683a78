"""Calls of a compiled model on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.arrays import checked_input, numpy_dtype
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Output, Signature
from tilewright.runtime.views import dense_strides, rebased


class NumpyCalls:
    """Checks and addresses of numpy arguments, and results as numpy arrays over pooled memory."""

    def __init__(
        self, executable: Executable, signature: Signature, state: Sequence[Any], weights: Sequence[Any]
    ):
        self._executable = executable
        self._signature = signature
        self._state = [_array(array, spec) for array, spec in zip(state, signature.state)]
        self._weights = weights
        self._results = [(spec.nbytes, numpy_dtype(spec.dtype), spec.shape) for spec in signature.results]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        signature = self._signature
        dense = [checked_input(a, spec, i) for i, (a, spec) in enumerate(zip(arrays, signature.inputs))]
        dense += [np.ascontiguousarray(array) for array in self._state]
        take = self._executable.pool.take
        results = [np.ndarray(shape, dtype, take(nbytes)) for nbytes, dtype, shape in self._results]
        self._executable.run([a.ctypes.data for a in dense], [r.ctypes.data for r in results])
        for mutation in signature.mutations:
            target = self._state if mutation.target == "state" else arrays
            target[mutation.index][...] = results[mutation.result]
        return signature.returns.build([self._output(o, arrays, results) for o in signature.outputs])

    def _output(self, output: Output, arrays: Sequence[Any], results: list[np.ndarray]) -> np.ndarray:
        strides = dense_strides(output.shape) if output.strides is None else output.strides
        if output.source == "result":
            base = results[output.index]
            if output.strides is None and output.offset == 0 and base.shape == output.shape:
                return base
            return _strided(base.reshape(-1), output.shape, strides, output.offset)
        if output.source == "empty":
            return np.empty(output.shape, numpy_dtype(output.dtype))
        if output.source == "input":
            base = arrays[output.index]
        elif output.source == "state":
            base = self._state[output.index]
        else:
            base = np.asarray(self._weights[output.index])
        if output.whole:
            return base
        elements = tuple(step // base.itemsize for step in base.strides)
        actual = rebased(output, base.shape, elements)
        if actual is None:
            return _strided(np.ascontiguousarray(base).reshape(-1), output.shape, strides, output.offset)
        return _strided(base, output.shape, *actual)


class _Interface:
    """What numpy needs to see memory at another place with other strides; keeps `base` alive."""

    def __init__(self, interface: dict[str, Any], base: np.ndarray):
        self.__array_interface__ = interface
        self.base = base


def _strided(base: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
    """A view with `shape`, `strides` and `offset` in elements, counted from `base`'s first."""
    interface = dict(base.__array_interface__)
    address, read_only = interface["data"]
    interface["data"] = (address + offset * base.itemsize, read_only)
    interface["shape"] = shape
    interface["strides"] = tuple(step * base.itemsize for step in strides)
    view = np.asarray(_Interface(interface, base))
    return view if view.dtype == base.dtype else view.view(base.dtype)


def _array(array: Any, spec: TensorSpec) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array
    return np.frombuffer(array, numpy_dtype(spec.dtype)).reshape(spec.shape)
