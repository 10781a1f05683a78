"""The table of GPU primitives: every `tilewright.*` operation that a kernel may contain, with what it becomes in PTX.

A primitive is an IRDL operation in generic form. All are opaque to MLIR's passes (never merged, moved over each
other or erased), save the few marked `pure`. Operands by kind:

    shared   two values: a `memref<Nxi8, #gpu.address_space<workgroup>>`, contiguous, and an i32 offset in bytes
    global   two values: a rank-1 memref in global memory and an index in elements
    map      an `!llvm.ptr` argument of the kernel that is a tensor map
    i16, i32, f32, v4f16, v8f32, any
    a kind followed by `*`: any number of them; at most one such operand per primitive

`ptx` is the instruction with operands, results and attributes by name in braces; operands that stand for addresses
are given as one register. Two lowerings read this table: `lower-primitives` (PTX) and the emulator (calls).

Source: PTX ISA 8.8, chapters "Instruction set" (mbarrier, cp.async.bulk, wgmma, stmatrix, setmaxnreg,
griddepcontrol).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

DIALECT = "tilewright"
SCALARS = {"i16": "h", "i32": "r", "f32": "f"}
"""Kinds of scalars and the register class that inline PTX names them by."""
FIXED = {
    **{name: name for name in SCALARS},
    "map": "!llvm.ptr",
    "v4f16": "vector<4xf16>",
    "v8f32": "vector<8xf32>",
}
"""Kinds that are one type."""


@dataclass(frozen=True)
class Operand:
    """A named operand or result; see the module for its kinds."""

    name: str
    kind: str

    @property
    def is_variadic(self) -> bool:
        return self.kind.endswith("*")

    @property
    def base(self) -> str:
        """The kind without its star."""
        return self.kind.rstrip("*")

    @property
    def is_address(self) -> bool:
        """Whether two values of the operation stand for it."""
        return self.base in ("shared", "global")


@dataclass(frozen=True)
class Primitive:
    """One operation: operands, results and attributes by name, the PTX it becomes, and what it means.

    `arch` is the first compute capability that has it, `specific` whether it needs that architecture's `a` variant.
    An attribute's text says its type: `i64`, `bool`, `str`, or the strings it may be. `ptx` is empty where the
    instruction depends on the attributes' values and is written by `primitive_ptx`.
    """

    name: str
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    attributes: tuple[tuple[str, str], ...]
    ptx: str
    meaning: str
    arch: int = 70
    specific: bool = False
    pure: bool = False

    @property
    def op_name(self) -> str:
        """The operation's full name."""
        return f"{DIALECT}.{self.name}"

    def irdl(self) -> str:
        """The operation's definition in IRDL: number and types of operands and results, names of attributes."""
        constraints, lines = _constraints(self.operands)
        more, results = _constraints(self.results, len(constraints))
        constraints += more
        text = [*constraints, f"irdl.operands({', '.join(lines)})"]
        if results:
            text.append(f"irdl.results({', '.join(results)})")
        if self.attributes:
            # One constraint each: values of one constraint would have to be equal.
            text += [f"%{name} = irdl.any" for name, _ in self.attributes]
            names = ", ".join(f'"{name}" = %{name}' for name, _ in self.attributes)
            text.append(f"irdl.attributes {{ {names} }}")
        body = textwrap.indent("\n".join(text), "  ")
        return f"irdl.operation @{self.name} {{\n{body}\n}}"


def _constraints(operands: tuple[Operand, ...], first: int = 0) -> tuple[list[str], list[str]]:
    """IRDL constraint definitions, and the list of operands that uses them."""
    defined, listed = [], []

    def constrain(name: str, constraint: str, variadic: bool = False) -> None:
        value = f"%{first + len(defined)}"
        defined.append(f"{value} = irdl.{constraint}")
        listed.append(f"{name}: {'variadic ' if variadic else ''}{value}")

    for operand in operands:
        if operand.is_address:
            constrain(operand.name, 'base "!builtin.memref"')
            offset = "is i32" if operand.base == "shared" else "is index"
            constrain(f"{operand.name}_offset", offset)
        elif operand.base == "any":
            constrain(operand.name, "any", operand.is_variadic)
        else:
            constrain(operand.name, f"is {FIXED[operand.base]}", operand.is_variadic)
    return defined, listed


