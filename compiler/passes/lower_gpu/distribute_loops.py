"""Gives the operations of a kernel to the threads of a block, with barriers where one reads what another wrote.

    linalg.generic ins(%a) outs(%t)           scf.for %n = %thread to M * N step threads { ... }
    linalg.generic ins(%t) outs(%b)     =>    gpu.barrier
                                              scf.for %n = %thread to M * N step threads { ... }

Points of parallel loops are dealt out in turns, those of a reduction to few results too; where a thread reads nothing but what it wrote itself, no barrier
is needed. Loops and branches around such operations are run by every thread; what remains (single stores, loops
of loads and stores) by the first thread alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.compiler.dialects.kernel_form import is_declaration
from tilewright.compiler.families.block_loops import Generic, Threads, index, when
from tilewright.compiler.families.block_sequences import (
    write_scan,
    write_scatter,
    write_sort,
    write_topk,
)
from tilewright.compiler.families.fallback.reductions import combinations_of, write_reduction
from tilewright.compiler.ir import arith, gpu, ir, memref, static_shape, walk
from tilewright.compiler.nouns.schedule import WARP
from tilewright.compiler.pipeline.pass_base import Pass

_SHARED = ("linalg.generic", "tm_tensor.scan", "tm_tensor.scatter", "tm_tensor.sort", "tm_tensor.topk")
_VIEWS = (
    "memref.subview",
    "memref.cast",
    "memref.expand_shape",
    "memref.collapse_shape",
    "memref.reinterpret_cast",
    "memref.view",
)
_SILENT = ("memref.alloc", "memref.alloca", "memref.get_global", "memref.dim", *_VIEWS)
"""Operations on buffers that touch no element."""


@dataclass(frozen=True)
class DistributeLoops(Pass):
    """Rewrites every kernel for blocks of `threads` threads.

    Raises PassError for operations on buffers other than `linalg.generic`, `tm_tensor`'s scan, scatter, sort and topk,
    loads and stores.
    """

    anchor: ClassVar[str] = "func.func"
    threads: int = 256

    def run(self, op: ir.Operation) -> None:
        if is_declaration(op):
            return
        block = op.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block), op.location:
            threads = Threads(self.threads, gpu.thread_id(gpu.Dimension.x))
        _Distribution(self, threads, block).block(block)


@dataclass(frozen=True)
class _Access:
    """One operation's access to a buffer: `place` is equal for two of which every thread does the same part."""

    base: ir.Value
    writes: bool
    place: str | None

    def clashes(self, other: _Access) -> bool:
        same = self.place is not None and self.place == other.place
        return self.base == other.base and (self.writes or other.writes) and not same


