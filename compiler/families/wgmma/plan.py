"""How a contraction becomes boxes that TMA copies: loops in boxes of 64 rows and `columns` columns, a tensor map each.

    x[n, h + i, w + j, c] f[i, j, c, o], M = (n, h, w), K = (i, j, c), N = (o):   64 rows = a box of [1, 4, 16] pixels,
    a's map has the dimensions (c, w, h, n), and one box of it is [64, 16, 4, 1]: 64 rows of 128 bytes at (i, j)

Every operand is linear in the loops (`hopper_maps.py` makes tensor maps of that), so windows of a convolution may
overlap in memory and nothing has to be copied apart. Past the end of the k loop's channels both factors are zero; past
the end of rows and columns are results that nobody stores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.families.contraction.element_values import Element, Loaded, parts
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes
from tilewright.compiler.families.wgmma.maps import MapPlan, NotHopper, Strided, with_own_dimension
from tilewright.compiler.families.wgmma.tile import (
    ITEM_BYTES,
    PANEL,
    ROW_BYTES,
    WARPGROUP_ROWS,
    HopperTile,
)
from tilewright.compiler.gpu.builder import Operand
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.runtime.launch_rules import MOST_BOX, broken_map_rule
from tilewright.runtime.program import TensorMap


@dataclass(frozen=True)
class Grid:
    """Loops of one group in boxes: `numbers[i]` in steps of `sizes[i]`, outermost first."""

    numbers: tuple[int, ...]
    extents: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Boxes along each loop."""
        return tuple(-(-extent // size) for extent, size in zip(self.extents, self.sizes))

    @property
    def total(self) -> int:
        return math.prod(self.counts)

    @property
    def steps(self) -> dict[int, int]:
        return dict(zip(self.numbers, self.sizes))

    @property
    def boxed(self) -> tuple[int, ...]:
        """Loops that a box takes several steps of, innermost first."""
        return tuple(i for i, size in zip(self.numbers[::-1], self.sizes[::-1]) if size > 1)

    def starts(self, number: Operand) -> dict[int, Operand]:
        """The first step of every loop in box `number`, row-major; past the last one, the outermost leaves its loop."""
        found: dict[int, Operand] = {}
        rest = number
        for i in range(len(self.numbers) - 1, -1, -1):
            count = self.counts[i]
            own = rest % count if i and count > 1 else 0 if i else rest
            found[self.numbers[i]] = own * self.sizes[i]
            rest = rest // count if i else rest
        return found

    def inside(self, row: Operand) -> dict[int, Operand]:
        """Steps of every loop from the start of a box to its row `row`, row-major."""
        found: dict[int, Operand] = {}
        rest = row
        for i in range(len(self.numbers) - 1, -1, -1):
            size = self.sizes[i]
            found[self.numbers[i]] = (rest % size if size > 1 else 0) if i else rest
            rest = rest // size if i else rest
        return found


@dataclass(frozen=True)
class Plan:
    """Everything a wgmma kernel does, decided: boxes of rows, columns and batches, tensor maps, the k loop.

    `chunk` is the K loop that a stage's 128 bytes run along. `c` has, for each store, the tensor map that results
    leave through, or None where threads store what they hold.
    """

    contraction: Contraction
    tile: HopperTile
    type_: str
    rows: Grid
    columns: Grid
    batch: Grid
    chunk: int
    a: MapPlan
    b: MapPlan
    a_major: str
    b_major: str
    c: tuple[MapPlan | None, ...]

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        tile = self.tile
        depth = {4: "k8.tf32", 2: "k16", 1: "k32"}[ITEM_BYTES[self.type_]]
        return GpuTile(
            "wgmma", tile.threads, (tile.rows, tile.columns, self.depth), (WARPGROUP_ROWS, tile.columns),
            instruction=f"wgmma.m64n{tile.columns}{depth}", stages=tile.stages, split_k=tile.split,
            cluster=tile.cluster, raster=tile.raster, swizzle=ROW_BYTES,
        )  # fmt: skip

    @property
    def depth(self) -> int:
        """Elements along k of one stage."""
        return ROW_BYTES // ITEM_BYTES[self.type_]

    @property
    def depths(self) -> Grid:
        """The K loops in steps of one stage, `chunk` innermost."""
        loops = self.contraction.loops
        numbers = (*(i for i in self.contraction.group("k") if i != self.chunk), self.chunk)
        sizes = tuple(self.depth if i == self.chunk else 1 for i in numbers)
        return Grid(numbers, tuple(loops[i].extent for i in numbers), sizes)

    @property
    def k_steps(self) -> int:
        """wgmma instructions of one stage; fewer than 4 where the chunk loop ends before."""
        step = self.depth // 4
        return min(4, -(-self.contraction.loops[self.chunk].extent // step))

    @property
    def row_blocks(self) -> int:
        """Blocks of a cluster's rows, one below the other."""
        return -(-self.rows.total // (self.tile.warpgroups * self.tile.cluster))

    @property
    def tiles(self) -> int:
        """Tiles of one cluster."""
        return self.batch.total * self.row_blocks * self.columns.total

    @property
    def whole_row_box(self) -> bool:
        """Whether all rows of a block are one box: they follow each other along one loop, and it may be so large."""
        if self.a_major != "k" or len(self.rows.numbers) != 1:
            return False
        return self.tile.rows * self.a.element_stride(self.rows.numbers[0]) <= MOST_BOX

    @property
    def row_reads(self) -> tuple[int, ...]:
        """Accesses that the epilogue loads an element of for every row and column."""
        read = set[int]().union(*(loaded(store.element) for store in self.contraction.stores))
        inner = self.columns.numbers[-1]
        return tuple(
            i
            for i in sorted(read)
            if (strides := self.contraction.accesses[i].strides)[inner]
            and any(strides[m] for m in self.rows.numbers)
        )

    @property
    def a_sizes(self) -> dict[int, int]:
        """The box of a that one copy brings: 64 rows of one consumer, or those of all where they follow each other."""
        sizes = {**self.rows.steps, self.chunk: self.depth}
        if self.whole_row_box:
            sizes[self.rows.numbers[0]] = self.tile.rows
        return sizes

    @property
    def b_sizes(self) -> dict[int, int]:
        """The box of b that one copy brings: this block's columns, or one panel of 64 columns over the k of a stage."""
        inner, cluster = self.columns.numbers[-1], self.tile.cluster
        if self.b_major == "k":
            sizes = {**self.columns.steps, self.chunk: self.depth}
            sizes[inner] //= cluster
            return sizes
        is_shared_by_depth = self.tile.columns // PANEL % cluster > 0
        return {self.chunk: self.depth // cluster if is_shared_by_depth else self.depth, inner: PANEL}

    @property
    def tensor_maps(self) -> list[TensorMap]:
        """Those of a, of b, and of every result and width of panel that leaves through TMA."""
        inner, widths = self.columns.numbers[-1], sorted(set(panel_widths(self.tile.columns)))
        return [
            self.a.over(self.a_sizes, ROW_BYTES),
            self.b.over(self.b_sizes, ROW_BYTES),
            *(
                c.over({**self.rows.steps, inner: width}, panel_swizzle(width))
                for c in self.c
                if c is not None
                for width in widths
            ),
        ]

    @property
    def panels(self) -> int:
        """Buffers of 64 columns that a consumer sends from in turn; 0 where nothing leaves through TMA."""
        return staged_panels(self.tile.columns) if any(self.c) else 0


STORED_COLUMNS = 16
"""Columns that one stmatrix stores; results of other multiples of 8 are stored by threads."""


def staged_panels(columns: int) -> int:
    """2, so that one is filled while the other is sent, where that divides the panels of the tile; else 1."""
    return 2 if columns % (2 * PANEL) == 0 else 1


def panel_widths(columns: int) -> list[int]:
    """Columns of the pieces that results leave in: 64 each, and what is left."""
    return [min(PANEL, columns - first) for first in range(0, columns, PANEL)]


def panel_swizzle(width: int) -> int:
    """Bytes that rows of a panel are swizzled in: all of a row, where that is a swizzle; 0 for none."""
    return 2 * width if width in (16, 32, 64) else 0


def loaded(element: Element) -> set[int]:
    """Numbers of the accesses that an element loads."""
    return {part.access for part in parts(element) if isinstance(part, Loaded)}


def row_major_boxes(extents: Sequence[int], size: int, strides: Sequence[int]) -> tuple[int, ...]:
    """Powers of two, one per loop, whose product is `size`, that waste the fewest steps; wide inner ones first.

    `size` itself where there is one loop. Of loops with more than one step, outer ones have larger strides: boxes are
    copied in the order of memory.
    """
    if len(extents) == 1:
        return (size,)
    exponents = [2**e for e in range(size.bit_length()) if size % 2**e == 0]
    best: tuple[tuple, tuple[int, ...]] | None = None
    for outer in itertools.product(exponents, repeat=len(extents) - 1):
        if size % math.prod(outer):
            continue
        sizes = (*outer, size // math.prod(outer))
        boxed = [stride for stride, own in zip(strides, sizes) if own > 1]
        if boxed != sorted(boxed, reverse=True):
            continue
        waste = math.prod(-(-extent // own) * own for extent, own in zip(extents, sizes))
        key = (waste, *(-own for own in reversed(sizes)))
        if best is None or key < best[0]:
            best = (key, sizes)
    assert best is not None
    return best[1]


def map_plan(contraction: Contraction, access: int, dtype: str, boxed: Sequence[int]) -> MapPlan:
    """An access as a tensor map whose boxes take steps of the loops `boxed`, innermost first; raises NotHopper for none."""
    found = contraction.accesses[access]
    buffer = contraction.buffers[found.buffer]
    place = Strided(
        f"access {access}", found.buffer, buffer.alignment, element_bytes(buffer.dtype), found.offset
    )
    return place.map(dtype, found.strides, [loop.extent for loop in contraction.loops], boxed)


def majors(contraction: Contraction, type_: str) -> tuple[str, str, int]:
    """(k or m, k or n, the K loop that stages run along): what the factors are contiguous along.

    Raises NotHopper where that does not suit wgmma.
    """
    a, b = contraction.accesses[:2]
    k = contraction.group("k")
    if not k or not contraction.group("m") or not contraction.group("n"):
        raise NotHopper("rows, columns and a sum are needed")
    a_inner, b_inner = _inner(a.strides), _inner(b.strides)
    if a_inner is None or b_inner is None:
        raise NotHopper("a factor is contiguous along no loop")
    a_major = "k" if a_inner in k else "m"
    b_major = "k" if b_inner in k else "n"
    if a_major == b_major == "k" and a_inner != b_inner:
        raise NotHopper("the factors are contiguous along different loops of the sum")
    if ITEM_BYTES[type_] != 2 and (a_major, b_major) != ("k", "k"):
        raise NotHopper(f"wgmma takes {type_} only where both factors are contiguous along k")
    return a_major, b_major, a_inner if a_major == "k" else b_inner if b_major == "k" else k[-1]


def staged_alone(contraction: Contraction, type_: str) -> Contraction:
    """The contraction with the loop that stages run along cut to what it has to itself in memory, as boxes need it.

    Raises NotHopper as `majors` does.
    """
    return with_own_dimension(contraction, majors(contraction, type_)[2])


def column_step(type_: str, columns: int) -> int:
    """What n of a wgmma is a multiple of, near `columns`. Source: PTX ISA 8.8, "wgmma.mma_async", shapes by type."""
    return 16 if ITEM_BYTES[type_] == 1 and columns > 24 else 8


def make_plan(contraction: Contraction, tile: HopperTile, type_: str) -> Plan:
    """The plan for a tile; raises NotHopper with the reason where the contraction is not for TMA and wgmma."""
    contraction = staged_alone(contraction, type_)
    a_major, b_major, chunk = majors(contraction, type_)
    if tile.columns % column_step(type_, tile.columns):
        raise NotHopper(f"wgmma of {type_} has no n of {tile.columns}")
    a, b = (access.strides for access in contraction.accesses[:2])
    a_inner, b_inner = _inner(a), _inner(b)
    m, n, batch = (contraction.group(name) for name in ("m", "n", "batch"))
    extents = [loop.extent for loop in contraction.loops]
    rows = _grid(extents, m, WARPGROUP_ROWS, a, only=a_inner if a_major == "m" else None)
    columns = _columns(extents, n, tile, b, b_inner if b_major == "n" else None)
    down, across = rows.boxed, columns.boxed if b_major == "k" else n[-1:]
    # Memory of f32 that TMA loads as tf32 is rounded on its way; wgmma alone would cut the lowest bits off.
    dtype = "tf32" if type_ == "tf32" else contraction.a_dtype
    plan = Plan(
        contraction, tile, type_, rows, columns,
        Grid(batch, tuple(extents[i] for i in batch), (1,) * len(batch)), chunk,
        map_plan(contraction, 0, dtype, (chunk, *down) if a_major == "k" else (*down, chunk)),
        map_plan(contraction, 1, dtype, (chunk, *across) if b_major == "k" else (*across, chunk)),
        a_major, b_major,
        tuple(_store_plan(contraction, store.access, down, columns) for store in contraction.stores),
    )  # fmt: skip
    if plan.a.dimension(chunk).is_shared or plan.b.dimension(chunk).is_shared:
        raise NotHopper(
            "what lies behind the end of the sum is no zero: the stage's loop shares its dimension"
        )
    for found in plan.tensor_maps:
        if (rule := broken_map_rule(found)) is not None:
            raise NotHopper(f"a tensor map over buffer {found.buffer}: {rule}")
    return plan


def _inner(strides: Sequence[int]) -> int | None:
    """The loop that an access is contiguous along."""
    return next((i for i, stride in enumerate(strides) if stride == 1), None)


def _grid(
    extents: Sequence[int], numbers: Sequence[int], size: int, strides: Sequence[int], only: int | None
) -> Grid:
    """Boxes of `size` over a group's loops, which have these strides; along the loop `only` alone, where given."""
    own = [extents[i] for i in numbers]
    if only is None:
        sizes = row_major_boxes(own, size, [strides[i] for i in numbers])
    else:
        sizes = tuple(size if i == only else 1 for i in numbers)
    return Grid(tuple(numbers), tuple(own), sizes)


def _columns(
    extents: Sequence[int],
    numbers: Sequence[int],
    tile: HopperTile,
    strides: Sequence[int],
    inner: int | None,
) -> Grid:
    grid = _grid(extents, numbers, tile.columns, strides, None)
    if inner is not None and len(numbers) > 1 and grid.steps[inner] % PANEL:
        raise NotHopper("columns of several loops, of which the contiguous one is no multiple of 64")
    if inner is not None and inner != numbers[-1]:
        raise NotHopper("columns that the second factor and the result order differently")
    if any(size > 1 for size in grid.sizes[:-1]) and tile.cluster > 1:
        raise NotHopper("columns of several loops, whose boxes a cluster does not share")
    return grid


def _store_plan(
    contraction: Contraction, access: int, down: tuple[int, ...], columns: Grid
) -> MapPlan | None:
    """The tensor map that a result leaves through; None where its threads have to store it themselves."""
    place = contraction.accesses[access]
    dtype, inner = contraction.buffers[place.buffer].dtype, columns.numbers[-1]
    step = STORED_COLUMNS if len(columns.numbers) == 1 else PANEL
    if dtype not in ("f16", "bf16") or place.strides[inner] != 1 or columns.sizes[-1] % step:
        return None
    try:
        found = map_plan(contraction, access, dtype, (inner, *down))
    except NotHopper:
        return None
    # Every row and column that is none lies outside, and elements lie side by side as in the boxes that are sent.
    return None if any(own.is_shared or own.element_stride > 1 for own in found.dimensions) else found
