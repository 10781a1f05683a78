"""Addresses of a contraction: where its loops are at a flat row, column or depth, and what that comes to in every buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.compiler.families.contraction.problem import Contraction
from tilewright.compiler.gpu.builder import Value, index, minimum
from tilewright.compiler.ir import ir, memref

Position = Value | int


@dataclass(frozen=True)
class Addresses:
    """Flat views of a kernel's buffers, and positions in them by access of the contraction."""

    contraction: Contraction
    flat: tuple[ir.Value, ...]

    @classmethod
    def of(cls, contraction: Contraction, buffers: Sequence[ir.Value]) -> Addresses:
        """Views each buffer as one row of elements, so that a position in it is one number."""
        return cls(
            contraction, tuple(_flat(v, b.span, b.dtype) for v, b in zip(buffers, contraction.buffers))
        )

    def buffer(self, access: int) -> ir.Value:
        return self.flat[self.contraction.accesses[access].buffer]

    def steps(self, group: str, position: Position) -> dict[int, Position]:
        """Where each loop of a group is at a flat position."""
        loops = self.contraction.group(group)
        found: dict[int, Position] = {}
        rest = position
        for loop in reversed(loops[1:]):
            extent = self.contraction.loops[loop].extent
            found[loop] = rest % extent
            rest = rest // extent
        if loops:
            found[loops[0]] = rest
        return found

    def offset(self, access: int, steps: dict[int, Position]) -> Position:
        """Elements that the loops at `steps` move an access by; the buffer's own offset is not in it."""
        strides = self.contraction.accesses[access].strides
        total: Position = 0
        for loop, step in steps.items():
            if strides[loop]:
                total = step * strides[loop] + total
        return total

    def group_offset(self, access: int, group: str, position: Position) -> Position:
        """`offset` of one group at a flat position."""
        return self.offset(access, self.steps(group, position))

    def start(self, access: int) -> int:
        return self.contraction.accesses[access].offset


def _flat(buffer: ir.Value, span: int, dtype: str) -> ir.Value:
    type_ = ir.MemRefType.get([span], ir.Type.parse(dtype))
    if buffer.type == type_:
        return buffer
    return memref.reinterpret_cast(type_, buffer, [], [], [], [0], [span], [1])


@dataclass(frozen=True)
class Grid:
    """Blocks of a contraction: tiles of its rows and columns, parts of its depth, batches.

    Blocks walk `raster` rows of tiles column by column, so that those running together share rows and columns of
    the operands in L2; parts of K come next, batches last.
    """

    contraction: Contraction
    block_m: int
    block_n: int
    block_k: int
    split_k: int = 1
    raster: int = 8
    tiles_m: int = field(init=False)
    tiles_n: int = field(init=False)
    steps_k: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = {"m": self.block_m, "n": self.block_n, "k": self.block_k}
        counts = {name: -(-self.contraction.extent(name) // size) for name, size in sizes.items()}
        object.__setattr__(self, "tiles_m", counts["m"])
        object.__setattr__(self, "tiles_n", counts["n"])
        object.__setattr__(self, "steps_k", -(-counts["k"] // self.split_k))

    @property
    def total_steps(self) -> int:
        """Steps of `block_k` along all of K."""
        return -(-self.contraction.extent("k") // self.block_k)

    @property
    def tiles(self) -> int:
        """Blocks that one batch takes for each part of K."""
        return self.tiles_m * self.tiles_n

    @property
    def parts(self) -> int:
        """Parts of K that have anything in them."""
        return -(-self.total_steps // self.steps_k)

    @property
    def blocks(self) -> int:
        return self.contraction.extent("batch") * self.parts * self.tiles

    def place(self, block: Value) -> Tile:
        """Where block number `block` works."""
        tile, rest = block % self.tiles, block // self.tiles
        part, batch = rest % self.parts, rest // self.parts
        height = min(self.raster, self.tiles_m)
        group, within = tile // (height * self.tiles_n), tile % (height * self.tiles_n)
        first = group * height
        rows: Position = height
        if self.tiles_m % height:
            rows = minimum(index(self.tiles_m) - first, height)
        row, column = first + within % rows, within // rows
        return Tile(batch, part, row * self.block_m, column * self.block_n, row * self.tiles_n + column)

    def steps(self, part: Value) -> Position:
        """Steps of `block_k` that part number `part` takes."""
        if self.total_steps == self.parts * self.steps_k:
            return self.steps_k
        return minimum(index(self.total_steps) - part * self.steps_k, self.steps_k)


@dataclass(frozen=True)
class Tile:
    """A block's work: its batch, its part of K, its first row and column, and its number among the tiles of a batch."""

    batch: Value
    part: Value
    row: Value
    column: Value
    number: Value
