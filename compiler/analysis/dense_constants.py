"""Reading constant tensors: their row-major bytes, for every dtype, also those the bindings give no buffer for."""

from __future__ import annotations

import math
import re

import numpy as np

from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir
from tilewright.runtime.program import TensorSpec

_PRINTED = {"bf16": np.dtype("<u2"), "c64": np.dtype("<f4"), "c128": np.dtype("<f8")}
"""Dtypes read from what MLIR prints -> how one number of them is stored."""


def is_splat(op: ir.Operation) -> bool:
    """Whether the `arith.constant` is a tensor of one value."""
    if "complex<" in str(op.results[0].type):
        return bool(re.search(r"dense<\([^()]*\)>", str(op)))
    value = op.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat


def dense_bytes(op: ir.Operation, spec: TensorSpec) -> bytes:
    """The dense row-major bytes of an `arith.constant`; a boolean takes one byte. Raises PassError if they differ
    from `spec` in number."""
    if spec.dtype in _PRINTED:
        data = _printed_bytes(op.get_asm(enable_debug_info=False), spec)
    else:
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseResourceElementsAttr):
            data = bytes(memoryview(attribute))
        elif spec.dtype == "i1":
            data = np.asarray([bool(v) for v in attribute], dtype=np.uint8).tobytes()
        else:
            data = np.array(attribute).tobytes()
    if len(data) != spec.nbytes:
        raise PassError(
            f"constant of {spec.dtype}{list(spec.shape)}: expected {spec.nbytes} bytes, found {len(data)}"
        )
    return data


def _printed_bytes(text: str, spec: TensorSpec) -> bytes:
    """Bytes of `... dense<VALUES> : TYPE`: hexadecimal in one piece when large, else number by number."""
    values = text[text.index("dense<") + len("dense<") : text.rindex(">", 0, text.rindex(" : "))]
    if values.startswith('"0x'):
        return bytes.fromhex(values[3:-1])
    part = _PRINTED[spec.dtype]
    numbers = re.findall(r"0x[0-9A-Fa-f]+|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", values)
    data = b"".join(_number_bytes(number, part) for number in numbers)
    return data if len(data) == spec.nbytes else data * math.prod(spec.shape)


def _number_bytes(number: str, part: np.dtype) -> bytes:
    if number.startswith("0x"):
        return int(number, 16).to_bytes(part.itemsize, "little")
    if part.kind == "f":
        return np.array(float(number), part).tobytes()
    # bfloat16 is the upper half of a float, rounded to even.
    single = int(np.array(float(number), "<f4").view("<u4"))
    return ((single + 0x7FFF + (single >> 16 & 1)) >> 16).to_bytes(2, "little")
