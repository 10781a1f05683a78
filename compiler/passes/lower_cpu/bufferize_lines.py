"""bufferize-lines: scans, sorts, scatters and Fourier transforms on buffers, those that their dispatch is given and writes where that can be.

    %r = tm_tensor.scatter ins(%u, %at) outs(%x)
    bufferization.materialize_in_destination %r in %out
      =>
    memref.copy (bufferization.to_buffer %x), %out
    tm_tensor.scatter ins(bufferization.to_buffer %u, bufferization.to_buffer %at) outs(%out)

torch-mlir's `tm-tensor-bufferize` gives each of them buffers of their own, which are copied to and from. The dialect has
no part in one-shot bufferization, to which reads and writes of buffers say enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.line_operations import LINE_OPERATIONS
from tilewright.compiler.dialects.fourier import RESULTS
from tilewright.compiler.ir import bufferization, ir, linalg, memref, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.own_memory import give_each_its_own


@dataclass(frozen=True)
class BufferizeLines(Pass):
    """Puts operations of lines on static tensors on buffers; run one-shot bufferization right after."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        found = [line for name in LINE_OPERATIONS for line in walk(op, name)]
        for line in found:
            if all(_is_static(value.type) for value in line.operands):
                with ir.InsertionPoint(line), line.location:
                    _bufferize(line)
        if found:
            # Bufferization does not see how late the buffers of tensors are read.
            for empty in walk(op, "tensor.empty"):
                give_each_its_own(empty)


def _is_static(type_: ir.Type) -> bool:
    return isinstance(type_, ir.RankedTensorType) and ir.ShapedType(type_).has_static_shape


def _bufferize(line: ir.Operation) -> None:
    inputs = list(line.operands)[: len(line.operands) - len(line.results)]
    sources = [_buffer(value, read_only=True) for value in inputs]
    places = []
    for start, result in zip(list(line.operands)[len(inputs) :], line.results):
        destination = _destination(result)
        if destination is None:
            places.append(_buffer(start, read_only=False))
        else:
            places.append(destination.operands[1])
            _begin(start, destination.operands[1])
    attributes = {name: line.attributes[name] for name in line.attributes}
    if RESULTS in attributes:
        attributes[RESULTS] = ir.DenseI32ArrayAttr.get([0] * len(ir.DenseI32ArrayAttr(attributes[RESULTS])))
    new = ir.Operation.create(line.name, [], [*sources, *places], attributes, regions=len(line.regions))
    for own, region in zip(line.regions, new.regions):
        own.blocks[0].append_to(region)
    for result, place in zip(line.results, places):
        destination = _destination(result)
        if destination is not None:
            destination.erase()
        elif list(result.uses):
            result.replace_all_uses_with(bufferization.to_tensor(result.type, place, restrict=True))
    starts = list(line.operands)[len(inputs) :]
    line.erase()
    for start in starts:
        _erase_unread(start)


def _erase_unread(start: ir.Value) -> None:
    """Erases what a result began with where that is written to its destination now."""
    owner = None if isinstance(start.owner, ir.Block) else start.owner.operation
    if owner is not None and owner.name in ("linalg.fill", "linalg.copy") and not list(start.uses):
        owner.erase()


def _destination(result: ir.Value) -> ir.Operation | None:
    """What writes a result to a buffer and is all that reads it; None for anything else."""
    uses = [use.owner.operation for use in result.uses]
    if len(uses) == 1 and uses[0].name == "bufferization.materialize_in_destination":
        return uses[0]
    return None


def _buffer(value: ir.Value, read_only: bool) -> ir.Value:
    """The buffer of a tensor, wherever it will lie."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    shape = static_shape(value.type)
    layout = ir.StridedLayoutAttr.get(dynamic, [dynamic] * len(shape)) if shape else None
    type_ = ir.MemRefType.get(shape, ir.RankedTensorType(value.type).element_type, layout)
    return bufferization.to_buffer(type_, value, read_only=read_only)


def _begin(start: ir.Value, place: ir.Value) -> None:
    """Writes to `place` what a result begins with, where it is not there already."""
    owner = None if isinstance(start.owner, ir.Block) else start.owner.operation
    if owner is not None and owner.name == "tensor.empty":
        return
    if owner is not None and owner.name == "bufferization.to_tensor" and owner.operands[0] == place:
        return
    if owner is not None and owner.name == "linalg.fill":
        linalg.fill(owner.operands[0], outs=[place])
        return
    if owner is not None and owner.name == "linalg.copy":
        start = owner.operands[0]
    memref.copy(_buffer(start, read_only=True), place)
