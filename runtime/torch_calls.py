"""Calls of a compiled model on torch tensors in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tilewright.runtime.argument_memory import MemoryRules
from tilewright.runtime.arrays import NUMPY_NAMES, numpy_dtype
from tilewright.runtime.errors import ArgumentError, OtherLibraryError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Output, Signature
from tilewright.runtime.views import dense_strides, over_a_copy, rebased

_NOT_IN_NUMPY = {"bf16": (np.dtype(np.int16), torch.bfloat16)}
DTYPES = {name: getattr(torch, numpy_name) for name, numpy_name in NUMPY_NAMES.items()}


class TorchCalls:
    """Checks and addresses of torch arguments, and results as torch tensors over pooled memory."""

    def __init__(
        self, executable: Executable, signature: Signature, state: Sequence[Any], weights: Sequence[Any]
    ):
        self._run = executable.run
        self._take = executable.pool.take
        self._signature = signature
        self._inputs = [(DTYPES[spec.dtype], torch.Size(spec.shape)) for spec in signature.inputs]
        self._state = [state_tensor(array, spec) for array, spec in zip(state, signature.state)]
        self._weights = list(weights)
        updated = {update.output: update.input for update in executable.package.updates}
        self._results: list[tuple[int, tuple[int, ...], Any, Any, int | None]] = [
            (
                spec.nbytes,
                spec.shape,
                *(_NOT_IN_NUMPY.get(spec.dtype) or (numpy_dtype(spec.dtype), None)),
                updated.get(number),
            )
            for number, spec in enumerate(signature.results)
        ]
        self._memory = MemoryRules.of(signature, weights)
        self._mutations = [(m.result, m.target == "state", m.index) for m in signature.mutations]
        self._returns = signature.returns
        # The common case, every output a whole result in order, needs no look at the outputs at all.
        self._plain = not signature.mutations and [
            (o.source, o.index, o.strides, o.offset, o.shape) for o in signature.outputs
        ] == [("result", i, None, 0, spec.shape) for i, spec in enumerate(signature.results)]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        pointers, dense = [], []
        for tensor, (dtype, shape) in zip(tensors, self._inputs):
            try:
                fits = tensor.dtype is dtype and tensor.shape == shape and tensor.is_cpu
                fits = fits and tensor.layout is torch.strided
            except AttributeError:
                fits = False
            if not fits:
                self._refuse(tensors)
            if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
                tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
            pointer = tensor.data_ptr()
            if not pointer and tensor.numel():
                self._refuse_without_memory(len(pointers))
            pointers.append(pointer)
            dense.append(tensor)
        if self._memory is not None:
            self._memory.check(tensors, self._state)
        for tensor in self._state:
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
            pointers.append(tensor.data_ptr())
            dense.append(tensor)
        results, addresses = [], []
        for nbytes, shape, stored, viewed, updated in self._results:
            if updated is not None:
                addresses.append(pointers[updated])
                results.append(dense[updated])
                continue
            lease = self._take(nbytes)
            addresses.append(lease.address)
            # From numpy is four times as fast as torch.frombuffer and a view.
            result = torch.from_numpy(np.ndarray(shape, stored, lease))
            results.append(result if viewed is None else result.view(viewed))
        self._run(pointers, addresses)
        return self._finished(tensors, self._state, results)

    def _finished(
        self, tensors: Sequence[torch.Tensor], state: Sequence[torch.Tensor], results: list[torch.Tensor]
    ) -> Any:
        """What the caller gets, after inputs and state that the model changes have been."""
        if self._plain:
            return self._returns.build(results)
        for result, of_state, index in self._mutations:
            target = state[index] if of_state else tensors[index]
            if results[result] is target:
                torch.autograd.graph.increment_version(target)
            else:
                target.detach().copy_(results[result])
        outputs = [self._output(output, tensors, state, results) for output in self._signature.outputs]
        return self._returns.build(outputs)

    def _output(
        self,
        output: Output,
        tensors: Sequence[Any],
        state: Sequence[torch.Tensor],
        results: list[torch.Tensor],
    ) -> torch.Tensor:
        dtype = DTYPES[output.dtype]
        strides = dense_strides(output.shape) if output.strides is None else output.strides
        if output.source == "result":
            base = results[output.index]
            if output.strides is None and output.offset == 0 and base.shape == output.shape:
                return base
            return base.as_strided(output.shape, strides, output.offset)
        if output.source == "empty":
            return self._empty_strided(output.shape, strides, dtype, [*tensors, *results])
        base, spec = self._source(output, tensors, state)
        if output.whole:
            return base
        if base.dtype != dtype:
            base = base.view(dtype)
        actual = rebased(output, spec.shape, tuple(base.stride()))
        if actual is None:
            order, *placed = over_a_copy(output, spec.shape)
            return base.permute(order).contiguous().as_strided(output.shape, *placed)
        return base.as_strided(output.shape, actual[0], base.storage_offset() + actual[1])

    def _empty_strided(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, like: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """An uninitialised tensor beside those of a call."""
        return torch.empty_strided(shape, strides, dtype=dtype)

    def _source(
        self, output: Output, tensors: Sequence[Any], state: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, TensorSpec]:
        if output.source == "input":
            return tensors[output.index], self._signature.inputs[output.index]
        if output.source == "state":
            return state[output.index], self._signature.state[output.index]
        weight = self._weights[output.index]
        if not isinstance(weight, torch.Tensor):
            # A copy, kept: the file of a loaded model is mapped for reading only, and tensors can be written.
            spec = TensorSpec("weight", output.dtype, np.shape(weight))
            weight = self._weights[output.index] = state_tensor(np.array(weight), spec)
        return weight, TensorSpec("weight", output.dtype, tuple(weight.shape))

    def _refuse(self, tensors: Sequence[Any]) -> None:
        for tensor, spec in zip(tensors, self._signature.inputs):
            if isinstance(tensor, torch.Tensor) and not tensor.is_cpu:
                raise ArgumentError(
                    f"argument `{spec.name}`: expected a tensor on the CPU, found one on {tensor.device}"
                )
        self._refuse_kinds(tensors)

    def _refuse_without_memory(self, number: int) -> None:
        """Raises for an argument like a FakeTensor, of which PyTorch tells shape and device only."""
        name = self._signature.inputs[number].name
        raise ArgumentError(f"argument `{name}`: expected a tensor with values, found one without memory")

    def _refuse_kinds(self, tensors: Sequence[Any]) -> None:
        """Raises for the first that is no tensor or has another dtype or shape."""
        if not any(isinstance(tensor, torch.Tensor) for tensor in tensors):
            raise OtherLibraryError("expected torch tensors, found none")
        for tensor, spec in zip(tensors, self._signature.inputs):
            who = f"argument `{spec.name}`"
            if not isinstance(tensor, torch.Tensor):
                raise ArgumentError(f"{who}: expected a torch tensor, found {type(tensor).__name__}")
            if tensor.layout is not torch.strided:
                raise ArgumentError(
                    f"{who}: expected a dense tensor, found one of layout {tensor.layout}; convert it by to_dense()"
                )
            if tensor.dtype is not DTYPES[spec.dtype]:
                expected = DTYPES[spec.dtype]
                raise ArgumentError(f"{who}: expected {expected}, found {tensor.dtype}; convert it first")
            if tuple(tensor.shape) != spec.shape:
                raise ArgumentError(
                    f"{who}: expected shape {list(spec.shape)}, found {list(tensor.shape)}; "
                    "shapes are fixed when a model is compiled"
                )


def state_tensor(array: Any, spec: TensorSpec) -> torch.Tensor:
    """A torch tensor over a state array's own memory."""
    if isinstance(array, torch.Tensor):
        return array.detach()
    if 0 in spec.shape:
        return torch.empty(spec.shape, dtype=DTYPES[spec.dtype])
    return torch.frombuffer(array, dtype=DTYPES[spec.dtype]).view(spec.shape)
