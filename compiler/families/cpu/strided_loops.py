"""Loops of an element-wise dispatch whose extents and strides the kernel reads from a table: one kernel for every shape.

    for turn in first .. end:                       lines, and the first loop around them
      for a, b, c:                                  three more loops
        for i in 0 .. min(line, row - lines * line):
          result[...] = body(in0[...], in1[...])

The compiler spends far longer on such a kernel than it runs for, once, when weights are bound; a model has a hundred of them.
Source of the table: `StridedForm.table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.compiler.analysis.strided_form import StridedForm
from tilewright.compiler.ir import arith, func, ir, memref, scf

_UNBOUNDED = 1 << 40
"""A static extent keeps the calling convention of bare pointers; positions are computed from the table alone."""
_HEAD = 2
"""Numbers of a table before the extents: turns of one rTask, and all turns."""


def emit(form: StridedForm, name: str) -> ir.Module:
    """A module with the kernel: (rTask, inputs, table, result, status, scratch), as a dispatch of this form has it."""
    module = ir.Module.create(form.op.location)
    index = ir.IndexType.get()
    arguments = sorted(set(form.reads))
    elements = [
        ir.RankedTensorType(form.op.operands[form.reads.index(n)].type).element_type for n in arguments
    ]
    result = ir.RankedTensorType(form.op.results[0].type).element_type
    table = ir.MemRefType.get([len(form.table())], ir.IntegerType.get_signless(64))
    types = [
        index,
        *(_memory(element) for element in elements),
        table,
        _memory(result),
        ir.MemRefType.get([1], ir.IntegerType.get_signless(32)),
        _memory(ir.IntegerType.get_signless(8)),
    ]
    with form.op.location, ir.InsertionPoint(module.body):
        function = func.FuncOp(name, (types, []))
        noalias = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({}), *[noalias] * (len(types) - 1)]
        )
        block = function.add_entry_block()
    with form.op.location, ir.InsertionPoint(block):
        _Loops(form, list(block.arguments)).write()
        func.ReturnOp([])
    return module


def _memory(element: ir.Type) -> ir.MemRefType:
    return ir.MemRefType.get([_UNBOUNDED], element)


class _Loops:
    """Writes the body of a kernel at the insertion point."""

    def __init__(self, form: StridedForm, arguments: list[ir.Value]):
        self.form, self.task = form, arguments[0]
        *buffers, self.table, self.result = arguments[1:-2]
        self.inputs = [buffers[number] for number in form.reads]
        self.extents = [self._told(_HEAD + i) for i in range(len(form.extents) - 1)]
        self.row, self.line = (self._told(_HEAD + len(self.extents) + i) for i in range(2))
        first, width = _HEAD + len(self.extents) + 2, len(form.extents) + 2
        operands = range(len(form.strides))
        self.starts = [self._told(first + n * width) for n in operands]
        self.strides = [[self._told(first + n * width + 1 + i) for i in range(width - 1)] for n in operands]

    def _told(self, number: int) -> ir.Value:
        """Entry `number` of the table."""
        entry = memref.load(self.table, [_constant(number)])
        return arith.index_cast(ir.IndexType.get(), entry)

    def write(self) -> None:
        chunk, turns = self._told(0), self._told(1)
        first = arith.muli(self.task, chunk)
        end = arith.minsi(arith.addi(first, chunk), turns)
        with _loop(first, end) as turn:
            lines, outer = arith.divsi(turn, self.extents[0]), arith.remsi(turn, self.extents[0])
            row = arith.muli(lines, self.line)
            count = arith.minsi(self.line, arith.subi(self.row, row))
            self._around([lines, outer], self.extents[1:], count)

    def _around(self, loops: Sequence[ir.Value], left: Sequence[ir.Value], count: ir.Value) -> None:
        if left:
            with _loop(_constant(0), left[0]) as position:
                self._around([*loops, position], left[1:], count)
            return
        starts = []
        for start, strides in zip(self.starts, self.strides):
            for position, stride in zip(loops, strides):
                start = arith.addi(start, arith.muli(position, stride))
            starts.append(start)
        with _loop(_constant(0), count) as along:
            places = [self._along(number, start, along) for number, start in enumerate(starts)]
            *read, written = places
            values = [memref.load(buffer, [place]) for buffer, place in zip(self.inputs, read)]
            memref.store(self._computed(values), self.result, [written])

    def _along(self, number: int, start: ir.Value, along: ir.Value) -> ir.Value:
        """Where an operand's element `along` of a line is that begins at `start`; contiguous ones are known to be."""
        neighbour = self.form.neighbours[number]
        if neighbour == 0:
            return start
        step = along if neighbour == 1 else arith.muli(along, self.strides[number][-1])
        return arith.addi(start, step)

    def _computed(self, values: list[ir.Value]) -> ir.Value:
        """The dispatch's own computation of one element."""
        op = self.form.op
        if op.name == "linalg.fill":
            return _copied(op.operands[0].owner.operation, {})
        body = op.regions[0].blocks[0]
        given = dict(zip(body.arguments, values))
        *ops, yielded = (view.operation for view in body.operations)
        for inner in ops:
            given[inner.results[0]] = _copied(inner, given)
        value = yielded.operands[0]
        return given[value] if value in given else _copied(value.owner.operation, {})


def _copied(op: ir.Operation, given: dict[ir.Value, ir.Value]) -> ir.Value:
    """The result of a copy of `op` at the insertion point, on `given` operands and copies of constants."""
    operands = [
        given[value] if value in given else _copied(value.owner.operation, {}) for value in op.operands
    ]
    copy = op.clone().operation
    for number, value in enumerate(operands):
        copy.operands[number] = value
    return copy.results[0]


def _constant(number: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), number)


@contextmanager
def _loop(first: ir.Value, end: ir.Value) -> Iterator[ir.Value]:
    """What is written inside is the body of a loop; gives its position."""
    loop = scf.ForOp(first, end, _constant(1))
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable
        scf.yield_([])