def _make(
    name: str,
    operands: str,
    results: str,
    attributes: str,
    ptx: str,
    meaning: str,
    arch: int = 70,
    **more: bool,
) -> Primitive:
    """A primitive from `name:kind` lists; attributes are separated by semicolons."""

    def pairs(text: str, separator: str | None = None) -> list[tuple[str, str]]:
        split = [part.strip().partition(":") for part in text.split(separator) if part.strip()]
        return [(left, right.strip()) for left, _, right in split]

    return Primitive(
        name,
        tuple(Operand(*pair) for pair in pairs(operands)),
        tuple(Operand(*pair) for pair in pairs(results)),
        tuple(pairs(attributes, ";")),
        ptx,
        meaning,
        arch,
        **more,
    )


_TENSOR = "cp.async.bulk.tensor.{rank}d"
_COMPLETE = "mbarrier::complete_tx::bytes"
_WGMMA = (
    "n: i64; k_steps: i64; type: f16|bf16|tf32|i8|u8; b_major: k|n; b_swizzle_bytes: i64; "
    "b_leading_bytes: i64; b_stride_bytes: i64; b_step_bytes: i64"
)
_A_OPERAND = (
    "a_major: k|m; a_swizzle_bytes: i64; a_leading_bytes: i64; a_stride_bytes: i64; a_step_bytes: i64; "
)

