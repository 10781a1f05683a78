"""Element-wise and windowed kernels: every element of the results is computed by one thread from the dispatch's buffers.

    grid of blocks x threads x vectors per thread x lanes covers the points of a result in the order of memory

Points are numbered; a thread computes `lanes` consecutive ones at a time, so that reads and writes in the order of
memory are vectors of 16 bytes, and several such vectors, a block apart from each other, to have more reads under way.
What is left over when lanes do not divide the points is done one by one by a block of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.compiler.analysis.placement import STRIDES, dense_strides
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.elementwise import views as views
from tilewright.compiler.families.elementwise.access import Access, Buffer, cost, store_lanes
from tilewright.compiler.families.elementwise.elements import Elements
from tilewright.compiler.families.elementwise.positions import Flat, Position, loop_digits
from tilewright.compiler.families.elementwise.scalars import Unwritable
from tilewright.compiler.families.elementwise.scatter import THREADS, Scatter, scatter_of, write_scatter
from tilewright.compiler.families.elementwise.transpose import Boxes, boxes
from tilewright.compiler.families.elementwise.transpose_boxes import Box, write_box
from tilewright.compiler.families.elementwise.window import ONE_POINT, Tile, is_window, sums_along_rows, tile
from tilewright.compiler.gpu import builder
from tilewright.compiler.gpu.alignment import FULL_BYTES, buffer_alignments
from tilewright.compiler.ir import ir, memref, static_shape
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.package.plan import dtype_name
from tilewright.compiler.targets.target import Target
from tilewright.runtime.program import ITEM_BYTES

_LANES = (16, 8, 4, 2, 1)
"""Elements of one vector: up to 16 bytes of the shortest type."""
_THREADS = 256
_FEWEST_THREADS = 64
_MOST_GIVEN = 8
"""Vectors per thread that a schedule can ask for: more would not fit into registers."""
_MOST_STAGED = 2
"""Results that go through shared memory at once: more would need more of it than a block may have by default."""
_MOST_VECTORS = 4
"""Vectors per thread: 64 bytes of every operand under way."""


def emit(function: ir.Operation, schedule: Schedule, target: Target) -> ir.Module:
    """The kernel of a dispatch whose only reductions run over small windows; raises Unwritable for other dispatches."""
    with function.context, function.location:
        return _emit(function, schedule, target)


def match(function: ir.Operation, target: Target) -> ir.Operation:
    """The dispatch; whether the family takes it is known when it is written."""
    return function


@dataclass(frozen=True)
class Part:
    """Points that are computed together: the extents of their loops, results stored, operations run for their checks.

    `window` is the reduction that they are computed from, if there is one.
    """

    extents: tuple[int, ...]
    results: tuple[int, ...] = ()
    checked: Structured | None = None
    window: Structured | None = None

    @property
    def points(self) -> int:
        return math.prod(self.extents)


@dataclass(frozen=True)
class Cover:
    """How a part is dealt out: blocks of `threads`, each with `vectors` times `lanes` tiles; `rest` tiles follow.

    `points` counts tiles, of one point each unless windows overlap.
    """

    lanes: int
    vectors: int
    threads: int
    points: int
    tile: Tile = ONE_POINT
    is_window: bool = False

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        results = self.threads * self.vectors * self.lanes * self.tile.size
        if self.is_window:
            thread = (self.tile.size, self.lanes)
            return GpuTile("windows", self.threads, (results,), thread=thread, vector=self.lanes)
        return GpuTile("elementwise", self.threads, (results,), vector=self.lanes)

    @property
    def groups(self) -> int:
        """Vectors that are whole."""
        return self.points // self.lanes

    @property
    def rest(self) -> int:
        return self.points % self.lanes

    @property
    def blocks(self) -> int:
        return -(-self.groups // (self.threads * self.vectors)) + -(-self.rest // self.threads)

    @property
    def is_exact(self) -> bool:
        return self.groups % (self.threads * self.vectors) == 0


@dataclass
class Dispatch:
    """A dispatch as this family reads it: its buffers' types, its results, and its parts."""

    function: ir.Operation
    inputs: list[ir.Value]
    results: list[ir.Value]
    types: list[ir.MemRefType]
    strides: list[tuple[int, ...]]
    alignments: list[int]
    parts: list[Part] = field(default_factory=list)

    def buffers(self, memory: Sequence[ir.Value]) -> list[Buffer]:
        """Buffers whose memrefs are the kernel's arguments, each seen as one dimension; written at the insertion point."""
        found = []
        tensors = [value.type for value in (*self.inputs, *self.results)]
        for number, (tensor, argument) in enumerate(zip(tensors, memory)):
            element = ir.RankedTensorType(tensor).element_type
            item = ITEM_BYTES[dtype_name(element)]
            flat = _flat(argument, static_shape(tensor), self.strides[number])
            found.append(Buffer(number, flat, self.strides[number], element, item, self.alignments[number]))
        return found


