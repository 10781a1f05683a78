"""A product's operand as what it was converted from: numbers of few bits, less zero points, times factors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.integer_range import Range, of_type, range_of
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir, static_shape


@dataclass(frozen=True, order=True)
class Digit:
    """A part of a loop's number: `number floordiv step mod size`."""

    loop: int
    step: int
    size: int

    @property
    def end(self) -> int:
        return self.step * self.size


@dataclass(frozen=True)
class Along:
    """A tensor, and what each of its dimensions follows."""

    value: ir.Value
    digits: tuple[Digit, ...]


@dataclass(frozen=True)
class NarrowOperand:
    """(conversion(stored) - zero) * scale, where `zero` and `scale` follow loops of the result, and blocks of the sum.

    `stored` are numbers of `bits` bits from `low` on, or floats of 16 bits. Of fewer than 8, `part` says which of a byte an
    element is, from the lowest bits on.
    """

    stored: Along
    is_float: bool
    bits: int
    low: int
    zero: Along | None
    scale: Along | None
    part: Digit | None = None

    @classmethod
    def read(cls, contraction: Structured, position: int, static: set[ir.Value]) -> NarrowOperand | None:
        """An operand of a product of floats; None where it is not converted, or by numbers for places within the sum."""
        reader = _Reader(static, frozenset(expr.position for expr in contraction.result_map.results))
        operand, scale = reader.less("arith.mulf", whole(contraction, position))
        operand, zero = reader.less("arith.subf", operand)
        name, operand = reader.converted(operand)
        if name == "arith.extf":
            # Floats may be any number of times as large as what is left of them.
            is_half = ir.RankedTensorType(operand.value.type).element_type.width == 16
            ways = [cls(operand, True, 16, 0, None, scale)] if is_half and zero is None else []
        elif name in ("arith.sitofp", "arith.uitofp"):
            unsigned = name == "arith.uitofp"
            stored = [(reader.stored(operand, unsigned), zero)]
            if zero is None and not unsigned:
                less, points = reader.less("arith.subi", operand)
                # Bytes less bytes wrap around, which the difference of two sums does not.
                type_ = ir.RankedTensorType(less.value.type).element_type
                if points is not None and (type_.width >= 32 or range_of(operand.value) != of_type(type_)):
                    stored.append((reader.stored(less, False), points))
            ways = [
                cls(along, False, bits, -(1 << bits - 1) if range_.is_negative else 0, points, scale)
                for (along, range_), points in stored
                for bits in (2, 4, 8)
                if range_.fits(bits)
            ]
        else:
            return None
        found = [
            made
            for way in sorted(ways, key=lambda way: way.bits)
            if (made := way.packed(contraction)) is not None
        ]
        return next((way for way in found if way.is_cut_evenly(contraction)), None)

    def packed(self, contraction: Structured) -> NarrowOperand | None:
        """With parts of bytes, where numbers are narrower; None where none of the sum's loops has whole bytes of them."""
        if self.bits >= 8:
            return self
        parts = 8 // self.bits
        for digit in reversed(self.stored.digits):
            if contraction.kinds[digit.loop] == "reduction" and digit.step == 1 and digit.size % parts == 0:
                return replace(self, part=Digit(digit.loop, 1, parts))
        return None

    @property
    def digits(self) -> frozenset[Digit]:
        """All parts of loops that anything follows."""
        given = (self.stored, self.zero, self.scale)
        part = () if self.part is None else (self.part,)
        return frozenset(itertools.chain(part, *(along.digits for along in given if along is not None)))

    def is_cut_evenly(self, contraction: Structured) -> bool:
        """Whether every part of a loop is made of whole ones of its smallest parts, and loops of the result are in one."""
        for loop, kind in enumerate(contraction.kinds):
            ends = self.ends(loop)
            if len(ends) > 2 and kind == "parallel":
                return False
            if any(after % before for before, after in itertools.pairwise(ends)):
                return False
        return True

    def ends(self, loop: int) -> list[int]:
        """Where the smallest parts of a loop end: 1, and the steps that they make together."""
        own = [digit for digit in self.digits if digit.loop == loop]
        return sorted({1, *(at for digit in own for at in (digit.step, digit.end))})

    @property
    def blocks(self) -> frozenset[Digit]:
        """The parts of the sum that have numbers of their own."""
        given = (along for along in (self.zero, self.scale) if along is not None)
        return frozenset(digit for along in given for digit in along.digits if digit.size > 1 < digit.step)


def whole(contraction: Structured, position: int) -> Along:
    """An operand of a product whose dimensions follow one loop each."""
    loops = [expr.position for expr in contraction.maps[position].results]
    digits = tuple(Digit(loop, 1, contraction.extents[loop]) for loop in loops)
    return Along(contraction.op.operands[position], digits)


