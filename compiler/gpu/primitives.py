"""Builders of the GPU primitives, one function each; meanings and PTX are in `primitive_table`.

    full = Shared(buffer, 0)
    mbarrier_expect_tx(full, 32768)
    tma_load(Shared(tile, stage * 16384), k.maps[0], full, [column, row])

Use under a context, a location and an insertion point. i32 operands may be Python numbers, index values or i32 values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.compiler.errors import PassError
from tilewright.compiler.gpu.builder import Number, Value, i32, raw
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.primitive_table import PRIMITIVES

Integer: TypeAlias = Value | Number | ir.Value
"""An i32 operand."""


@dataclass(frozen=True)
class Shared:
    """A place in shared memory: a contiguous `memref<Nxi8>` of workgroup memory and an offset in bytes."""

    buffer: ir.Value
    offset: Integer = 0

    def at(self, more_bytes: Integer) -> Shared:
        """The place `more_bytes` further."""
        return Shared(self.buffer, _i32(self.offset) + _i32(more_bytes))

    def operands(self) -> list[ir.Value]:
        return [raw(self.buffer), _i32(self.offset).value]


def _i32(operand: Integer) -> Value:
    return i32(Value(operand) if isinstance(operand, ir.Value) else operand)


def _global(buffer: ir.Value, position: Integer) -> list[ir.Value]:
    return [raw(buffer), raw(position)]


def _coordinates(coordinates: Sequence[Integer]) -> list[ir.Value]:
    if not 1 <= len(coordinates) <= 5:
        raise PassError(f"a tensor map has 1 to 5 dimensions, found {len(coordinates)} coordinates")
    return [_i32(c).value for c in coordinates]


def _attribute(kind: str, value: object) -> ir.Attribute:
    if kind == "i64":
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    return ir.BoolAttr.get(value) if kind == "bool" else ir.StringAttr.get(value)


def _emit(
    name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type] = (), **attributes: object
) -> list[Value]:
    """The operation `tilewright.<name>`; raises PassError when an attribute is missing or not what the table allows."""
    primitive = PRIMITIVES[f"tilewright.{name}"]
    kinds = dict(primitive.attributes)
    if kinds.keys() != attributes.keys():
        raise PassError(
            f"`{primitive.op_name}`: expected the attributes {', '.join(kinds)}, found {attributes}"
        )
    for key, value in attributes.items():
        allowed = kinds[key].split("|")
        if len(allowed) > 1 and value not in allowed:
            raise PassError(
                f"`{primitive.op_name}`: expected `{key}` to be {' or '.join(allowed)}, found `{value}`"
            )
    op = ir.Operation.create(
        primitive.op_name,
        results=list(results),
        operands=list(operands),
        attributes={key: _attribute(kinds[key], value) for key, value in attributes.items()},
    )
    return [Value(result) for result in op.results]


def _i32_type() -> ir.Type:
    return ir.IntegerType.get_signless(32)


# Barriers.


def mbarrier_init(barrier: Shared, count: Integer) -> None:
    """Makes 8 bytes of shared memory a barrier that `count` arrivals and all expected bytes complete."""
    _emit("mbarrier_init", [*barrier.operands(), _i32(count).value])


def mbarrier_expect_tx(barrier: Shared, count_bytes: Integer) -> None:
    """Arrives once, after adding `count_bytes` to what the phase waits for."""
    _emit("mbarrier_expect_tx", [*barrier.operands(), _i32(count_bytes).value])


def mbarrier_arrive(barrier: Shared) -> None:
    """Arrives once."""
    _emit("mbarrier_arrive", barrier.operands())


def mbarrier_arrive_cluster(barrier: Shared, block_rank: Integer) -> None:
    """Arrives once on the same barrier of another block of the cluster."""
    _emit("mbarrier_arrive_cluster", [*barrier.operands(), _i32(block_rank).value])


def mbarrier_wait(barrier: Shared, parity: Integer) -> None:
    """Blocks until the phase of that parity has completed; parity 1 passes at once on a fresh barrier."""
    _emit("mbarrier_wait", [*barrier.operands(), _i32(parity).value])


def fence_mbarrier_init() -> None:
    """Makes initialised barriers seen by the cluster and by asynchronous copies."""
    _emit("fence_mbarrier_init", [])


def fence_async_shared() -> None:
    """Orders ordinary accesses to shared memory before later asynchronous ones."""
    _emit("fence_async_shared", [])


def fence_async_global() -> None:
    """Orders ordinary accesses to global memory before later asynchronous ones."""
    _emit("fence_async_global", [])


def cluster_sync() -> None:
    """Waits for all threads of the cluster."""
    _emit("cluster_sync", [])


def cluster_rank() -> Value:
    """The block's rank in its cluster, i32."""
    return _emit("cluster_rank", [], [_i32_type()])[0]