def _emit(function: ir.Operation, schedule: Schedule, target: Target) -> ir.Module:
    dispatch = read(function)
    sink = scatter_of(function)
    if sink is not None:
        return _emit_scatter(dispatch, Scatter.read(sink), target)
    messages, accesses = trace(dispatch)
    given = schedule.gpu or GpuTile()
    boxed = _boxed(dispatch, accesses, target) if given.kernel in ("", "transpose") else None
    if boxed is not None:
        return _emit_boxes(dispatch, boxed, schedule, messages)
    main = max(range(len(accesses)), key=lambda number: dispatch.parts[number].points)
    largest = cover(dispatch.parts[main], accesses[main], schedule, target)
    # A schedule is about most of the points; what else is computed follows with as many threads.
    others = Schedule(gpu=GpuTile(threads=largest.threads))
    covers = [
        largest if number == main else cover(part, accesses[number], others, target)
        for number, part in enumerate(dispatch.parts)
    ]
    name = ir.StringAttr(function.attributes["sym_name"]).value
    grid = sum(own.blocks for own in covers)
    with builder.kernel(
        name, dispatch.types, grid=grid, block=largest.threads, asserts=messages, made=largest.gpu
    ) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        first = 0
        for part, own in zip(dispatch.parts, covers):
            _write_part(dispatch, part, own, buffers, kernel.status, list(messages), first, len(covers) > 1)
            first += own.blocks
    return kernel.module


def _boxed(dispatch: Dispatch, accesses: Sequence[Sequence[Access]], target: Target) -> Boxes | None:
    """The boxes of a dispatch whose results cross its operands in memory; None for others."""
    if len(dispatch.parts) > 1 or not dispatch.parts[0].results:
        return None
    results = [a.buffer for a in accesses[0] if a.writes]
    found = boxes(dispatch.parts[0].extents, accesses[0], results[0], target.num_cores)
    same = all(b.strides == results[0].strides for b in results)
    return found if found is not None and same and len(results) <= _MOST_STAGED else None


def _emit_boxes(dispatch: Dispatch, boxed: Boxes, schedule: Schedule, messages: Sequence[str]) -> ir.Module:
    name = ir.StringAttr(dispatch.function.attributes["sym_name"]).value
    threads = (schedule.gpu.threads if schedule.gpu is not None else 0) or _THREADS
    with builder.kernel(
        name,
        dispatch.types,
        grid=boxed.blocks,
        block=threads,
        asserts=list(messages),
        made=GpuTile("transpose"),
    ) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        results = list(zip(dispatch.results, buffers[len(dispatch.inputs) :]))
        write_box(
            Box(boxed, builder.block_id()),
            threads,
            results,
            lambda lanes: _elements(dispatch, buffers, lanes, list(messages), kernel.status),
        )
    return kernel.module


def _emit_scatter(dispatch: Dispatch, scatter: Scatter, target: Target) -> ir.Module:
    name = ir.StringAttr(dispatch.function.attributes["sym_name"]).value
    blocks = scatter.blocks(target.num_cores)
    if dispatch.strides[-1] != dense_strides(scatter.shape):
        raise Unwritable("a scatter into a part of a tensor")
    with builder.kernel(name, dispatch.types, grid=blocks, block=THREADS, made=GpuTile("scatter")) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        write_scatter(scatter, blocks, _elements(dispatch, buffers, 1, [], None), buffers[-1])
    return kernel.module


