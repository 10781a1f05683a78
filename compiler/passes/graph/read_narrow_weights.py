"""Multiplies by weights of few bits as they are stored, where a product has too few rows to make up for reading wider ones.

    %1 = linalg.generic (k, n) ins(%w : i8) { extui } ; %2 = linalg.generic (k, n) ins(%1, %z) { subi }      // z: (n)
    %3 = linalg.generic (k, n) ins(%2) { sitofp } ; %4 = linalg.generic (k, n) ins(%3, %s) { mulf }          // s: (n)
    %c = linalg.generic (m, n, k) ins(%x, %4 : f32, f32) outs(%zero) { mulf, addf }
      =>
    %v = linalg.generic (k, n) ins(%w) { xori 128 }                              // signed bytes, once, at load
    %d = linalg.generic (m, n, k) ins(%x, %v : f32, i8) outs(%zero) { sitofp, mulf, addf }
    %t = linalg.generic (m, k) ins(%x) { addf }                                  // only where there are zero points
    %c = linalg.generic (m, n) ins(%d, %t, %z, %s) { (%d - (%z - 128) * %t) * %s }

A step of a decoder reads every weight once and multiplies it by a row or a few. What it takes is the time of reading: a
quarter of it, where bytes are read in place of f32. Weights that are multiplied out belong to `hoist-weights` otherwise,
which stores them as f32. Factors and zero points that move along the reduction (blocks of a column) stay where they are,
and so do the weights then.

Products with more than `rows` rows read f32: see `for_target`. Source of the terms: B. Jacob et al., "Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR'18, §2.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.ir import arith, functions, ir, linalg, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import body, elementwise, indexing_maps
from tilewright.compiler.targets.target import Target

_MIDDLE = 128
"""What unsigned bytes lie around, as signed ones do around 0."""
_PER_ROW = 3
"""Operations for each row that a weight is multiplied by: a multiply-add, and a share of its conversion, which takes two instructions, as
long as two multiply-adds, for every register tile of four rows."""


@dataclass(frozen=True)
class ReadNarrowWeights(Pass):
    """Rewrites f32 products of at most `rows` rows with weights converted from bytes, or from 16-bit numbers."""

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
                if len(weights) != 1 or self.rows_of(contraction, weights[0]) > self.rows:
                    continue
                narrow = _Narrow.read(contraction, weights[0], static)
                if narrow is not None:
                    narrow.multiply()

    def rows_of(self, contraction: Structured, position: int) -> int:
        """How often a product uses an element of one operand."""
        followed = map_dims(contraction.maps[position])
        return math.prod(n for loop, n in enumerate(contraction.extents) if loop not in followed)


def _is_product(contraction: Structured) -> bool:
    """Whether it is a sum of products of f32, onto zeros, of which every operand moves along plain loops."""
    names = [inner.operation.name for inner in contraction.body.operations]
    start = contraction.op.operands[contraction.num_inputs]
    return (
        contraction.is_contraction
        and names == ["arith.mulf", "arith.addf", "linalg.yield"]
        and all(is_dim(expr) for map_ in contraction.maps for expr in map_.results)
        and all(_element(operand) == ir.F32Type.get() for operand in contraction.op.operands)
        and not isinstance(start.owner, ir.Block)
        and start.owner.name == "linalg.fill"
        and _is_zero(start.owner.operands[0])
    )


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type


def _is_zero(value: ir.Value) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return False
    return str(owner.attributes["value"]).startswith("0.0")


@dataclass(frozen=True)
class _Along:
    """A tensor, and the loop of a product that each of its dimensions follows."""

    value: ir.Value
    loops: tuple[int, ...]


@dataclass(frozen=True)
class _Narrow:
    """A product's operand as what it was converted from: (conversion(stored) - zero) * scale."""

    contraction: Structured
    position: int
    stored: _Along
    is_float: bool
    unsigned: bool
    zero: _Along | None
    scale: _Along | None

    @classmethod
    def read(cls, contraction: Structured, position: int, static: set[ir.Value]) -> _Narrow | None:
        """The operand of a product, None where it is not converted, or not by numbers for channels of the result."""
        loops = tuple(expr.position for expr in contraction.maps[position].results)
        operand, scale = _less("arith.mulf", _Along(contraction.op.operands[position], loops), static)
        name, operand = _converted(operand)
        if name not in ("arith.sitofp", "arith.uitofp", "arith.extf"):
            return None
        zero, unsigned = None, name == "arith.uitofp"
        if name == "arith.sitofp":
            operand, zero = _less("arith.subi", operand, static)
            name, operand = _converted(operand)
            if name not in ("arith.extsi", "arith.extui") and (name is not None or zero is not None):
                return None  # bytes less bytes wrap around, which the difference of two sums does not
            unsigned = name == "arith.extui"
        is_float = isinstance(_element(operand.value), ir.FloatType)
        if _element(operand.value).width != (16 if is_float else 8):
            return None
        result = {expr.position for expr in contraction.result_map.results}
        if not all(result.issuperset(channels.loops) for channels in (zero, scale) if channels is not None):
            return None
        return cls(contraction, position, operand, is_float, unsigned, zero, scale)

    def multiply(self) -> None:
        """Replaces the product."""
        op = self.contraction.op
        with ir.InsertionPoint(op), op.location:
            # As signed bytes, unsigned ones have small zero points.
            is_turned = self.zero is not None and self.unsigned
            stored = _signed(self.stored.value) if is_turned else self.stored.value
            result = self._product(stored, self.unsigned and not is_turned)
            if self.zero is not None:
                result = self._less_zero_points(result, self.zero, is_turned)
            if self.scale is not None:
                result = self._with(result, [self.scale], lambda sum_, scale: arith.mulf(sum_, scale))
        op.results[0].replace_all_uses_with(result)
        op.erase()

    def _product(self, stored: ir.Value, unsigned: bool) -> ir.Value:
        op = self.contraction.op
        operands, maps = list(op.operands), list(self.contraction.maps)
        operands[self.position] = stored
        maps[self.position] = _map(len(self.contraction.extents), self.stored.loops)
        attributes = {name: op.attributes[name] for name in op.attributes}
        attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])
        made = ir.Operation.create(
            "linalg.generic",
            results=[op.results[0].type],
            operands=operands,
            attributes=attributes,
            regions=1,
        )
        elements = [_element(operand) for operand in operands]
        block = ir.Block.create_at_start(made.regions[0], elements, [op.location] * 3)
        convert = arith.extf if self.is_float else arith.uitofp if unsigned else arith.sitofp
        with ir.InsertionPoint(block):
            factors = list(block.arguments)[:2]
            factors[self.position] = convert(ir.F32Type.get(), factors[self.position])
            linalg.YieldOp([arith.addf(block.arguments[2], arith.mulf(*factors))])
        return made.results[0]

    def _less_zero_points(self, result: ir.Value, zero: _Along, is_turned: bool) -> ir.Value:
        """The product less the zero points times the sums of the other operand's rows."""
        other, f32 = 1 - self.position, ir.F32Type.get()
        loops = [expr.position for expr in self.contraction.maps[other].results]
        kinds = [self.contraction.kinds[loop] for loop in loops]
        rows = [number for number, kind in enumerate(kinds) if kind == "parallel"]
        shape = [self.contraction.extents[loops[number]] for number in rows]
        zeros = linalg.fill(arith.constant(f32, 0.0), outs=[tensor.empty(shape, f32)])
        maps = (_map(len(loops), range(len(loops))), _map(len(loops), rows))
        sums = linalg.GenericOp(
            [zeros.type],
            [self.contraction.op.operands[other]],
            [zeros],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
            ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
        )
        block = sums.regions[0].blocks.append(f32, f32)
        with ir.InsertionPoint(block):
            linalg.YieldOp([arith.addf(block.arguments[1], block.arguments[0])])

        def less(sum_: ir.Value, point: ir.Value, row: ir.Value) -> ir.Value:
            if is_turned:
                point = arith.subi(point, arith.constant(point.type, _MIDDLE))
            return arith.subf(sum_, arith.mulf(arith.sitofp(f32, point), row))

        return self._with(
            result, [zero, _Along(sums.results[0], tuple(loops[number] for number in rows))], less
        )

    def _with(self, result: ir.Value, others: Sequence[_Along], combine: Callable[..., ir.Value]) -> ir.Value:
        """The product's result combined element by element with what follows some of its loops."""
        loops = [expr.position for expr in self.contraction.result_map.results]
        maps = [_map(len(loops), [loops.index(loop) for loop in other.loops]) for other in others]
        values = [result, *(other.value for other in others)]
        type_ = ir.RankedTensorType(result.type)
        return elementwise(type_, values, [_map(len(loops), range(len(loops))), *maps], combine).results[0]


