"""Stores the weights of contractions in blocks as wide as the register tile that reads them.

    %c = linalg.generic (m, n, k) ins(%a, %w : tensor<768x3072xf32>)             // w: (k, n)
      =>
    %b = tensor.expand_shape %w [[0], [1, 2]]                                    // 768x96x32
    %p = linalg.generic // transposed to 96x768x32
    %c = linalg.generic (m, n, k) ins(%a, %p)                                    // p: (n floordiv 32, k, n mod 32)

One block is then contiguous over the whole reduction, and the operation keeps its loops and its output, so tiling
and fusion are none the wiser. Operands that depend on weights alone are packed once, in @prepack; others only where
that pays at every call.
`linalg.pack` splits the loop into two instead, and with it the output and everything fused to it.

Source: packed operands of K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008;
as a layout of the operand: ALT, EuroSys'23, §4.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims, row_major, stride_along
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.ir import functions, ir, linalg, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.layout_rules import transposed_by
from tilewright.compiler.tuning.cpu.register_tile import choose_packing, rows_in_one_set


@dataclass(frozen=True)
class PackContractions(Pass):
    """Packs for vectors of `vector_bits` and `registers` of them.

    Operands that are no weights are packed where they are transposed at every call, which then is one copy still, as
    filters in training. Others are copied at every call where they hold `least_bytes` or more, which shared caches do not
    keep beside the other operand, and each element is read `least_reads` times or more. Measured on two cores with 32 MiB
    of L3: 2048 x 2048 x 2048 takes 82 ms instead of 118, smaller products 1 to 2 % longer. Under windows, which stream an
    operand anew for every row of an image, `window_reads` are enough, whatever it holds.
    """

    vector_bits: int = 512
    registers: int = 32
    least_reads: int = 512
    window_reads: int = 128
    least_bytes: int = 16777216

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            static = static_values(function)
            packed: dict[tuple, ir.Value] = {}
            for view in list(function.regions[0].blocks[0].operations):
                structured = Structured.read(view.operation)
                if structured is not None and structured.is_contraction:
                    self.pack(structured, static, packed)

    def pack(self, contraction: Structured, static: set[ir.Value], packed: dict[tuple, ir.Value]) -> None:
        """Packs the operand that alone follows the vector loop, once per value and block: steps of a network share it."""
        output = contraction.result_map
        last = output.results[-1] if len(output.results) else None
        if last is None or not is_dim(last):
            return
        loop = last.position
        if self.pack_groups(contraction, static, packed):
            return
        for position in range(2):
            map_, value = contraction.maps[position], contraction.op.operands[position]
            alone = loop in map_dims(map_) and loop not in map_dims(contraction.maps[1 - position])
            packs = value in static or _is_moved(value) or self.pays_at_every_call(contraction, position)
            if packs and alone and all(is_dim(expr) for expr in map_.results):
                lanes = self.vector_bits // (
                    contraction.op.results[0].type.element_type.width or self.vector_bits
                )
                row = _row_loop(contraction, map_, loop)
                rows = 1 if row is None else contraction.extents[row]
                most_rows = None if row is None else _rows_side_by_side(contraction, 1 - position, row)
                block = choose_packing(rows, contraction.extents[loop], lanes, self.registers, most_rows)
                if block is not None:
                    _pack(contraction, position, loop, block, packed)
                return

    def pays_at_every_call(self, contraction: Structured, position: int) -> bool:
        """Whether an operand that is no weight is read often enough, and lies badly enough, to be copied first.

        Where the closest steps of the reduction are multiples of a page apart, lines of a block of columns share few
        sets of every cache and are fetched again for each block of rows.
        """
        type_, map_ = ir.RankedTensorType(contraction.op.operands[position].type), contraction.maps[position]
        own, output = map_dims(map_), map_dims(contraction.result_map)
        reads = math.prod(contraction.extents[d] for d in output - own)
        width = type_.element_type.width // 8
        steps = [stride_along(map_, d, row_major(type_.shape)) for d in own - output]
        if not steps or rows_in_one_set(min(steps) * width) is None:
            return False
        if not all(is_dim(expr) for expr in contraction.maps[1 - position].results):
            return reads >= self.window_reads
        return reads >= self.least_reads and math.prod(type_.shape) * width >= self.least_bytes

    def pack_groups(
        self, contraction: Structured, static: set[ir.Value], packed: dict[tuple, ir.Value]
    ) -> bool:
        """Packs the weight of a grouped contraction with as many groups side by side as fill a vector.

        For groups of fewer results than lanes: the output ends in (group, result), the data in (group, channel).
        """
        output = list(contraction.result_map.results)
        if len(output) < 3 or not all(is_dim(expr) for expr in output[-2:]):
            return False
        group, result = output[-2].position, output[-1].position
        lanes = self.vector_bits // (contraction.op.results[0].type.element_type.width or self.vector_bits)
        block = lanes // contraction.extents[result]
        if block < 2 or lanes % contraction.extents[result] or contraction.extents[group] % block:
            return False
        for position in range(2):
            map_, data = contraction.maps[position], list(contraction.maps[1 - position].results)
            if contraction.op.operands[position] not in static or not all(map(is_dim, map_.results)):
                continue
            if len(data) < 2 or not is_dim(data[-2], group) or not is_dim(data[-1]):
                continue
            inner = data[-1].position
            follows = {group, result, inner} <= map_dims(map_)
            if (
                follows
                and contraction.kinds[inner] == "reduction"
                and 1 < contraction.extents[inner] <= lanes
            ):
                _pack(contraction, position, group, block, packed, innermost=(result,))
                return True
        return False


def _row_loop(contraction: Structured, weight: ir.AffineMap, loop: int) -> int | None:
    """The longest of the output's loops that the weight does not follow."""
    followed = map_dims(weight) | {loop}
    rows = [e.position for e in contraction.result_map.results if is_dim(e) and e.position not in followed]
    return max(rows, key=lambda row: contraction.extents[row], default=None)


