"""Completes a CPU's schedules: how each reduction of a dispatch is computed, decided on what one rTask will have of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.analysis.affine_access import map_dims, stride_along
from tilewright.compiler.analysis.sink import outside
from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.dialects.reduction_attribute import Sized, broken, reductions_of
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.attention_loops import attention_loops
from tilewright.compiler.families.cpu.broadcast_loops import Broadcast
from tilewright.compiler.families.cpu.contiguous_loops import Contiguous
from tilewright.compiler.families.cpu.cut_reductions import cut_reductions
from tilewright.compiler.families.cpu.dot_product import dot_types, tile_types
from tilewright.compiler.families.cpu.dots import Dots, tiled_rows
from tilewright.compiler.families.cpu.grouped_loops import Grouped
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.families.cpu.window_loops import Windows
from tilewright.compiler.families.cpu.winograd_products import Products, products_rule
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.register_tiles import even_piece, packed_widths
from tilewright.compiler.nouns.schedule import LOOPS, Reduction, Schedule
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.attention_cut import AttentionShape, attention_cuts
from tilewright.compiler.tuning.cpu.register_tile import choose_register_tile, dot_tiles, rows_in_one_set
from tilewright.compiler.tuning.cpu.window_tile import window_tiles

REGISTER_TILED = ("products", "dots", "winograd")
"""Loops whose sizes are `unroll` and `vector`."""


@dataclass(frozen=True)
class Choice:
    """The loops that compute one reduction best, and their sizes, best first; `loops` is None for those without sizes."""

    kind: str
    loops: Sized | None = None
    ranked: tuple[tuple[int, ...], ...] = ((),)

    def reduction(self, rank: int = 0) -> Reduction:
        """With the sizes of a rank, the last there are where there are fewer."""
        return Reduction(self.kind, self.ranked[min(rank, len(self.ranked) - 1)])


def complete(function: ir.Operation, schedule: Schedule, target: Target) -> Schedule:
    """The schedule with everything that the dispatch's kernel is made of on a CPU.

    `unroll` and `vector`, where they are not 0, become the sizes of its register tiles. Raises ScheduleError where it
    has none, or none of these sizes, and for a tile of what cannot be cut.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    left = outside(function) if any(schedule.tile) else None
    if left is not None:
        raise ScheduleError(
            f"dispatch @{name}: illegal schedule: tile is {list(schedule.tile)}, but `{left.name}` would stand outside of "
            "the grid of rTasks; use tile = []",
            left.location,
        )
    if schedule.reductions:
        return schedule
    choices = choose(function, schedule.tile, target)
    if schedule.unroll or schedule.vector:
        rule = _broken_wish(schedule, choices, target)
        if rule is not None:
            raise ScheduleError(f"dispatch @{name}: illegal schedule: {rule}", function.location)
    found = tuple(_wished(choice.reduction(), schedule) for choice in choices)
    return replace(schedule, unroll=0, vector=0, reductions=found)


def others(
    function: ir.Operation, tile: tuple[int, ...], target: Target
) -> Iterator[tuple[Reduction, ...]] | None:
    """What else the reductions of a dispatch can be, best first; None where `unroll` and `vector` say it all."""
    choices = choose(function, tile, target)
    if any(choice.kind in REGISTER_TILED for choice in choices):
        return None
    count = max((len(choice.ranked) for choice in choices), default=0)
    return (tuple(choice.reduction(rank) for choice in choices) for rank in range(1, count))


def choose(function: ir.Operation, tile: tuple[int, ...], target: Target) -> list[Choice]:
    """The loops of every reduction of a dispatch that is cut into tiles of its sink's loops."""
    with function.context, function.location:
        cut = cut_reductions(function, tile)
        return [
            _choose_cut(op, target)
            if op.name == ATTENTION
            else choose_loops(structure, target, cut.last_starts)
            for op, structure in zip(reductions_of(function), cut.reductions)
        ]


