"""How many channels the data of a contraction is stored with on a GPU, so that it is copied in wide accesses.

    sum over i, j, c of x[n, 2h + i, 2w + j, c] f[i, j, c, o],  3 channels of f16:  pixels of 6 B, copied element by element
    with a fourth, of zeros, in x and in f:                                         pixels of 8 B, one asynchronous copy

More channels are more to multiply, to load and to write; fewer accesses copy them. The model of contractions weighs
both (`gemm_model.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.gpu.gemm_candidates import ALIKE, gemm_choices
from tilewright.compiler.tuning.gpu.gemm_tiles import kinds
from tilewright.compiler.tuning.model.gemm_model import ASYNC_BYTES
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES, Gemm, sum_of
from tilewright.compiler.tuning.model.rates import dram_gbps
from tilewright.compiler.tuning.roller.options import ConstructOptions


@dataclass(frozen=True)
class ChanneledGemm:
    """Sums over channels, which lie side by side in the data, and over `taps` pixels; a pixel is all channels of a place.

    `batch` products of [m, taps * channels] and [taps * channels, n] in `dtype`; the weights lie along n. The data has
    `pixels`. Sums run through `run` pixels one after the other (a window's row); every other loop moves through
    the data by one of `steps` pixels. `copied` says that the data is copied before it is read anyway.
    """

    batch: int
    m: int
    n: int
    taps: int
    channels: int
    dtype: str
    pixels: int
    run: int
    steps: tuple[int, ...]
    copied: bool

    @property
    def item_bytes(self) -> int:
        return BITS[self.dtype] // 8

    def gemm(self, channels: int) -> Gemm:
        """The product that it is with so many channels."""
        item, k = self.item_bytes, self.taps * channels
        lanes = ACCESS_BYTES // item
        moves = [step * channels for step in self.steps]
        a_vector, b_vector = _dividing(lanes, [self.run * channels, *moves]), _dividing(lanes, [self.n])
        # Tensor maps have a dimension of their own for the channels of windows that overlap (`hopper_maps.py`).
        overlap = any(step < self.run for step in self.steps)
        row = channels if overlap else self.run * channels
        aligned = all(extent % lanes == 0 for extent in (row, *moves, self.n))
        return Gemm(
            self.batch, self.m, self.n, k, self.dtype, "k", "n", a_vector, b_vector, self.pixels * channels * item,
            self.batch * k * self.n * item, item, tensor_maps=aligned, sum_dtype=sum_of(self.dtype),
            run=row if row < k else 0,
        )  # fmt: skip

    @property
    def wider(self) -> list[int]:
        """Numbers of channels, more than there are, that fill whole accesses of 4, 8 and 16 bytes."""
        sizes = (nbytes // self.item_bytes for nbytes in (ASYNC_BYTES, 8, ACCESS_BYTES))
        return sorted({-(-self.channels // size) * size for size in sizes if size} - {self.channels})


def stored_channels(product: ChanneledGemm, target: Target, precision: str = "f32") -> int:
    """The channels to store, the own number where no more pay; for targets that multiply `dtype` with matrix units.

    `precision` is what contractions of f32 compute in.
    """
    dtype = "tf32" if precision == "tf32" and product.dtype == "f32" else product.dtype
    own = product.gemm(product.channels)
    if kinds(target, dtype) == ("simt",) or own.a_vector * own.item_bytes >= ACCESS_BYTES:
        return product.channels
    best, least_us = product.channels, _us(product, product.channels, target, precision) / ALIKE
    for channels in product.wider:
        us = _us(product, channels, target, precision)
        if us < least_us:
            best, least_us = channels, us
    return best


def _us(product: ChanneledGemm, channels: int, target: Target, precision: str) -> float:
    """Microseconds of the product, and of what storing so many channels adds to copying its data."""
    choices = gemm_choices(product.gemm(channels), target, _ONE, precision)
    if channels == product.channels:
        return choices[0].us
    moved = channels - product.channels if product.copied else channels + product.channels
    copy_us = product.pixels * moved * product.item_bytes / dram_gbps(target) / 1e3
    return choices[0].us + copy_us + (0.0 if product.copied else target.start_us)


_ONE = ConstructOptions(top_k=1)


def _dividing(limit: int, extents: list[int]) -> int:
    """The largest power of two up to `limit` that divides all extents."""
    while limit > 1 and any(extent % limit for extent in extents):
        limit //= 2
    return limit
