"""Turns contractions round whose weights have no blocks to be packed in: vectors then run along the activations.

    %c = linalg.generic (m, n, k) ins(%x : 64x768, %w : 768x50257)               // w: (k, n), 50257 = 29 * 1733
      =>
    %t = linalg.generic // x transposed to 768x64
    %d = linalg.generic (n, m, k) ins(%v : 50257x768, %t) -> 50257x64            // v: (n, k), t: (k, m)
    %c = linalg.generic // d transposed, with what follows it

A vocabulary or a class count seldom divides into blocks of whole vectors. Rows of the weight then start at every
address and lie a page apart. Turned round, one weight is a scalar that multiplies a vector of activations, so
weights stream in the order (n, k), which is how PyTorch stores them: no packed copy of them is made either.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.ir import functions, ir, linalg, static_shape, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise
from tilewright.compiler.rewriting.layout_rules import discardable, transposed_by
from tilewright.compiler.tuning.cpu.register_tile import choose_packing

_FEWEST_IDLE_LANES = 0.75
"""The share of lanes that vectors along the activations must fill."""
_WIDE = 16
"""How many times wider than a vector the weight must be: else the two transposed copies cost more
than they save (each moves an element per `k` or per row, of `2 k` operations)."""

_KINDS = ("parallel", "parallel", "reduction")


@dataclass(frozen=True)
class OrientContractions(Pass):
    """Decides for vectors of `vector_bits` and `registers` of them; what is not a plain matmul is left alone."""

    vector_bits: int = 512
    registers: int = 32

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            if len(function.regions[0].blocks) != 1:
                continue
            block = function.regions[0].blocks[0]
            found = [
                (structured, matmul)
                for view in block.operations
                if (structured := Structured.read(view.operation)) is not None
                and (matmul := Matmul.read(structured)) is not None
                and self.pays(matmul, structured.op.results[0].type.element_type.width)
            ]
            if not found:
                continue
            weights = WeightFlow.of(function, argument_roles(function)).values
            for structured, matmul in found:
                operands = structured.op.operands
                if operands[matmul.weight] in weights and operands[1 - matmul.weight] not in weights:
                    _turn(structured, matmul)

    def pays(self, matmul: Matmul, bits: int) -> bool:
        """Whether the weight cannot be packed, and vectors along the activations are nearly full."""
        lanes = max(1, self.vector_bits // bits)
        vectors = -(-matmul.rows // lanes)
        return (
            matmul.columns >= _WIDE * lanes
            and matmul.rows >= _FEWEST_IDLE_LANES * vectors * lanes
            and choose_packing(matmul.rows, matmul.columns, lanes, self.registers) is None
        )


@dataclass(frozen=True)
class Matmul:
    """C[m, n] = sum over k of two matrices; `weight` is the operand that moves along n, with `loops` (m, n, k)."""

    weight: int
    rows: int
    columns: int
    loops: tuple[int, int, int]

    @classmethod
    def read(cls, contraction: Structured) -> Matmul | None:
        """The matmul that a contraction is; None for batches, windows and accumulations onto other than a fill."""
        if not contraction.is_contraction or len(contraction.extents) != 3:
            return None
        if not all(is_dim(expr) for map_ in contraction.maps for expr in map_.results):
            return None
        start = producer(contraction.op.operands[2])
        if start is None or start.name != "linalg.fill" or len(contraction.result_map.results) != 2:
            return None
        m, n = (expr.position for expr in contraction.result_map.results)
        (k,) = set(range(3)) - {m, n}
        sides = [map_dims(map_) for map_ in contraction.maps[:2]]
        if sorted(map(sorted, sides)) != sorted(map(sorted, ({m, k}, {n, k}))):
            return None
        return cls(sides.index({n, k}), contraction.extents[m], contraction.extents[n], (m, n, k))


def _turn(contraction: Structured, matmul: Matmul) -> None:
    op = contraction.op
    m, n, k = matmul.loops
    element = ir.RankedTensorType(op.results[0].type).element_type
    renumbered = {n: 0, m: 1, k: 2}
    orders = [[k, m], [k, m], [n, m]]
    orders[matmul.weight] = [n, k]
    with ir.InsertionPoint(op), op.location:
        operands = [
            _ordered(op.operands[i], [e.position for e in contraction.maps[i].results], orders[i])
            for i in range(2)
        ]
        empty = tensor.empty([matmul.columns, matmul.rows], element)
        start = linalg.fill(op.operands[2].owner.operands[0], outs=[empty])
        maps = [
            ir.AffineMap.get(3, 0, [ir.AffineExpr.get_dim(renumbered[loop]) for loop in order])
            for order in orders
        ]
        kinds = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in _KINDS]
        turned = ir.Operation.create(
            "linalg.generic",
            results=[empty.type],
            operands=[*operands, start],
            attributes={
                **discardable(op),
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "iterator_types": ir.ArrayAttr.get(kinds),
                "operandSegmentSizes": op.attributes["operandSegmentSizes"],
            },
            regions=1,
        )
        op.regions[0].blocks[0].append_to(turned.regions[0])
        result = _transposed(turned.results[0])
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _ordered(value: ir.Value, loops: list[int], order: list[int]) -> ir.Value:
    """A matrix along `loops` as one along `order`: what it was transposed from, where that is the same."""
    if loops == order:
        return value
    source = producer(value)
    if source is not None and transposed_by(source) == (1, 0):
        return source.operands[0]
    return _transposed(value)


def _transposed(value: ir.Value) -> ir.Value:
    rows, columns = static_shape(value.type)
    type_ = ir.RankedTensorType.get([columns, rows], ir.RankedTensorType(value.type).element_type)
    d = ir.AffineExpr.get_dim
    copy = elementwise(type_, [value], [ir.AffineMap.get(2, 0, [d(1), d(0)])], lambda x: x)
    return copy.results[0]
