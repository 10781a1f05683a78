"""Writing loop nests over the points of a linalg operation: loops by dimension, addresses by index map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.compiler.analysis.affine_access import dims, is_dim
from tilewright.compiler.ir import affine, arith, ir, scf


class LoopNest:
    """Emits loops at the current insertion point; `ivs` holds the value of every loop that is open."""

    def __init__(self, maps: Sequence[ir.AffineMap], extents: Sequence[int]):
        self.maps, self.extents = maps, extents
        self.ivs: dict[int, ir.Value] = {}
        self.zero = index(0)

    def nest(self, loops: Sequence[int], body: Callable[[], None]) -> None:
        """Whole loops of step 1 around `body`, outer first."""
        if not loops:
            body()
            return
        first, *rest = loops
        self.loop(first, 0, self.extents[first], 1, lambda: self.nest(rest, body))

    def loop(self, dim: int, start: int, end: int, step: int, body: Callable[[], None]) -> None:
        """One loop around `body`; a single step needs none."""
        if end - start == step:
            self.ivs[dim] = index(start)
            body()
            return
        loop = scf.ForOp(index(start), index(end), index(step))
        with ir.InsertionPoint(loop.body):
            self.ivs[dim] = loop.induction_variable
            body()
            scf.YieldOp([])

    def segments(self, dim: int | None, size: int, body: Callable[[int], None]) -> None:
        """A loop in steps of `size`, then what remains as a step of its own; `body` is told the step's size."""
        if dim is None:
            body(1)
            return
        extent = self.extents[dim]
        full = extent - extent % size
        if full:
            self.loop(dim, 0, full, size, lambda: body(size))
        if extent > full:
            self.loop(dim, full, extent, extent - full, lambda: body(extent - full))

    def overlapping(self, dim: int, size: int, body: Callable[[], None]) -> None:
        """A loop in steps of `size`, at most the extent, whose last step is moved back where it would not fit."""
        extent = self.extents[dim]

        def fitted() -> None:
            if extent % size and extent > size:
                self.ivs[dim] = arith.minsi(self.ivs[dim], index(extent - size))
            body()

        self.loop(dim, 0, -(-extent // size) * size, size, fitted)

    def reduce(
        self,
        dim: int,
        start: int,
        end: int,
        step: int,
        carried: list[ir.Value],
        body: Callable[[list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """A loop that carries values through `body`; nothing at all where it would not run."""
        if end <= start:
            return carried
        if end - start == step:
            self.ivs[dim] = index(start)
            return body(carried)
        loop = scf.ForOp(index(start), index(end), index(step), carried)
        with ir.InsertionPoint(loop.body):
            self.ivs[dim] = loop.induction_variable
            scf.YieldOp(body(list(loop.inner_iter_args)))
        return list(loop.results)

    def counted(
        self,
        dim: int,
        start: ir.Value,
        steps: ir.Value,
        carried: list[ir.Value],
        body: Callable[[list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """So many steps of a loop from where it starts, which carry values through `body`."""
        # From 0 on: LLVM counts the steps of a loop that begins anywhere at run time.
        loop = scf.ForOp(self.zero, steps, index(1), carried)
        with ir.InsertionPoint(loop.body):
            self.ivs[dim] = arith.addi(start, loop.induction_variable)
            scf.YieldOp(body(list(loop.inner_iter_args)))
        return list(loop.results)

    def reduce_nest(
        self, loops: Sequence[int], carried: list[ir.Value], body: Callable[[list[ir.Value]], list[ir.Value]]
    ) -> list[ir.Value]:
        """Whole loops of step 1 that carry values through `body`, outer first."""
        if not loops:
            return body(carried)
        first, *rest = loops
        return self.reduce(
            first, 0, self.extents[first], 1, carried, lambda inner: self.reduce_nest(rest, inner, body)
        )

    def address(self, operand: int, moved: Mapping[int, int]) -> list[ir.Value]:
        """Where `operand` is read at the open loops, each moved on by a constant."""
        map_ = self.maps[operand]
        replaced = [ir.AffineExpr.get_dim(i) + moved.get(i, 0) for i in range(map_.n_dims)]
        place = []
        for expr in map_.results:
            used = sorted(dims(expr))
            if is_dim(expr) and not moved.get(used[0]):
                place.append(self.ivs[used[0]])
                continue
            composed = ir.AffineMap.get(
                map_.n_dims, 0, [expr.compose(ir.AffineMap.get(map_.n_dims, 0, replaced))]
            )
            place.append(
                affine.apply(composed, [self.ivs[d] if d in used else self.zero for d in range(map_.n_dims)])
            )
        return place


def index(value: int) -> ir.Value:
    """A constant of type index."""
    return arith.constant(ir.IndexType.get(), value)
