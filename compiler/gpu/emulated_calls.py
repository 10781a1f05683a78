"""Calls from an emulated kernel to the emulator: the context argument, slots for values passed by address, addresses.

Functions are called `twe_*` and declared in runtime/csrc/emulator_calls.h; the first argument is the calling thread's
context, the second the number of the source operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.ir import arith, element_bytes, func, ir, memref

SITE = "tilewright.site"
"""On an operation of a kernel that is being lowered: its number."""

ALIASES = {
    "memref.subview", "memref.view", "memref.reinterpret_cast", "memref.cast", "memref.expand_shape",
    "memref.collapse_shape", "memref.memory_space_cast", "memref.assume_alignment", "memref.transpose",
}  # fmt: skip
"""Operations whose result is memory of their first operand."""


def i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def i64() -> ir.Type:
    return ir.IntegerType.get_signless(64)


def index() -> ir.Type:
    return ir.IndexType.get()


def pointer() -> ir.Type:
    return ir.Type.parse("!llvm.ptr")


def number(value: int) -> ir.Value:
    """An i32 constant."""
    return arith.constant(i32(), value)


def is_shared(type_: ir.Type) -> bool:
    return "workgroup" in str(ir.MemRefType(type_).memory_space)


def value_bytes(type_: ir.Type) -> int:
    """Bytes of a scalar or vector in memory."""
    if isinstance(type_, ir.VectorType):
        count = 1
        for extent in type_.shape:
            count *= extent
        return count * element_bytes(type_.element_type)
    return element_bytes(type_)


class Calls:
    """Writes calls into one function whose first argument is the context."""

    def __init__(self, module: ir.Operation, function: ir.Operation):
        self._body = module.regions[0].blocks[0]
        self.entry = function.regions[0].blocks[0]
        self.context = self.entry.arguments[0]
        self._declared: set[str] = set()
        self._slots: dict[tuple[str, str], ir.Value] = {}

    def call(
        self, name: str, op: ir.Operation | None, arguments: Sequence[ir.Value], result: ir.Type | None = None
    ) -> ir.Value | None:
        """Calls `name` on behalf of source operation `op` (None for a function that takes no site)."""
        site = [] if op is None else [number(ir.IntegerAttr(op.attributes[SITE]).value)]
        operands = [self.context, *site, *arguments]
        results = [] if result is None else [result]
        if name not in self._declared:
            self._declared.add(name)
            with ir.InsertionPoint.at_block_begin(self._body):
                type_ = ir.FunctionType.get([o.type for o in operands], results)
                func.FuncOp(name, type_, visibility="private")
        made = func.CallOp(results, name, operands)
        return made.results[0] if result is not None else None

    def slot(self, type_: ir.Type, use: str) -> ir.Value:
        """Memory of this thread for one value of a type; one per type and use, on the stack."""
        key = (str(type_), use)
        if key not in self._slots:
            with ir.InsertionPoint.at_block_begin(self.entry):
                self._slots[key] = memref.alloca(ir.MemRefType.get([], type_), [], [])
        return self._slots[key]

    def spill(self, value: ir.Value, use: str) -> ir.Value:
        """The address, as i64, of a slot that holds `value`."""
        slot = self.slot(value.type, use)
        memref.store(value, slot, [])
        return start(slot)

    def spill_all(self, values: Sequence[ir.Value], use: str) -> tuple[ir.Value, ir.Value]:
        """A rank-1 slot that holds values of one type in order, and its address."""
        slot = self.array(len(values), values[0].type, use)
        for position, value in enumerate(values):
            memref.store(value, slot, [arith.constant(index(), position)])
        return slot, start(slot)

    def array(self, count: int, type_: ir.Type, use: str) -> ir.Value:
        """Memory of this thread for `count` values."""
        key = (f"{count} x {type_}", use)
        if key not in self._slots:
            with ir.InsertionPoint.at_block_begin(self.entry):
                self._slots[key] = memref.alloca(ir.MemRefType.get([count], type_), [], [])
        return self._slots[key]

    def numbers(self, values: Sequence[int], use: str) -> ir.Value:
        """The address of i32 constants."""
        return self.spill_all([number(value) for value in values], use)[1]


def start(buffer: ir.Value) -> ir.Value:
    """The address of a buffer's aligned pointer, as i64."""
    return arith.index_cast(i64(), memref.extract_aligned_pointer_as_index(buffer))


def address(buffer: ir.Value, position: Sequence[ir.Value]) -> ir.Value:
    """The address of one element, as i64, for any strided layout."""
    type_ = ir.MemRefType(buffer.type)
    strides, offset = type_.get_strides_and_offset()
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    if offset == dynamic or dynamic in strides:
        base = ir.MemRefType.get([], type_.element_type, memory_space=type_.memory_space)
        results = [base, *[index()] * (1 + 2 * type_.rank)]
        made = ir.Operation.create(
            "memref.extract_strided_metadata", results=results, operands=[buffer]
        ).results
        at, steps = made[1], list(made)[2 + type_.rank :]
    else:
        at, steps = arith.constant(index(), offset), [arith.constant(index(), stride) for stride in strides]
    for place, step in zip(position, steps):
        at = arith.addi(at, arith.muli(place, step))
    size = arith.constant(index(), element_bytes_of(type_))
    return arith.addi(start(buffer), arith.index_cast(i64(), arith.muli(at, size)))


def element_bytes_of(type_: ir.MemRefType) -> int:
    """Bytes from one element of a buffer to the next."""
    return value_bytes(type_.element_type)


def origin(buffer: ir.Value) -> ir.Value:
    """What a buffer is a view of: an allocation, an argument, or something chosen while the kernel runs."""
    while not isinstance(buffer.owner, ir.Block) and buffer.owner.name in ALIASES:
        buffer = buffer.owner.operands[0]
    return buffer
