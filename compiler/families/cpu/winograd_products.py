"""The products of Winograd's transforms as a contraction: their sizes, and where a cut convolution is computed so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.families.cpu.broadcast_loops import FEWEST_LANES
from tilewright.compiler.nouns.register_tiles import register_count
from tilewright.compiler.nouns.schedule import Reduction
from tilewright.compiler.nouns.winograd_transforms import Transforms

_PAGE_FLOATS = 1024
"""Rows this far apart fall into one set of a 4 KiB cache way and evict each other."""


def products_rule(convolution: Convolution2d, matrices: Transforms, last_starts: Sequence[int]) -> str | None:
    """Why a cut convolution is not computed by Winograd's algorithm, None where it is.

    `last_starts` are where rTasks that overlap their neighbours start: they put the same tiles where those do, as
    other tiles would round differently.
    """
    m, (_, height, width, filters, *_) = matrices.outputs, convolution.extents
    if min(height, width) < m:
        return f"it is smaller than one tile of {m} x {m}"
    if last_starts and any(start % m for start in (*last_starts, height, width)):
        return f"rTasks overlap with other tiles than their neighbours' of {m} x {m}"
    if filters % convolution.block:
        return f"a block of {convolution.block} filters is cut"
    return None


@dataclass(frozen=True)
class Products:
    """The products of transforms: `tiles` rows by `filters` columns in registers, over rows of `row` channels.

    `steps` are the channels that they sum over, in blocks of any number; none where the products are scalars, which have no
    blocks.
    """

    tiles: int
    filters: int
    row: int
    lanes: int
    steps: tuple[int, ...]
    block: int | None = None
    group: int = 1
    alike: bool = False

    @classmethod
    def of(cls, convolution: Convolution2d, matrices: Transforms, vector_bits: int) -> Products:
        """Those of a cut convolution."""
        images, height, width, *_, channels = convolution.extents
        tiles = images * -(-height // matrices.outputs) * -(-width // matrices.outputs)
        steps = (channels,) if convolution.block >= FEWEST_LANES else ()
        return cls(tiles, convolution.block, row_floats(channels), vector_bits // 32, steps)

    def most(self) -> tuple[int, int]:
        """The largest sizes of a tile: beyond, it is what a smaller one is. Scalars have none but (1, 1)."""
        return (self.tiles, self.filters) if self.filters >= FEWEST_LANES else (1, 1)

    def reduction(self, said: Reduction) -> Reduction:
        """What is said of the products once they are a contraction of their own."""
        if self.filters < FEWEST_LANES:
            return Reduction("scalar")
        return Reduction("products", said.sizes, said.depth)

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers that the sums of a tile take."""
        return sizes[0] * register_count(sizes[1], self.lanes)


def row_floats(width: int) -> int:
    """The length of a row of scratch: rows and planes start at different places of the cache."""
    return width + (16 if width % (_PAGE_FLOATS // 4) == 0 else 0)