@dataclass(frozen=True)
class _Reader:
    """Goes from a product's operand to what it is made of, through copies, transpositions and reshapes."""

    static: set[ir.Value]
    result: frozenset[int]
    """The loops of the product's result."""

    def less(self, name: str, along: Along) -> tuple[Along, Along | None]:
        """A tensor less an operation with numbers for channels, and these numbers; the tensor itself without any."""
        along = self.source(along)
        found, operands = _computed(along)
        if found != name or len(operands) != 2:
            return along, None
        for scaled, other in (operands, operands[::-1]) if name == "arith.mulf" else (operands,):
            if other.value not in self.static or len(scaled.digits) != len(along.digits):
                continue
            channels = self.source(other, spread=True)
            if all((d.loop in self.result) == (d.step == 1) for d in channels.digits if d.size > 1):
                return self.source(scaled), channels
        return along, None

    def converted(self, along: Along) -> tuple[str | None, Along]:
        """The operation of one operand that makes a tensor, and what of; None and the tensor where there is none."""
        along = self.source(along)
        name, operands = _computed(along)
        return (name, self.source(operands[0])) if len(operands) == 1 else (None, along)

    def source(self, along: Along, spread: bool = False) -> Along:
        """What a tensor is a copy of, transposed or reshaped or not; with `spread`, repeated along dimensions too."""
        while (before := self._copied(along, spread) or self._reshaped(along)) is not None:
            along = before
        return along

    def stored(self, along: Along, unsigned: bool) -> tuple[Along, Range]:
        """Integers before they are extended, and between which numbers they are."""
        name, before = self.converted(along)
        if name in ("arith.extsi", "arith.extui"):
            along, unsigned = before, name == "arith.extui"
        along = self.source(along)
        range_, type_ = range_of(along.value), ir.RankedTensorType(along.value.type)
        if unsigned and range_.is_negative:
            range_ = Range(0, (1 << type_.element_type.width) - 1)
        return along, range_

    def _copied(self, along: Along, spread: bool) -> Along | None:
        name, operands = _computed(along)
        if name is not None or len(operands) != 1:
            return None
        return operands[0] if spread or len(operands[0].digits) == len(along.digits) else None

    def _reshaped(self, along: Along) -> Along | None:
        """The tensor before a reshape that makes dimensions of parts of the sum's loops, or puts parts together."""
        owner = along.value.owner
        if isinstance(owner, ir.Block) or owner.name not in ("tensor.collapse_shape", "tensor.expand_shape"):
            return None
        merges, source = owner.name == "tensor.collapse_shape", owner.operands[0]
        shape = static_shape(ir.RankedTensorType((source if merges else along.value).type))
        digits: list[Digit] = []
        for number, group in enumerate(owner.attributes["reassociation"]):
            dims = [ir.IntegerAttr(dim).value for dim in group]
            if merges:
                parts = _split(along.digits[number], [shape[dim] for dim in dims])
                if along.digits[number].loop in self.result and sum(part.size > 1 for part in parts) > 1:
                    return None
                digits += parts
                continue
            merged = _joined([along.digits[dim] for dim in dims])
            if merged is None:
                return None
            digits.append(merged)
        return Along(source, tuple(digits))


def _split(digit: Digit, sizes: Sequence[int]) -> list[Digit]:
    """A digit as several, the last of which changes fastest."""
    digits, step = [], digit.step
    for size in reversed(sizes):
        digits.append(Digit(digit.loop, step, size))
        step *= size
    return digits[::-1]


def _joined(digits: Sequence[Digit]) -> Digit | None:
    """Digits as one; None where they do not follow each other."""
    parts = [digit for digit in digits if digit.size > 1] or digits[:1]
    if any((a.loop, a.step) != (b.loop, b.end) for a, b in itertools.pairwise(parts)):
        return None
    return Digit(parts[-1].loop, parts[-1].step, parts[0].end // parts[-1].step)


def _computed(along: Along) -> tuple[str | None, list[Along]]:
    """The one operation that computes a tensor element by element, None for a copy, and what of; no operands where it is none such."""
    generic = (
        None if isinstance(along.value.owner, ir.Block) else Structured.read(along.value.owner.operation)
    )
    if generic is None or generic.result_map != ir.AffineMap.get_identity(len(along.digits)):
        return None, []
    *inner, last = (view.operation for view in generic.body.operations)
    if len(inner) > 1:
        return None, []
    arguments, operands = list(generic.body.arguments), []
    for read in (inner or [last])[0].operands:
        if read in arguments:
            number = arguments.index(read)
            exprs = generic.maps[number].results
            if number >= generic.num_inputs or not all(map(is_dim, exprs)):
                return None, []
            digits = tuple(along.digits[expr.position] for expr in exprs)
            operands.append(Along(generic.op.operands[number], digits))
        else:
            operands.append(Along(read, ()))
    return (inner[0].name if inner else None), operands