def named_barrier(id_: Integer, threads: int) -> None:
    """Waits until `threads` threads (a multiple of 32) have come to barrier `id_`, 1 to 15."""
    _emit("named_barrier", [_i32(id_).value], threads=threads)


def named_barrier_arrive(id_: Integer, threads: int) -> None:
    """Comes to barrier `id_` without waiting."""
    _emit("named_barrier_arrive", [_i32(id_).value], threads=threads)


def set_max_registers(count: int, increase: bool) -> None:
    """Takes (`increase`) or gives back registers: up to, or down to, `count` per thread, a multiple of 8."""
    _emit("set_max_registers", [], count=count, increase=increase)


def uniform(value: Integer) -> Value:
    """Lane 0's i32 in all threads of the warp."""
    return _emit("uniform", [_i32(value).value], [_i32_type()])[0]


# Launches that overlap.


def grid_dependency_wait() -> None:
    """Waits for all kernels launched before; every thread does, before it touches global memory."""
    _emit("grid_dependency_wait", [])


def launch_dependents() -> None:
    """Lets the kernel launched next start, once every block has come here or ended."""
    _emit("launch_dependents", [])


# Global memory.


def thread_fence() -> None:
    """Orders this thread's accesses to global memory for all threads of the device."""
    _emit("thread_fence", [])


def nanosleep(ns: int) -> None:
    """Suspends the thread for about `ns` nanoseconds."""
    _emit("nanosleep", [], ns=ns)


def load_acquire(buffer: ir.Value, position: Integer) -> Value:
    """Reads an i32 of a rank-1 memref; later accesses see what was released before it was written."""
    return _emit("load_acquire", _global(buffer, position), [_i32_type()])[0]


def store_release(value: Integer, buffer: ir.Value, position: Integer) -> None:
    """Writes an i32 to a rank-1 memref after all earlier accesses of this thread."""
    _emit("store_release", [*_global(buffer, position), _i32(value).value])


def atomic_add(value: Integer, buffer: ir.Value, position: Integer, order: str = "relaxed") -> Value:
    """Adds to an i32 of a rank-1 memref; gives what was there. `order` is `relaxed` or `acq_rel`."""
    return _emit("atomic_add", [*_global(buffer, position), _i32(value).value], [_i32_type()], order=order)[0]


# Tensor maps.


def tma_load(
    target: Shared,
    map_: ir.Value,
    barrier: Shared,
    coordinates: Sequence[Integer],
    multicast: Integer | None = None,
) -> None:
    """Copies a box to shared memory, coordinates innermost first; its bytes count on `barrier`.

    `multicast`, a number or an i16 value, has a bit for every block of the cluster that gets it.
    """
    head = [*target.operands(), raw(map_), *barrier.operands()]
    if multicast is None:
        _emit("tma_load", [*head, *_coordinates(coordinates)])
    else:
        mask = raw(multicast, ir.IntegerType.get_signless(16))
        _emit("tma_load_multicast", [*head, mask, *_coordinates(coordinates)])


def tma_store(map_: ir.Value, source: Shared, coordinates: Sequence[Integer]) -> None:
    """Copies a box from shared memory, as part of this thread's open bulk group."""
    _emit("tma_store", [raw(map_), *source.operands(), *_coordinates(coordinates)])


def tma_prefetch(map_: ir.Value) -> None:
    """Fetches a tensor map ahead of its use."""
    _emit("tma_prefetch", [raw(map_)])


def bulk_commit() -> None:
    """Closes this thread's open bulk group."""
    _emit("bulk_commit", [])


def bulk_wait(groups: int, read: bool = False) -> None:
    """Waits until at most `groups` bulk groups are pending; with `read` only for their reads of shared memory."""
    _emit("bulk_wait", [], groups=groups, read=read)


# Matrix products.

WGMMA_K_BYTES = 32
"""Bytes along k of one wgmma instruction: k is 16 for f16 and bf16, 8 for tf32, 32 for i8."""


