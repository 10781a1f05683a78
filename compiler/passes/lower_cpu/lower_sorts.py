"""lower-sorts: sorts on buffers become stable merge sorts, n log n comparisons instead of n²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.sort_order import FIRST, stays_before
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import arith, ir, memref, scf, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass

_FEW = 8
"""How many times more elements there must be than are wanted for inserting to beat merging, which costs log n each."""


@dataclass(frozen=True)
class LowerSorts(Pass):
    """Replaces `tm_tensor.sort` on buffers by loops that merge runs of 1, 2, 4, … elements in scratch buffers.

    Before (values and their indices, ordered by value):

        tm_tensor.sort dimension(1) outs(%values, %indices : memref<16x256xf32>, memref<16x256xi64>) {
        ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
          %in_order = arith.cmpf ole, %a, %b : f32
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
    equal elements keep their order. Where `limit-sorts` found that only a few first elements are read, at most an
    eighth, one scan keeps these in order instead and most elements cost one comparison. NaN counts as greater than every number. Raises PassError for dynamic shapes.
    """

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        for sort in walk(op, "tm_tensor.sort"):
            if all(isinstance(value.type, ir.MemRefType) for value in sort.operands):
                _lower(op, sort)


def _lower(function: ir.Operation, sort: ir.Operation) -> None:
    buffers = list(sort.operands)
    if not all(ir.ShapedType(buffer.type).has_static_shape for buffer in buffers):
        raise PassError(
            f"`lower-sorts`: expected buffers of static shape, found {buffers[0].type}; compile for fixed shapes",
            sort.location,
        )
    shape = static_shape(buffers[0].type)
    dim = ir.IntegerAttr(sort.attributes["dimension"]).value
    length = shape[dim]
    entry = function.regions[0].blocks[0]
    with sort.location:
        with ir.InsertionPoint.at_block_begin(entry):
            scratch = [[_scratch(buffer.type, length) for buffer in buffers] for _ in range(2)]
        with ir.InsertionPoint(sort):
            others = [extent for number, extent in enumerate(shape) if number != dim]
            first = ir.IntegerAttr(sort.attributes[FIRST]).value if FIRST in sort.attributes else length
            if first * _FEW <= length:
                _for_each(others, [], lambda at: _select_row(sort, buffers, scratch[0], at, dim, first))
            else:
                _for_each(others, [], lambda at: _sort_row(sort, buffers, scratch, at, dim, length))
    sort.erase()


def _scratch(type_: ir.MemRefType, length: int) -> ir.Value:
    return memref.alloc(ir.MemRefType.get([length], type_.element_type), [], [])


def _index(number: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), number)


def _for_each(extents: list[int], at: list[ir.Value], emit) -> None:
    """Loops over all positions of `extents` around what `emit` makes of one."""
    if not extents:
        emit(at)
        return
    loop = scf.ForOp(_index(0), _index(extents[0]), _index(1))
    with ir.InsertionPoint(loop.body):
        _for_each(extents[1:], [*at, loop.induction_variable], emit)
        scf.yield_([])


def _sort_row(sort: ir.Operation, buffers, scratch, at: list[ir.Value], dim: int, length: int) -> None:
    def position(k: ir.Value) -> list[ir.Value]:
        return [*at[:dim], k, *at[dim:]]

    source, target = scratch

    def fill(at_k: list[ir.Value]) -> None:
        for buffer, run in zip(buffers, source):
            memref.store(memref.load(buffer, position(at_k[0])), run, at_k)

    _for_each([length], [], fill)
    width = 1
    while width < length:
        _merge_level(sort, source, target, width, length)
        source, target = target, source
        width *= 2

    def drain(at_k: list[ir.Value]) -> None:
        for buffer, run in zip(buffers, source):
            memref.store(memref.load(run, at_k), buffer, position(at_k[0]))

    _for_each([length], [], drain)


def _select_row(sort: ir.Operation, buffers, kept, at: list[ir.Value], dim: int, first: int) -> None:
    """Scans one row and keeps its `first` elements in order, each inserted behind those that may stay before it."""
    length = static_shape(buffers[0].type)[dim]

    def position(k: ir.Value) -> list[ir.Value]:
        return [*at[:dim], k, *at[dim:]]

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

    def load(k: ir.Value) -> list[ir.Value]:
        return [memref.load(buffer, position(k)) for buffer in buffers]

    _for_each([first], [], lambda at_k: insert(load(at_k[0]), at_k[0]))
    # The last one kept is carried in registers: through memory every comparison would wait for the store before.
    starts = [memref.load(run, [_index(first - 1)]) for run in kept]
    rest = scf.ForOp(_index(first), _index(length), _index(1), starts)
    with ir.InsertionPoint(rest.body):
        element, last = load(rest.induction_variable), list(rest.inner_iter_args)
        stays = stays_before(sort, last, element)
        moves = arith.xori(stays, arith.constant(ir.IntegerType.get_signless(1), 1))
        branch = scf.IfOp(moves, [value.type for value in last], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            insert(element, _index(first - 1))
            scf.yield_([memref.load(run, [_index(first - 1)]) for run in kept])
        with ir.InsertionPoint(branch.else_block):
            scf.yield_(last)
        scf.yield_(list(branch.results))

    def drain(at_k: list[ir.Value]) -> None:
        for buffer, run in zip(buffers, kept):
            memref.store(memref.load(run, at_k), buffer, position(at_k[0]))

    _for_each([first], [], drain)


def _merge_level(sort: ir.Operation, source, target, width: int, length: int) -> None:
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
