"""Small kernels written by hand, for tests of the emulator: one block or few, each around one mechanism."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.compiler.codegen.emulation import EmulationError, run_kernel
from tilewright.compiler.gpu import builder
from tilewright.compiler.gpu.launch import ALONE, Gang
from tilewright.compiler.ir import context, ir, memref

SHARED = "#gpu.address_space<workgroup>"


def memref_type(shape: str) -> ir.Type:
    """`"4x8xf32"` -> a memref type in global memory."""
    return ir.Type.parse(f"memref<{shape}>")


def write(
    buffers: list[str],
    body: Callable[[builder.Kernel], None],
    *,
    rtasks: int = 1,
    block: int = 32,
    gang: Gang = ALONE,
    **needs,
) -> ir.Module:
    """A kernel over memrefs of the given shapes, whose body `body` writes; tensor maps as text of attributes."""
    with context(), ir.Location.unknown():
        maps = [ir.Attribute.parse(text) for text in needs.pop("tensor_maps", ())]
        types = [memref_type(shape) for shape in buffers]
        with builder.kernel(
            "small", types, rtasks=rtasks, block=block, gang=gang, tensor_maps=maps, **needs
        ) as kernel:
            body(kernel)
    return kernel.module


def i32_value(number: int) -> builder.Value:
    return builder.constant(ir.IntegerType.get_signless(32), number)


def f32() -> ir.Type:
    return ir.F32Type.get()


def shared_bytes(count: int, alignment: int = 1024) -> ir.Value:
    """Bytes of shared memory, as primitives take them."""
    return builder.shared([count], ir.IntegerType.get_signless(8), alignment)


def viewed(buffer: ir.Value, offset: int, shape: str) -> ir.Value:
    """A typed view of bytes of shared memory."""
    type_ = ir.Type.parse(f"memref<{shape}, {SHARED}>")
    return memref.view(type_, buffer, builder.index(offset).value, [])


def finding(module: ir.Module, arrays: list[np.ndarray], seed: int = 0, **options) -> str:
    """The report of a run that must find something."""
    try:
        run_kernel(module, arrays, seed=seed, **options)
    except EmulationError as error:
        return str(error)
    raise AssertionError("the emulator found nothing")


def to_bf16(values: np.ndarray) -> np.ndarray:
    """f32 as bf16 bits, rounded to nearest even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)