def _map(rank: int, dims: Iterable[int]) -> ir.AffineMap:
    return ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(dim) for dim in dims])


def _signed(stored: ir.Value) -> ir.Value:
    """Unsigned bytes less 128."""
    type_ = ir.RankedTensorType(stored.type)

    def turned(byte: ir.Value) -> ir.Value:
        return arith.xori(byte, arith.constant(byte.type, -_MIDDLE))

    return elementwise(type_, [stored], [_map(type_.rank, range(type_.rank))], turned).results[0]


def _computed(along: _Along) -> tuple[str | None, list[_Along]]:
    """The one operation that computes a tensor element by element, None for a copy, and what of; no operands where it is none such."""
    if isinstance(along.value.owner, ir.Block) or along.value.owner.name != "linalg.generic":
        return None, []
    generic = along.value.owner.operation
    *inner, last = (view.operation for view in body(generic).operations)
    *maps, result = indexing_maps(generic)
    arguments = list(body(generic).arguments)[: len(maps)]
    read = list(inner[0].operands) if len(inner) == 1 else list(last.operands)
    if len(inner) > 1 or read != arguments or result != _map(result.n_dims, range(result.n_dims)):
        return None, []
    if not all(is_dim(expr) for map_ in maps for expr in map_.results):
        return None, []
    operands = [
        _Along(value, tuple(along.loops[expr.position] for expr in map_.results))
        for value, map_ in zip(generic.operands, maps)
    ]
    return (inner[0].name if inner else None), operands


def _source(along: _Along) -> _Along:
    """What a tensor is a copy of, transposed or not."""
    name, operands = _computed(along)
    while name is None and len(operands) == 1 and len(operands[0].loops) == len(along.loops):
        (along,) = operands
        name, operands = _computed(along)
    return along


def _converted(along: _Along) -> tuple[str | None, _Along]:
    """The operation of one operand that makes a tensor, and what of; None and the tensor where there is none."""
    along = _source(along)
    name, operands = _computed(along)
    return (name, _source(operands[0])) if len(operands) == 1 else (None, along)


def _less(name: str, along: _Along, static: set[ir.Value]) -> tuple[_Along, _Along | None]:
    """A tensor less an operation with numbers for channels, and these numbers; the tensor itself without any."""
    along = _source(along)
    found, operands = _computed(along)
    if found != name or len(operands) != 2 or operands[1].value not in static:
        return along, None
    whole, channels = operands
    return (_source(whole), channels) if len(whole.loops) == len(along.loops) else (along, None)
