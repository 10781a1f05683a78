"""Calls of a compiled model on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.argument_memory import MemoryRules
from tilewright.runtime.arrays import checked_input, numpy_dtype
from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Output, Signature
from tilewright.runtime.views import dense_strides, over_a_copy, rebased


class NumpyCalls:
    """Checks and addresses of numpy arguments, and results as numpy arrays over pooled memory."""

    def __init__(
        self, executable: Executable, signature: Signature, state: Sequence[Any], weights: Sequence[Any]
    ):
        self._executable = executable
        self._signature = signature
        self._state = [_array(array, spec) for array, spec in zip(state, signature.state)]
        self._weights = weights
        self._memory = MemoryRules.of(signature, weights)
        viewed = any(output.source == "input" for output in signature.outputs)
        self._is_memory_seen = viewed or self._memory is not None
        updated = {update.output: update.input for update in executable.package.updates}
        self._results = [
            (spec.nbytes, numpy_dtype(spec.dtype), spec.shape, updated.get(number))
            for number, spec in enumerate(signature.results)
        ]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        signature = self._signature
        dense = [checked_input(a, spec, i) for i, (a, spec) in enumerate(zip(arrays, signature.inputs))]
        if self._is_memory_seen:
            arrays = self._own_arrays(arrays, dense)
        dense += [np.ascontiguousarray(array) for array in self._state]
        take = self._executable.pool.take
        results = [
            np.ndarray(shape, dtype, take(nbytes)) if updated is None else dense[updated]
            for nbytes, dtype, shape, updated in self._results
        ]
        self._executable.run([a.ctypes.data for a in dense], [r.ctypes.data for r in results])
        for mutation in signature.mutations:
            target = (self._state if mutation.target == "state" else arrays)[mutation.index]
            if results[mutation.result] is not target:
                target[...] = results[mutation.result].view(target.dtype)  # bf16 may be kept as whole numbers
        return signature.returns.build([self._output(o, arrays, results) for o in signature.outputs])

    def _own_arrays(self, arrays: Sequence[Any], dense: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arguments as arrays that may be changed and viewed; raises ArgumentError for those that may not."""
        for mutation in self._signature.mutations:
            if mutation.target == "input":
                _refuse_unwritable(self._signature.inputs[mutation.index].name, arrays[mutation.index])
        found = [a if isinstance(a, np.ndarray) else own for a, own in zip(arrays, dense)]
        if self._memory is not None:
            self._memory.check(found, self._state)
        return found

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
            base = _as_dtype(arrays[output.index], self._signature.inputs[output.index], output)
        elif output.source == "state":
            base = _as_dtype(self._state[output.index], self._signature.state[output.index], output)
        else:
            weight = self._weights[output.index]
            of_torch = hasattr(weight, "data_ptr")
            base = _memory_of(weight, numpy_dtype(output.dtype)) if of_torch else np.asarray(weight)
        if output.whole:
            return base
        elements = tuple(step // base.itemsize for step in base.strides)
        actual = rebased(output, base.shape, elements)
        if actual is None:
            order, *placed = over_a_copy(output, base.shape)
            return _strided(np.ascontiguousarray(base.transpose(order)), output.shape, *placed)
        return _strided(base, output.shape, *actual)


def _as_dtype(base: np.ndarray, spec: TensorSpec, output: Output) -> np.ndarray:
    """The memory of `base` as elements of the type that `output` has; both are as long."""
    return base if spec.dtype == output.dtype else base.view(numpy_dtype(output.dtype))


def _refuse_unwritable(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        found = "a read-only array" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise ArgumentError(
            f"argument `{name}` is changed by the model: expected a writable array, found {found}"
        )


class _Interface:
    """What numpy needs to see memory at another place with other strides; keeps `base` alive."""

    def __init__(self, interface: dict[str, Any], base: Any):
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
    """A numpy array over a state array's own memory."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "data_ptr"):
        return _memory_of(array, numpy_dtype(spec.dtype))
    return np.frombuffer(array, numpy_dtype(spec.dtype)).reshape(spec.shape)


def _memory_of(tensor: Any, dtype: np.dtype) -> np.ndarray:
    """A numpy array over the memory of a torch tensor on the CPU."""
    interface = {
        "version": 3,
        "data": (tensor.data_ptr(), False),
        "typestr": f"|V{dtype.itemsize}",
        "shape": tuple(tensor.shape),
        "strides": tuple(step * dtype.itemsize for step in tensor.stride()),
    }
    return np.asarray(_Interface(interface, tensor)).view(dtype)
