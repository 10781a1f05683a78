"""The tables of a compiled model: what the compiler hands to the runtime, as plain frozen data.

A `Package` holds machine code for kernels and two programs over buffers: `prepack` runs once when weights are
bound and fills the packed block; `main` runs at every call. Nothing here knows MLIR, LLVM or torch.

Kernel ABI (x86-64 System V), one function per kernel:

    int32_t kernel(void *const *buffers, int64_t first_task, int64_t end_task, void *scratch);

It computes rTasks `first_task <= i < end_task` over `buffers` (dense, row-major, 64-byte aligned unless they
are a caller's own arrays), may use `scratch_bytes` of 64-byte aligned scratch private to the calling thread,
and returns 0, or 1 + the index into `Kernel.asserts` of a run-time check that failed.

A kernel with a `Launch` is a GPU kernel instead: one launch of `grid` blocks computes all its rTasks. Its
parameters are pointers into device memory, in this order: the step's buffers; the workspace when it has one; an
i32 status word when it has asserts (0, or 1 + the index of a check that failed); then one 128-byte tensor map per
entry of `Launch.tensor_maps`, by value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

ITEM_BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "c64": 8, "c128": 16,
    "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "i1": 1,
}  # fmt: skip
"""Bytes of one element per dtype name; `i1` (bool) is stored as one byte, `c64` is complex of two f32."""

ALIGNMENT_BYTES = 64
"""Alignment of every buffer the runtime allocates: one cache line, one 512-bit vector."""

SPACES = ("input", "output", "weight", "constant", "packed", "arena")
"""Where a buffer lives: the caller's inputs or outputs, the bound weights, the package's own constants, the
block that `prepack` filled, or the arena that calls of `main` reuse."""


@dataclass(frozen=True)
class TensorSpec:
    """A dense row-major tensor: name, dtype (a key of ITEM_BYTES) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class BufferRef:
    """`offset` bytes into entry `index` of a space; `index` is 0 for packed and arena, which are one block each."""

    space: str
    index: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Step:
    """One dispatch of a program: `tasks` rTasks of kernel number `kernel` over `buffers`.

    Steps of a program run in order, each seeing the memory effects of all earlier ones; the rTasks of one step
    are independent and may run on any thread in any order.
    """

    kernel: int
    buffers: tuple[BufferRef, ...]
    tasks: int
    dispatch: str = ""


IMAGES = ("cubin", "ptx", "emulated")
"""What a GPU kernel's `object` is: code for one architecture, PTX text that the driver compiles, or an x86-64 ELF
object whose `symbol` is the body of one GPU thread, for the emulator."""


@dataclass(frozen=True)
class TensorMap:
    """A tile-mode tensor map over buffer number `buffer` of a step, from its first byte.

    `shape` and `box` (elements) and `strides_bytes` are ordered innermost dimension first, as the hardware has
    them; the innermost dimension is dense and has no stride, so there is one stride fewer than dimensions.
    Of a box, every `element_strides[i]`-th element of dimension i is copied, starting with its first; empty where
    that is every one.
    """

    buffer: int
    dtype: str
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    element_strides: tuple[int, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """The element stride of every dimension."""
        return self.element_strides or (1,) * len(self.shape)

    @property
    def copied(self) -> tuple[int, ...]:
        """Elements of every dimension that a copy brings: ceil(box / element stride), as the driver has it."""
        return tuple(-(-size // step) for size, step in zip(self.box, self.steps))


@dataclass(frozen=True)
class Launch:
    """What a GPU kernel needs: `rtasks` rTasks done by a 1-D `grid` of blocks of `block` threads in clusters of `cluster`.

    Where `rtasks` is 0, every block does one. An rTask is done by one block or by the blocks of a cluster together; where
    there are more rTasks than those, they take them in turn. `shared_bytes` is dynamic shared memory of one block. `workspace_bytes` of global memory belong to the kernel
    alone; its first `zeroed_bytes` are zero before the first launch, and every launch leaves them zero. All blocks
    of a `cooperative` kernel run at once, as they wait for each other. One that `overlaps` may be started before the kernel launched before it has
    ended: all its threads wait for that end before they touch global memory. `registers` (per thread) and `spill_bytes` are what the assembler
    reported, 0 when none ran. `ptx` is what the driver may compile when it takes the cubin in `object` for none of
    its own.
    """

    image: str
    grid: int
    block: int
    cluster: int = 1
    shared_bytes: int = 0
    workspace_bytes: int = 0
    zeroed_bytes: int = 0
    cooperative: bool = False
    tensor_maps: tuple[TensorMap, ...] = ()
    registers: int = 0
    spill_bytes: int = 0
    ptx: bytes = b""
    overlaps: bool = False
    rtasks: int = 0

    @property
    def tasks(self) -> int:
        """The number of rTasks."""
        return self.rtasks or self.grid

    @property
    def gang(self) -> str:
        """Which blocks wait for each other while rTasks are done: `alone` for none, those of a `cluster`, or of the `grid`."""
        return "grid" if self.cooperative else "cluster" if self.cluster > 1 else "alone"


@dataclass(frozen=True)
class Kernel:
    """Machine code of one kernel, which defines `symbol`.

    Without `launch`, `object` is a relocatable ELF object that needs only libc/libm; with it, what its `image` says.
    """

    name: str
    symbol: str
    object: bytes
    scratch_bytes: int = 0
    asserts: tuple[str, ...] = ()
    launch: Launch | None = None


@dataclass(frozen=True)
class Program:
    """Steps and the bytes of arena they need."""

    steps: tuple[Step, ...] = ()
    arena_bytes: int = 0


@dataclass(frozen=True)
class Constant:
    """A tensor that belongs to the package itself."""

    spec: TensorSpec
    data: bytes


DENORMALS = ("keep", "flush")
"""What `main` does with denormal numbers on a CPU: computes with them as IEEE 754 says, or takes them for zeros."""


@dataclass(frozen=True)
class Update:
    """Output number `output` is input number `input` with some elements written over: `main` reads and writes the output's memory.

    It is given the input's memory for both, or another place for the output, where the input is copied to first.
    """

    output: int
    input: int


@dataclass(frozen=True)
class Package:
    """A compiled model without its weights.

    `target` names what the kernels were compiled for; `features` the CPU features they need, as
    /proc/cpuinfo-independent LLVM names (`avx512f`), or a GPU's architecture (`sm_90a`); `notes` is free JSON data
    for `explain`; `denormals` one of DENORMALS. Only packages for CPUs have `updates`.
    """

    target: str
    features: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[TensorSpec, ...]
    constants: tuple[Constant, ...]
    kernels: tuple[Kernel, ...]
    main: Program
    prepack: Program = Program()
    packed_bytes: int = 0
    notes: dict = field(default_factory=dict)
    denormals: str = "keep"
    updates: tuple[Update, ...] = ()
