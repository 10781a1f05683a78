"""lower-sorts: sorts on buffers, and the first elements of them, in n log n steps instead of n²; stable, NaN greatest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.line_operations import SORT, TOPK
from tilewright.compiler.analysis.sort_order import FIRST, stays_before
from tilewright.compiler.errors import PassError
from tilewright.compiler.families.cpu.packed_lines import PackedLines
from tilewright.compiler.ir import arith, ir, memref, scf, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.buffer_casts import read_through_casts

_FEW = 8
"""How many times more elements there must be than are wanted for inserting to beat merging, which costs log n each."""


@dataclass(frozen=True)
class LowerSorts(Pass):
    """Replaces `tm_tensor.sort` and `tm_tensor.topk` on buffers by loops.

    The first elements of lines of at most 32 bits, or of integers that are less than 2^32 apart, and where they are from, are found
    by comparisons of integers, many at a time (`families/cpu/packed_lines.py`). All others are merged in runs of 1, 2, 4, … elements in scratch buffers. Before:

        tm_tensor.sort dimension(1) outs(%values, %others : memref<16x256xf64>, memref<16x256xf64>) {
        ^bb0(%a: f64, %b: f64, %i: f64, %j: f64):
          %in_order = arith.cmpf ole, %a, %b : f64
          tm_tensor.yield %in_order : i1
        }

    After, in short:

        scf.for %row = 0 to 16 {
          copy the row into %from
          scf.for %low = 0 to 256 step 2 {           // then the same with step 4, 8, … and buffers swapped
            scf.for %k = %low to %high iter_args(%i = %low, %j = %middle) {
              take %from[%i] while it is in order with %from[%j], else %from[%j], into %to[%k]
          } }
          copy the row back
        }

    The region tells whether its left elements may stay before its right ones; a merge takes the left one then, so
    equal elements keep their order. Where only a few first elements are wanted, at most an eighth, one scan keeps these in
    order instead and most elements cost one comparison. Raises PassError for dynamic shapes.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512

    def run(self, op: ir.Operation) -> None:
        for sort in [*walk(op, SORT), *walk(op, TOPK)]:
            read_through_casts(sort)
            if all(isinstance(value.type, ir.MemRefType) for value in sort.operands):
                self.lower(op, sort)

    def lower(self, function: ir.Operation, sort: ir.Operation) -> None:
        """Replaces one of them."""
        for buffer in sort.operands:
            if not ir.ShapedType(buffer.type).has_static_shape:
                raise PassError(
                    f"`lower-sorts`: expected buffers of static shape, found {buffer.type}; compile for fixed shapes",
                    sort.location,
                )
        shape = static_shape(sort.operands[0].type)
        dim = ir.IntegerAttr(sort.attributes["dimension"]).value
        line = PackedLines.read(sort, self.vector_bits) or _Merged(sort, dim)
        if isinstance(line, PackedLines) and line.is_wide:
            line = _Narrowed(line, _Merged(sort, dim))
        with sort.location:
            with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
                scratch = [memref.alloc(type_, [], []) for type_ in line.scratch]
            with ir.InsertionPoint(sort):
                others = [extent for number, extent in enumerate(shape) if number != dim]
                _for_each(others, [], lambda at: line.emit(at, scratch))
        sort.erase()


