"""The loop over blocks of a reduction's steps, around those of its register tiles.

scf.for b {                                 // loops that all operands follow: each step is a reduction of its own
  scf.for k0 step 256 {                     // blocks of 256 steps
    first = k0 == 0, last = k0 == 768
    ...                                     // all register tiles, each min(256, 1000 - k0) steps
  }
}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import map_dims
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.ir import arith, ir, scf


def around_tiles(parallel: Sequence[int], tiled: Sequence[int | None], block: Block | None) -> list[int]:
    """The loops of a result around register tiles along `tiled`, without those that are around the block too."""
    done = (*tiled, *(block.batch if block is not None else ()))
    return [loop for loop in parallel if loop not in done]


@dataclass(frozen=True)
class Block:
    """The block that is open: `size` steps of `loop`, which has `extent`, from `start`, with single steps of the loops `around`,
    in those of the `batch`.

    `first` and `last` tell whether it is the first one, and the last.
    """

    batch: tuple[int, ...]
    around: tuple[int, ...]
    loop: int
    size: int
    extent: int
    start: ir.Value
    first: ir.Value
    last: ir.Value

    def steps(self) -> ir.Value:
        """How many of the loop it has: the last block may have fewer."""
        size = index(self.size)
        if self.extent % self.size == 0:
            return size
        return arith.minsi(size, arith.subi(index(self.extent), self.start))

    def starts(
        self,
        types: Sequence[ir.Type],
        filled: Callable[[], list[ir.Value]],
        loaded: Callable[[], list[ir.Value]],
    ) -> list[ir.Value]:
        """What the sums of a register tile start from: `filled` in the first block, `loaded` behind it."""
        branch = scf.IfOp(self.first, list(types), has_else=True)
        for block, values in ((branch.then_block, filled), (branch.else_block, loaded)):
            with ir.InsertionPoint(block):
                scf.yield_(values())
        return list(branch.results)

    def begin(self, filled: Callable[[], None], loaded: Callable[[], None]) -> None:
        """The same of sums that are not values."""

        def none(body: Callable[[], None]) -> list[ir.Value]:
            body()
            return []

        self.starts([], lambda: none(filled), lambda: none(loaded))


def in_blocks(
    nest: LoopNest,
    outer: Sequence[int],
    reduction: Sequence[int],
    extents: Sequence[int],
    cut: tuple[int, int],
    body: Callable[[Block], None],
) -> None:
    """Loops over the blocks of a reduction: `extents` are those of its loops, `cut` which of them is cut, and into what.

    Those of the loops `outer`, around register tiles, that all operands follow are a batch.
    """
    position, size = cut
    batch = tuple(loop for loop in outer if all(loop in map_dims(map_) for map_ in nest.maps))
    around, loop, extent = tuple(reduction[:position]), reduction[position], extents[position]

    def at(places: Sequence[int]) -> ir.Value:
        """Whether the open loops are at these steps."""
        opened = zip((*around, loop), extents, places)
        found, *others = [
            arith.cmpi(arith.CmpIPredicate.eq, nest.ivs[dim], index(step))
            for dim, most, step in opened
            if most > 1
        ]
        for other in others:
            found = arith.andi(found, other)
        return found

    def block() -> None:
        first = at([0] * (position + 1))
        last = at([*(most - 1 for most in extents[:position]), (extent - 1) // size * size])
        body(Block(batch, around, loop, size, extent, nest.ivs[loop], first, last))

    nest.nest((*batch, *around), lambda: nest.loop(loop, 0, extent, size, block))
