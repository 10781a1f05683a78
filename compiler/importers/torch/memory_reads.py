"""Functions that leave PyTorch for a tensor's memory, of which a model that is traced has none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._mode_utils import no_dispatch

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator

_Tensor: Any = torch.Tensor
_functional: Any = torch  # functionalisation has no public names

_FUNCTIONALIZE = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)

READS = {
    **{
        getattr(_Tensor, name): name
        for name in ("numpy", "__array__", "tolist", "data_ptr", "storage", "untyped_storage", "__dlpack__")
    },
    _Tensor.__reduce_ex__: "__reduce_ex__, by which tensors are pickled and copied",
}
"""Methods of tensors that read memory -> what errors call them."""

REASON = (
    "reads the memory of a tensor, which has no values yet while the model is traced; compute with PyTorch's operators "
    "(`clone` copies), or use torch.compile, which runs such code in Python between the parts that it compiles"
)


def is_traced(x: Any) -> bool:
    """Whether `x` stands for a tensor that only a call will make."""
    return isinstance(x, FakeTensor) or (isinstance(x, torch.Tensor) and _functional._is_functional_tensor(x))


def read(function: Any, args: Any, kwargs: dict[str, Any], place: Callable[[], str]) -> Any:
    """What `function` of READS gives for a tensor that has values, apart from what is traced.

    Of one that is traced, `tolist` has the values that follow from constants alone. Raises UnsupportedError for others:
    whatever lay at its address would be taken for its values.
    """
    if is_traced(args[0]):
        if function is _Tensor.tolist:
            with contextlib.suppress(DataDependentOutputException):
                return _listed(args[0])
        raise UnsupportedError([UnsupportedOperator(f"torch.Tensor.{READS[function]}", REASON, place())])
    with no_dispatch(), torch._C._ExcludeDispatchKeyGuard(_FUNCTIONALIZE):
        return function(*args, **kwargs)


def _listed(x: torch.Tensor) -> Any:
    """The values of a tensor as nested lists; raises DataDependentOutputException where tracing does not know them."""
    return [_listed(row) for row in x.unbind()] if x.dim() else x.item()


def deepcopy(x: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A copy of a tensor with others of the model, each once."""
    if not is_traced(x):
        return _Tensor.__deepcopy__(x, memo)
    if id(x) not in memo:
        memo[id(x)] = x.clone()
    return memo[id(x)]


@contextlib.contextmanager
def refused_capsules(place: Callable[[], str]) -> Iterator[None]:
    """Refuses `torch.utils.dlpack.to_dlpack` of traced tensors, which no mode of PyTorch sees and which ends the process."""
    made = torch.utils.dlpack.to_dlpack

    def to_dlpack(x: Any, *args: Any) -> Any:
        return made(x, *args) if not is_traced(x) else read(_Tensor.__dlpack__, (x,), {}, place)

    torch.utils.dlpack.to_dlpack = torch.to_dlpack = to_dlpack  # type: ignore[assignment, attr-defined]
    try:
        yield
    finally:
        torch.utils.dlpack.to_dlpack = torch.to_dlpack = made  # type: ignore[assignment, attr-defined]


FUNCTIONS: dict[Any, Any] = {_Tensor.__deepcopy__: deepcopy}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