class _Distribution:
    """Rewrites the operations of one block after the other; `pending` is what was accessed since the last barrier."""

    def __init__(self, owner: DistributeLoops, threads: Threads, entry: ir.Block):
        self.owner, self.threads, self.entry = owner, threads, entry
        self.pending: list[_Access] = []

    def block(self, block: ir.Block) -> None:
        for view in list(block.operations):
            op = view.operation
            with op.location:
                self.operation(op)

    def operation(self, op: ir.Operation) -> None:
        if op.name == "memref.dealloc":
            op.erase()
        elif _is_shared(op):
            self.shared(op)
        elif any(_is_shared(inner) for inner in walk(op)):
            self.flush(op)
            for region in op.regions:
                for block in region.blocks:
                    self.block(block)
                    *_, terminator = block.operations
                    self.flush(terminator.operation)
        elif any(inner.name in ("memref.store", "vector.store", "memref.copy") for inner in walk(op)):
            self.alone(op)
        elif any(inner.name == "memref.load" for inner in walk(op)):
            self.sync(op, self.accesses(op, None))
        else:
            self.check(op)

    def check(self, op: ir.Operation) -> None:
        touches = any(isinstance(operand.type, ir.MemRefType) for operand in op.operands)
        if touches and op.name not in _SILENT and not op.name.startswith(("scf.", "func.")):
            raise self.owner.refusal(
                op, f"`{op.name}` on buffers cannot be given to threads; lower it to linalg.generic"
            )

    def shared(self, op: ir.Operation) -> None:
        """An operation that all threads of the block do together."""
        if op.name == "linalg.generic":
            self.generic(op)
        else:
            for operand in op.operands:
                if not ir.ShapedType(operand.type).has_static_shape:
                    raise self.owner.refusal(
                        op,
                        f"expected buffers of static shape, found {operand.type}; compile for fixed shapes",
                    )
            self.sequence(op)
        op.erase()

    def generic(self, op: ir.Operation) -> None:
        """Points of parallel loops by turns; where there are few, every one of a reduction's by all threads."""
        generic = Generic.read(op)
        combinations = combinations_of(generic, self.threads.count)
        if combinations is None:
            self.sync(op, self.of_generic(generic))
            with ir.InsertionPoint(op):
                generic.write(self.threads)
            return
        self.sync(op, [replace(access, place=None) for access in self.of_generic(generic)])
        with ir.InsertionPoint.at_block_begin(self.entry):
            warps = [self.threads.count // WARP]
            outputs = list(op.operands)[generic.first_output :]
            elements = [ir.MemRefType(output.type).element_type for output in outputs]
            partial = [memref.alloc(ir.MemRefType.get(warps, element), [], []) for element in elements]
        with ir.InsertionPoint(op):
            write_reduction(generic, combinations, self.threads, partial)

    def sequence(self, op: ir.Operation) -> None:
        """A scan, a scatter, or a sort, which has barriers of its own: one before it touches its buffers, one at its end."""
        kind = op.name.partition(".")[2]
        accesses = self.accesses(op, None)
        if kind == "topk":
            read = {base_of(operand) for operand in list(op.operands)[:-2]}
            accesses = [_Access(access.base, False, None) for access in accesses if access.base in read]
        if kind != "sort":
            self.sync(op, accesses)
        scratch = self.scratch(op)
        with ir.InsertionPoint(op):
            writer = {"scan": write_scan, "scatter": write_scatter, "sort": write_sort, "topk": write_topk}
            if writer[kind](op, self.threads, *scratch):
                self.pending = []

    def scratch(self, op: ir.Operation) -> list[ir.Value]:
        """What a sort needs beside its buffers: where elements came from; for `topk` the elements too."""
        if op.name not in ("tm_tensor.sort", "tm_tensor.topk"):
            return []
        type_ = ir.MemRefType(op.operands[0].type)
        length = static_shape(type_)[ir.IntegerAttr(op.attributes["dimension"]).value]
        elements = [type_.element_type] if op.name == "tm_tensor.topk" else []
        with ir.InsertionPoint.at_block_begin(self.entry):
            return [
                memref.alloc(ir.MemRefType.get([length], element), [], [])
                for element in (*elements, ir.IntegerType.get_signless(32))
            ]

    def alone(self, op: ir.Operation) -> None:
        """An operation of the first thread; its results reach the others through memory."""
        self.sync(op, self.accesses(op, "alone"))
        for inner in walk(op):
            self.check(inner) if inner.name not in ("memref.load", "memref.store") else None
        results = [result for result in op.results if any(True for _ in result.uses)]
        with ir.InsertionPoint.at_block_begin(self.entry):
            kept = [memref.alloc(ir.MemRefType.get([], result.type), [], []) for result in results]
        zero = None
        with ir.InsertionPoint(op):
            zero = index(0)
            first = arith.cmpi(arith.CmpIPredicate.eq, self.threads.id, zero)

            def inside() -> None:
                anchor = index(0).owner.operation
                op.move_before(anchor)
                for result, buffer in zip(results, kept):
                    memref.store(result, buffer, [])
                anchor.erase()

            when(first, inside)
        if results:
            branch = op.parent
            with ir.InsertionPoint.after(branch):
                gpu.barrier()
                for result, buffer in zip(results, kept):
                    uses = [(use.owner.operation, use.operand_number) for use in result.uses]
                    value = memref.load(buffer, [])
                    for user, position in uses:
                        if user.parent != branch:
                            user.operands[position] = value
            self.pending = []

    # Which accesses clash.

    def of_generic(self, generic: Generic) -> list[_Access]:
        found = []
        for number, operand in enumerate(generic.op.operands):
            if not isinstance(operand.type, ir.MemRefType):
                continue
            place = generic.place(number)
            named = None if place is None else f"{place} of {hash(operand)}"
            base = base_of(operand)
            if number >= generic.first_output:
                found.append(_Access(base, True, named))
            elif generic.reads(number):
                found.append(_Access(base, False, named))
        inner = [op for view in generic.body.operations for op in walk(view.operation)]
        found += [_Access(base_of(op.operands[0]), False, None) for op in inner if op.name == "memref.load"]
        return found

    def accesses(self, op: ir.Operation, place: str | None) -> list[_Access]:
        """Accesses of any other operation, and of what it contains."""
        found = []
        for inner in walk(op):
            if inner.name in _SILENT:
                continue
            for operand in inner.operands:
                if isinstance(operand.type, ir.MemRefType):
                    reads = inner.name == "memref.load"
                    found.append(_Access(base_of(operand), not reads, place))
        return found

    def sync(self, op: ir.Operation, accesses: list[_Access]) -> None:
        """A barrier before `op` where one of its accesses clashes with one since the last barrier."""
        if any(new.clashes(old) for new in accesses for old in self.pending):
            self.flush(op)
        self.pending += accesses

    def flush(self, op: ir.Operation) -> None:
        """A barrier before `op` unless nothing was accessed since the last one."""
        if self.pending:
            with ir.InsertionPoint(op), op.location:
                gpu.barrier()
        self.pending = []


def _is_shared(op: ir.Operation) -> bool:
    """Whether all threads do `op` together; on tensors it is none of theirs yet."""
    return op.name in _SHARED and not op.results


def base_of(value: ir.Value) -> ir.Value:
    """The argument or allocation that a view shows a part of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name in _VIEWS:
        value = value.owner.operation.operands[0]
    return value
