"""Tiles of contractions in shared memory and registers, for many schedules at once: where kernels put them, to the byte.

a [128, 32] of f16, rows along K, swizzled   =>   pitch 32, 8 elements per copy, asynchronous, no conflicts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gemm_model import ASYNC_BYTES
from tilewright.compiler.tuning.model.gemm_resources import (
    INSTRUCTIONS,
    SCATTERED_REGISTERS,
    WGMMA_ROW_BYTES,
    mma_registers,
    simt_registers,
    wgmma_registers,
)
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES
from tilewright.compiler.tuning.model.gpu_kernel import wavefronts
from tilewright.compiler.tuning.model.product import Factor, Product

SUM_BYTES = 4
"""Of a sum on its way out of registers, or between blocks that share a tile."""
FLAG_BYTES = 4
"""Shared memory of a block that tells its threads whether it came last to a divided tile."""
_STAGED_ROWS = 16
"""Rows of sums of a warp that wait in shared memory to be stored."""
_PANEL = 64
"""16-bit columns of what wgmma kernels stage of results."""


@dataclass(frozen=True)
class Staged:
    """How tiles of a factor lie in shared memory, of n schedules: rows of `columns` elements, `pitch` apart.

    `lanes` are elements of one copy, `count` copies of a thread; `deferred` ones are asynchronous. `along_k` where rows of
    shared memory run along K; others run across.
    """

    factor: Factor
    rows: np.ndarray
    columns: np.ndarray
    pitch: np.ndarray
    lanes: np.ndarray
    count: np.ndarray
    deferred: np.ndarray
    swizzled: np.ndarray
    transposed: np.ndarray
    item_bytes: int

    @property
    def nbytes(self) -> np.ndarray:
        return self.rows * self.pitch * self.item_bytes


@dataclass(frozen=True)
class Sizes:
    """The sizes of n schedules of one kind of kernel by name, columns [n]; `part` are those of a warp or a thread."""

    tiles: Sequence[GpuTile]

    def column(self, field: str, place: int = -1) -> np.ndarray:
        values = [getattr(tile, field) for tile in self.tiles]
        return np.asarray([v[place] for v in values] if place >= 0 else values, dtype=np.int64)

    @property
    def block(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.column("block", 0), self.column("block", 1), self.column("block", 2)


def parts_of(kind: str, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of one thread, of one warp, or of one warp of a warpgroup."""
    if kind == "wgmma":
        _, bn, _ = sizes.block
        return np.full(len(bn), 16), bn
    field = "thread" if kind == "simt" else "warp"
    return sizes.column(field, 0), sizes.column(field, 1)


def staging(product: Product, kind: str, sizes: Sizes, target: Target) -> tuple[Staged, Staged]:
    """How tiles of both factors lie in shared memory."""
    bm, bn, bk = sizes.block
    first, second = product.factors
    return (
        _staged(product, kind, first, 0, bm, bk, sizes, target),
        _staged(product, kind, second, 1, bn, bk, sizes, target),
    )