def _choose_cut(op: ir.Operation, target: Target) -> Choice:
    """The cuts of attention."""
    a = Attention.read(op)
    shape = AttentionShape(math.prod(a.extents), a.rows, a.columns, a.inner, a.width, a.causal is not None)
    loops = attention_loops(a, target.vector_bits, target.registers_per_thread)
    cuts = attention_cuts(shape, target.num_cores, loops.lanes, loops.registers, a.element.width // 8)
    return Choice("attention", loops, tuple((c.queries, c.vectors, c.keys, c.registers) for c in cuts))


def choose_loops(structure: Structure | None, target: Target, last_starts: tuple[int, ...] = ()) -> Choice:
    """The loops of one reduction, of rTasks the last of which overlap their neighbours from `last_starts` on."""
    if structure is None:
        return Choice("scalar")
    bits, registers = target.vector_bits, target.registers_per_thread
    products = _winograd(structure, last_starts, bits)
    if products is not None:
        most_rows = rows_in_one_set(4 * products.row)
        tile = choose_register_tile(*products.most(), products.lanes, registers, None, most_rows)
        return Choice("winograd", products, ((tile.unroll, tile.vector),))
    dots = Dots.of(structure)
    if dots is not None and dots.is_of(tile_types(target)) and tiled_rows(dots) is not None:
        return Choice("tiles")
    if dots is not None and dots.is_of(dot_types(target)):
        lanes = bits // 32
        # Columns that are interleaved on the way cost a shuffle each, which many rows have to share.
        widths = (lanes, 2 * lanes) if dots.block is None else packed_widths(dots.block, lanes)
        tile = choose_register_tile(*dots.most(), lanes, registers, widths)
        return Choice("dots", dots, ((tile.unroll, tile.vector),))
    windows = Windows.read(structure, bits)
    if windows is not None:
        w = windows
        tiles = window_tiles(w.rows, w.columns, w.width, w.lanes, registers, w.weights, w.lane_step)
        return Choice("windows", w, tuple((t.rows, t.columns, t.vectors) for t in tiles))
    groups = Grouped.read(structure, bits)
    if groups is not None:
        most = max(1, registers - groups.taps - 3)
        ranked = dict.fromkeys(even_piece(groups.steps, size) for size in range(most, 0, -1))
        return Choice("groups", groups, tuple((size,) for size in ranked))
    broadcast = Broadcast.read(structure, bits)
    if broadcast is not None:
        b = broadcast
        widths = None if b.block is None else packed_widths(b.block, b.lanes)
        tile = choose_register_tile(*b.most(), b.lanes, registers, widths, _rows_side_by_side(structure, b))
        return Choice("products", b, ((tile.unroll, tile.vector),))
    along = Contiguous.read(structure, bits)
    if along is not None:
        found = dot_tiles(along.rows, along.columns, along.steps, registers, along.reuses)
        return Choice("along", along, tuple((t.rows, t.columns, t.chains) for t in found))
    return Choice("scalar")


def _winograd(structure: Structure, last_starts: tuple[int, ...], vector_bits: int) -> Products | None:
    """The products of a convolution that Winograd's algorithm computes as it is cut; None for any other operation."""
    convolution = Convolution2d.read(structure.op)
    if convolution is None or convolution.transforms is None:
        return None
    extents = tuple(structure.extents[loop] for loop in convolution.loops)
    block = convolution.block if convolution.packed else extents[3]
    taken = replace(convolution, extents=extents, block=block)
    start = structure.op.operands[2].owner
    filled = not isinstance(start, ir.Block) and start.operation.name == "linalg.fill"
    contiguous = all(strides[-1] == 1 for strides in structure.strides)
    if not filled or not contiguous or products_rule(taken, convolution.transforms, last_starts):
        return None
    return Products.of(taken, convolution.transforms, vector_bits)


def _rows_side_by_side(structure: Structure, loops: Broadcast) -> int | None:
    """How many steps of the unrolled loop keep what is broadcast in L1 side by side; None when any number does."""
    bounds = []
    for i, map_ in enumerate(structure.maps[:-1] if loops.unroll_dim is not None else ()):
        if loops.unroll_dim in map_dims(map_) and loops.vector_dim not in map_dims(map_):
            stride = stride_along(map_, loops.unroll_dim, structure.strides[i])
            bounds.append(rows_in_one_set(stride * structure.element_bits[i] // 8))
    return min((bound for bound in bounds if bound is not None), default=None)


def _wished(reduction: Reduction, schedule: Schedule) -> Reduction:
    """A register tile with what `unroll` and `vector` say instead of its own sizes; others as they are."""
    if reduction.loops not in REGISTER_TILED:
        return reduction
    wishes = zip((schedule.unroll, schedule.vector), reduction.sizes)
    return replace(reduction, sizes=tuple(wish or size for wish, size in wishes))


def _broken_wish(schedule: Schedule, choices: Sequence[Choice], target: Target) -> str | None:
    """The first rule that `unroll` and `vector` break; None where they keep all."""
    tiled = [choice for choice in choices if choice.kind in REGISTER_TILED]
    if not tiled:
        field, size = ("unroll", schedule.unroll) if schedule.unroll else ("vector", schedule.vector)
        return f"{field} is {size}, but nothing in it has a register tile to choose; use 0"
    for choice in tiled:
        assert choice.loops is not None and LOOPS[choice.kind] == ("unroll", "vector")
        rule = broken(_wished(choice.reduction(), schedule), choice.loops, target.registers_per_thread)
        if rule is not None:
            return rule
    return None