_TABLE = (
    # Barriers in shared memory, 8 bytes each.
    _make("mbarrier_init", "barrier:shared count:i32", "", "",
          "mbarrier.init.shared::cta.b64 [{barrier}], {count};",
          "makes the 8 bytes a barrier whose phases complete after `count` arrivals and all expected bytes", 80),
    _make("mbarrier_expect_tx", "barrier:shared bytes:i32", "", "",
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes};",
          "arrives once, after adding `bytes` to what the current phase waits for", 90),
    _make("mbarrier_arrive", "barrier:shared", "", "",
          "mbarrier.arrive.shared::cta.b64 _, [{barrier}];", "arrives once; releases earlier accesses", 90),
    _make("mbarrier_arrive_cluster", "barrier:shared block_rank:i32", "", "",
          "{{ .reg .b32 remote; mapa.shared::cluster.u32 remote, {barrier}, {block_rank}; "
          "mbarrier.arrive.shared::cluster.b64 _, [remote]; }}",
          "arrives once on the barrier at the same offset in block `block_rank` of the cluster", 90),
    _make("mbarrier_wait", "barrier:shared parity:i32", "", "",
          "{{ .reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [{barrier}], {parity};\n"
          "@done bra READY;\nbra AGAIN;\nREADY:\n}}",
          "blocks until the phase of that parity has completed; parity 1 passes at once on a fresh barrier", 90),
    _make("fence_mbarrier_init", "", "", "", "fence.mbarrier_init.release.cluster;",
          "makes barriers just initialised seen by the cluster and by asynchronous copies", 90),
    # Order between threads, and between ordinary accesses and those of the asynchronous proxy.
    _make("fence_async_shared", "", "", "", "fence.proxy.async.shared::cta;",
          "orders this thread's ordinary accesses to shared memory before later asynchronous ones", 90),
    _make("fence_async_global", "", "", "", "fence.proxy.async.global;",
          "orders this thread's ordinary accesses to global memory before later asynchronous ones", 90),
    _make("cluster_sync", "", "", "",
          "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;",
          "waits for all threads of the cluster; earlier accesses are seen after it", 90),
    _make("cluster_rank", "", "rank:i32", "", "mov.u32 {rank}, %cluster_ctarank;",
          "the block's rank in its cluster", 90, pure=True),
    _make("named_barrier", "id:i32", "", "threads: i64", "bar.sync {id}, {threads};",
          "waits until `threads` threads have come to barrier `id` (1 to 15), those of named_barrier_arrive included"),
    _make("named_barrier_arrive", "id:i32", "", "threads: i64", "bar.arrive {id}, {threads};",
          "comes to barrier `id` (1 to 15) of `threads` threads without waiting"),
    _make("set_max_registers", "", "", "count: i64; increase: bool", "",
          "gives registers of this warpgroup's threads back, or takes up to `count` of them", 90, specific=True),
    _make("uniform", "value:i32", "result:i32", "", "shfl.sync.idx.b32 {result}, {value}, 0, 31, 0xffffffff;",
          "lane 0's value in all threads of the warp, which the compiler then knows to be uniform"),
    _make("thread_fence", "", "", "", "membar.gl;",
          "orders this thread's accesses to global memory for all threads of the device"),
    _make("nanosleep", "", "", "ns: i64", "nanosleep.u32 {ns};", "suspends the thread for about that long"),
    _make("load_acquire", "source:global", "value:i32", "", "ld.acquire.gpu.b32 {value}, [{source}];",
          "reads an i32 of global memory; later accesses see what was released before it was written"),
    _make("store_release", "target:global value:i32", "", "", "st.release.gpu.b32 [{target}], {value};",
          "writes an i32 of global memory after all earlier accesses of this thread"),
    _make("atomic_add", "target:global value:i32", "old:i32", "order: relaxed|acq_rel",
          "atom.{order}.gpu.add.u32 {old}, [{target}], {value};",
          "adds to an i32 of global memory; gives what was there"),
    # Launches that overlap (programmatic dependent launch).
    _make("grid_dependency_wait", "", "", "", "griddepcontrol.wait;",
          "waits until the kernels launched before have ended and what they wrote is seen; every thread must come here, "
          "and touch no global memory before", 90),
    _make("launch_dependents", "", "", "", "griddepcontrol.launch_dependents;",
          "lets the kernel launched next start, once every block of this one has come here or ended", 90),
    # Asynchronous copies of boxes of tensors that tensor maps describe (TMA); coordinates innermost first.
    _make("tma_load", "target:shared map:map barrier:shared coordinates:i32*", "", "",
          _TENSOR + ".shared::cluster.global." + _COMPLETE + " [{target}], [{map}, {{{coordinates}}}], [{barrier}];",
          "copies the box at `coordinates` to shared memory, zeros where it leaves the tensor; "
          "counts the box's whole bytes on the barrier", 90),
    _make("tma_load_multicast", "target:shared map:map barrier:shared mask:i16 coordinates:i32*", "", "",
          _TENSOR + ".shared::cluster.global." + _COMPLETE
          + ".multicast::cluster [{target}], [{map}, {{{coordinates}}}], [{barrier}], {mask};",
          "tma_load into every block of the cluster whose bit is set in `mask`, at the same offsets", 90),
    _make("tma_store", "map:map source:shared coordinates:i32*", "", "",
          _TENSOR + ".global.shared::cta.bulk_group [{map}, {{{coordinates}}}], [{source}];",
          "copies a box from shared memory, leaving out what lies outside of the tensor; part of the open bulk group", 90),
    _make("tma_prefetch", "map:map", "", "", "prefetch.tensormap [{map}];", "fetches a tensor map ahead of its use", 90),
    _make("bulk_commit", "", "", "", "cp.async.bulk.commit_group;", "closes this thread's open bulk group", 90),
    _make("bulk_wait", "", "", "groups: i64; read: bool", "",
          "waits until at most `groups` of this thread's bulk groups are pending; "
          "with `read` only for their reads of shared memory", 90),
    # Matrix products.
    _make("wgmma", "accumulators:any* a:shared b:shared scale_d:i32", "results:any*", _A_OPERAND + _WGMMA, "",
          "starts results = a b + (scale_d != 0 ? accumulators : 0) on [64, n], over `k_steps` instructions of 32 bytes "
          "along k, as one group of this warpgroup; the results are there after wgmma_wait", 90, specific=True),
    _make("wgmma_register", "accumulators:any* a:any b:shared scale_d:i32", "results:any*", _WGMMA, "",
          "wgmma whose a is a vector<(4 k_steps)xi32>: packed elements, laid out in each warp as mma.m16n8k16 has a", 90,
          specific=True),
    _make("wgmma_wait", "accumulators:any*", "results:any*", "groups: i64", "",
          "waits until at most `groups` wgmma groups of this warpgroup are pending; passes the accumulators on", 90,
          specific=True),
    _make("stmatrix", "target:shared r0:i32 r1:i32 r2:i32 r3:i32", "", "transpose: bool", "",
          "stores four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8", 90),
    _make("mma_m8n8k4", "a:v4f16 b:v4f16 c:v8f32", "d:v8f32", "a_layout: row|col; b_layout: row|col", "",
          "d = a b + c, [8, 4] times [4, 8], once for each quad pair: lanes 4q..4q+3 and 4q+16..4q+19 form pair q; "
          "fragments as the PTX ISA lays out mma.m8n8k4 with an f32 accumulator"),
    # Arithmetic that the architecture has in one instruction.
    _make("exp2_approximate", "x:f32", "y:f32", "", "ex2.approx.ftz.f32 {y}, {x};",
          "2^x within 2 ulp; denormals are zero", pure=True),
    _make("reciprocal_approximate", "x:f32", "y:f32", "", "rcp.approx.ftz.f32 {y}, {x};",
          "1/x within 1 ulp; denormals are zero", pure=True),
)  # fmt: skip

PRIMITIVES = {primitive.op_name: primitive for primitive in _TABLE}
"""Full operation name -> primitive, in the order of the table."""


def irdl() -> str:
    """IRDL definitions of all primitives, to stand inside the dialect's."""
    return "\n".join(primitive.irdl() for primitive in _TABLE)
