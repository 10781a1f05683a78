"""What CUDA allows of a launch and a tensor map, checked before the driver sees either.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (grid, block and cluster sizes); CUDA driver API,
`cuTensorMapEncodeTiled` (rank, strides, boxes, swizzles).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.runtime.program import IMAGES, Launch, TensorMap

MOST_BLOCKS = (1 << 31) - 1
MOST_RTASKS = (1 << 31) - 1
"""Of one kernel, which may be more than it has blocks."""
MOST_THREADS = 1024
WARP = 32
MOST_CLUSTER_BLOCKS = 16
"""Above 8, only kernels that ask for a non-portable size may have so many."""
MOST_SHARED_BYTES = 1 << 20
"""More than any architecture has; what the device at hand has is checked when the kernel is loaded."""


@dataclass(frozen=True)
class TensorMapType:
    """The number that the driver gives a dtype (CUtensorMapDataType), and the bytes of one element."""

    number: int
    nbytes: int


TENSOR_MAP_DTYPES = {
    "u8": TensorMapType(0, 1), "i8": TensorMapType(0, 1), "i1": TensorMapType(0, 1),
    "u16": TensorMapType(1, 2), "i16": TensorMapType(1, 2),
    "u32": TensorMapType(2, 4), "i32": TensorMapType(3, 4),
    "u64": TensorMapType(4, 8), "i64": TensorMapType(5, 8),
    "f16": TensorMapType(6, 2), "f32": TensorMapType(7, 4), "f64": TensorMapType(8, 8),
    "bf16": TensorMapType(9, 2), "tf32": TensorMapType(11, 4),
}  # fmt: skip
"""dtypes that a tensor map may have; `tf32` rounds f32 memory as it is loaded."""
MOST_DIMENSIONS = 5
MOST_BOX = 256
MOST_ELEMENT_STRIDE = 8
MAP_ALIGNMENT = 16
"""Bytes that strides, rows of boxes and the start of a tensor are multiples of."""
SWIZZLES_BYTES = (0, 32, 64, 128)


def broken_rule(launch: Launch) -> str | None:
    """The first rule that a launch breaks: what was expected and what found; None when it keeps all of them."""
    if launch.image not in IMAGES:
        return f"image: expected one of {', '.join(IMAGES)}, found `{launch.image}`"
    if not 0 <= launch.grid <= MOST_BLOCKS:
        return f"grid: expected 0 to {MOST_BLOCKS} blocks, found {launch.grid}"
    if not 0 < launch.block <= MOST_THREADS or launch.block % WARP:
        return f"block: expected whole warps of {WARP}, at most {MOST_THREADS} threads, found {launch.block}"
    if not 1 <= launch.cluster <= MOST_CLUSTER_BLOCKS or launch.grid % launch.cluster:
        return (
            f"cluster: expected 1 to {MOST_CLUSTER_BLOCKS} blocks that divide the grid of {launch.grid}, "
            f"found {launch.cluster}"
        )
    if not launch.grid // launch.cluster <= launch.tasks <= MOST_RTASKS:
        return (
            f"rtasks: expected {launch.grid // launch.cluster}, one for each block or cluster, to {MOST_RTASKS}, "
            f"found {launch.rtasks}"
        )
    if not 0 <= launch.shared_bytes <= MOST_SHARED_BYTES:
        return f"shared_bytes: expected 0 to {MOST_SHARED_BYTES}, found {launch.shared_bytes}"
    if not 0 <= launch.zeroed_bytes <= launch.workspace_bytes:
        return f"zeroed_bytes: expected 0 to workspace_bytes {launch.workspace_bytes}, found {launch.zeroed_bytes}"
    if launch.overlaps and launch.cooperative:
        return "overlaps: expected false of a cooperative kernel, found true"
    for number, tensor_map in enumerate(launch.tensor_maps):
        broken = broken_map_rule(tensor_map)
        if broken:
            return f"tensor_maps[{number}].{broken}"
    return None


def broken_map_rule(tensor: TensorMap) -> str | None:
    """The first rule of `cuTensorMapEncodeTiled` that a map breaks: what was expected and what found; None for none.

    Dimensions are nested: each stride is a multiple of the one before, and no less than all of that dimension takes.
    The first dimension's element stride is 1 (PTX ISA 8.8, "Traversal-Stride"), the driver ignores it.
    """
    rank = len(tensor.shape)
    if tensor.dtype not in TENSOR_MAP_DTYPES:
        return f"dtype: expected one of {', '.join(TENSOR_MAP_DTYPES)}, found `{tensor.dtype}`"
    if tensor.buffer < 0:
        return f"buffer: expected the number of a buffer, found {tensor.buffer}"
    if not 1 <= rank <= MOST_DIMENSIONS:
        return f"shape: expected 1 to {MOST_DIMENSIONS} dimensions, found {rank}"
    if not all(1 <= extent <= 1 << 32 for extent in tensor.shape):
        return f"shape: expected extents from 1 to 2**32, found {list(tensor.shape)}"
    if len(tensor.strides_bytes) != rank - 1:
        return f"strides_bytes: expected {rank - 1}, one per dimension but the first, found {len(tensor.strides_bytes)}"
    if not all(0 < stride < 1 << 40 and stride % MAP_ALIGNMENT == 0 for stride in tensor.strides_bytes):
        return f"strides_bytes: expected multiples of {MAP_ALIGNMENT} B below 2**40, found {list(tensor.strides_bytes)}"
    item = TENSOR_MAP_DTYPES[tensor.dtype].nbytes
    for inner, extent, stride in zip((item, *tensor.strides_bytes), tensor.shape, tensor.strides_bytes):
        if stride % inner or stride < inner * extent:
            return (
                f"strides_bytes: expected multiples of {inner} B from {inner * extent} B on, found {stride}"
            )
    if len(tensor.box) != rank or not all(1 <= extent <= MOST_BOX for extent in tensor.box):
        return f"box: expected {rank} extents from 1 to {MOST_BOX}, found {list(tensor.box)}"
    steps = tensor.steps
    if len(steps) != rank or steps[0] != 1 or not all(1 <= step <= MOST_ELEMENT_STRIDE for step in steps):
        return f"element_strides: expected 1, then {rank - 1} from 1 to {MOST_ELEMENT_STRIDE}, found {list(steps)}"
    inner_bytes = tensor.box[0] * item
    if inner_bytes % MAP_ALIGNMENT:
        return f"box: expected rows of a multiple of {MAP_ALIGNMENT} B, found {inner_bytes} B"
    if tensor.swizzle_bytes not in SWIZZLES_BYTES:
        return f"swizzle_bytes: expected one of {', '.join(map(str, SWIZZLES_BYTES))}, found {tensor.swizzle_bytes}"
    if tensor.swizzle_bytes and inner_bytes > tensor.swizzle_bytes:
        return f"box: expected rows of at most swizzle_bytes {tensor.swizzle_bytes}, found {inner_bytes} B"
    return None


def span_bytes(tensor: TensorMap) -> int:
    """Bytes from the first element that a tensor map reaches to the end of its last one."""
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape[1:], tensor.strides_bytes))
    return last + tensor.shape[0] * TENSOR_MAP_DTYPES[tensor.dtype].nbytes