def read(function: ir.Operation) -> Dispatch:
    """Takes a dispatch apart; raises Unwritable where it is none of this family."""
    block = function.regions[0].blocks[0]
    *ops, terminator = (view.operation for view in block.operations)
    inputs, results = list(block.arguments), list(terminator.operands)
    structured = [Structured.read(op) if op.name == "linalg.generic" else None for op in ops]
    windows = [s for s in structured if s is not None and not s.is_elementwise]
    if len(windows) > 1 or not all(map(is_window, windows)):
        raise Unwritable("a reduction")
    strides, types = [], []
    attributes = [
        *_attributes(function, "arg_attrs", len(inputs)),
        *_attributes(function, "res_attrs", len(results)),
    ]
    for value, own in zip((*inputs, *results), attributes):
        if not isinstance(value.type, ir.RankedTensorType):
            raise Unwritable("an argument that is no tensor")
        element = ir.RankedTensorType(value.type).element_type
        if not isinstance(element, (ir.FloatType, ir.IntegerType)):
            raise Unwritable(f"elements of type {element}")
        layout = None
        strides.append(dense_strides(static_shape(value.type)))
        if STRIDES in own:
            strides[-1] = tuple(ir.DenseI64ArrayAttr(own[STRIDES]))
            layout = ir.StridedLayoutAttr.get(0, list(strides[-1]))
        stored = ir.IntegerType.get_signless(8) if _is_boolean(element) else element
        types.append(ir.MemRefType.get(static_shape(value.type), stored, layout))
    dispatch = Dispatch(function, inputs, results, types, strides, buffer_alignments(function))
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for number, value in enumerate(results):
        by_shape.setdefault(static_shape(value.type), []).append(number)
    window = windows[0] if windows else None
    dispatch.parts += [Part(shape, tuple(numbers), None, window) for shape, numbers in by_shape.items()]
    if window is not None and any(_repeats(part, window) for part in dispatch.parts):
        raise Unwritable("a reduction that several results need")
    dispatch.parts += [
        Part(s.extents, checked=s) for s in structured if s is not None and not len(s.op.results)
    ]
    dispatch.parts = [part for part in dispatch.parts if part.points]
    if not dispatch.parts:
        raise Unwritable("a dispatch of no points")
    return dispatch


def _repeats(part: Part, window: Structured) -> bool:
    """Whether there are more points than sums."""
    sums = math.prod(n for n, kind in zip(window.extents, window.kinds) if kind == "parallel")
    return part.points > sums


def trace(dispatch: Dispatch) -> tuple[list[str], list[list[Access]]]:
    """The messages of run-time checks, and the accesses of every part, from a kernel that is thrown away."""
    messages: list[str] = []
    found = []
    with builder.kernel("trace", dispatch.types, grid=1, block=32) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        for part in dispatch.parts:
            elements = _elements(dispatch, buffers, 1, messages, None)
            point = builder.thread_id().value
            with builder.if_(True):
                elements.bases[0] = point
                _stores(
                    dispatch, part, elements, buffers, [loop_digits(Flat(0, part.points, 1), part.extents)]
                )
            found.append(elements.accesses)
    return messages, found


