"""The operation `tilewright.attention`: softmax(scores(Q K^T * scale)) V of every head, on tensors wherever they lie.

    %r = "tilewright.attention"(%q, %k, %v, %mask) <loops = [B, H, M, N, K, D]> ({
    ^bb0(%s: f32, %a: f32, %row: index, %column: index):
      %0 = arith.addf %s, %a : f32
      "tilewright.yield"(%0) : (f32) -> ()
    }) : (tensor<BxMx3xHxKxf32>, ...) -> tensor<BxMxHxDxf32>

`loops` holds the extents of the batch loops, of queries m, keys n, the dot products' k and the values' d.
`indexing_maps`, one per operand and one for the result, say where each lies; their results are sums of loops times
strides. The region changes a score, a product of a query and a key times `scale`, given the elements of the
operands after %v and the score's row and column. `zero_empty`: rows whose scores are all -inf give zeros, not NaN.
`causal = c`: scores with n > m + c are -inf whatever they were, so blocks of them need not be computed.

The op is defined in compiler/ir.py, as IRDL; index maps as the way to fold transposes into attention are IREE's `linalg_ext.attention`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir, static_shape

ATTENTION = "tilewright.attention"
YIELD = "tilewright.yield"
MOST_EXTRA = 4
"""Operands after %v that the op takes."""


@dataclass(frozen=True)
class Attention:
    """An attention operation, read once. `extents` are those of the batch loops; `rows`, `columns`, `inner` and
    `width` those of m, n, k and d."""

    op: ir.Operation
    maps: tuple[ir.AffineMap, ...]
    extents: tuple[int, ...]
    rows: int
    columns: int
    inner: int
    width: int
    scale: float
    zero_empty: bool
    causal: int | None

    @classmethod
    def read(cls, op: ir.Operation) -> Attention:
        """Reads a `tilewright.attention`; raises PassError naming what is malformed."""
        maps = tuple(ir.AffineMapAttr(a).value for a in _needed(op, "indexing_maps"))
        *extents, rows, columns, inner, width = (ir.IntegerAttr(a).value for a in _needed(op, "loops"))
        attention = cls(
            op=op,
            maps=maps,
            extents=tuple(extents),
            rows=rows,
            columns=columns,
            inner=inner,
            width=width,
            scale=ir.FloatAttr(_needed(op, "scale")).value,
            zero_empty="zero_empty" in op.attributes,
            causal=ir.IntegerAttr(op.attributes["causal"]).value if "causal" in op.attributes else None,
        )
        attention.check()
        return attention

    @property
    def loops(self) -> tuple[int, ...]:
        """Extents of all loops."""
        return (*self.extents, self.rows, self.columns, self.inner, self.width)

    @property
    def element(self) -> ir.Type:
        """The type of queries, keys, values and results."""
        return ir.RankedTensorType(self.op.results[0].type).element_type

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def keeps_scores(self) -> bool:
        """Whether the region gives back the score it gets."""
        (first, *_) = self.body.operations
        return first.operation.name == YIELD and first.operation.operands[0] == self.body.arguments[0]

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products, masked or not."""
        batch = 1
        for extent in self.extents:
            batch *= extent
        return 2 * batch * self.rows * self.columns * (self.inner + self.width)

    def check(self) -> None:
        """Raises PassError unless maps, shapes and the region fit together and every index is inside its tensor."""
        op = self.op
        values = [*op.operands, *op.results]
        if len(op.operands) < 3 or len(op.results) != 1 or len(self.maps) != len(values):
            raise _refusal(
                op, f"expected three operands or more and a map for each value, found {len(values)}"
            )
        for number, (value, map_) in enumerate(zip(values, self.maps)):
            shape = static_shape(value.type)
            if map_.n_dims != len(self.loops) or len(map_.results) != len(shape):
                raise _refusal(op, f"map {number} is {map_}, for {len(self.loops)} loops and shape {shape}")
            for expr, extent in zip(map_.results, shape):
                last = _largest(expr, self.loops)
                if last >= extent:
                    raise _refusal(op, f"map {number} reaches {last} along a dimension of extent {extent}")
        arguments = len(self.body.arguments)
        if arguments != len(op.operands):  # a score, what comes after the values, the row and the column
            raise _refusal(op, f"the region takes {arguments} arguments, expected {len(op.operands)}")


def _needed(op: ir.Operation, name: str) -> ir.Attribute:
    if name not in op.attributes:
        raise _refusal(op, f"expected the attribute `{name}`")
    return op.attributes[name]


def _refusal(op: ir.Operation, message: str) -> PassError:
    return PassError(f"`{ATTENTION}`: {message}", op.location)


def _largest(expr: ir.AffineExpr, extents: tuple[int, ...]) -> int:
    """The largest value of a sum of loops times non-negative strides."""
    if isinstance(expr, ir.AffineDimExpr):
        return extents[expr.position] - 1
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    left, right = (_largest(child, extents) for child in (expr.lhs, expr.rhs))
    return left + right if isinstance(expr, ir.AffineAddExpr) else left * right