class _Narrowed:
    """The loops of integers of 64 bits: as of 32 where those of a line are less than 2^32 apart, as numbers of things are."""

    def __init__(self, packed: PackedLines, merged: _Merged):
        self.packed, self.merged = packed, merged

    @property
    def scratch(self) -> list[ir.MemRefType]:
        return [*self.packed.scratch, *self.merged.scratch]

    def emit(self, at: list[ir.Value], scratch: Sequence[ir.Value]) -> None:
        i64, count = ir.IntegerType.get_signless(64), len(self.packed.scratch)
        is_unsigned = self.packed.order.is_unsigned
        least, most = (arith.minui, arith.maxui) if is_unsigned else (arith.minsi, arith.maxsi)
        first, *_ = self.merged.load(at, _index(0))
        found = scf.ForOp(_index(1), _index(self.packed.length), _index(1), [first, first])
        with ir.InsertionPoint(found.body):
            element, *_ = self.merged.load(at, found.induction_variable)
            low, high = found.inner_iter_args
            scf.yield_([least(low, element), most(high, element)])
        low, high = found.results
        limit = arith.constant(i64, 1 << 32)
        fits = arith.cmpi(arith.CmpIPredicate.ult, arith.subi(high, low), limit)
        branch = scf.IfOp(fits, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            self.packed.emit(at, scratch[:count], low)
            scf.yield_([])
        with ir.InsertionPoint(branch.else_block):
            self.merged.emit(at, scratch[count:])
            scf.yield_([])


class _Merged:
    """The loops of any sort, or of the first elements of one."""

    def __init__(self, sort: ir.Operation, dim: int):
        self.sort, self.dim = sort, dim
        operands = list(sort.operands)
        self.length = static_shape(operands[0].type)[dim]
        self.first = ir.IntegerAttr(sort.attributes[FIRST]).value if FIRST in sort.attributes else self.length
        self.sources = self.targets = operands
        if sort.name == TOPK:
            self.sources, self.targets = operands[:-2], operands[-2:]
            self.first = static_shape(operands[-1].type)[dim]
        self.selects = self.first * _FEW <= self.length

    @property
    def scratch(self) -> list[ir.MemRefType]:
        """Two buffers of a line for all that is sorted along."""
        elements = [ir.MemRefType(target.type).element_type for target in self.targets]
        return [ir.MemRefType.get([self.length], element) for element in elements] * 2

    def emit(self, at: list[ir.Value], scratch: Sequence[ir.Value]) -> None:
        count = len(self.targets)
        both = list(scratch[:count]), list(scratch[count:])
        if self.selects:
            _select_row(self, both[0], at)
        else:
            _sort_row(self, both, at)

    def load(self, at: list[ir.Value], k: ir.Value) -> list[ir.Value]:
        """The elements at one place of a line; where none says where it is from, that place."""
        found = [memref.load(source, self._place(at, k)) for source in self.sources]
        if len(found) < len(self.targets):
            found.append(arith.index_cast(ir.MemRefType(self.targets[-1].type).element_type, k))
        return found

    def drain(self, at: list[ir.Value], sorted_: Sequence[ir.Value], count: int) -> None:
        """Writes the first elements to where they belong."""

        def one(at_k: list[ir.Value]) -> None:
            for target, run in zip(self.targets, sorted_):
                memref.store(memref.load(run, at_k), target, self._place(at, at_k[0]))

        _for_each([count], [], one)

    def _place(self, at: list[ir.Value], k: ir.Value) -> list[ir.Value]:
        return [*at[: self.dim], k, *at[self.dim :]]


def _index(number: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), number)


def _for_each(extents: list[int], at: list[ir.Value], emit: Callable[[list[ir.Value]], None]) -> None:
    """Loops over all positions of `extents` around what `emit` makes of one."""
    if not extents:
        emit(at)
        return
    loop = scf.ForOp(_index(0), _index(extents[0]), _index(1))
    with ir.InsertionPoint(loop.body):
        _for_each(extents[1:], [*at, loop.induction_variable], emit)
        scf.yield_([])


def _sort_row(line: _Merged, scratch: tuple[list[ir.Value], list[ir.Value]], at: list[ir.Value]) -> None:
    source, target = scratch

    def fill(at_k: list[ir.Value]) -> None:
        for value, run in zip(line.load(at, at_k[0]), source):
            memref.store(value, run, at_k)

    _for_each([line.length], [], fill)
    width = 1
    while width < line.length:
        _merge_level(line.sort, source, target, width, line.length)
        source, target = target, source
        width *= 2
    line.drain(at, source, line.first if line.sort.name == TOPK else line.length)


