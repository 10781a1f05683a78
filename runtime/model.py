"""A compiled model as users call it: the model's own arguments in, its own structure out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tilewright.runtime.errors import ArgumentError, OtherLibraryError
from tilewright.runtime.executable import Executable
from tilewright.runtime.signature import Signature


class CompiledModel:
    """Calls `executable` with the arguments that `signature` describes.

    Takes torch tensors or numpy arrays and returns the same kind; a model made from PyTorch returns torch
    tensors when it has no tensor inputs either. `state` are the tensors behind `signature.state`, updated
    by calls. `weights` are the bound arrays, which models that return a weight give back; those that are torch tensors
    and were changed in place are bound again, as kernels have copies of some, laid out for them, and read others in place.

    Raises ArgumentError (a ValueError) for a wrong shape, dtype, device or constant, and TypeError for
    missing or unknown arguments. Results are not attached to an autograd graph.
    """

    def __init__(
        self,
        executable: Executable | Any,
        signature: Signature,
        state: Sequence[Any] = (),
        weights: Sequence[Any] | None = None,
    ):
        self.executable = executable
        self.signature = signature
        self.state = list(state)
        self.weights = list(executable.weights if weights is None else weights)
        self._versions = _versions(self.weights)
        self.follows_weights = True
        """Whether calls look for weights that were changed; False where their caller does."""
        self._flat = len(signature.inputs) if signature.is_flat else -1
        self._torch: Any = None
        self._numpy: Any = None
        self._default: Any = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.follows_weights:
            self._follow_weights()
        if len(args) == self._flat and not kwargs:
            tensors: Sequence[Any] = args
        else:
            tensors = self.signature.bind(args, kwargs)
        calls = self._torch
        if calls is None or self._numpy is not None:
            calls = self._calls(tensors)
        try:
            return calls(tensors)
        except OtherLibraryError:  # so far, this model was called with torch tensors only
            return self._calls(tensors)(tensors)

    def rebind(self, weights: Sequence[Any]) -> None:
        """Binds other weights of the same shapes and types, in their order."""
        self.executable.rebind(weights)
        self.weights, self._versions = list(weights), _versions(weights)
        self._torch = self._numpy = None  # they hold weights that the model returns

    def _follow_weights(self) -> None:
        """Binds the weights again where one was changed in place since."""
        if self._versions and _versions(self.weights) != self._versions:
            self.rebind(self.weights)

    def save(self, path: str) -> None:
        """Writes the model as one file that `tilewright.load` reads without compiler, MLIR or torch."""
        from tilewright.runtime import artifact

        self._follow_weights()
        artifact.save(self, path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the bytes of a saved model, which are parsed and checked where they are loaded."""
        from tilewright.runtime import artifact

        self._follow_weights()
        index = getattr(getattr(self.executable, "device", None), "index", None)
        return artifact.loads, (artifact.dumps(self), index)

    def __copy__(self) -> CompiledModel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModel:
        """A model with the same code and weights and with state of its own."""
        self._follow_weights()
        return CompiledModel(self.executable, self.signature, copy.deepcopy(self.state, memo), self.weights)

    def _calls(self, tensors: Sequence[Any]) -> Any:
        """The adapter for the library that the arguments come from."""
        library = next((type(t).__module__ for t in tensors if hasattr(t, "data_ptr")), "")
        if library or (not tensors and self.signature.flavour == "torch" and _torch_is_loaded()):
            if self._torch is None:
                self._torch = self._torch_calls()
            return self._torch
        if any(getattr(state, "is_cuda", False) for state in self.state):
            raise ArgumentError("the model's state lies on a GPU: call it with torch tensors there")
        if self._numpy is None:
            from tilewright.runtime.numpy_calls import NumpyCalls

            self._numpy = NumpyCalls(self.executable, self.signature, self.state, self.weights)
        return self._numpy

    def _torch_calls(self) -> Any:
        if hasattr(self.executable, "launch"):
            from tilewright.runtime.torch_cuda_calls import TorchCudaCalls

            return TorchCudaCalls(self.executable, self.signature, self.state, self.weights)
        from tilewright.runtime.torch_calls import TorchCalls

        return TorchCalls(self.executable, self.signature, self.state, self.weights)


def _versions(weights: Sequence[Any]) -> list[int]:
    """How often each torch tensor among weights was changed in place; of those made in inference mode nothing tells."""
    try:
        return [weight._version for weight in weights]
    except (AttributeError, RuntimeError):
        return [version for weight in weights if (version := _version(weight)) is not None]


def _version(weight: Any) -> int | None:
    try:
        return weight._version
    except (AttributeError, RuntimeError):
        return None


def _torch_is_loaded() -> bool:
    import sys

    return "torch" in sys.modules
