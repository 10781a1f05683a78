"""The CPU's kernel families, one table: the loops that compute a reduction, the sizes to choose of, and those best first.

Each kind reads its loops off a reduction as it is cut, says which sizes these may have, and ranks them. What it says is
carried out by the pass of `passes/lower_cpu` that takes reductions so marked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.compiler.analysis.affine_access import map_dims, stride_along
from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.dialects.reduction_attribute import Sized
from tilewright.compiler.families.cpu.attention_loops import attention_loops
from tilewright.compiler.families.cpu.broadcast_loops import Broadcast
from tilewright.compiler.families.cpu.contiguous_loops import Contiguous
from tilewright.compiler.families.cpu.cut_reductions import CutReduction
from tilewright.compiler.families.cpu.dot_product import dot_types, tile_types
from tilewright.compiler.families.cpu.dots import Dots, DotTiles, tiled_rows
from tilewright.compiler.families.cpu.grouped_loops import Grouped
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.families.cpu.window_loops import Windows
from tilewright.compiler.families.cpu.winograd_products import Products, products_rule
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.attention_cut import AttentionLoops, AttentionShape
from tilewright.compiler.nouns.register_tiles import divisors, even_piece, packed_widths
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.attention_cut import attention_cuts
from tilewright.compiler.tuning.cpu.register_layers import Chains, Grid, Image, RegisterLayer, Steps
from tilewright.compiler.tuning.cpu.register_tile import (
    choose_register_tile,
    dot_tiles,
    rows_in_one_set,
    vector_load,
)
from tilewright.compiler.tuning.cpu.window_tile import window_tiles

Sizes = tuple[int, ...]
Extents = Sequence[Iterable[int]]
"""Of each loop of a reduction, the extents that it has under one tile or another."""

_MOST_VECTORS = 8
"""Vectors of a register tile's width, at most."""
_INTERLEAVED_VECTORS = 2
"""The same where columns are interleaved on the way: each costs a shuffle, which many rows have to share."""


@dataclass(frozen=True)
class Unsized:
    """Loops without sizes."""

    block: int | None = None

    def most(self) -> tuple[int, ...]:
        """No sizes."""
        return ()

    def accumulators(self, sizes: Sequence[int]) -> int:
        """What they take is not ours to say."""
        return 0


@dataclass(frozen=True)
class Held:
    """What registers hold of a reduction: the loop that each size steps along, None for none, and by how many steps."""

    layer: RegisterLayer
    loops: tuple[int | None, ...]
    units: tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """One way to compute reductions.

    `read` gives its loops in a reduction as it is cut, None where that has none; `ranked` their sizes, best first;
    `domains`, given the extents that the reduction's loops can have under any tile, the values that each size is
    chosen of; `held` what they keep in registers, None where sizes say nothing of that.
    """

    name: str
    read: Callable[[CutReduction, Target], Sized | None]
    ranked: Callable[[CutReduction, Any, Target], Iterable[Sizes]] = lambda cut, loops, target: ((),)
    domains: Callable[[CutReduction, Any, Target, Extents], tuple[Iterable[int], ...]] = lambda *_: ()
    held: Callable[[CutReduction, Any, Target], Held | None] = lambda cut, loops, target: None


def kinds_of(cut: CutReduction, target: Target) -> list[tuple[Kind, Sized]]:
    """The kinds of loops that can compute a reduction as it is cut, preferred first."""
    found = ((kind, kind.read(cut, target)) for kind in KINDS)
    return [(kind, loops) for kind, loops in found if loops is not None]


# Attention.


def _attention(cut: CutReduction, target: Target) -> AttentionLoops | None:
    if cut.op.name != ATTENTION:
        return None
    return attention_loops(Attention.read(cut.op), target.vector_bits, target.registers_per_thread)


