"""Stores the weights of contractions in blocks as wide as the register tile that reads them.

    %c = linalg.generic {tilewright.choice = {block = 32}} (m, n, k) ins(%a, %w : tensor<768x3072xf32>)  // w: (k, n)
      =>
    %b = tensor.expand_shape %w [[0], [1, 2]]                                    // 768x96x32
    %p = linalg.generic // transposed to 96x768x32
    %c = linalg.generic (m, n, k) ins(%a, %p)        // p: (n floordiv 32, k, n mod 32)

One block is then contiguous over the whole reduction, and the operation keeps its loops and its output, so tiling
and fusion are none the wiser. Which operands, and how wide a block is, `tilewright.choice` on the operation says, as
`choose-packing` wrote it. Copies of weights move to @prepack.
`linalg.pack` splits the loop into two instead, and with it the output and everything fused to it.

Source: packed operands of K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008;
as a layout of the operand: ALT, EuroSys'23, §4.1.

Of parts that are chosen of a weight, as experts of a mixture, the whole weight is stored so, and they are chosen of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import map_dims
from tilewright.compiler.analysis.chosen_parts import Chosen, chosen_of, with_parts
from tilewright.compiler.analysis.packed_operand import PackedOperand
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import functions, ir, linalg, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.gathered_parts import parts_of
from tilewright.compiler.rewriting.layout_rules import transposed_by


@dataclass(frozen=True)
class PackContractions(Pass):
    """Packs for vectors of `vector_bits` and `registers` of them.

    Refuses blocks that fill no vectors, do not divide the loop or are of an operand that is not copied, and choices on
    what has no such operand.
    """

    vector_bits: int = 512
    registers: int = 32

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            static: set[ir.Value] | None = None
            packed: dict[tuple, ir.Value] = {}
            replaced: list[ir.Operation] = []
            for view in list(function.regions[0].blocks[0].operations):
                choice = choice_attribute.read(view.operation)
                if "block" not in choice and "copy" not in choice:
                    continue
                # Before anything is packed: what that makes depends on weights alone, or not, as its source does.
                static = with_parts(static_values(function)) if static is None else static
                structured = Structured.read(view.operation)
                operand, block = self.decided(view.operation, structured, choice, static)
                if structured is not None and block:
                    value = view.operation.operands[operand.position]
                    chosen = chosen_of(value) if value in static else None
                    replaced += [chosen.op] if chosen is not None else []
                    _pack(structured, operand, block, packed, chosen)
                choice_attribute.drop(view.operation, "block", "copy")
            # Run-time checks would keep them. Not before: `static` holds what they give.
            for gather in replaced:
                gather.erase()

    def decided(
        self,
        op: ir.Operation,
        structured: Structured | None,
        choice: Mapping[str, choice_attribute.Value],
        static: set[ir.Value],
    ) -> tuple[PackedOperand, int]:
        """The operand that a choice is of and its block, 0 for none; refuses what cannot be done."""
        field = "block" if "block" in choice else "copy"

        def refused(rule: str, field: str = field) -> PassError:
            return self.refusal(op, choice_attribute.refused(op, field, rule))

        if structured is None or not structured.is_contraction:
            raise refused("only operands of contractions are stored in blocks; leave it out")
        operand = PackedOperand.read(structured, static, self.vector_bits, self.registers)
        if operand is None:
            raise refused("no operand follows the innermost loop of the result alone; leave it out")
        block, is_weight = int(choice.get("block", 0)), op.operands[operand.position] in static
        if is_weight and "copy" in choice:
            raise refused(
                "a weight is stored once, when it is bound, never copied at a call; leave it out", "copy"
            )
        if not is_weight and bool(block) != choice.get("copy", False):
            raise refused(
                "an operand that is no weight has blocks if it is copied, and only then; give both or none"
            )
        if block and block not in operand.blocks:
            extent, fit = structured.extents[operand.loop], ", ".join(map(str, (0, *operand.blocks)))
            raise refused(
                f"blocks fill vectors of {self.vector_bits} bits and divide the loop of {extent}; choose of {fit}"
            )
        return operand, block


def _pack(
    contraction: Structured,
    operand: PackedOperand,
    block: int,
    packed: dict[tuple, ir.Value],
    chosen: Chosen | None,
) -> None:
    """Stores an operand in blocks, or the weight that it is `chosen` parts of, once per value and block: steps of a network
    share it."""
    position, loop, innermost = operand.position, operand.loop, operand.innermost
    op, map_ = contraction.op, contraction.maps[position]
    value, loops = _before_transposition(op.operands[position], [expr.position for expr in map_.results])
    which: list[int] = []
    if chosen is not None:
        value, which = chosen.table, loops[: chosen.leading]
        loops = [which[0], *loops[chosen.leading :]]
    type_ = ir.RankedTensorType(value.type)
    at = loops.index(loop)
    shape = [*type_.shape[:at], type_.shape[at] // block, block, *type_.shape[at + 1 :]]
    groups = [[i] if i < at else [at, at + 1] if i == at else [i + 1] for i in range(len(loops))]
    # Loops shared with the output come first, then the block's number, the reduction, and the block itself.
    output = map_dims(contraction.result_map)
    shared = sorted(
        (d for d in loops if d in output and d != loop and d not in innermost),
        key=lambda d: (d not in which, d),
    )
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
    op.operands[position] = packed[key] if chosen is None else parts_of(packed[key], chosen, op)
    dims = contraction.maps[0].n_dims
    d = ir.AffineExpr.get_dim
    number, inside = ir.AffineExpr.get_floor_div(d(loop), block), ir.AffineExpr.get_mod(d(loop), block)
    shared = [*which, *(x for x in shared if x not in which)]
    results = [*(d(x) for x in shared), number, *(d(x) for x in reduced), inside, *(d(x) for x in innermost)]
    maps = [ir.AffineMapAttr.get(m) for m in contraction.maps]
    maps[position] = ir.AffineMapAttr.get(ir.AffineMap.get(dims, 0, results))
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)


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
