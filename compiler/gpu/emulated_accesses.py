"""Loads and stores of an emulated kernel: what the emulator is told of each, so that it can check them.

    %v = vector.load %a[%i, %j] {alignment = 16} : memref<64x32xf32, #gpu.address_space<workgroup>>, vector<4xf32>
becomes
    scf.if %i > 63 or %j > 28 { call @twe_index(...) for each dimension }
    call @twe_load_shared(%context, %site, %address, 16, 16)
    %v = vector.load ...

Checked stores to global memory are carried out by the emulator, which sees their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.gpu.emulated_calls import (
    Calls,
    address,
    i64,
    index,
    is_shared,
    number,
    origin,
    value_bytes,
)
from tilewright.compiler.ir import arith, element_bytes, ir, scf

LOADS = {"memref.load", "vector.load"}
STORES = {"memref.store", "vector.store"}
ATOMICS = {"memref.atomic_rmw", "memref.generic_atomic_rmw"}


class Accesses:
    """Writes checks in front of accesses; `arguments` are the kernel's memref arguments in order."""

    def __init__(self, calls: Calls, arguments: Sequence[ir.Value]):
        self._calls = calls
        self._arguments = list(arguments)

    def argument(self, buffer: ir.Value) -> int:
        """The number of the argument that a buffer is a view of; -1 when it is chosen while the kernel runs."""
        base = origin(buffer)
        return next((i for i, argument in enumerate(self._arguments) if argument == base), -1)

    def space(self, buffer: ir.Value) -> str:
        """`shared`, `global` or `private`."""
        base = origin(buffer)
        if is_shared(buffer.type):
            return "shared"
        is_own = not isinstance(base.owner, ir.Block) and base.owner.name == "memref.alloca"
        return "private" if is_own or "private" in str(ir.MemRefType(buffer.type).memory_space) else "global"

    def check(self, op: ir.Operation) -> None:
        """Checks a load, store or atomic; a store to global memory is replaced."""
        is_store, is_vector = op.name in STORES, op.name.startswith("vector.")
        first = 1 if is_store or op.name == "memref.atomic_rmw" else 0
        buffer, position = op.operands[first], list(op.operands)[first + 1 :]
        type_ = ir.MemRefType(buffer.type)
        value = op.operands[0] if is_store else op.results[0]
        lanes = ir.VectorType(value.type).shape[-1] if is_vector else 1
        with ir.InsertionPoint(op), op.location:
            self._check_position(op, type_, position, lanes)
            space = self.space(buffer)
            if space == "private":
                return
            at, size = address(buffer, position), number(value_bytes(value.type))
            where = [at] if space == "shared" else [number(self.argument(buffer)), at]
            if op.name in ATOMICS:
                self._calls.call(f"twe_atomic_{space}", op, [*where, size])
                return
            aligned = number(_alignment(op, type_))
            if not is_store:
                self._calls.call(f"twe_load_{space}", op, [*where, size, aligned])
            elif space == "shared":
                self._calls.call("twe_store_shared", op, [*where, size, aligned])
            else:
                slot = self._calls.spill(value, "store")
                self._calls.call("twe_store_global", op, [*where, size, aligned, slot])
        if is_store and space == "global":
            op.erase()

    def check_span(
        self, op: ir.Operation, buffer: ir.Value, position: Sequence[ir.Value], lanes: int | ir.Value
    ) -> None:
        """Checks that `lanes` elements from a position on lie inside of the buffer's own extents.

        A number of lanes that is a value may be 0: then nothing is accessed.
        """
        type_ = ir.MemRefType(buffer.type)
        if isinstance(lanes, int):
            self._check_position(op, type_, list(position), lanes)
            return
        some = arith.cmpi(arith.CmpIPredicate.ne, lanes, arith.constant(index(), 0))
        branch = scf.IfOp(some)
        with ir.InsertionPoint(branch.then_block):
            for dimension, (place, extent) in enumerate(zip(position, type_.shape)):
                count = lanes if dimension == type_.rank - 1 else arith.constant(index(), 1)
                self._call_index(op, dimension, place, count, extent)
            scf.yield_([])

    def _check_position(
        self, op: ir.Operation, type_: ir.MemRefType, position: list[ir.Value], lanes: int
    ) -> None:
        unknown = []
        for dimension, (place, extent) in enumerate(zip(position, type_.shape)):
            count = lanes if dimension == type_.rank - 1 else 1
            known = _constant(place)
            is_dynamic = extent == ir.ShapedType.get_dynamic_size()
            if is_dynamic or (known is not None and 0 <= known <= extent - count):
                continue
            unknown.append((dimension, place, extent, count))
        if not unknown:
            return
        wrong = None
        for _, place, extent, count in unknown:
            if extent < count:
                outside = arith.constant(ir.IntegerType.get_signless(1), 1)
            else:
                last = arith.constant(index(), extent - count)
                outside = arith.cmpi(arith.CmpIPredicate.ugt, place, last)
            wrong = outside if wrong is None else arith.ori(wrong, outside)
        branch = scf.IfOp(wrong)
        with ir.InsertionPoint(branch.then_block):
            for dimension, place, extent, count in unknown:
                self._call_index(op, dimension, place, arith.constant(index(), count), extent)
            scf.yield_([])

    def _call_index(
        self, op: ir.Operation, dimension: int, place: ir.Value, count: ir.Value, extent: int
    ) -> None:
        values = [place, count, arith.constant(index(), extent)]
        self._calls.call(
            "twe_index", op, [number(dimension), *(arith.index_cast(i64(), value) for value in values)]
        )


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value


def _alignment(op: ir.Operation, type_: ir.MemRefType) -> int:
    """What the hardware asks of the address: the access's own alignment, else its element's, or that of its parts."""
    if "alignment" in op.attributes:
        return ir.IntegerAttr(op.attributes["alignment"]).value
    element = type_.element_type
    if isinstance(element, ir.VectorType):
        element = element.element_type
    if isinstance(element, ir.ComplexType):
        element = element.element_type
    return element_bytes(element)