def cover(part: Part, accesses: Sequence[Access], schedule: Schedule, target: Target) -> Cover:
    """How a part is dealt out: as the schedule says, and where it leaves a choice, as accesses and cores ask for.

    Lanes are the widest that make accesses cheap; vectors per thread as many as leave every core enough blocks.
    Raises ScheduleError for lanes that no vector has, and for blocks that are no whole vectors of every thread.
    """
    given = schedule.gpu or GpuTile()
    lanes = given.vector or _lanes(part, accesses)
    if lanes not in _LANES:
        raise ScheduleError(
            f"gpu.vector is {lanes}; threads access {', '.join(map(str, _LANES))} elements at once"
        )
    threads = given.threads or _THREADS
    groups = max(1, part.points // lanes)
    while not given.threads and threads > _FEWEST_THREADS and groups < threads * target.num_cores:
        threads //= 2
    if part.window is not None:
        small = _tile(part, lanes, given.thread[0] if given.thread else 0, target)
        return Cover(lanes, 1, threads, part.points // small.size, small, True)
    if given.block:
        vectors, left = divmod(given.block[0], threads * lanes)
        if left or not 1 <= vectors <= _MOST_GIVEN:
            raise ScheduleError(
                f"gpu.block is {list(given.block)}; {threads} threads take 1 to {_MOST_GIVEN} vectors of {lanes} results "
                "each"
            )
        return Cover(lanes, vectors, threads, part.points)
    if any(schedule.tile) and len(schedule.tile) == len(part.extents):
        block = math.prod(size or extent for size, extent in zip(schedule.tile, part.extents))
        return Cover(lanes, min(_MOST_GIVEN, max(1, block // (threads * lanes))), threads, part.points)
    widest = max((lanes * a.buffer.item_bytes for a in accesses), default=FULL_BYTES)
    most = max(1, _MOST_VECTORS * FULL_BYTES // max(FULL_BYTES, widest)) if lanes > 1 else 2 * _MOST_VECTORS
    vectors = 1
    while vectors < most and groups >= 2 * vectors * threads * target.num_cores * 2:
        vectors *= 2
    return Cover(lanes, vectors, threads, part.points)


def _tile(part: Part, lanes: int, asked: int, target: Target) -> Tile:
    """The tile of a windowed part, of `asked` neighbours where that is not 0; none where its results do not lie as the
    window's sums do.
    """
    window = part.window
    if window is None or part.points % lanes:
        return Tile()
    shape = static_shape(window.op.results[0].type)
    return tile(window, shape, lanes, asked, target.num_cores) if shape == part.extents else Tile()


def _lanes(part: Part, accesses: Sequence[Access]) -> int:
    candidates = [lanes for lanes in _LANES if lanes == 1 or part.points >= 2 * lanes]
    return min(candidates, key=lambda lanes: (sum(cost(a, lanes) for a in accesses), -lanes))


def _write_part(
    dispatch: Dispatch,
    part: Part,
    own: Cover,
    buffers: list[Buffer],
    status: ir.Value | None,
    messages: list[str],
    first_block: int,
    is_one_of_several: bool,
) -> None:
    block = builder.block_id()
    main = own.blocks - -(-own.rest // own.threads)
    number = block - first_block
    several = is_one_of_several or bool(own.rest and main)

    def among(low: int, high: int) -> builder.Operand:
        return (block - low < high - low) if several else True

    with builder.if_(among(first_block, first_block + main) if main else False):
        if main:
            elements = _elements(dispatch, buffers, own.lanes, messages, status)
            start = number * (own.threads * own.vectors) + builder.thread_id()
            points, alive = [], []
            for vector in range(own.vectors):
                group = start + vector * own.threads
                alive.append(True if own.is_exact else group < own.groups)
                group = group if own.is_exact else builder.minimum(group, own.groups - 1)
                elements.bases[vector] = builder.raw(group * own.lanes)
                tiles = own.tile.loops(Flat(vector, own.points, own.lanes), part.extents)
                points += tiles
                alive += [alive.pop()] * len(tiles)
            _stores(dispatch, part, elements, buffers, points, alive)
    if own.rest:
        with builder.if_(among(first_block + main, first_block + own.blocks)):
            elements = _elements(dispatch, buffers, 1, messages, status)
            point = (number - main) * own.threads + builder.thread_id()
            alive = [point < own.rest]
            elements.bases[0] = builder.raw(builder.minimum(point, own.rest - 1) + (part.points - own.rest))
            _stores(
                dispatch, part, elements, buffers, own.tile.loops(Flat(0, own.points, 1), part.extents), alive
            )


def _stores(
    dispatch: Dispatch,
    part: Part,
    elements: Elements,
    buffers: list[Buffer],
    points: Sequence[list[Position]],
    alive: Sequence[builder.Operand] = (True,),
) -> None:
    """Computes everything at all `points`, given by their loops, then stores what is `alive`."""
    pending = []
    for loops in points:
        if part.checked is not None:
            elements.body(part.checked, loops)
        own = []
        for result in part.results:
            tensor = dispatch.results[result]
            buffer = buffers[len(dispatch.inputs) + result]
            own.append((buffer, loops, elements.all_lanes(elements.of(tensor, loops), buffer.element)))
        pending.append(own)
    for own, holds in zip(pending, alive):
        if not own:
            continue
        condition = builder.Value(holds.value) if isinstance(holds, builder.Value) else holds
        with builder.if_(condition), elements.scope():
            for buffer, loops, values in own:
                store_lanes(elements, buffer, loops, values)


def _elements(
    dispatch: Dispatch, buffers: list[Buffer], lanes: int, messages: list[str], status: ir.Value | None
) -> Elements:
    elements = Elements(dict(zip(dispatch.inputs, buffers)), lanes, messages, status)
    elements.reads_neighbours = any(part.window and sums_along_rows(part.window) for part in dispatch.parts)
    return elements


def _flat(argument: ir.Value, shape: Sequence[int], strides: Sequence[int]) -> ir.Value:
    """The elements of a memref as one dimension, up to the last one."""
    size = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if math.prod(shape) else 0
    element = ir.MemRefType(argument.type).element_type
    type_ = ir.MemRefType.get([size], element)
    if type_ == argument.type:
        return argument
    return memref.reinterpret_cast(type_, argument, [], [], [], [0], [size], [1])


def _is_boolean(element: ir.Type) -> bool:
    return isinstance(element, ir.IntegerType) and element.width == 1


def _attributes(function: ir.Operation, name: str, count: int) -> list[ir.DictAttr]:
    if name not in function.attributes:
        return [ir.DictAttr.get({})] * count
    return [ir.DictAttr(entry) for entry in function.attributes[name]]
