"""Names of PyTorch dtypes in the runtime's tables, and which of them can be compiled."""

from __future__ import annotations

from pathlib import Path

import torch

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator

TORCH_FOLDER = str(Path(torch.__file__).parent)
"""Where PyTorch's own sources lie: lines there are not the user's."""

_NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "i1",
}


def compute_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype that sums and powers of `x` are computed in: single precision for shorter floats."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


NO_TYPE = "compiled code has no such type; convert the tensor to another one"


def has_name(dtype: torch.dtype) -> bool:
    """Whether compiled code has tensors of `dtype`."""
    return dtype in _NAMES


def dtype_name(dtype: torch.dtype) -> str:
    """The runtime's name of `dtype`; raises UnsupportedError when it has none."""
    try:
        return _NAMES[dtype]
    except KeyError:
        raise UnsupportedError([UnsupportedOperator(f"a tensor of {dtype}", NO_TYPE)]) from None
