"""Reductions vectorised along themselves: each accumulator is a vector of partial sums, added up at the end.

scf.for n0 step 8 {                                          // y[n] += W[n, k] * x[k], W contiguous along k
  %acc:8 = scf.for k step 16 iter_args(8 x vector<16xf32>) {
    %x = vector.load x[k]
    %acc_t += vector.load W[n0 + t, k] * %x                  // t = 0 .. 7
  }
  y[n0 + t] += sum of the lanes of %acc_t                    // eight at once, by halving a tree of shuffles
}

Long sums are added up in parts, see `partial_sums.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_contiguous_along, is_dim, map_dims
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.families.cpu.partial_sums import Parts
from tilewright.compiler.families.cpu.reduction import Combination, Structure, vectorize_values
from tilewright.compiler.families.cpu.vector_prologue import Prologue
from tilewright.compiler.families.cpu.walked_rows import fetch_row
from tilewright.compiler.ir import arith, ir, memref, scf, vector
from tilewright.compiler.nouns.register_tiles import DotTile
from tilewright.compiler.rewriting.generics import is_read

_FEWEST_LANES = 4


@dataclass(frozen=True)
class Contiguous:
    """The loops of a reduction whose inputs are contiguous along it, and how its terms are combined.

    `inner` is the reduction loop of `extent` that runs along vectors of `lanes`; steps of `rows_dim` and `columns_dim`,
    two loops of the output, share what they load where `reuses`.
    """

    combination: Combination
    inner: int
    extent: int
    rows_dim: int | None
    columns_dim: int | None
    rows: int
    columns: int
    lanes: int
    reuses: bool
    block: int | None = None

    @classmethod
    def read(cls, reduction: Structure, vector_bits: int) -> Contiguous | None:
        """None where there is no such loop, or where terms must be combined in their order.

        An operand that the body does not read only says how long a loop is: nothing is loaded along it.
        """
        combination = Combination.read(reduction.body)
        if not reduction.vectorizable or combination is None:
            return None
        inputs = reduction.maps[:-1]
        read = [is_read(argument) for argument in reduction.body.arguments]
        lanes = max(1, vector_bits // reduction.accumulator_bits)
        fitting = []
        for loop in reduction.reduction:
            moving = [i for i, m in enumerate(inputs) if read[i] and loop in map_dims(m)]
            extent = reduction.extents[loop]
            contiguous = all(
                is_contiguous_along(inputs[i], loop) and reduction.unit_stride[i] for i in moving
            )
            if contiguous and moving and extent >= _FEWEST_LANES and loop not in map_dims(reduction.maps[-1]):
                fitting.append((extent, loop))
        if not fitting:
            return None
        extent, inner = max(fitting)
        lanes = min(lanes, 1 << (extent.bit_length() - 1))
        moving = [m for i, m in enumerate(inputs) if read[i] and inner in map_dims(m)]
        # Loops along which some vector operand stays the same, those that re-use most first; two re-use different ones.
        reusing = sorted(
            (
                (sum(d not in map_dims(m) for m in moving), reduction.extents[d], d)
                for d in reduction.parallel
            ),
            reverse=True,
        )
        tiled = [d for reuse, size, d in reusing if reuse and size > 1][:2]
        if len(tiled) == 2 and not any(
            tiled[0] in map_dims(m) and tiled[1] not in map_dims(m) for m in moving
        ):
            tiled = tiled[:1]
        rows_dim, columns_dim = min(tiled, default=None), max(tiled) if len(tiled) == 2 else None
        if rows_dim is None:
            rows_dim = max((d for d in reduction.parallel if reduction.extents[d] > 1), default=None)
        rows = 1 if rows_dim is None else reduction.extents[rows_dim]
        columns = 1 if columns_dim is None else reduction.extents[columns_dim]
        return cls(combination, inner, extent, rows_dim, columns_dim, rows, columns, lanes, bool(tiled))

    @property
    def steps(self) -> int:
        """Vectors along the reduction, of which chains of accumulators take turns."""
        return self.extent // self.lanes

    def most(self) -> tuple[int, int, int]:
        """The largest sizes of a tile: beyond, it is what a smaller one is."""
        return self.rows, self.columns, max(1, self.steps)

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers that the sums of a tile take."""
        return math.prod(sizes)


Point = tuple[int, int]
"""One result of a register tile: its row and column."""


