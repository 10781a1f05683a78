"""Stores the weights of bf16 and byte contractions as dot-product instructions read them: groups along the reduction.

    %c = linalg.generic (m, n, k) ins(%a, %w : tensor<128x768xbf16>, tensor<768x3072xbf16>)      // w: (k, n)
      =>
    %p = // %w transposed to tensor<96x384x32x2xbf16>
    %c = linalg.generic (m, n, k) ins(%a, %p)       // p: (n floordiv 32, k floordiv 2, n mod 32, k mod 2)

One block of columns is as wide as a register tile, and contiguous over the whole reduction. Where the depth is no
multiple of the group, zeros fill the last one. As `pack-contractions` does for other types, it changes the
operand alone. What depends on weights is packed in @prepack; other operands of many rows are, at every call, where the
instructions could not read them otherwise or would miss the caches.

Source: the "VNNI" operand format of Intel, Architecture Instruction Set Extensions and Future Features, 319433,
TDPBF16PS and TDPBUSD, which AVX512-BF16 and VNNI share.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims
from tilewright.compiler.analysis.chosen_parts import Chosen, chosen_of, with_parts
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.families.cpu.dot_product import DotLoops, DotProduct, dot_types
from tilewright.compiler.ir import arith, functions, ir, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.gathered_parts import parts_of
from tilewright.compiler.rewriting.generics import elementwise
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.register_tile import choose_packing

_FEWEST_ROWS = 16
"""Rows from which an operand that is not static is worth a copy: each element of the copy is then read so often."""
_INTERLEAVED_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class PackDots(Pass):
    """Packs operands of the types that the target multiplies in groups, for vectors of `vector_bits`."""

    bf16: bool = False
    int8: bool = False
    vector_bits: int = 512
    registers: int = 32

    @classmethod
    def for_target(cls, target: Target) -> PackDots:
        """The pass with what the target's features allow."""
        bf16, int8 = dot_types(target)
        return cls(bf16, int8, target.vector_bits, target.registers_per_thread)

    def run(self, op: ir.Operation) -> None:
        taken = {"bf16": self.bf16, "i8": self.int8}
        if not any(taken.values()):
            return
        for function in functions(op.opview):
            static = with_parts(static_values(function))
            packed: dict[tuple, ir.Value] = {}
            replaced: list[ir.Operation] = []
            for view in list(function.regions[0].blocks[0].operations):
                structured = Structured.read(view.operation)
                if structured is None or not structured.is_contraction:
                    continue
                product, loops = DotProduct.read(structured.body), DotLoops.of(structured.maps)
                if product is not None and loops is not None and taken[product.element]:
                    self.pack(structured, product, loops, static, packed, replaced)
            # Run-time checks would keep them. Not before: `static` holds what they give.
            for gather in replaced:
                gather.erase()

    def pack(
        self,
        contraction: Structured,
        product: DotProduct,
        loops: DotLoops,
        static: set[ir.Value],
        packed: dict[tuple, ir.Value],
        replaced: list[ir.Operation],
    ) -> None:
        """Packs the column operand, once per value and block: steps of a network share it.

        Gathers in whose place others are read go to `replaced`.
        """
        map_, value = contraction.maps[loops.column], contraction.op.operands[loops.column]
        if not all(is_dim(expr) for expr in map_.results):
            return
        followed = map_dims(map_)
        rows = max(
            (
                contraction.extents[e.position]
                for e in contraction.result_map.results
                if is_dim(e) and e.position not in followed
            ),
            default=1,
        )
        if value not in static and not self.pays(contraction, loops, product.group, rows):
            return
        lanes, extent = self.vector_bits // 32, contraction.extents[loops.vector]
        tile = choose_packing(rows, extent, lanes, self.registers)
        block = tile.vector if tile is not None else extent if extent <= 4 * lanes else None
        if block is not None:
            chosen = chosen_of(value) if value in static else None
            replaced += [chosen.op] if chosen is not None else []
            _pack(contraction, product, loops, block, packed, chosen)

    def pays(self, contraction: Structured, loops: DotLoops, group: int, rows: int) -> bool:
        """Whether a column operand that changes from call to call is packed in each of them.

        Columns stored along the reduction can be read in no other way. Rows are interleaved in registers while
        they fit a cache; beyond, every row of a narrow panel lies on a page of its own.
        """
        if contraction.extents[loops.depth] % group or rows < _FEWEST_ROWS:
            return False
        if is_dim(contraction.maps[loops.column].results[-1], loops.depth):
            return True
        return contraction.extents[loops.vector] * contraction.extents[loops.depth] > _INTERLEAVED_ELEMENTS


