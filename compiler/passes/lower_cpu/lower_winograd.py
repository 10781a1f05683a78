"""Computes convolutions whose filters are stored with their transforms by Winograd's algorithm.

    linalg.generic {tilewright.winograd = 4, tilewright.loops = {winograd = [6, 32]}} (n, h, w, f, r, s, c)
        ins(%x : memref<NxH'xW'xC>, %p : memref<F/32 x 5x3x3 x C x 32>) outs(%y : memref<NxHxWxF>)
      =>
    scf.for tiles t, channels c step 16:  V[a, b, t, c] = B^T d B             // d: 6x6 vectors of %x
    scf.for blocks of 32 output channels f {
      linalg.generic (ab, t, f, c)        M[ab, t, f] += V[ab, t, c] * U[ab, c, f]
      scf.for tiles t, channels f step 16: %y[4x4 of t, f] = epilogue(A^T M A)
    }

on memrefs, inside of one rTask: V and M are scratch that stays in the core's own cache, and any cut of the
convolution into rTasks is a smaller convolution of the same kind. Tiles that would stick out start earlier and
compute what their neighbours compute too. The products are an ordinary contraction, left to
`vectorize-reductions`; the element-wise operation that follows the convolution joins the output transform. A
convolution too small for one tile, without a fill before it, or on channels that are not neighbours in memory, or
whose rTasks overlap with other tiles, is computed directly, and has to be marked so: the first nine planes of %p are the
filter itself, the others U = G g G^T.

Upstream's `linalg.winograd_*` ops decompose into one small loop nest of scalars per tile and channel, keep V and M
whole in memory, pad the image, and take no packed filter; hence this rewrite.

Source: Lavin & Gray, CVPR'16, §4 and Algorithm 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.dialects import reduction_attribute
from tilewright.compiler.families.cpu.vector_epilogue import Epilogue
from tilewright.compiler.families.cpu.winograd_products import Products, products_rule, row_floats
from tilewright.compiler.ir import affine, arith, ir, linalg, memref, scf, vector, walk
from tilewright.compiler.nouns.register_tiles import register_pieces
from tilewright.compiler.nouns.schedule import Reduction
from tilewright.compiler.nouns.winograd_transforms import Transforms, straight_line
from tilewright.compiler.pipeline.pass_base import Pass

_DIRECT = "use products"


@dataclass(frozen=True)
class LowerWinograd(Pass):
    """Rewrites generics on memrefs that carry `tilewright.winograd` and are marked `winograd`, for vectors of
    `vector_bits`. Raises ScheduleError for one that this algorithm does not compute as it is cut."""

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    registers: int = 32

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            if not reduction_attribute.is_for(generic, "winograd"):
                continue
            convolution = Convolution2d.read(generic)
            if convolution is None or convolution.outputs is None:
                raise reduction_attribute.refusal(
                    generic, f"its filter is not stored with transforms; {_DIRECT}"
                )
            matrices = convolution.transforms
            if matrices is None:
                raise self.refusal(
                    generic,
                    f"F({convolution.outputs}, {convolution.extents[4]}) has no transforms; use 2 or 4 for 3 taps",
                )
            fill = _fill_before(generic)
            if fill is None or not _contiguous(generic):
                raise reduction_attribute.refusal(
                    generic, f"its sums start from values, or its channels are not neighbours; {_DIRECT}"
                )
            rule = products_rule(convolution, matrices, _last_starts(generic))
            if rule is not None:
                raise reduction_attribute.refusal(generic, f"{rule}; {_DIRECT}")
            products = Products.of(convolution, matrices, self.vector_bits)
            said = reduction_attribute.check(generic, products, self.registers)
            epilogue = Epilogue.after(generic)
            place = epilogue.op if epilogue else generic
            with ir.InsertionPoint(place), generic.location:
                emitter = _Emitter(convolution, matrices, epilogue, self.vector_bits // 32, fill.operands[0])
                emitter.emit(products.reduction(said))
            fill.erase()
            if epilogue:
                epilogue.op.erase()
            generic.erase()


def _contiguous(generic: ir.Operation) -> bool:
    """Whether vectors can be loaded along the last dimension of every operand."""
    return all(
        ir.MemRefType(operand.type).get_strides_and_offset()[0][-1] == 1 for operand in generic.operands
    )


def _last_starts(generic: ir.Operation) -> list[int]:
    """Where the last of rTasks that overlap start along each loop: a ragged cut starts it at `min(start, extent - size)`."""
    return [
        expr.value
        for view in generic.block.operations
        if view.operation.name == "affine.min"
        for expr in ir.AffineMapAttr(view.operation.attributes["map"]).value.results
        if isinstance(expr, ir.AffineConstantExpr)
    ]


def _fill_before(generic: ir.Operation) -> ir.Operation | None:
    """The `linalg.fill` that initialises the output, with nothing in between that touches it."""
    output = generic.operands[len(generic.operands) - 1]
    found = None
    for view in generic.block.operations:
        op = view.operation
        if op == generic:
            return found
        if output in list(op.operands):
            found = op if op.name == "linalg.fill" else None
    return None


class _Emitter:
    """Writes the three stages of one convolution at the current insertion point."""

    def __init__(
        self,
        convolution: Convolution2d,
        matrices: Transforms,
        epilogue: Epilogue | None,
        lanes: int,
        start: ir.Value,
    ):
        self.c, self.t, self.epilogue, self.lanes, self.start = (
            convolution,
            matrices,
            epilogue,
            lanes,
            start,
        )
        self.images, self.height, self.width, self.filters, _, _, self.channels = convolution.extents
        self.rows = -(-self.height // matrices.outputs)
        self.columns = -(-self.width // matrices.outputs)
        self.tiles = self.images * self.rows * self.columns
        self.planes = matrices.points**2
        self.f32 = ir.F32Type.get()

    def emit(self, products_loops: Reduction) -> None:
        """`products_loops` is what is said of the products."""
        transformed = self._scratch(self.channels)
        products = self._scratch(self.c.block)
        self._over_tiles(lambda tile, at: self._transform_input(tile, at, transformed))

        def block(number: ir.Value) -> None:
            self._multiply(transformed, products, number, products_loops)
            self._over_tiles(lambda tile, at: self._transform_output(tile, at, products, number))

        self._loop(0, self.filters // self.c.block, 1, block)

    def _scratch(self, width: int) -> ir.Value:
        """[planes, tiles, width] of scratch, whose rows and planes start at different places of the cache."""
        row = row_floats(width)
        whole = memref.alloc(ir.MemRefType.get([self.planes, self.tiles, row], self.f32), [], [])
        if row == width:
            return whole
        layout = ir.StridedLayoutAttr.get(0, [self.tiles * row, row, 1])
        shape = [self.planes, self.tiles, width]
        type_ = ir.MemRefType.get(shape, self.f32, layout)
        return memref.subview(whole, [0, 0, 0], shape, [1, 1, 1], result_type=type_)

    def _loop(self, start: int, end: int, step: int, body: Callable[[ir.Value], None]) -> None:
        if end - start <= step:
            if end > start:
                body(_index(start))
            return
        loop = scf.ForOp(_index(start), _index(end), _index(step))
        with ir.InsertionPoint(loop.body):
            body(loop.induction_variable)
            scf.YieldOp([])

    def _over_tiles(self, body: Callable[[ir.Value, list[ir.Value]], None]) -> None:
        """Runs `body(t, [n, h, w])` for every tile: its number, and where its outputs start."""
        m = self.t.outputs

        def at(image: ir.Value, row: ir.Value, column: ir.Value) -> None:
            number = _apply((_dim(0) * self.rows + _dim(1)) * self.columns + _dim(2), image, row, column)
            top, left = (
                _minimum(_dim(0) * m, extent - m, value)
                for extent, value in ((self.height, row), (self.width, column))
            )
            body(number, [image, top, left])

        self._loop(
            0,
            self.images,
            1,
            lambda n: self._loop(
                0, self.rows, 1, lambda h: self._loop(0, self.columns, 1, lambda w: at(n, h, w))
            ),
        )

    def _over_vectors(self, width: int, body: Callable[[ir.Value, int], None]) -> None:
        """Runs `body(offset, lanes)` over `width` elements: full vectors in a loop, then what remains."""
        full = width - width % self.lanes
        self._loop(0, full, self.lanes, lambda offset: body(offset, self.lanes))
        for offset, lanes in register_pieces(width - full, self.lanes):
            body(_index(full + offset), lanes)

    def _transform_input(self, tile: ir.Value, at: list[ir.Value], transformed: ir.Value) -> None:
        n = self.t.points
        source = self.c.op.operands[0]
        image, top, left = at
        down = [_shifted(top, i) for i in range(n)]
        across = [_shifted(left, j) for j in range(n)]

        def vectors(channel: ir.Value, lanes: int) -> None:
            type_ = ir.VectorType.get([lanes], self.f32)
            # Columns first: each needs six loads, not thirty-six, before its first result.
            columns = [
                self._times(
                    self.t.data, [vector.load(type_, source, [image, down[i], j, channel]) for i in range(n)]
                )
                for j in across
            ]
            for a in range(n):
                row = self._times(self.t.data, [column[a] for column in columns])
                for b, value in enumerate(row):
                    vector.store(value, transformed, [_index(a * n + b), tile, channel])

        self._over_vectors(self.channels, vectors)

    def _multiply(
        self, transformed: ir.Value, products: ir.Value, number: ir.Value, loops: Reduction
    ) -> None:
        """products[ab, t, f] = sum over c of transformed[ab, t, c] * filter[number, taps + ab, c, f]."""
        filters = self.c.op.operands[1]
        strides, _ = ir.MemRefType(filters.type).get_strides_and_offset()
        # The operand shows the filter alone, one step of the dimension whose other steps hold the transforms.
        base, start, *_ = memref.extract_strided_metadata(filters)
        taps = self.t.taps**2 * strides[-3]
        first = _apply(_dim(0) + _dim(1) * (strides[0] if self.c.packed else 0) + taps, start, number)
        shape = [self.planes, self.channels, self.c.block]
        any_ = ir.ShapedType.get_dynamic_stride_or_offset()
        layout = ir.StridedLayoutAttr.get(any_, strides[-3:])
        panel = memref.reinterpret_cast(
            ir.MemRefType.get(shape, self.f32, layout),
            base,
            [first],
            [],
            [],
            [any_],
            shape,
            strides[-3:],
        )
        linalg.fill(_zero(self.f32), outs=[products])
        p, t, f, c = (_dim(i) for i in range(4))
        maps = [ir.AffineMap.get(4, 0, results) for results in ([p, t, c], [p, c, f], [p, t, f])]
        kinds = [
            ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in (*["parallel"] * 3, "reduction")
        ]
        generic = ir.Operation.create(
            "linalg.generic",
            operands=[transformed, panel, products],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
                "iterator_types": ir.ArrayAttr.get(kinds),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
            },
            regions=1,
        )
        reduction_attribute.write(generic, loops)
        reduction_attribute.write_prefetch(generic, reduction_attribute.read_prefetch(self.c.op))
        body = ir.Block.create_at_start(generic.regions[0], [self.f32] * 3)
        with ir.InsertionPoint(body):
            left, right, total = body.arguments
            linalg.YieldOp([arith.addf(total, arith.mulf(left, right))])

    def _transform_output(
        self, tile: ir.Value, at: list[ir.Value], products: ir.Value, number: ir.Value
    ) -> None:
        n, m = self.t.points, self.t.outputs
        image, top, left = at
        down = [_shifted(top, i) for i in range(m)]
        across = [_shifted(left, j) for j in range(m)]
        first = _apply(_dim(0) * self.c.block, number)

        def vectors(offset: ir.Value, lanes: int) -> None:
            type_ = ir.VectorType.get([lanes], self.f32)
            channel = arith.addi(first, offset)
            columns = [
                self._times(
                    self.t.output,
                    [vector.load(type_, products, [_index(a * n + b), tile, offset]) for a in range(n)],
                )
                for b in range(n)
            ]
            rows = [self._times(self.t.output, [column[i] for column in columns]) for i in range(m)]
            start = None if _is_zero(self.start) else vector.broadcast(type_, self.start)
            for i, j in itertools.product(range(m), range(m)):
                value = rows[i][j] if start is None else arith.addf(rows[i][j], start)
                place = [image, down[i], across[j], channel]
                if self.epilogue:
                    self.epilogue.store(value, place)
                else:
                    vector.store(value, self.c.op.operands[2], place)

        self._over_vectors(self.c.block, vectors)

    def _times(self, matrix, values: list[ir.Value]) -> list[ir.Value]:
        """The rows of matrix times values."""
        program = straight_line(matrix)
        made = list(values)
        for step in program.steps:
            left, right = None if step.left is None else made[step.left], made[step.right]
            if left is not None and abs(step.factor) == 1:
                made.append((arith.addf if step.factor > 0 else arith.subf)(left, right))
                continue
            type_ = ir.VectorType(right.type)
            splat = ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(self.f32, float(step.factor)))
            factor = arith.constant(type_, splat)
            made.append(arith.mulf(factor, right) if left is None else vector.fma(factor, right, left))
        return [made[number] for number in program.results if number is not None]


def _dim(position: int) -> ir.AffineExpr:
    return ir.AffineExpr.get_dim(position)


def _index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)


def _apply(expr: ir.AffineExpr, *values: ir.Value) -> ir.Value:
    return affine.apply(ir.AffineMap.get(len(values), 0, [expr]), list(values))


def _shifted(value: ir.Value, by: int) -> ir.Value:
    return _apply(_dim(0) + by, value) if by else value


def _minimum(expr: ir.AffineExpr, most: int, value: ir.Value) -> ir.Value:
    map_ = ir.AffineMap.get(1, 0, [expr, ir.AffineExpr.get_constant(most)])
    return affine.AffineMinOp(map_, [value]).result


def _zero(type_: ir.Type) -> ir.Value:
    return arith.constant(type_, 0.0)


def _is_zero(value: ir.Value) -> bool:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return False
    attribute = value.owner.operation.attributes["value"]
    return isinstance(attribute, ir.FloatAttr) and attribute.value == 0.0