def _select_row(line: _Merged, kept: list[ir.Value], at: list[ir.Value]) -> None:
    """Scans one row and keeps its `first` elements in order, each inserted behind those that may stay before it."""
    sort, first = line.sort, line.first

    def insert(element: list[ir.Value], end: ir.Value) -> None:
        index = ir.IndexType.get()
        loop = scf.WhileOp([index], [end])
        before = loop.before.blocks.append(index)
        with ir.InsertionPoint(before):
            hole = before.arguments[0]
            previous = arith.maxsi(arith.subi(hole, _index(1)), _index(0))
            stays = stays_before(sort, [memref.load(run, [previous]) for run in kept], element)
            moves = arith.xori(stays, arith.constant(ir.IntegerType.get_signless(1), 1))
            inside = arith.cmpi(arith.CmpIPredicate.sgt, hole, _index(0))
            scf.condition(arith.andi(inside, moves), [hole])
        after = loop.after.blocks.append(index)
        with ir.InsertionPoint(after):
            hole = after.arguments[0]
            previous = arith.subi(hole, _index(1))
            for run in kept:
                memref.store(memref.load(run, [previous]), run, [hole])
            scf.yield_([previous])
        for value, run in zip(element, kept):
            memref.store(value, run, [loop.results[0]])

    if not first:
        return
    _for_each([first], [], lambda at_k: insert(line.load(at, at_k[0]), at_k[0]))
    # The last one kept is carried in registers: through memory every comparison would wait for the store before.
    starts = [memref.load(run, [_index(first - 1)]) for run in kept]
    rest = scf.ForOp(_index(first), _index(line.length), _index(1), starts)
    with ir.InsertionPoint(rest.body):
        element, last = line.load(at, rest.induction_variable), list(rest.inner_iter_args)
        stays = stays_before(sort, last, element)
        moves = arith.xori(stays, arith.constant(ir.IntegerType.get_signless(1), 1))
        branch = scf.IfOp(moves, [value.type for value in last], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            insert(element, _index(first - 1))
            scf.yield_([memref.load(run, [_index(first - 1)]) for run in kept])
        with ir.InsertionPoint(branch.else_block):
            scf.yield_(last)
        scf.yield_(list(branch.results))
    line.drain(at, kept, first)


def _merge_level(
    sort: ir.Operation, source: list[ir.Value], target: list[ir.Value], width: int, length: int
) -> None:
    """Merges neighbouring sorted runs of `width` elements of `source` into `target`."""
    end, last = _index(length), _index(length - 1)
    outer = scf.ForOp(_index(0), end, _index(2 * width))
    with ir.InsertionPoint(outer.body):
        low = outer.induction_variable
        middle = arith.minsi(arith.addi(low, _index(width)), end)
        high = arith.minsi(arith.addi(low, _index(2 * width)), end)
        inner = scf.ForOp(low, high, _index(1), [low, middle])
        with ir.InsertionPoint(inner.body):
            left, right = inner.inner_iter_args
            # An exhausted run is read at a valid place, and what it gives is not taken.
            lefts = [memref.load(run, [arith.minsi(left, last)]) for run in source]
            rights = [memref.load(run, [arith.minsi(right, last)]) for run in source]
            in_order = stays_before(sort, lefts, rights)
            right_is_over = arith.cmpi(arith.CmpIPredicate.sge, right, high)
            left_is_there = arith.cmpi(arith.CmpIPredicate.slt, left, middle)
            take_left = arith.andi(left_is_there, arith.ori(right_is_over, in_order))
            for a, b, run in zip(lefts, rights, target):
                memref.store(arith.select(take_left, a, b), run, [inner.induction_variable])
            one, zero = _index(1), _index(0)
            scf.yield_(
                [
                    arith.addi(left, arith.select(take_left, one, zero)),
                    arith.addi(right, arith.select(take_left, zero, one)),
                ]
            )
        scf.yield_([])
