"""Operations of gpu-level IR as calls of the emulator: one small function each, found by the operation's name.

Each gets the operation with the insertion point before it and gives the values that stand for its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.gpu.emulated_accesses import Accesses
from tilewright.compiler.gpu.emulated_calls import (
    Calls,
    address,
    element_bytes_of,
    i32,
    i64,
    index,
    number,
    start,
)
from tilewright.compiler.ir import arith, ir, llvm, math, memref, walk
from tilewright.compiler.nouns.primitive_table import PRIMITIVES, Primitive

ELEMENT_TYPES = {"f16": 0, "bf16": 1, "tf32": 2, "f32": 2, "i8": 3, "u8": 4}
"""Element types of matrix operands as the emulator numbers them."""
_OTHERS = (
    "gpu.", "nvgpu.", "nvvm.", "tilewright.", "linalg.", "vector.transfer_", "vector.masked", "vector.gather",
    "vector.scatter", "memref.copy",
)  # fmt: skip
"""Names of operations that do more than compute, and have no lowering here."""
_SHUFFLES = {"xor": 0, "up": 1, "down": 2, "idx": 3}


@dataclass(frozen=True)
class Kernel:
    """The kernel being rewritten: its arguments, sizes, and writers of calls and checks."""

    calls: Calls
    accesses: Accesses
    thread: ir.Value
    block: ir.Value
    shared: ir.Value
    block_threads: int
    grid: int
    checked: bool


Lowering = Callable[[Kernel, ir.Operation], Sequence[ir.Value]]
LOWERINGS: dict[str, Lowering] = {}
"""Operation name -> what writes its calls."""


def _lowers(*names: str) -> Callable[[Lowering], Lowering]:
    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register


# Who the thread is.


@_lowers("gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim")
def _identity(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    along_x = "dim x" in str(op.attributes["dimension"])
    if not along_x:
        return [arith.constant(index(), 0 if op.name.endswith("_id") else 1)]
    values = {
        "gpu.thread_id": lambda: kernel.thread,
        "gpu.block_id": lambda: kernel.block,
        "gpu.block_dim": lambda: arith.constant(index(), kernel.block_threads),
        "gpu.grid_dim": lambda: arith.constant(index(), kernel.grid),
    }
    return [values[op.name]()]


@_lowers("gpu.lane_id")
def _lane(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    return [arith.remui(kernel.thread, arith.constant(index(), 32))]


@_lowers("gpu.subgroup_id")
def _warp(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    return [arith.divui(kernel.thread, arith.constant(index(), 32))]


@_lowers("gpu.dynamic_shared_memory")
def _dynamic_shared(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    return [memref.cast(op.results[0].type, kernel.shared)]


# Threads that meet.


@_lowers("gpu.barrier")
def _barrier(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    kernel.calls.call("twe_barrier", op, [])
    return []


@_lowers("gpu.shuffle")
def _shuffle(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    value, offset, width = op.operands
    mode = str(op.attributes["mode"]).split()[-1].rstrip(">")

    def exchange(word: ir.Value) -> tuple[ir.Value, ir.Value]:
        both = kernel.calls.call("twe_shuffle", op, [word, number(_SHUFFLES[mode]), offset, width], i64())
        high = arith.shrui(both, arith.constant(i64(), 32))
        return arith.trunci(i32(), both), arith.trunci(ir.IntegerType.get_signless(1), high)

    words = _words(value)
    got = [exchange(word) for word in words]
    return [_from_words([word for word, _ in got], value.type), got[0][1]]


@_lowers("tilewright.uniform")
def _uniform(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    arguments = [op.operands[0], number(_SHUFFLES["idx"]), number(0), number(32)]
    both = kernel.calls.call("twe_shuffle", op, arguments, i64())
    return [arith.trunci(i32(), both)]


def _bits(type_: ir.Type) -> int:
    if isinstance(type_, ir.VectorType):
        return type_.shape[0] * _bits(type_.element_type)
    return 64 if isinstance(type_, ir.IndexType) else type_.width


def _words(value: ir.Value) -> list[ir.Value]:
    """The bits of a scalar or small vector as i32 values, lowest first."""
    bits = _bits(value.type)
    whole = ir.IntegerType.get_signless(bits)
    if isinstance(value.type, ir.IndexType):
        value = arith.index_cast(whole, value)
    elif value.type != whole:
        value = (
            llvm.bitcast(whole, value)
            if isinstance(value.type, ir.VectorType)
            else arith.bitcast(whole, value)
        )
    if bits < 32:
        return [arith.extui(i32(), value)]
    if bits == 32:
        return [value]
    shifts = [arith.shrui(value, arith.constant(whole, at)) for at in range(0, bits, 32)]
    return [arith.trunci(i32(), shifted) for shifted in shifts]


def _from_words(words: list[ir.Value], type_: ir.Type) -> ir.Value:
    """A value of `type_` again from its bits."""
    bits = _bits(type_)
    whole = ir.IntegerType.get_signless(bits)
    value = words[0]
    if bits < 32:
        value = arith.trunci(whole, value)
    elif bits > 32:
        value = arith.extui(whole, value)
        for at, word in enumerate(words[1:], 1):
            wide = arith.shli(arith.extui(whole, word), arith.constant(whole, 32 * at))
            value = arith.ori(value, wide)
    if isinstance(type_, ir.IndexType):
        return arith.index_cast(type_, value)
    if value.type == type_:
        return value
    return llvm.bitcast(type_, value) if isinstance(type_, ir.VectorType) else arith.bitcast(type_, value)


# Asynchronous copies. Their tokens carry nothing: what waits for them counts groups.


@_lowers("nvgpu.device_async_copy")
def _copy(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    operands = list(op.operands)
    target, rank = operands[0], ir.MemRefType(operands[0].type).rank
    source = operands[1 + rank]
    depth = ir.MemRefType(source.type).rank
    to, from_ = operands[1 : 1 + rank], operands[2 + rank : 2 + rank + depth]
    lanes = ir.IntegerAttr(op.attributes["dstElements"]).value
    size = element_bytes_of(ir.MemRefType(target.type))
    given = operands[2 + rank + depth :]
    read = number(lanes * size)
    if given:
        read = arith.index_cast(i32(), arith.muli(given[0], arith.constant(index(), size)))
    if kernel.checked:
        kernel.accesses.check_span(op, target, to, lanes)
        kernel.accesses.check_span(op, source, from_, given[0] if given else lanes)
    argument = number(kernel.accesses.argument(source))
    places = [address(target, to), address(source, from_)]
    kernel.calls.call("twe_copy_async", op, [argument, *places, number(lanes * size), read])
    return [arith.constant(index(), 0)]


@_lowers("nvgpu.device_async_create_group")
def _commit(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    kernel.calls.call("twe_copy_commit", op, [])
    return [arith.constant(index(), 0)]


@_lowers("nvgpu.device_async_wait")
def _wait(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    groups = ir.IntegerAttr(op.attributes["numGroups"]).value if "numGroups" in op.attributes else 0
    kernel.calls.call("twe_copy_wait", op, [number(groups)])
    return []


# Matrices.


@_lowers("nvgpu.ldmatrix")
def _ldmatrix(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    tiles = number(ir.IntegerAttr(op.attributes["numTiles"]).value)
    transpose = number(int(ir.BoolAttr(op.attributes["transpose"]).value))
    slot = kernel.calls.slot(op.results[0].type, "matrix")
    row = address(op.operands[0], list(op.operands)[1:])
    kernel.calls.call("twe_ldmatrix", op, [row, tiles, transpose, start(slot)])
    return [memref.load(slot, [])]


@_lowers("nvgpu.mma.sync")
def _mma(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    a, b, c = op.operands
    element = str(ir.VectorType(a.type).element_type)
    half = str(ir.VectorType(c.type).element_type) == "f16"
    k = ir.IntegerAttr(ir.ArrayAttr(op.attributes["mmaShape"])[2]).value
    result = kernel.calls.slot(op.results[0].type, "result")
    fragments = [kernel.calls.spill(value, use) for value, use in ((a, "a"), (b, "b"), (c, "c"))]
    facts = [number(ELEMENT_TYPES[element]), number(k), number(int(half))]
    kernel.calls.call("twe_mma", op, [*facts, *fragments, start(result)])
    return [memref.load(result, [])]


@_lowers("tilewright.mma_m8n8k4")
def _mma_volta(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    result = kernel.calls.slot(op.results[0].type, "result")
    layouts = [
        number(int(ir.StringAttr(op.attributes[name]).value == "col")) for name in ("a_layout", "b_layout")
    ]
    fragments = [kernel.calls.spill(value, use) for value, use in zip(op.operands, "abc")]
    kernel.calls.call("twe_mma_m8n8k4", op, [*layouts, *fragments, start(result)])
    return [memref.load(result, [])]


@_lowers("tilewright.wgmma", "tilewright.wgmma_register")
def _wgmma(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    fields = _Fields(op)
    accumulators = fields.all("accumulators")
    slot, at = kernel.calls.spill_all(accumulators, "accumulators")
    none = arith.constant(i64(), 0)
    if op.name == "tilewright.wgmma":
        a = [fields.shared("a"), kernel.calls.numbers(fields.layout("a"), "layout of a"), none]
    else:
        a = [none, none, kernel.calls.spill(fields.all("a")[0], "registers of a")]
    b = [fields.shared("b"), kernel.calls.numbers(fields.layout("b"), "layout of b")]
    facts = [
        number(fields.number("n")),
        number(fields.number("k_steps")),
        number(ELEMENT_TYPES[ir.StringAttr(op.attributes["type"]).value]),
        fields.all("scale_d")[0],
    ]
    kernel.calls.call("twe_wgmma", op, [at, *facts, *a, *b])
    return _loaded(slot, len(accumulators))


@_lowers("tilewright.wgmma_wait")
def _wgmma_wait(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    accumulators, groups = list(op.operands), number(_Fields(op).number("groups"))
    if not accumulators:
        kernel.calls.call("twe_wgmma_wait", op, [arith.constant(i64(), 0), number(0), groups])
        return []
    slot, at = kernel.calls.spill_all(accumulators, "accumulators")
    kernel.calls.call("twe_wgmma_wait", op, [at, number(len(accumulators)), groups])
    return _loaded(slot, len(accumulators))


def _loaded(slot: ir.Value, count: int) -> list[ir.Value]:
    return [memref.load(slot, [arith.constant(index(), i)]) for i in range(count)]


@_lowers("tilewright.stmatrix")
def _stmatrix(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    fields = _Fields(op)
    transpose = number(int(ir.BoolAttr(op.attributes["transpose"]).value))
    registers = [fields.all(f"r{i}")[0] for i in range(4)]
    kernel.calls.call("twe_stmatrix", op, [fields.shared("target"), transpose, *registers])
    return []


# Primitives that are calls as they stand.

_PLAIN = {
    "fence_mbarrier_init": "twe_fence_mbarrier_init",
    "fence_async_shared": "twe_fence_async",
    "cluster_sync": "twe_cluster_sync",
    "thread_fence": "twe_thread_fence",
    "nanosleep": "twe_nanosleep",
    "bulk_commit": "twe_bulk_commit",
    "grid_dependency_wait": "twe_grid_dependency_wait",
}
_NOTHING = ("set_max_registers", "tma_prefetch", "fence_async_global", "launch_dependents")
"""Primitives that change nothing that an emulated kernel can notice."""


@_lowers(*(f"tilewright.{name}" for name in _PLAIN))
def _plain(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    kernel.calls.call(_PLAIN[op.name.removeprefix("tilewright.")], op, [])
    return []


@_lowers(*(f"tilewright.{name}" for name in _NOTHING))
def _nothing(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    return []


@_lowers("tilewright.cluster_rank")
def _cluster_rank(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    return [kernel.calls.call("twe_cluster_rank", None, [], i32())]


@_lowers("tilewright.named_barrier", "tilewright.named_barrier_arrive")
def _named_barrier(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    fields = _Fields(op)
    name = op.name.replace("tilewright.", "twe_")
    kernel.calls.call(name, op, [fields.all("id")[0], number(fields.number("threads"))])
    return []


@_lowers(
    *(f"tilewright.mbarrier_{name}" for name in ("init", "expect_tx", "arrive", "arrive_cluster", "wait"))
)
def _mbarrier(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    name = op.name.replace("tilewright.", "twe_")
    kernel.calls.call(name, op, [_Fields(op).shared("barrier"), *list(op.operands)[2:]])
    return []


@_lowers("tilewright.load_acquire", "tilewright.store_release", "tilewright.atomic_add")
def _flag(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    buffer, position = op.operands[0], op.operands[1]
    more = list(op.operands)[2:]
    if op.name == "tilewright.atomic_add":
        more.append(number(int(ir.StringAttr(op.attributes["order"]).value == "acq_rel")))
    if kernel.checked:
        kernel.accesses.check_span(op, buffer, [position], 1)
    arguments = [number(kernel.accesses.argument(buffer)), address(buffer, [position]), *more]
    result = op.results[0].type if len(op.results) else None
    made = kernel.calls.call(op.name.replace("tilewright.", "twe_"), op, arguments, result)
    return [] if made is None else [made]


@_lowers("tilewright.tma_load", "tilewright.tma_load_multicast", "tilewright.tma_store")
def _tma(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    fields = _Fields(op)
    at = fields.all("coordinates")
    map_ = llvm.ptrtoint(i64(), fields.all("map")[0])
    rank, coordinates = number(len(at)), [*at, *(number(0) for _ in range(5 - len(at)))]
    if op.name == "tilewright.tma_store":
        kernel.calls.call("twe_tma_store", op, [map_, fields.shared("source"), rank, *coordinates])
        return []
    mask = number(0)
    if op.name.endswith("_multicast"):
        mask = arith.extui(i32(), fields.all("mask")[0])
    places = [fields.shared("target"), map_, fields.shared("barrier"), mask]
    kernel.calls.call("twe_tma_load", op, [*places, rank, *coordinates])
    return []


@_lowers("tilewright.bulk_wait")
def _bulk_wait(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    read = number(int(ir.BoolAttr(op.attributes["read"]).value))
    kernel.calls.call("twe_bulk_wait", op, [number(_Fields(op).number("groups")), read])
    return []


@_lowers("tilewright.exp2_approximate")
def _exp2(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    return [math.exp2(op.operands[0])]


@_lowers("tilewright.reciprocal_approximate")
def _reciprocal(kernel: Kernel, op: ir.Operation) -> Sequence[ir.Value]:
    x = op.operands[0]
    return [arith.divf(arith.constant(x.type, 1.0), x)]


class _Fields:
    """Operands of a primitive by the names that the table gives them."""

    def __init__(self, op: ir.Operation):
        self._op = op
        self._operands = _split(PRIMITIVES[op.name], list(op.operands))

    def all(self, name: str) -> list[ir.Value]:
        return self._operands[name]

    def number(self, name: str) -> int:
        return ir.IntegerAttr(self._op.attributes[name]).value

    def shared(self, name: str) -> ir.Value:
        """The address of an operand in shared memory, as i64."""
        buffer, offset = self._operands[name]
        return arith.addi(start(buffer), arith.extui(i64(), offset))

    def layout(self, name: str) -> list[int]:
        """What the emulator needs to know of a matrix operand of wgmma, as emulator_calls.h lists it."""
        is_k_major = ir.StringAttr(self._op.attributes[f"{name}_major"]).value == "k"
        sizes = ("swizzle_bytes", "leading_bytes", "stride_bytes", "step_bytes")
        return [int(is_k_major), *(self.number(f"{name}_{size}") for size in sizes)]


def _split(primitive: Primitive, operands: list[ir.Value]) -> dict[str, list[ir.Value]]:
    widths = [2 if operand.is_address else 1 for operand in primitive.operands]
    fixed = sum(width for width, operand in zip(widths, primitive.operands) if not operand.is_variadic)
    found, at = {}, 0
    for operand, width in zip(primitive.operands, widths):
        count = len(operands) - fixed if operand.is_variadic else width
        found[operand.name] = operands[at : at + count]
        at += count
    return found


def lower_operations(kernel: Kernel, function: ir.Operation) -> list[ir.Operation]:
    """Replaces every operation that has a lowering; gives those of the GPU's dialects that have none."""
    left = []
    for op in walk(function):
        lowering = LOWERINGS.get(op.name)
        if lowering is None:
            if op.name.startswith(_OTHERS) and op.name != "linalg.yield":
                left.append(op)
            continue
        with ir.InsertionPoint(op), op.location:
            values = lowering(kernel, op)
        for result, value in zip(op.results, values):
            # Tokens of copies are not of the type that stands for them: whoever takes one is replaced in turn.
            if result.type != value.type:
                result.set_type(value.type)
            result.replace_all_uses_with(value)
        op.erase()
    return left
