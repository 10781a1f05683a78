"""Exchanges values of 1 to 16 bits between the threads of a warp as 32-bit ones, which is what the hardware moves.

    %r, %valid = gpu.shuffle xor %x, %offset, %width : f16
becomes
    %0 = arith.bitcast %x : f16 to i16
    %1 = arith.extui %0 : i16 to i32
    %2, %valid = gpu.shuffle xor %1, %offset, %width : i32
    %3 = arith.trunci %2 : i32 to i16
    %r = arith.bitcast %3 : i16 to f16
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import arith, gpu, ir, vector, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class WidenShuffles(Pass):
    """Rewrites shuffles of scalars of less than 32 bits, and of vectors of up to 32 bits in all."""

    anchor: ClassVar[str] = "any"

    def run(self, op: ir.Operation) -> None:
        for shuffle in walk(op, "gpu.shuffle"):
            type_ = shuffle.operands[0].type
            bits = _bits(type_)
            if 0 < bits < 32 or (bits == 32 and isinstance(type_, ir.VectorType)):
                with ir.InsertionPoint(shuffle), shuffle.location:
                    _widen(shuffle, type_, ir.IntegerType.get_signless(bits))
                shuffle.erase()


def _widen(shuffle: ir.Operation, type_: ir.Type, bits: ir.IntegerType) -> None:
    """Writes the shuffle of one word in place of one of `type_`, whose bits are the integer `bits`."""
    value, offset, width = shuffle.operands
    word = ir.IntegerType.get_signless(32)
    moved = _reinterpret(value, bits)
    moved = moved if bits == word else arith.extui(word, moved)
    found, valid = gpu.shuffle(moved, offset, width, shuffle.attributes["mode"])
    found = found if bits == word else arith.trunci(bits, found)
    shuffle.results[0].replace_all_uses_with(_reinterpret(found, type_))
    shuffle.results[1].replace_all_uses_with(valid)


def _reinterpret(value: ir.Value, type_: ir.Type) -> ir.Value:
    """The same bits as a scalar or a vector of `type_`."""
    if value.type == type_:
        return value
    if isinstance(value.type, ir.VectorType):
        return vector.extract(vector.bitcast(ir.VectorType.get([1], type_), value), [], [0])
    if isinstance(type_, ir.VectorType):
        return vector.bitcast(type_, vector.broadcast(ir.VectorType.get([1], value.type), value))
    return arith.bitcast(type_, value)


def _bits(type_: ir.Type) -> int:
    """Bits of a scalar or of all lanes; 0 for what has none, such as index."""
    if isinstance(type_, ir.VectorType):
        count = 1
        for extent in type_.shape:
            count *= extent
        return count * _bits(type_.element_type)
    return type_.width if isinstance(type_, (ir.IntegerType, ir.FloatType)) else 0
