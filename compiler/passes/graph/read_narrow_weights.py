"""Multiplies by weights of few bits as they are stored, where a product has too few rows to make up for reading wider ones.

    %1 = linalg.generic (k, n) ins(%w : i8) { extui } ; %2 = linalg.generic (k, n) ins(%1, %z) { subi }      // z: (n)
    %3 = linalg.generic (k, n) ins(%2) { sitofp } ; %4 = linalg.generic (k, n) ins(%3, %s) { mulf }          // s: (n)
    %c = linalg.generic (m, n, k) ins(%x, %4 : f32, f32) outs(%zero) { mulf, addf }
      =>
    %v = linalg.generic (k, n) ins(%w) { xori 128 }                              // signed bytes, once, at load
    %d = linalg.generic (m, n, k) ins(%x, %v : f32, i8) outs(%zero) { sitofp, mulf, addf }
    %t = linalg.generic (m, k) ins(%x) { addf }                                  // only where there are zero points
    %c = linalg.generic (m, n) ins(%d, %z, %t, %s) { (%d - (%z - 128) * %t) * %s }

Where factors and zero points are those of blocks of the sum (z, s: (b, n) of k = b * size + i), so are the products:

    %d = linalg.generic (b, m, n, i) ins(%x, %v) outs(%zero) { sitofp, mulf, addf }
    %c = linalg.generic (m, n, b) ins(%d, %z, %t, %s) outs(%zero) { %out + (%d - (%z - 128) * %t) * %s }

Numbers that the operations before them leave 4 bits, or 2, are stored two or four in a byte, neighbours of the sum beside each
other (p: (h, n) of k = 2 * h + j), and a loop of two steps takes them out:

    %d = linalg.generic (m, n, h, j) ins(%x, %p) outs(%zero) { shrui 4 * j, andi 15, uitofp, mulf, addf }

A step of a decoder reads every weight once and multiplies it by a row or a few. What it takes is the time of reading: a
quarter of it, where bytes are read in place of f32. Weights that are multiplied out belong to `hoist-weights` otherwise,
which stores them as f32; so do weights whose factors change within the sum by other rules than blocks, or in blocks of fewer
than 16: what their products take to be written and read again is then as much as is saved.

Products of bf16 and f16 are computed in f32 then, as their sums are in any case: nothing is rounded that was not.

Products with more than `rows` rows read f32, and with half as many the other floats: see `for_target`. Source of the terms: B. Jacob et al., "Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR'18, §2.3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.compiler.analysis.affine_access import is_dim, map_dims
from tilewright.compiler.analysis.narrow_operand import Along, Digit, NarrowOperand, whole
from tilewright.compiler.analysis.structure import Structured, starts_from_zero
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.ir import arith, functions, ir, linalg, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.layout_rules import discardable
from tilewright.compiler.targets.target import Target

_MIDDLE = 128
"""What unsigned bytes lie around, as signed ones do around 0."""
_PER_ROW = 3
"""Operations for each row that a weight is multiplied by: a multiply-add, and a share of its conversion, which takes two instructions, as
long as two multiply-adds, for every register tile of four rows."""

_SMALLEST_BLOCK = 16
"""Of a sum whose blocks have numbers of their own: their products take 8 bytes to be written and read for as many weights."""


@dataclass(frozen=True)
class ReadNarrowWeights(Pass):
    """Rewrites products of at most `rows` rows with weights converted from integers of 8 bits at most, or from 16-bit floats."""

    rows: int = 0

    @classmethod
    def for_target(cls, target: Target) -> ReadNarrowWeights:
        """The rows that are multiplied, conversions included, while the same weights would be read from memory as f32."""
        if target.kind != "cpu":
            return cls()
        memory = max(level.bandwidth_gbps for level in target.memory if level.name == "DRAM")
        return cls(math.floor(4 / memory * target.peak_gflops["f32"] / _PER_ROW))

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview) if self.rows else ():
            if len(function.regions[0].blocks) != 1:
                continue
            operations = [view.operation for view in function.regions[0].blocks[0].operations]
            found = [s for o in operations if (s := Structured.read(o)) is not None and _is_product(s)]
            static = WeightFlow.of(function, argument_roles(function)).values if found else set()
            for contraction in found:
                weights = [number for number in (0, 1) if contraction.op.operands[number] in static]
                width = _element(contraction.op.operands[0]).width
                if len(weights) != 1 or self.rows_of(contraction, weights[0]) > self.rows * width // 32:
                    continue
                narrow = NarrowOperand.read(contraction, weights[0], static)
                if narrow is not None and all(block.step >= _SMALLEST_BLOCK for block in narrow.blocks):
                    _Product(contraction, weights[0], narrow).multiply()

    def rows_of(self, contraction: Structured, position: int) -> int:
        """How often a product uses an element of one operand."""
        followed = map_dims(contraction.maps[position])
        return math.prod(n for loop, n in enumerate(contraction.extents) if loop not in followed)


def _is_product(contraction: Structured) -> bool:
    """Whether it is a sum in f32 of products of floats, onto zeros, of which every operand moves along plain loops."""
    names = [inner.operation.name for inner in contraction.body.operations]
    *operands, start = contraction.op.operands
    elements = {str(_element(operand)) for operand in operands}
    widened = ["arith.extf"] * (0 if elements == {"f32"} else 2)
    return (
        contraction.is_contraction
        and names == [*widened, "arith.mulf", "arith.addf", "linalg.yield"]
        and all(is_dim(expr) for map_ in contraction.maps for expr in map_.results)
        and len(elements) == 1
        and elements <= {"f32", "bf16", "f16"}
        and _element(start) == ir.F32Type.get()
        and starts_from_zero(contraction.op)
    )


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type


@dataclass(frozen=True)
class _Product:
    """A product, and one of its operands as what it was converted from."""

    contraction: Structured
    position: int
    narrow: NarrowOperand

    def multiply(self) -> None:
        """Replaces the product."""
        op, narrow, other = self.contraction.op, self.narrow, 1 - self.position
        with ir.InsertionPoint(op), op.location:
            stored, others = self._stored(), self._cut(whole(self.contraction, other))
            if self._element(others) != _f32():
                others = self._sum([others], others.digits, _widened)
            loops = len({*stored.digits, *others.digits})

            def multiplied(*values: ir.Value) -> ir.Value:
                wide = self._converted(values[self.position], loops)
                return arith.mulf(values[other], wide) if other == 0 else arith.mulf(wide, values[other])

            result = self._cut(whole(self.contraction, 2)).digits
            first = min((block.step for block in narrow.blocks), default=None)
            blocks = [part for part in self._summed if first is not None and part.step >= first]
            parts = (*blocks, *result)
            factors = [stored, others] if self.position == 0 else [others, stored]
            terms = [self._sum(factors, parts, multiplied, attributes=discardable(op))]
            if self._is_moved:
                rows = [part for part in parts if part in others.digits]
                terms.append(self._sum([others], rows, lambda x: x))
            if narrow.zero is not None:
                terms.append(self._channels(narrow.zero, parts, self._point))
            if narrow.scale is not None:
                terms.append(self._channels(narrow.scale, parts, _widened))

            def scaled(total: ir.Value, *values: ir.Value) -> ir.Value:
                if self._is_moved:
                    constant = arith.constant(_f32(), float(-self._middle))
                    point = constant if narrow.zero is None else values[1]
                    total = arith.subf(total, arith.mulf(point, values[0]))
                return arith.mulf(total, values[-1]) if narrow.scale is not None else total

            replaced = self._sum(terms, result, scaled) if len(terms) > 1 else terms[0]
        op.results[0].replace_all_uses_with(replaced.value)
        op.erase()

    @property
    def _middle(self) -> int:
        """What is taken off numbers before they are stored: unsigned bytes have small zero points as signed ones do."""
        narrow = self.narrow
        if narrow.bits == 8 and not narrow.low:
            return _MIDDLE if narrow.zero is not None else 0
        return narrow.low if narrow.bits < 8 else 0

    @property
    def _is_moved(self) -> bool:
        """Whether what is stored is the operand, but for factors, and but for a zero point."""
        return self.narrow.zero is not None or self._middle != 0

    def _point(self, zero: ir.Value) -> ir.Value:
        """A zero point of what is stored, as f32."""
        if isinstance(zero.type, ir.FloatType):
            zero = _widened(zero)
            return arith.subf(zero, arith.constant(_f32(), float(self._middle))) if self._middle else zero
        moved = arith.subi(zero, arith.constant(zero.type, self._middle)) if self._middle else zero
        return arith.sitofp(_f32(), moved)

    @cached_property
    def _parts(self) -> dict[int, list[Digit]]:
        """The smallest parts of every loop, the one that changes fastest last."""
        parts = {}
        for loop, extent in enumerate(self.contraction.extents):
            ends = [*dict.fromkeys((*self.narrow.ends(loop), extent))]
            made = [Digit(loop, at, to // at) for at, to in itertools.pairwise(ends)]
            parts[loop] = made[::-1] or [Digit(loop, 1, 1)]
        return parts

    @property
    def _summed(self) -> list[Digit]:
        """The parts that are summed over, in the order of loops; which part of a byte it is comes last."""
        kinds = self.contraction.kinds
        parts = [part for loop, own in self._parts.items() if kinds[loop] == "reduction" for part in own]
        return sorted(parts, key=lambda part: part == self.narrow.part)

    def _stored(self) -> Along:
        """What the product reads: numbers less the middle one, in bytes of one or of several."""
        narrow, byte, stored = self.narrow, ir.IntegerType.get_signless(8), self._cut(self.narrow.stored)
        if narrow.is_float or (narrow.bits == 8 and self._element(stored) == byte and not self._middle):
            return stored
        kept = [part for part in stored.digits if part != narrow.part]

        def placed(number: ir.Value) -> ir.Value:
            if number.type != byte:
                number = arith.trunci(byte, number)
            if self._middle:
                # Modulo 256: less 128 is what turns the highest bit.
                number = arith.addi(number, arith.constant(byte, -self._middle))
            if narrow.part is None:
                return number
            which = arith.index_cast(byte, linalg.IndexOp(len(kept)).result)
            return arith.shli(number, arith.muli(which, arith.constant(byte, narrow.bits)))

        return self._sum([stored], kept, placed, arith.ori, byte)

    def _converted(self, stored: ir.Value, loops: int) -> ir.Value:
        """An element of what is stored, as f32, inside of the product's body of so many loops."""
        narrow = self.narrow
        if narrow.is_float:
            return arith.extf(_f32(), stored)
        if narrow.part is not None:
            which = arith.index_cast(stored.type, linalg.IndexOp(loops - 1).result)
            shift = arith.muli(which, arith.constant(stored.type, narrow.bits))
            mask = arith.constant(stored.type, (1 << narrow.bits) - 1)
            return arith.uitofp(_f32(), arith.andi(arith.shrui(stored, shift), mask))
        return (arith.sitofp if narrow.low or self._middle else arith.uitofp)(_f32(), stored)

    @staticmethod
    def _element(along: Along) -> ir.Type:
        type_ = along.value.type
        return type_.element_type if isinstance(type_, ir.RankedTensorType) else type_

    def _cut(self, along: Along) -> Along:
        """The tensor with a dimension for each of the parts of what its dimensions follow."""
        along = self._without_units(along)
        made = [[p for p in self._parts[d.loop] if d.step <= p.step < d.end] or [d] for d in along.digits]
        digits = tuple(itertools.chain.from_iterable(made))
        if len(digits) == len(along.digits):
            return Along(along.value, digits)
        shape = [digit.size for digit in digits]
        starts = [0, *itertools.accumulate(map(len, made))]
        groups = [[*range(first, end)] for first, end in itertools.pairwise(starts)]
        type_ = ir.RankedTensorType.get(shape, self._element(along))
        return Along(tensor.expand_shape(type_, along.value, groups, [], shape), digits)

    def _without_units(self, along: Along) -> Along:
        """The tensor without dimensions of one element, but for those that follow whole loops."""
        kept = [n for n, d in enumerate(along.digits) if d.size > 1 or d in self._parts[d.loop]]
        if len(kept) == len(along.digits):
            return along
        ends = [*kept[1:], len(along.digits)]
        groups = [
            [*range(first if number else 0, end)] for number, (first, end) in enumerate(zip(kept, ends))
        ]
        digits = tuple(along.digits[number] for number in kept)
        made = ir.RankedTensorType.get([digit.size for digit in digits], self._element(along))
        return Along(tensor.collapse_shape(made, along.value, groups), digits)

    def _channels(
        self, channels: Along, order: Sequence[Digit], change: Callable[[ir.Value], ir.Value]
    ) -> Along:
        """Numbers for channels, changed and stored in the order of the loops of what they are combined with."""
        channels = self._cut(channels)
        return self._sum([channels], [part for part in order if part in channels.digits], change)

    def _sum(
        self,
        operands: Sequence[Along],
        kept: Sequence[Digit],
        combine: Callable[..., ir.Value],
        add: Callable[..., ir.Value] = arith.addf,
        element: ir.Type | None = None,
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> Along:
        """What `combine` makes of the operands, added up over the parts of loops that are not `kept`: f32, or an `element`."""
        element = element or _f32()
        followed = {part for operand in operands for part in operand.digits}
        summed = [part for part in self._summed if part in followed and part not in kept]
        loops = [*kept, *summed]
        start = tensor.empty([part.size for part in kept], element)
        if summed:
            zero = arith.constant(element, 0.0 if isinstance(element, ir.FloatType) else 0)
            start = linalg.fill(zero, outs=[start])
        follows = [*(operand.digits for operand in operands), kept]
        maps = [
            ir.AffineMap.get(len(loops), 0, [ir.AffineDimExpr.get(loops.index(part)) for part in parts])
            for parts in follows
        ]
        kinds = ["parallel"] * len(kept) + ["reduction"] * len(summed)
        made = linalg.GenericOp(
            [start.type],
            [operand.value for operand in operands],
            [start],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
            ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
        )
        for name, attribute in (attributes or {}).items():
            made.operation.attributes[name] = attribute
        block = made.regions[0].blocks.append(*map(self._element, operands), element)
        with ir.InsertionPoint(block):
            *values, total = block.arguments
            value = combine(*values)
            linalg.YieldOp([add(total, value) if summed else value])
        return Along(made.results[0], tuple(kept))


def _f32() -> ir.Type:
    return ir.F32Type.get()


def _widened(value: ir.Value) -> ir.Value:
    return value if value.type == _f32() else arith.extf(_f32(), value)
