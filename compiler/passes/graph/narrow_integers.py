"""Multiplies quantised tensors as the bytes that they are, instead of the 32-bit differences that the model spells out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.structure import Structured, starts_from_zero
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.families.cpu.dot_product import DotLoops, dot_types
from tilewright.compiler.ir import arith, functions, ir, linalg, tensor
from tilewright.compiler.nouns.register_tiles import block_widths
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import body, elementwise, indexing_maps, is_copy, terminator
from tilewright.compiler.targets.target import Target

_VIEWS = frozenset({"tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice"})
_LITTLE = 8
"""Columns are added where there are at least this many times as many."""
_LARGEST = 255 * 255
"""The largest product of two bytes less their zero points."""


@dataclass(frozen=True)
class NarrowIntegers(Pass):
    """Rewrites sums of products of 32-bit integers, both computed from bytes and one from weights.

    Before, as ONNX's QLinearConv, ConvInteger, QLinearMatMul and MatMulInteger spell it, za and zw zero points:

        %a1 = linalg.generic ins(%a : i8) { extui } ; %a2 = linalg.generic ins(%a1, %za) { subi }
        %p = tensor.pad %a2 { 0 }
        %w1 = linalg.generic ins(%w : i8) { extsi } ; %w2 = linalg.generic ins(%w1, %zw) { subi }
        %c = linalg.generic (n, h, w, o, r, s, i) ins(%p, %w2 : i32, i32) outs(i32 or i64) { muli, addi }

    After, where zw is 0:

        %p = tensor.pad %a { za }
        %d = linalg.generic (n, h, w, o, r, s, i) ins(%p, %w : i8, i8) outs(i32) { extui, extsi, muli, addi }
        %s = linalg.generic (o, r, s, i) ins(%w2) { addi }                      // once, at load
        %c = linalg.generic ins(%d, %s) { %d - za * %s }

    VNNI multiplies unsigned bytes by signed ones: signed activations and unsigned weights are moved by 128 (their
    topmost bit turned), and their zero points with them, so weights quantised as unsigned around 128 qualify too. Around
    another zero point, `zw` times the sums of the activations' rows are taken off as well, where those are rows and not
    windows. Sums are exact: what could leave 32 bits (33,026 products and more) is left alone, as are padded activations
    with a zero point that is only known when the model runs, and products of two activations.

    Source: B. Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR'18, §2.3.
    """

    anchor: ClassVar[str] = "builtin.module"
    enabled: bool = True
    lanes: int = 16
    registers: int = 32

    @classmethod
    def for_target(cls, target: Target) -> NarrowIntegers:
        """Enabled where the target multiplies bytes, with its vectors of sums."""
        return cls(dot_types(target)[1], target.vector_bits // 32, target.registers_per_thread)

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview) if self.enabled else ():
            if len(function.regions[0].blocks) != 1:
                continue
            operations = [view.operation for view in function.regions[0].blocks[0].operations]
            found = [s for op in operations if (s := _integer_contraction(op)) is not None]
            if not found:
                continue
            static = WeightFlow.of(function, argument_roles(function)).values
            for contraction in found:
                loops = DotLoops.of(contraction.maps)
                if loops is not None and contraction.op.operands[loops.column] in static:
                    columns = contraction.extents[loops.vector]
                    blocks = block_widths(columns, self.lanes, self.registers)
                    _narrow(contraction, loops, 0 if blocks else -columns % (4 * self.lanes))


def _integer_contraction(op: ir.Operation) -> Structured | None:
    """A contraction of i32 whose sum fits 32 bits when its operands are bytes; None for anything else."""
    structured = Structured.read(op)
    if structured is None or not structured.is_contraction:
        return None
    inputs = [str(ir.RankedTensorType(value.type).element_type) for value in list(op.operands)[:2]]
    result = str(ir.RankedTensorType(op.results[0].type).element_type)
    names = [view.operation.name for view in body(op).operations]
    widened = ["arith.extsi"] * 2 if result == "i64" else []
    if inputs != ["i32", "i32"] or result not in ("i32", "i64"):
        return None
    if names != [*widened, "arith.muli", "arith.addi", "linalg.yield"] or not starts_from_zero(op):
        return None
    terms = math.prod(e for e, kind in zip(structured.extents, structured.kinds) if kind == "reduction")
    return structured if terms * _LARGEST < 1 << 31 else None


@dataclass(frozen=True)
class _Bytes:
    """A tensor of bytes and the zero point that is taken off them: a number, or a tensor of one i32."""

    value: ir.Value
    zero: int | ir.Value


def _narrow(contraction: Structured, loops: DotLoops, beyond: int) -> None:
    """Rewrites one, with `beyond` columns more where that is little, so that the weights have blocks."""
    op = contraction.op
    rows = _bytes(op.operands[loops.row], False)
    columns = _bytes(op.operands[loops.column], True)
    if rows is None or columns is None:
        return
    row_map = contraction.maps[loops.row]
    if columns.zero != 0 and not all(isinstance(e, ir.AffineDimExpr) for e in row_map.results):
        return
    i32 = ir.IntegerType.get_signless(32)
    shape = list(ir.RankedTensorType(op.results[0].type).shape)
    column_map = contraction.maps[loops.column]
    place = [i for i, e in enumerate(column_map.results) if e == ir.AffineExpr.get_dim(loops.vector)]
    if beyond * _LITTLE > shape[-1] or len(place) != 1 or shape[-1] != contraction.extents[loops.vector]:
        beyond = 0
    type_ = ir.RankedTensorType.get([*shape[:-1], shape[-1] + beyond], i32)
    with op.location, ir.InsertionPoint(op):
        start = linalg.fill(arith.constant(i32, 0), outs=[tensor.empty(type_.shape, i32)])
        stored = _widened_by(columns.value, place[0], beyond) if beyond else columns.value
        operands = [rows.value, stored] if loops.row == 0 else [stored, rows.value]
        dots = ir.Operation.create(
            "linalg.generic",
            results=[type_],
            operands=[*operands, start],
            attributes={name: op.attributes[name] for name in op.attributes},
            regions=1,
        )
        i8 = ir.IntegerType.get_signless(8)
        block = ir.Block.create_at_start(dots.regions[0], [i8, i8, i32], [op.location] * 3)
        with ir.InsertionPoint(block):
            row = arith.extui(i32, block.arguments[loops.row])
            column = arith.extsi(i32, block.arguments[loops.column])
            linalg.YieldOp([arith.addi(block.arguments[2], arith.muli(row, column))])
        result, output = dots.results[0], [expr.position for expr in contraction.result_map.results]
        if beyond:
            origin, steps = [0] * len(shape), [1] * len(shape)
            result = tensor.extract_slice(
                ir.RankedTensorType.get(shape, i32), result, [], [], [], origin, shape, steps
            )
        empty = tensor.empty(shape, i32)
        weights = op.operands[loops.column]
        if rows.zero != 0:
            totals = _totals(weights, column_map, output)
            result = _less(result, *totals, rows.zero, empty)
        if columns.zero != 0:
            result = _less(result, *_totals(rows.value, row_map, output), columns.zero, empty)
        if str(ir.RankedTensorType(op.results[0].type).element_type) == "i64":
            wide = ir.RankedTensorType(op.results[0].type)
            identity = ir.AffineMap.get_identity(wide.rank)
            result = elementwise(
                wide, [result], [identity], lambda x: arith.extsi(wide.element_type, x)
            ).results[0]
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _widened_by(value: ir.Value, axis: int, beyond: int) -> ir.Value:
    """Bytes with zeros beyond the end of an axis."""
    type_ = ir.RankedTensorType(value.type)
    none = [0] * type_.rank
    high = [beyond if i == axis else 0 for i in range(type_.rank)]
    wide = ir.RankedTensorType.get([e + h for e, h in zip(type_.shape, high)], type_.element_type)
    padded = tensor.PadOp(wide, value, [], [], none, high)
    index = ir.IndexType.get()
    block = ir.Block.create_at_start(padded.regions[0], [index] * type_.rank)
    with ir.InsertionPoint(block):
        tensor.yield_(arith.constant(type_.element_type, 0))
    return padded.result


def _totals(value: ir.Value, map_: ir.AffineMap, output: list[int]) -> tuple[ir.Value, ir.AffineMap]:
    """A tensor's sums over the loops that `output` lacks, and their map over those loops; bytes are unsigned."""
    i32, type_ = ir.IntegerType.get_signless(32), ir.RankedTensorType(value.type)
    stored = [expr.position for expr in map_.results]
    kept = [i for i, loop in enumerate(stored) if loop in output]
    shape = [type_.shape[i] for i in kept]
    rank = len(stored)
    d = ir.AffineExpr.get_dim
    maps = [ir.AffineMap.get_identity(rank), ir.AffineMap.get(rank, 0, [d(i) for i in kept])]
    kinds = [
        ir.Attribute.parse(f"#linalg.iterator_type<{'parallel' if i in kept else 'reduction'}>")
        for i in range(rank)
    ]
    start = linalg.fill(arith.constant(i32, 0), outs=[tensor.empty(shape, i32)])
    reduction = ir.Operation.create(
        "linalg.generic",
        results=[ir.RankedTensorType.get(shape, i32)],
        operands=[value, start],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get(kinds),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    block = ir.Block.create_at_start(reduction.regions[0], [type_.element_type, i32])
    with ir.InsertionPoint(block):
        term = block.arguments[0] if type_.element_type == i32 else arith.extui(i32, block.arguments[0])
        linalg.YieldOp([arith.addi(block.arguments[1], term)])
    broadcast = ir.AffineMap.get(len(output), 0, [d(output.index(stored[i])) for i in kept])
    return reduction.results[0], broadcast


def _less(
    sums: ir.Value, totals: ir.Value, broadcast: ir.AffineMap, zero: int | ir.Value, empty: ir.Value
) -> ir.Value:
    """`sums` less `zero` times the totals."""
    i32, type_ = ir.IntegerType.get_signless(32), ir.RankedTensorType(sums.type)
    identity = ir.AffineMap.get_identity(type_.rank)
    if isinstance(zero, int):
        return elementwise(
            type_,
            [sums, totals],
            [identity, broadcast],
            lambda s, t: arith.subi(s, arith.muli(t, arith.constant(i32, zero))),
            empty,
        ).results[0]
    return elementwise(
        type_,
        [sums, totals, zero],
        [identity, broadcast, ir.AffineMap.get(type_.rank, 0, [])],
        lambda s, t, z: arith.subi(s, arith.muli(t, z)),
        empty,
    ).results[0]


def _bytes(value: ir.Value, signed: bool) -> _Bytes | None:
    """The bytes, `signed` or not, of which the i32 tensor `value` is the difference to a zero point; None if it is not."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    if op.name == "tensor.pad":
        return _padded(op, signed)
    if op.name in _VIEWS:
        source = _bytes(op.operands[0], signed)
        if source is None:
            return None
        with op.location, ir.InsertionPoint(op):
            clone = ir.Operation.create(
                op.name,
                results=[_as_bytes(value.type)],
                operands=[source.value, *list(op.operands)[1:]],
                attributes={name: op.attributes[name] for name in op.attributes},
            )
        return _Bytes(clone.results[0], source.zero)
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    names = [view.operation.name for view in body(op).operations]
    maps = indexing_maps(op)
    if maps[-1] != ir.AffineMap.get_identity(maps[-1].n_dims):
        return None
    if is_copy(op):
        source = _bytes(op.operands[0], signed)
        return None if source is None else _Bytes(_copied(op, source.value, maps[0]), source.zero)
    if names in (["arith.extui", "linalg.yield"], ["arith.extsi", "linalg.yield"]):
        return _widened(op, maps[0], names[0] == "arith.extsi", signed)
    if names == ["arith.subi", "linalg.yield"] and len(op.operands) == 3:
        difference = body(op).operations[0].operation
        plain = list(difference.operands) == list(body(op).arguments)[:2] and maps[0] == maps[-1]
        source = _bytes(op.operands[0], signed) if plain else None
        if source is None or not isinstance(source.zero, int):
            return None
        zero = _constant(op.operands[1])
        if zero is not None:
            return _Bytes(source.value, source.zero + zero)
        # A zero point of its own per channel moves with the loops, and one that is moved by 128 is another number.
        if maps[1].results or source.zero:
            return None
        return _Bytes(source.value, op.operands[1])
    return None


def _widened(op: ir.Operation, map_: ir.AffineMap, is_signed: bool, signed: bool) -> _Bytes | None:
    """The source of a widening, with its topmost bit turned where the sign differs from what is asked for."""
    source = op.operands[0]
    if not isinstance(source.type, ir.RankedTensorType) or str(source.type.element_type) != "i8":
        return None
    if is_signed == signed:
        identity = map_ == ir.AffineMap.get_identity(map_.n_dims)
        return _Bytes(source if identity else _copied(op, source, map_), 0)
    with op.location, ir.InsertionPoint(op):
        i8 = ir.IntegerType.get_signless(8)
        type_ = _as_bytes(op.results[0].type)
        moved = elementwise(type_, [source], [map_], lambda x: arith.xori(x, arith.constant(i8, -128)))
    return _Bytes(moved.results[0], -128 if signed else 128)


def _padded(op: ir.Operation, signed: bool) -> _Bytes | None:
    """A pad by 0 as a pad by the zero point, which must be known for that."""
    source = _bytes(op.operands[0], signed) if _constant(terminator(body(op)).operands[0]) == 0 else None
    if source is None or not isinstance(source.zero, int):
        return None
    i8, type_ = ir.IntegerType.get_signless(8), _as_bytes(op.results[0].type)
    with op.location, ir.InsertionPoint(op):
        zero = arith.constant(i8, (source.zero + 128) % 256 - 128)
        clone = ir.Operation.create(
            op.name,
            results=[type_],
            operands=[source.value, *list(op.operands)[1:]],
            attributes={name: op.attributes[name] for name in op.attributes},
            regions=1,
        )
        index = ir.IndexType.get()
        block = ir.Block.create_at_start(clone.regions[0], [index] * type_.rank, [op.location] * type_.rank)
        with ir.InsertionPoint(block):
            tensor.yield_(zero)
    return _Bytes(clone.results[0], source.zero)


def _copied(op: ir.Operation, source: ir.Value, map_: ir.AffineMap) -> ir.Value:
    with op.location, ir.InsertionPoint(op):
        return elementwise(_as_bytes(op.results[0].type), [source], [map_], lambda x: x).results[0]


def _as_bytes(type_: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(ir.RankedTensorType(type_).shape, ir.IntegerType.get_signless(8))


def _constant(value: ir.Value) -> int | None:
    """The number that a constant integer, or every element of a constant tensor of integers, is; None for others."""
    if isinstance(value.owner, ir.Block) or value.owner.name != "arith.constant":
        return None
    attribute = value.owner.attributes["value"]
    if isinstance(attribute, ir.IntegerAttr):
        return attribute.value
    if isinstance(attribute, ir.DenseIntElementsAttr) and attribute.is_splat:
        return ir.IntegerAttr(attribute.get_splat_value()).value
    return None
