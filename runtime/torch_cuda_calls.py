"""Calls of a model on an NVIDIA GPU with torch tensors: CUDA tensors without a copy, on torch's current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.runtime.cuda_executable import CALLER_ALIGNMENT_BYTES, CudaExecutable
from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Output, Signature
from tilewright.runtime.torch_calls import DTYPES, TorchCalls, state_tensor


def current_stream(device_index: int) -> int:
    """The handle of torch's current stream on a device, as an integer."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(device_index) if raw else torch.cuda.current_stream(device_index).cuda_stream


class TorchCudaCalls(TorchCalls):
    """Checks and addresses of CUDA tensors, and results in memory of torch's caching allocator.

    A call launches and returns: as with torch's own operators, whoever reads a result on the host waits. Calls on
    tensors that all lie on the CPU copy there and back, and wait. `state` is the model's own list; the first call
    on CUDA tensors moves it to the device, where it stays.
    """

    def __init__(
        self, executable: CudaExecutable, signature: Signature, state: list[Any], weights: Sequence[Any]
    ):
        host_state = [] if any(map(_is_cuda, state)) else state
        super().__init__(executable, signature, host_state, weights)
        self._model_state = state
        self._device = torch.device("cuda", executable.device.index)
        self._launch = executable.launch
        self._device_inputs = [(DTYPES[spec.dtype], torch.Size(spec.shape)) for spec in signature.inputs]
        self._device_results = [(spec.shape, DTYPES[spec.dtype]) for spec in signature.results]
        self._device_weights: dict[int, torch.Tensor] = {}
        self._device_state: list[torch.Tensor] | None = None

    def __call__(self, tensors: Sequence[Any]) -> Any:
        if not any(map(_is_cuda, tensors if tensors else self._weights)):
            if self._device_state or any(map(_is_cuda, self._model_state)):
                raise ArgumentError(
                    f"the model's state lies on {self._device}: call it with tensors there, found tensors on the CPU"
                )
            return super().__call__(tensors)
        return self._on_device(tensors)

    def _on_device(self, tensors: Sequence[Any]) -> Any:
        pointers, kept = [], []
        for tensor, (dtype, shape) in zip(tensors, self._device_inputs):
            try:
                fits = tensor.dtype is dtype and tensor.shape == shape and tensor.device == self._device
            except AttributeError:
                fits = False
            if not fits:
                self._refuse(tensors)
            pointers.append(_dense(tensor, kept))
        state = self._placed_state()
        if self._memory is not None:
            self._memory.check(tensors, state)
        pointers += [_dense(tensor, kept) for tensor in state]
        results = [self._empty(shape, dtype) for shape, dtype in self._device_results]
        stream = current_stream(self._device.index)
        # What was copied goes back to the allocator at once: its next user comes later on the same stream.
        self._launch(pointers, [result.data_ptr() for result in results], stream)
        return self._finished(tensors, state, results)

    def _placed_state(self) -> list[torch.Tensor]:
        if self._device_state is None:
            specs = self._signature.state
            placed = [
                state_tensor(array, spec).to(self._device) for array, spec in zip(self._model_state, specs)
            ]
            self._model_state[:] = placed
            self._device_state = placed
        return self._device_state

    def _empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self._device)

    def _empty_strided(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, like: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        on_device = any(map(_is_cuda, like))
        return torch.empty_strided(shape, strides, dtype=dtype, device=self._device if on_device else "cpu")

    def _source(
        self, output: Output, tensors: Sequence[Any], state: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, TensorSpec]:
        base, spec = super()._source(output, tensors, state)
        if output.source == "weight" and not base.is_cuda and any(map(_is_cuda, tensors)):
            if output.index not in self._device_weights:
                self._device_weights[output.index] = base.to(self._device)
            base = self._device_weights[output.index]
        return base, spec

    def _refuse(self, tensors: Sequence[Any]) -> None:
        for tensor, spec in zip(tensors, self._signature.inputs):
            if isinstance(tensor, torch.Tensor) and tensor.device != self._device:
                raise ArgumentError(
                    f"argument `{spec.name}`: expected a tensor on {self._device}, where the model is, found one on "
                    f"{tensor.device}; move it, or load the model with device='{tensor.device}'"
                )
        self._refuse_kinds(tensors)


def _is_cuda(tensor: Any) -> bool:
    return getattr(tensor, "is_cuda", False)


def _dense(tensor: torch.Tensor, kept: list[torch.Tensor]) -> int:
    """The address of a tensor's dense row-major values, in a copy where it has none or none that kernels can load."""
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        kept.append(tensor)
    if tensor.data_ptr() % CALLER_ALIGNMENT_BYTES:
        tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
        kept.append(tensor)
    return tensor.data_ptr()