def _staged(
    product: Product,
    kind: str,
    factor: Factor,
    number: int,
    across: np.ndarray,
    deep: np.ndarray,
    sizes: Sizes,
    target: Target,
) -> Staged:
    operand, padding, threads = factor.operand, sizes.column("padding"), sizes.column("threads")
    item = product.item_bytes if kind == "simt" else operand.element_bytes
    piece = max(1, ACCESS_BYTES // item)
    along = np.full(len(across), factor.along_k)
    inner = np.where(along, deep, across)
    lanes = np.gcd(factor.lanes, inner)
    none = np.zeros(len(across), dtype=bool)
    if kind == "wgmma":
        row = np.full(len(across), WGMMA_ROW_BYTES // item)
        rows = across * deep // row
        return Staged(factor, rows, row, row, row, rows * 0, ~none, ~none, none, item)
    if kind != "simt":
        lanes = np.gcd(lanes, piece)
    narrow = kind == "mma" and item != 2
    transposed = along if kind == "simt" else none if kind == "volta" else ~along & narrow
    same = operand.element_bytes == item and operand.dtype in ("f64", "f32", "f16", "bf16", "i8", "i32")
    deferred = (
        np.isin(lanes * item, (ASYNC_BYTES, 8, 16))
        & (across * deep // lanes >= threads)
        & (same and not factor.converted and target.compute_capability >= 80 and kind != "volta")
    )
    if kind == "simt":
        # A thread reads rows of a along K piece by piece; of b too would take too many registers.
        deferred &= (number == 0) or not factor.along_k
        in_rows = along & deferred
        transposed = along & ~deferred
        rows, columns = np.where(in_rows, across, deep), np.where(in_rows, deep, across)
        pitch = _rounded(columns + np.where(along, padding, 0), piece)
        swizzled = none
    elif kind == "mma":
        deferred &= ~transposed
        in_rows = along | transposed
        rows, columns = np.where(in_rows, across, deep), np.where(in_rows, deep, across)
        pieces = columns // piece
        swizzled = (padding == 0) & (pieces & (pieces - 1) == 0) & (columns % piece == 0)
        longer = np.where(padding > 0, padding, piece)
        pitch = np.where(swizzled, columns, _rounded(columns + longer, piece))
    else:
        rows, columns = np.where(along, across, deep), np.where(along, deep, across)
        # Four rows that quad pairs read together start 8 banks of 4 bytes apart.
        pitch = np.where(along, _rounded(deep, piece) + piece, across + (16 - across) % 64)
        swizzled = none
    count = -(-(across * deep // lanes) // threads)
    return Staged(factor, rows, columns, pitch, lanes, count, deferred, swizzled, transposed, item)


def _rounded(size: np.ndarray, multiple: int) -> np.ndarray:
    return -(-size // multiple) * multiple


def shared_bytes(
    product: Product, kind: str, sizes: Sizes, staged: Sequence[Staged], divided: np.ndarray
) -> np.ndarray:
    """Shared memory of a block as its kernel allocates it, where results are `divided` among blocks or not: [n]."""
    bm, bn, _ = sizes.block
    stages = sizes.column("stages")
    tiles = stages * (staged[0].nbytes + staged[1].nbytes)
    if kind == "wgmma":
        groups = bm // 64
        panels = (
            np.where(bn % (2 * _PANEL) == 0, 2, 1) * (product.out.dtype in ("f16", "bf16")) * (bn % 16 == 0)
        )
        flags = np.where(divided, groups * FLAG_BYTES, 0)
        return tiles + groups * panels * 64 * WGMMA_ROW_BYTES + 16 * stages + flags
    if kind == "simt":
        # The flag lies where tiles were.
        return tiles
    down, across = parts_of(kind, sizes)
    staging_bytes = SUM_BYTES * (bm // down) * (bn // across) * _STAGED_ROWS * (across + (8 - across) % 32)
    return np.maximum(tiles, staging_bytes) + np.where(divided, FLAG_BYTES, 0)


def registers_of(
    product: Product, kind: str, sizes: Sizes, staged: Sequence[Staged], target: Target
) -> np.ndarray:
    """32-bit registers of a thread: sums, fragments, addresses, and what waits to be stored into shared memory: [n]."""
    down, across = parts_of(kind, sizes)
    threads = sizes.column("threads")
    if kind == "wgmma":
        return wgmma_registers(across, threads)
    waiting = np.zeros(len(threads), dtype=np.int64)
    for own in staged:
        each = -(-own.lanes * own.factor.operand.element_bytes // 4)
        alone = own.lanes * own.factor.operand.element_bytes < ASYNC_BYTES
        # An element that is copied on its own needs its place and whether it is there as well.
        held = own.count * np.where(alone & (kind == "mma"), SCATTERED_REGISTERS, each)
        waiting += np.where(own.deferred, 0, held)
    if kind == "simt":
        return simt_registers(down, across, max(1, product.item_bytes // 4)) + waiting
    depth = INSTRUCTIONS[kind, "tf32" if product.gemm.dtype == "f32" else product.gemm.dtype][1][2]
    return mma_registers(down, across, depth * product.gemm.item_bytes, kind == "mma") + waiting


def read_conflicts(kind: str, staged: Staged, sizes: Sizes) -> np.ndarray:
    """Wavefronts of reads of a factor's rows, over those that their bytes need: [n]."""
    bytes_apart = staged.pitch * staged.item_bytes
    if kind == "wgmma":
        return np.ones(len(bytes_apart))
    if kind == "simt":
        # Only rows along K are read by lanes that are rows apart; others run through the banks.
        thread_n, bn = sizes.column("thread", 1), sizes.column("block", 1)
        wide = np.gcd(8, bn // thread_n)
        lane = np.arange(32)[None] // wide[:, None]
        found = wavefronts(lane * bytes_apart[:, None], ACCESS_BYTES)
        return np.where(staged.transposed | (not staged.factor.along_k), 1.0, found)
    lane = np.arange(32)[None] % 8
    eight = wavefronts(np.repeat(lane, len(bytes_apart), axis=0) * bytes_apart[:, None], ACCESS_BYTES)
    return np.where(staged.swizzled, 1.0, eight)


def store_conflicts(staged: Staged) -> np.ndarray:
    """Wavefronts of stores of what is turned on its way into shared memory, over those needed: [n]."""
    per_row = np.maximum(
        1, np.where(staged.factor.along_k, staged.rows, staged.columns) // np.maximum(1, staged.lanes)
    )
    lane = np.arange(32)[None]
    deep = lane % per_row[:, None] * staged.lanes[:, None]
    across = lane // per_row[:, None]
    places = (deep * staged.pitch[:, None] + across) * staged.item_bytes
    found = wavefronts(places.astype(np.int64), staged.item_bytes)
    return np.where(staged.transposed & ~staged.deferred, found, 1.0)