def _rows_side_by_side(contraction: Structured, position: int, row: int) -> int | None:
    """How many rows of an operand fit into L1 side by side."""
    type_ = ir.RankedTensorType(contraction.op.operands[position].type)
    stride = stride_along(contraction.maps[position], row, row_major(type_.shape))
    return rows_in_one_set(stride * (type_.element_type.width // 8))


def _pack(
    contraction: Structured,
    position: int,
    loop: int,
    block: int,
    packed: dict[tuple, ir.Value],
    innermost: tuple[int, ...] = (),
) -> None:
    """Stores an operand in blocks along `loop`; inside of one, `innermost` loops lie along the vector too."""
    op, map_ = contraction.op, contraction.maps[position]
    value, loops = _before_transposition(op.operands[position], [expr.position for expr in map_.results])
    type_ = ir.RankedTensorType(value.type)
    at = loops.index(loop)
    shape = [*type_.shape[:at], type_.shape[at] // block, block, *type_.shape[at + 1 :]]
    groups = [[i] if i < at else [at, at + 1] if i == at else [i + 1] for i in range(len(loops))]
    # Loops shared with the output come first, then the block's number, the reduction, and the block itself.
    output = map_dims(contraction.result_map)
    shared = sorted(d for d in loops if d in output and d != loop and d not in innermost)
    reduced = sorted(d for d in loops if d not in output)
    order = [*shared, loop, *reduced]
    sources = {d: (i if i <= at else i + 1) for i, d in enumerate(loops)}
    permutation = [*(sources[d] for d in order), at + 1, *(sources[d] for d in innermost)]
    key = (value, block, at, *permutation)
    if key not in packed:
        with ir.InsertionPoint(op), op.location:
            expanded = tensor.expand_shape(
                ir.RankedTensorType.get(shape, type_.element_type), value, groups, [], shape
            )
            packed[key] = _transposed(expanded, permutation)
    op.operands[position] = packed[key]
    dims = contraction.maps[0].n_dims
    d = ir.AffineExpr.get_dim
    number, inside = ir.AffineExpr.get_floor_div(d(loop), block), ir.AffineExpr.get_mod(d(loop), block)
    results = [*(d(x) for x in shared), number, *(d(x) for x in reduced), inside, *(d(x) for x in innermost)]
    maps = [ir.AffineMapAttr.get(m) for m in contraction.maps]
    maps[position] = ir.AffineMapAttr.get(ir.AffineMap.get(dims, 0, results))
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)


def _is_moved(value: ir.Value) -> bool:
    """Whether `value` is a transposition that nothing else reads."""
    op = producer(value)
    if op is None or len(list(value.uses)) != 1:
        return False
    permutation = transposed_by(op)
    return permutation is not None and list(permutation) != sorted(permutation)


def _before_transposition(value: ir.Value, loops: list[int]) -> tuple[ir.Value, list[int]]:
    """What `value` is a transposition of, if it is one, and the loop along each dimension of that."""
    op = producer(value)
    permutation = None if op is None else transposed_by(op)
    if op is None or permutation is None:
        return value, loops
    return op.operands[0], [loops[permutation.index(dim)] for dim in range(len(loops))]


def _transposed(value: ir.Value, permutation: list[int]) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    shape = [type_.shape[p] for p in permutation]
    result = ir.RankedTensorType.get(shape, type_.element_type)
    empty = tensor.empty(shape, type_.element_type)
    rank = len(shape)
    inverse = [ir.AffineExpr.get_dim(permutation.index(i)) for i in range(rank)]
    maps = [ir.AffineMap.get(rank, 0, inverse), ir.AffineMap.get_identity(rank)]
    kinds = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank)
    generic = linalg.GenericOp(
        [result], [value], [empty], ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]), kinds
    )
    body = generic.regions[0].blocks.append(type_.element_type, type_.element_type)
    with ir.InsertionPoint(body):
        linalg.YieldOp([body.arguments[0]])
    return generic.results[0]