def _attention_cuts(cut: CutReduction, loops: AttentionLoops, target: Target) -> Iterable[Sizes]:
    a = Attention.read(cut.op)
    shape = AttentionShape(math.prod(a.extents), a.rows, a.columns, a.inner, a.width, a.causal is not None)
    cuts = attention_cuts(shape, target.num_cores, loops.lanes, loops.registers, a.element.width // 8)
    return ((c.queries, c.vectors, c.keys, c.registers) for c in cuts)


def _attention_sizes(
    cut: CutReduction, loops: AttentionLoops, target: Target, extents: Extents
) -> tuple[Iterable[int], ...]:
    vectors = -(-loops.queries // loops.lanes)
    return (
        {-(-loops.queries // count) for count in range(1, vectors + 1)},
        range(1, min(vectors, _MOST_VECTORS) + 1),
        {min(loops.keys, -(-loops.keys // count // 4) * 4) for count in range(1, loops.keys + 1)},
        range(1, loops.registers + 1),
    )


# Register tiles: steps of an unrolled loop by elements of a vector loop.


def _register_sizes(
    extents: Extents, parallel: Sequence[int], vector: int, lanes: int, block: int | None, registers: int
) -> tuple[Iterable[int], ...]:
    """Steps of any loop beside that of the vectors; whole vectors, whole rows of few of them, divisors of a block."""
    others = [max(extents[loop]) for loop in parallel if loop != vector]
    most = max(extents[vector])
    widths = {lanes * vectors for vectors in range(1, _MOST_VECTORS + 1)}
    widths |= {1 << bit for bit in range(lanes.bit_length())}
    widths |= {extent for extent in extents[vector] if extent <= lanes * _MOST_VECTORS}
    if block is not None:
        widths = {*divisors(block), *(extent for extent in extents[vector] if extent < block)}
    return range(1, min(max(others, default=1), registers) + 1), {w for w in widths if w <= most}


def _winograd(cut: CutReduction, target: Target) -> Products | None:
    """The products of a convolution that Winograd's algorithm computes as it is cut; None for any other operation."""
    structure = cut.structure
    convolution = Convolution2d.read(cut.op) if structure is not None else None
    if structure is None or convolution is None or convolution.transforms is None:
        return None
    extents = tuple(structure.extents[loop] for loop in convolution.loops)
    block = convolution.block if convolution.packed else extents[3]
    taken = replace(convolution, extents=extents, block=block)
    start = structure.op.operands[2].owner
    filled = not isinstance(start, ir.Block) and start.operation.name == "linalg.fill"
    contiguous = all(strides[-1] == 1 for strides in structure.strides)
    if not filled or not contiguous or products_rule(taken, convolution.transforms, cut.last_starts):
        return None
    return Products.of(taken, convolution.transforms, target.vector_bits)


def _winograd_tile(cut: CutReduction, products: Products, target: Target) -> Iterable[Sizes]:
    most_rows, load = rows_in_one_set(4 * products.row, target), vector_load(target)
    registers = target.registers_per_thread
    tile = choose_register_tile(
        *products.most(), products.lanes, registers, None, most_rows, vector_load=load
    )
    return ((tile.unroll, tile.vector),)


def _winograd_held(cut: CutReduction, products: Products, target: Target) -> Held:
    # Rows are tiles of the image, which no loop of the convolution steps along.
    most_rows = rows_in_one_set(4 * products.row, target)
    layer = Grid(products.most(), products.lanes, most_rows, vector_load=vector_load(target))
    return Held(layer, (None, None), (1, 1))


def _winograd_sizes(
    cut: CutReduction, products: Products, target: Target, extents: Extents
) -> tuple[Iterable[int], ...]:
    tiles, filters = products.most()
    return _register_sizes(([tiles], [filters]), (0, 1), 1, products.lanes, None, target.registers_per_thread)


def _tiles(cut: CutReduction, target: Target) -> DotTiles | None:
    dots = Dots.of(cut.structure) if cut.structure is not None else None
    if dots is None or not dots.is_of(tile_types(target)) or tiled_rows(dots) is None:
        return None
    return DotTiles.of(dots)


def _dots(cut: CutReduction, target: Target) -> Dots | None:
    dots = Dots.of(cut.structure) if cut.structure is not None else None
    return dots if dots is not None and dots.is_of(dot_types(target)) else None


def _dots_tile(cut: CutReduction, dots: Dots, target: Target) -> Iterable[Sizes]:
    lanes = target.vector_bits // 32
    interleaved = tuple(lanes * vectors for vectors in range(1, _INTERLEAVED_VECTORS + 1))
    widths = interleaved if dots.block is None else packed_widths(dots.block, lanes)
    tile = choose_register_tile(*dots.most(), lanes, target.registers_per_thread, widths)
    return ((tile.unroll, tile.vector),)


def _dots_held(cut: CutReduction, dots: Dots, target: Target) -> Held:
    layer = Grid(dots.most(), target.vector_bits // 32, None, None if dots.block else _INTERLEAVED_VECTORS)
    return Held(layer, (dots.unrolled, dots.loops.vector), (1, 1))


def _dots_sizes(cut: CutReduction, dots: Dots, target: Target, extents: Extents) -> tuple[Iterable[int], ...]:
    lanes, registers = target.vector_bits // 32, target.registers_per_thread
    return _register_sizes(extents, dots.parallel, dots.loops.vector, lanes, dots.block, registers)


def _products(cut: CutReduction, target: Target) -> Broadcast | None:
    return Broadcast.read(cut.structure, target.vector_bits) if cut.structure is not None else None


def _products_tile(cut: CutReduction, b: Broadcast, target: Target) -> Iterable[Sizes]:
    assert cut.structure is not None
    widths = None if b.block is None else packed_widths(b.block, b.lanes)
    most_rows, load = _rows_side_by_side(cut.structure, b, target), vector_load(target)
    registers = target.registers_per_thread
    tile = choose_register_tile(*b.most(), b.lanes, registers, widths, most_rows, vector_load=load)
    return ((tile.unroll, tile.vector),)


def _products_held(cut: CutReduction, b: Broadcast, target: Target) -> Held:
    assert cut.structure is not None
    most_rows = _rows_side_by_side(cut.structure, b, target)
    layer = Grid(b.most(), b.lanes, most_rows, vector_load=vector_load(target))
    return Held(layer, (b.unroll_dim, b.vector_dim), (1, 1))


def _products_sizes(
    cut: CutReduction, b: Broadcast, target: Target, extents: Extents
) -> tuple[Iterable[int], ...]:
    assert cut.structure is not None
    parallel = cut.structure.parallel
    return _register_sizes(extents, parallel, b.vector_dim, b.lanes, b.block, target.registers_per_thread)


def _rows_side_by_side(structure: Structure, loops: Broadcast, target: Target) -> int | None:
    """How many steps of the unrolled loop keep what is broadcast in L1 side by side; None when any number does."""
    bounds = []
    for i, map_ in enumerate(structure.maps[:-1] if loops.unroll_dim is not None else ()):
        if loops.unroll_dim in map_dims(map_) and loops.vector_dim not in map_dims(map_):
            stride = stride_along(map_, loops.unroll_dim, structure.strides[i])
            bounds.append(rows_in_one_set(stride * structure.element_bits[i] // 8, target))
    return min((bound for bound in bounds if bound is not None), default=None)


# Windows, rows and groups.


def _windows(cut: CutReduction, target: Target) -> Windows | None:
    return Windows.read(cut.structure, target.vector_bits) if cut.structure is not None else None


def _window_tiles(cut: CutReduction, w: Windows, target: Target) -> Iterable[Sizes]:
    registers = target.registers_per_thread
    found = window_tiles(w.rows, w.columns, w.width, w.lanes, registers, w.weights, w.lane_step)
    return ((t.rows, t.columns, t.vectors) for t in found)


def _windows_held(cut: CutReduction, w: Windows, target: Target) -> Held:
    layer = Image(w.rows, w.columns, w.width, w.lanes, w.weights, w.lane_step)
    columns = None if w.columns_dim == w.vector_dim else w.columns_dim
    return Held(layer, (w.rows_dim, columns, w.vector_dim), (1, 1, w.lanes))


def _window_sizes(
    cut: CutReduction, w: Windows, target: Target, extents: Extents
) -> tuple[Iterable[int], ...]:
    rows, columns, vectors = w.most()
    return (
        range(1, min(rows, 4) + 1),
        range(1, min(columns, target.registers_per_thread) + 1),
        range(1, min(vectors, 4) + 1),
    )


def _groups(cut: CutReduction, target: Target) -> Grouped | None:
    return Grouped.read(cut.structure, target.vector_bits) if cut.structure is not None else None


def _group_steps(cut: CutReduction, groups: Grouped, target: Target) -> Iterable[Sizes]:
    most = max(1, target.registers_per_thread - groups.taps - 3)
    ranked = dict.fromkeys(even_piece(groups.steps, size) for size in range(most, 0, -1))
    return ((size,) for size in ranked)


def _groups_held(cut: CutReduction, groups: Grouped, target: Target) -> Held:
    return Held(Steps(groups.steps, groups.taps), (groups.row,), (1,))


def _group_sizes(
    cut: CutReduction, groups: Grouped, target: Target, extents: Extents
) -> tuple[Iterable[int], ...]:
    return (range(1, min(_widest(cut, extents), target.registers_per_thread) + 1),)


def _along(cut: CutReduction, target: Target) -> Contiguous | None:
    return Contiguous.read(cut.structure, target.vector_bits) if cut.structure is not None else None


def _along_tiles(cut: CutReduction, along: Contiguous, target: Target) -> Iterable[Sizes]:
    registers = target.registers_per_thread
    found = dot_tiles(along.rows, along.columns, along.steps, registers, along.reuses)
    return ((t.rows, t.columns, t.chains) for t in found)


def _along_held(cut: CutReduction, along: Contiguous, target: Target) -> Held:
    layer = Chains(along.rows, along.columns, along.steps, along.reuses)
    return Held(layer, (along.rows_dim, along.columns_dim, None), (1, 1, 1))


def _along_sizes(
    cut: CutReduction, along: Contiguous, target: Target, extents: Extents
) -> tuple[Iterable[int], ...]:
    steps = range(1, min(_widest(cut, extents), 8) + 1)
    columns = steps if along.columns_dim is not None else (1,)
    return steps, columns, [chains for chains in (1, 2, 4, 8) if chains <= along.most()[2]]


def _widest(cut: CutReduction, extents: Extents) -> int:
    """The longest that a loop of the result ever is: which one sizes are of depends on the tile."""
    parallel = cut.structure.parallel if cut.structure is not None else ()
    return max((max(extents[loop]) for loop in parallel), default=1)


KINDS: tuple[Kind, ...] = (
    Kind("attention", _attention, _attention_cuts, _attention_sizes),
    Kind("winograd", _winograd, _winograd_tile, _winograd_sizes, _winograd_held),
    Kind("tiles", _tiles),
    Kind("dots", _dots, _dots_tile, _dots_sizes, _dots_held),
    Kind("windows", _windows, _window_tiles, _window_sizes, _windows_held),
    Kind("groups", _groups, _group_steps, _group_sizes, _groups_held),
    Kind("products", _products, _products_tile, _products_sizes, _products_held),
    Kind("along", _along, _along_tiles, _along_sizes, _along_held),
    Kind("scalar", lambda cut, target: None if cut.op.name == ATTENTION else Unsized()),
)
"""Preferred first: the first that a reduction has computes it where its schedule says nothing."""