def _pack(
    contraction: Structured,
    product: DotProduct,
    loops: DotLoops,
    block: int,
    packed: dict[tuple, ir.Value],
    chosen: Chosen | None,
) -> None:
    """Stores the column operand, or the weight that it is `chosen` parts of."""
    op, map_ = contraction.op, contraction.maps[loops.column]
    stored, which = [expr.position for expr in map_.results], list[int]()
    if chosen is not None:
        which = stored[: chosen.leading]
        stored = [which[0], *stored[chosen.leading :]]
    output = map_dims(contraction.result_map)
    shared = sorted(
        (d for d in stored if d in output and d != loops.vector), key=lambda d: (d not in which, d)
    )
    reduced = [d for d in sorted(stored) if d not in output]
    order = [*shared, loops.vector, *reduced]
    value = op.operands[loops.column] if chosen is None else chosen.table
    key = (value, block, product.group, *(stored.index(d) for d in order), stored.index(loops.depth))
    if key not in packed:
        with ir.InsertionPoint(op), op.location:
            packed[key] = _grouped(value, stored, order, loops, block, product.group)
    op.operands[loops.column] = packed[key] if chosen is None else parts_of(packed[key], chosen, op)
    d = ir.AffineExpr.get_dim
    numbers = {
        loops.vector: ir.AffineExpr.get_floor_div(d(loops.vector), block),
        loops.depth: ir.AffineExpr.get_floor_div(d(loops.depth), product.group),
    }
    inside = [
        ir.AffineExpr.get_mod(d(loops.vector), block),
        ir.AffineExpr.get_mod(d(loops.depth), product.group),
    ]
    places = [*which, *(loop for loop in order if loop not in which)]
    results = [*(numbers.get(loop, d(loop)) for loop in places), *inside]
    maps = [ir.AffineMapAttr.get(m) for m in contraction.maps]
    maps[loops.column] = ir.AffineMapAttr.get(ir.AffineMap.get(contraction.maps[0].n_dims, 0, results))
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)


def _grouped(
    value: ir.Value, stored: list[int], order: list[int], loops: DotLoops, block: int, group: int
) -> ir.Value:
    """`value`, whose dimensions follow the loops `stored`, with the blocks and groups last and the others in `order`."""
    type_ = ir.RankedTensorType(value.type)
    shape, element = list(type_.shape), type_.element_type
    missing = -shape[stored.index(loops.depth)] % group
    if missing:
        value = padded(value, stored.index(loops.depth), missing)
        shape[stored.index(loops.depth)] += missing
    split: list[tuple[int, str]] = []
    expanded: list[int] = []
    groups: list[list[int]] = []
    for loop, extent in zip(stored, shape):
        inside = {loops.vector: block, loops.depth: group}.get(loop)
        parts = (
            [(loop, "number", extent)]
            if inside is None
            else [(loop, "number", extent // inside), (loop, "in", inside)]
        )
        groups.append(list(range(len(split), len(split) + len(parts))))
        split.extend((part[0], part[1]) for part in parts)
        expanded.extend(part[2] for part in parts)
    value = tensor.expand_shape(ir.RankedTensorType.get(expanded, element), value, groups, [], expanded)
    wanted = [*((loop, "number") for loop in order), (loops.vector, "in"), (loops.depth, "in")]
    permutation = [split.index(part) for part in wanted]
    result = ir.RankedTensorType.get([expanded[p] for p in permutation], element)
    inverse = [ir.AffineExpr.get_dim(permutation.index(i)) for i in range(len(permutation))]
    read = ir.AffineMap.get(len(permutation), 0, inverse)
    return elementwise(result, [value], [read], lambda x: x).results[0]


def padded(value: ir.Value, dim: int, count: int) -> ir.Value:
    """`value` with `count` zeros behind it along `dim`."""
    type_ = ir.RankedTensorType(value.type)
    shape, element = list(type_.shape), type_.element_type
    shape[dim] += count
    zero = arith.constant(
        element,
        ir.FloatAttr.get(element, 0.0)
        if isinstance(element, ir.FloatType)
        else ir.IntegerAttr.get(element, 0),
    )
    none = [0] * len(shape)
    pad = tensor.PadOp(
        ir.RankedTensorType.get(shape, element),
        value,
        [],
        [],
        none,
        [count if i == dim else 0 for i in range(len(shape))],
    )
    index = ir.IndexType.get()
    block = pad.regions[0].blocks.append(*[index] * len(shape))
    with ir.InsertionPoint(block):
        tensor.yield_(zero)
    return pad.result