@dataclass(frozen=True)
class Tile:
    """A wgmma operand in shared memory, as its descriptor says it.

    `major`: the dimension that is contiguous, "k", or "m" of a and "n" of b. `swizzle_bytes`: 0, 32, 64 or 128.
    `leading_bytes`, `stride_bytes`: with major k, from one group of 8 rows to the next is `stride_bytes`, and
    `leading_bytes` matters only without a swizzle (from 16 bytes of k to the next); else from one 8-row group of k to
    the next is `stride_bytes`, and from one swizzle-wide panel of m or n to the next `leading_bytes`.
    `step_bytes`: from one instruction's k to the next.
    """

    place: Shared
    major: str
    swizzle_bytes: int
    leading_bytes: int
    stride_bytes: int
    step_bytes: int

    def attributes(self, name: str) -> dict[str, object]:
        fields = ("major", "swizzle_bytes", "leading_bytes", "stride_bytes", "step_bytes")
        return {f"{name}_{field}": getattr(self, field) for field in fields}


def wgmma(
    accumulators: Sequence[Value], a: Tile, b: Tile, scale_d: Integer, n: int, k_steps: int, type_: str
) -> list[Value]:
    """Starts `accumulators + a b` (`a b` where `scale_d` is 0) on [64, n]; n/2 f32 (or i32) per thread.

    The operation opens with a fence and closes a group. Its results are there after `wgmma_wait`.
    """
    _check_accumulators(accumulators, n)
    operands = [v.value for v in accumulators]
    return _emit(
        "wgmma",
        [*operands, *a.place.operands(), *b.place.operands(), _i32(scale_d).value],
        [v.type for v in operands],
        n=n,
        k_steps=k_steps,
        type=type_,
        **a.attributes("a"),
        **b.attributes("b"),
    )


def wgmma_register(
    accumulators: Sequence[Value], a: Value, b: Tile, scale_d: Integer, n: int, k_steps: int, type_: str
) -> list[Value]:
    """`wgmma` with a in registers: a vector of 4 k_steps i32, each step's laid out as mma.m16n8k16 has a."""
    _check_accumulators(accumulators, n)
    lanes = tuple(ir.VectorType(a.type).shape)
    if lanes != (4 * k_steps,):
        raise PassError(
            f"`tilewright.wgmma_register`: expected a vector of {4 * k_steps} i32 as a, found {a.type}"
        )
    operands = [v.value for v in accumulators]
    return _emit(
        "wgmma_register",
        [*operands, a.value, *b.place.operands(), _i32(scale_d).value],
        [v.type for v in operands],
        n=n,
        k_steps=k_steps,
        type=type_,
        **b.attributes("b"),
    )


def wgmma_wait(accumulators: Sequence[Value], groups: int) -> list[Value]:
    """Waits until at most `groups` groups are pending; use the accumulators it gives afterwards."""
    values = [v.value for v in accumulators]
    return _emit("wgmma_wait", values, [v.type for v in values], groups=groups)


def _check_accumulators(accumulators: Sequence[Value], n: int) -> None:
    if len(accumulators) != n // 2:
        raise PassError(f"`tilewright.wgmma`: n = {n} takes {n // 2} accumulators, found {len(accumulators)}")


def stmatrix(target: Shared, registers: Sequence[Value], transpose: bool = False) -> None:
    """Stores four 8x8 matrices of 16-bit elements, one i32 of two elements per thread and matrix."""
    _emit("stmatrix", [*target.operands(), *(r.value for r in registers)], transpose=transpose)


def mma_m8n8k4(a: Value, b: Value, c: Value, a_layout: str = "row", b_layout: str = "col") -> Value:
    """f16 products of sm_70, [8, 4] times [4, 8] per quad pair: a, b vector<4xf16>, c vector<8xf32>."""
    operands = [a.value, b.value, c.value]
    return _emit("mma_m8n8k4", operands, [c.type], a_layout=a_layout, b_layout=b_layout)[0]


# Arithmetic.


def exp2_approximate(x: Value) -> Value:
    """2^x of an f32 within 2 ulp; denormals are zero."""
    return _emit("exp2_approximate", [x.value], [x.type])[0]


def reciprocal_approximate(x: Value) -> Value:
    """1/x of an f32 within 1 ulp; denormals are zero."""
    return _emit("reciprocal_approximate", [x.value], [x.type])[0]