class ContiguousLoops(LoopNest):
    """Writes the loops of one reduction at the current insertion point.

    Where the schedule says so, the rows that the next rTask walks are fetched meanwhile: `fetches` tells whether there
    are any. A last vector that does not fit is moved back to overlap the one before, and the lanes already counted are
    replaced by what changes nothing.
    """

    def __init__(
        self,
        reduction: Structure,
        plan: Contiguous,
        tile: DotTile,
        fill: ir.Value | None,
        prologue: Prologue | None = None,
        prefetch: int = 0,
    ):
        super().__init__(reduction.maps, reduction.extents)
        self.r, self.plan, self.tile, self.fill, self.prologue = reduction, plan, tile, fill, prologue
        self.prefetch, self.fetches = prefetch, False
        self.operands = list(reduction.op.operands)
        element = ir.ShapedType(self.operands[-1].type).element_type
        self.type = ir.VectorType.get([plan.lanes], element)

    def emit(self) -> None:
        plan = self.plan
        tiled = {plan.rows_dim, plan.columns_dim}

        def tiles() -> None:
            self.segments(plan.rows_dim, self.tile.rows, columns)

        def columns(rows: int) -> None:
            self.segments(plan.columns_dim, self.tile.columns, lambda width: self._tile(rows, width))

        self.nest([d for d in self.r.parallel if d not in tiled], tiles)

    def _tile(self, rows: int, columns: int) -> None:
        points = [(row, column) for row in range(rows) for column in range(columns)]
        neutral = self.plan.combination.neutral(self.type)
        outer = [d for d in self.r.reduction if d != self.plan.inner]
        partial = self._reduce(outer, [neutral] * (len(points) * self.tile.chains), points)
        for chain in range(1, self.tile.chains):
            for i in range(len(points)):
                partial[i] = self.plan.combination.combine(partial[i], partial[chain * len(points) + i])
        self._store(points, partial[: len(points)])

    def _reduce(
        self, outer: Sequence[int], accumulators: list[ir.Value], points: list[Point]
    ) -> list[ir.Value]:
        """All steps; those of a row, or of all loops inside of one, are parts of their own where there are many."""
        step = self.plan.lanes * self.tile.chains
        parts = Parts.of(self.r, [*(self.extents[d] for d in outer), self.plan.extent // step])
        if parts is None or parts.position == len(outer):
            return self.reduce_nest(outer, accumulators, lambda inner: self._row(inner, points, parts))

        def part(totals: list[ir.Value]) -> list[ir.Value]:
            inside = outer[parts.position + 1 :]
            row = self.reduce_nest(inside, parts.starts(totals), lambda sums: self._row(sums, points, None))
            return parts.added(totals, row)

        return self.reduce_nest(outer[: parts.position + 1], accumulators, part)

    def _row(self, accumulators: list[ir.Value], points: list[Point], parts: Parts | None) -> list[ir.Value]:
        """All steps of the loop that vectors run along."""
        inner, lanes, chains = self.plan.inner, self.plan.lanes, self.tile.chains
        extent, step = self.extents[inner], lanes * chains
        main, full = extent - extent % step, extent - extent % lanes

        def all_chains(carried: list[ir.Value]) -> list[ir.Value]:
            count = len(points)
            groups = [carried[chain * count : (chain + 1) * count] for chain in range(chains)]
            return [
                v
                for chain, group in enumerate(groups)
                for v in self._step(group, points, chain * lanes, None)
            ]

        def part(totals: list[ir.Value], size: int) -> list[ir.Value]:
            assert parts is not None
            begin = self.ivs[inner]
            # From 0 on: LLVM counts the steps of a loop that begins anywhere at run time.
            loop = scf.ForOp(self.zero, index(size), index(step), parts.starts(totals))
            with ir.InsertionPoint(loop.body):
                self.ivs[inner] = arith.addi(begin, loop.induction_variable)
                scf.YieldOp(all_chains(list(loop.inner_iter_args)))
            return parts.added(totals, list(loop.results))

        if parts is None:
            accumulators = self.reduce(inner, 0, main, step, accumulators, all_chains)
        else:
            size = parts.size * step
            even, rest = main - main % size, main % size
            accumulators = self.reduce(inner, 0, even, size, accumulators, lambda t: part(t, size))
            accumulators = self.reduce(inner, even, main, rest, accumulators, lambda t: part(t, rest))
        remaining = [(start, None) for start in range(main, full, lanes)]
        if extent > full:
            remaining.append((extent - lanes, lanes - extent % lanes))
        for number, (start, done) in enumerate(remaining):
            self.ivs[inner] = index(start)
            at = number % chains * len(points)
            accumulators[at : at + len(points)] = self._step(
                accumulators[at : at + len(points)], points, 0, done
            )
        return accumulators

    def _step(
        self, accumulators: list[ir.Value], points: list[Point], offset: int, done: int | None
    ) -> list[ir.Value]:
        """One vector of terms for every point; the first `done` lanes were counted before."""
        loaded: dict[tuple, ir.Value] = {}
        body = self.r.body
        results = []
        for accumulator, point in zip(accumulators, points):
            values = {
                body.arguments[i]: self._load(i, point, offset, loaded) for i in range(len(self.maps) - 1)
            }
            (term,) = vectorize_values(body, values, self.plan.lanes, [self.plan.combination.term])
            if done is not None:
                term = arith.select(self._mask(done), term, self.plan.combination.neutral(self.type))
            results.append(self.plan.combination.combine(accumulator, term))
        return results

    def _load(self, operand: int, point: Point, offset: int, loaded: dict[tuple, ir.Value]) -> ir.Value:
        """A vector along the reduction, or a broadcast of what does not follow it; each is loaded once."""
        plan, used = self.plan, map_dims(self.maps[operand])
        moved = {plan.inner: offset} if plan.inner in used else {}
        for dim, step in zip((plan.rows_dim, plan.columns_dim), point):
            if dim is not None and dim in used:
                moved[dim] = step
        key = (operand, *sorted(moved.items()))
        if key not in loaded:
            type_ = ir.VectorType.get([plan.lanes], ir.ShapedType(self.operands[operand].type).element_type)
            place = self.address(operand, moved)
            if self.prologue is not None and operand == self.prologue.operand:
                if self.prefetch:
                    self.fetches |= self.prologue.fetch(place, self.prefetch)
                loaded[key] = self.prologue.load(place, plan.lanes)
            elif plan.inner in used:
                if self.prefetch:
                    self.fetches |= fetch_row(self.operands[operand], place, self.prefetch)
                loaded[key] = vector.load(type_, self.operands[operand], place)
            else:
                loaded[key] = vector.broadcast(type_, memref.load(self.operands[operand], place))
        return loaded[key]

    def _mask(self, done: int) -> ir.Value:
        i1 = ir.IntegerType.get_signless(1)
        type_ = ir.VectorType.get([self.plan.lanes], i1)
        bits = [ir.IntegerAttr.get(i1, int(lane >= done)) for lane in range(self.plan.lanes)]
        return arith.constant(type_, ir.DenseElementsAttr.get(bits, type_))

    def _store(self, points: list[Point], partial: list[ir.Value]) -> None:
        """Adds up lanes in groups that are a power of two, which lie side by side in the result where they can."""
        along = self._along()
        runs = [points]
        if along == self.plan.columns_dim and along is not None:
            width = len({column for _, column in points})
            runs = [points[i : i + width] for i in range(0, len(points), width)]
        first = 0
        for run in runs:
            vectors, first_of_run = partial[first : first + len(run)], 0
            while first_of_run < len(run):
                count = min(self.plan.lanes, 1 << ((len(run) - first_of_run).bit_length() - 1))
                group = run[first_of_run : first_of_run + count]
                sums = self._add_lanes(vectors[first_of_run : first_of_run + count])
                rows, columns = ({point[i] for point in group} for i in range(2))
                together = (
                    columns if along == self.plan.columns_dim and len(rows) == 1 else rows
                    if along == self.plan.rows_dim and len(columns) == 1 else ()
                )  # fmt: skip
                self._store_group(group, sums, along is not None and len(together) == count > 1)
                first_of_run += count
            first += len(run)

    def _along(self) -> int | None:
        """The loop along which results lie side by side, None when it is no tiled one."""
        output = self.maps[-1]
        if not len(output.results) or not is_dim(output.results[-1]) or not self.r.unit_stride[-1]:
            return None
        loop = output.results[-1].position
        if any(loop in map_dims(ir.AffineMap.get(output.n_dims, 0, [e])) for e in list(output.results)[:-1]):
            return None
        return loop if loop in (self.plan.rows_dim, self.plan.columns_dim) else None

    def _add_lanes(self, vectors: list[ir.Value]) -> ir.Value:
        """A vector of the sums of each of 2^p vectors: p rounds that interleave pairs, then halving.

        After round s, lane `l` of a vector holds a part of the sum of the one whose number ends in the low s + 1
        bits of `l`.
        """
        lanes, bit = self.plan.lanes, 1
        while len(vectors) > 1:
            own = [lane if not lane & bit else lanes + lane - bit for lane in range(lanes)]
            other = [lane + bit if not lane & bit else lanes + lane for lane in range(lanes)]
            vectors = [
                self.plan.combination.combine(vector.shuffle(a, b, own), vector.shuffle(a, b, other))
                for a, b in zip(vectors[::2], vectors[1::2])
            ]
            bit *= 2
        (sums,) = vectors
        while lanes > bit:
            lanes //= 2
            low, high = (vector.shuffle(sums, sums, range(at, at + lanes)) for at in (0, lanes))
            sums = self.plan.combination.combine(low, high)
        return sums

    def _store_group(self, group: list[Point], sums: ir.Value, together: bool) -> None:
        output = self.operands[-1]
        if together:
            place = self._place(group[0])
            start = (
                vector.broadcast(sums.type, self.fill) if self.fill else vector.load(sums.type, output, place)
            )
            vector.store(self.plan.combination.combine(start, sums), output, place)
            return
        for lane, point in enumerate(group):
            place = self._place(point)
            start = self.fill if self.fill is not None else memref.load(output, place)
            total = vector.extract(sums, [], [lane])
            memref.store(self.plan.combination.combine(start, total), output, place)

    def _place(self, point: Point) -> list[ir.Value]:
        dims = (self.plan.rows_dim, self.plan.columns_dim)
        return self.address(
            len(self.maps) - 1, {dim: step for dim, step in zip(dims, point) if dim is not None}
        )
