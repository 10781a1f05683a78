"""Element-wise and windowed kernels: every element of the results is computed by one thread from the dispatch's buffers.

    grid of blocks x threads x vectors per thread x lanes covers the points of a result in the order of memory

Points are numbered; a thread computes `lanes` consecutive ones at a time, so that reads and writes in the order of
memory are vectors of 16 bytes, and several such vectors, a block apart from each other, to have more reads under way.
What is left over when lanes do not divide the points is done one by one by a block of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.compiler import debug
from tilewright.compiler.analysis.placement import STRIDES, dense_strides
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.elementwise import views as views
from tilewright.compiler.families.elementwise.access import Access, Buffer, store_lanes
from tilewright.compiler.families.elementwise.cover import Cover, Part, cover_of, cover_rules
from tilewright.compiler.families.elementwise.elements import Elements
from tilewright.compiler.families.elementwise.positions import Flat, Position, loop_digits
from tilewright.compiler.families.elementwise.scalars import Unwritable
from tilewright.compiler.families.elementwise.scatter import Scatter, scatter_of, write_scatter
from tilewright.compiler.families.elementwise.transpose import Crossing, boxes_of, crossing
from tilewright.compiler.families.elementwise.transpose_boxes import Box, write_box
from tilewright.compiler.families.elementwise.window import is_window, sums_along_rows
from tilewright.compiler.families.tile_space import refuse_broken, whole_warps
from tilewright.compiler.gpu import builder
from tilewright.compiler.gpu.alignment import buffer_alignments
from tilewright.compiler.ir import ir, memref, static_shape
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Columns, Constraint, by_values, rule
from tilewright.compiler.package.plan import dtype_name
from tilewright.compiler.targets.target import Target
from tilewright.runtime.program import ITEM_BYTES

MOST_STAGED = 2
"""Results that go through shared memory at once: more would need more of it than a block may have by default."""
MOST_BOX = 8192
"""Results of a box, whose points are written out one turn of the threads after the other."""


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


@dataclass(frozen=True)
class Elementwise:
    """A dispatch whose elements this family computes: `scatter` where it is one, else what is checked and accessed.

    `accesses` are those of every part. `differs_by_lane` where index arithmetic may hold for some vectors only.
    """

    dispatch: Dispatch
    scatter: Scatter | None = None
    messages: tuple[str, ...] = ()
    accesses: tuple[tuple[Access, ...], ...] = ()
    differs_by_lane: bool = False

    @property
    def name(self) -> str:
        return ir.StringAttr(self.dispatch.function.attributes["sym_name"]).value

    @property
    def main(self) -> int:
        """The number of the part with most points."""
        return max(range(len(self.accesses)), key=lambda number: self.dispatch.parts[number].points)

    @property
    def crossing(self) -> Crossing | None:
        """How results cross operands in memory, where a kernel of boxes can compute them."""
        if self.scatter is not None or len(self.dispatch.parts) > 1 or not self.dispatch.parts[0].results:
            return None
        results = [a.buffer for a in self.accesses[0] if a.writes]
        same = all(b.strides == results[0].strides for b in results)
        if not same or len(results) > MOST_STAGED:
            return None
        return crossing(self.dispatch.parts[0].extents, self.accesses[0], results[0])


def match(function: ir.Operation, target: Target) -> Elementwise:
    """A dispatch whose only reductions run over small windows; raises Unwritable for others."""
    dispatch = read(function)
    sink = scatter_of(function)
    if sink is not None:
        scatter = Scatter.read(sink)
        if dispatch.strides[-1] != dense_strides(scatter.shape):
            raise Unwritable("a scatter into a part of a tensor")
        return Elementwise(dispatch, scatter)
    messages, accesses, differs = trace(dispatch)
    return Elementwise(dispatch, None, tuple(messages), tuple(map(tuple, accesses)), differs)


def emit(problem: Elementwise, schedule: Schedule, target: Target) -> ir.Module:
    """The kernel that a complete schedule describes; raises ScheduleError for one that no kernel has."""
    said = schedule.gpu or GpuTile()
    check(problem, said, target)
    if problem.scatter is not None:
        return _emit_scatter(problem, problem.scatter, said)
    if said.kernel == "transpose" and problem.crossing is not None:
        return _emit_boxes(problem, problem.crossing, said)
    return _emit_covers(problem, covers_of(problem, said), said)


def check(problem: Elementwise, said: GpuTile, target: Target) -> None:
    """Raises ScheduleError for a schedule that no kernel of the dispatch has, or that leaves something open."""
    require(said, "kernel", "threads", "block")
    who = f"dispatch @{problem.name} on {target.name}"
    if (said.kernel == "scatter") != (problem.scatter is not None) or (
        said.kernel == "transpose" and problem.crossing is None
    ):
        raise ScheduleError(f"{who}: gpu.kernel is {said.kernel}, which does not compute this dispatch")
    axes = len(problem.crossing.axes) if said.kernel == "transpose" and problem.crossing is not None else 1
    if len(said.block) != axes:
        raise ScheduleError(f"{who}: gpu.block is {list(said.block)}; it has {axes} sizes")
    if said.kernel in ("elementwise", "windows"):
        require(said, "vector", *(("thread",) if said.kernel == "windows" else ()))
        if len(said.parts) != 2 * len(problem.dispatch.parts) - 2:
            raise ScheduleError(
                f"{who}: gpu.parts is {list(said.parts)}; it has results of a block and elements per access for each of "
                f"{len(problem.dispatch.parts) - 1} other parts"
            )
    refuse_broken(rules(problem, said, target), said, who)


def rules(problem: Elementwise, said: GpuTile, target: Target) -> tuple[Constraint, ...]:
    """What schedules of a kernel keep to; `said` tells which."""
    if problem.scatter is not None:
        return (
            *whole_warps("threads", lambda c: c["threads"]),
            rule("threads", "it is a power of two", lambda c: c["threads"] & (c["threads"] - 1) != 0),
            rule(
                "block[0]",
                f"there are {problem.scatter.keys} keys",
                lambda c, keys=problem.scatter.keys: c["block[0]"] > keys,
            ),
        )
    if said.kernel == "transpose" and problem.crossing is not None:
        return (
            *whole_warps("threads", lambda c: c["threads"]),
            *_box_rules(problem, problem.crossing, target),
        )
    found, others = list(whole_warps("threads", lambda c: c["threads"])), 0
    vectors = []
    for number, part in enumerate(problem.dispatch.parts):
        names = f"parts[{others}]", f"parts[{others + 1}]"
        if number == problem.main:
            names = "block[0]" if part.window is None else "thread[0]", "vector"
        else:
            others += 2
        found += cover_rules(part, *names)
        vectors.append(names[1])
    if problem.differs_by_lane:
        suits = lambda *lanes: takes_lanes(problem, lanes)  # noqa: E731
        text = "index arithmetic takes none of these vectors; use 1"
        found.append(rule("vector", text, lambda c: by_values(suits, *(c[name] for name in vectors)) == 0))
    return tuple(found)


def takes_lanes(problem: Elementwise, lanes: Sequence[int]) -> bool:
    """Whether index arithmetic can be written for vectors of these lengths, one for each part."""
    with problem.dispatch.function.context, problem.dispatch.function.location:
        try:
            trace(problem.dispatch, lanes)
        except Unwritable as reason:
            debug.log(3, f"{problem.name}: no vectors of {list(lanes)}: {reason}")
            return False
        return True


def _box_rules(problem: Elementwise, across: Crossing, target: Target) -> tuple[Constraint, ...]:
    """Boxes lie inside of the results, are no larger than a block writes out, and fit shared memory."""
    items = [a.buffer.item_bytes for a in problem.accesses[0] if a.writes]
    room, axes = target.level("shared").capacity_bytes, range(len(across.axes))
    names = [f"block[{axis}]" for axis in axes]

    def sizes(c: Columns) -> list[np.ndarray]:
        return [c[name] for name in names]

    def staged(*box: int) -> int:
        return sum(boxes_of(across, box).shared_strides(item)[1] * item for item in items)

    return (
        *(
            rule(names[i], f"the axis has {across.axes[i]} results", lambda c, i=i: c[names[i]] > across.axes[i])
            for i in axes
        ),
        rule(
            names[0],
            f"a box has more than {MOST_BOX:,} results",
            lambda c: np.prod(sizes(c), axis=0) > MOST_BOX,
        ),
        rule(
            names[0],
            f"a box takes more than the {room:,} B of shared memory of a block",
            lambda c: by_values(staged, *sizes(c)) > room,
        ),
    )  # fmt: skip


def _emit_covers(problem: Elementwise, covers: Sequence[Cover], said: GpuTile) -> ir.Module:
    dispatch = problem.dispatch
    with builder.kernel(
        problem.name,
        dispatch.types,
        rtasks=sum(own.blocks for own in covers),
        block=said.threads,
        asserts=list(problem.messages),
        made=gpu_of(problem, covers),
    ) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        first = 0
        for part, own in zip(dispatch.parts, covers):
            messages = list(problem.messages)
            _write_part(dispatch, part, own, buffers, kernel, messages, first, len(covers) > 1)
            first += own.blocks
    return kernel.module


def _emit_boxes(problem: Elementwise, across: Crossing, said: GpuTile) -> ir.Module:
    dispatch, messages = problem.dispatch, list(problem.messages)
    boxed = boxes_of(across, said.block)
    with builder.kernel(
        problem.name,
        dispatch.types,
        rtasks=boxed.blocks,
        block=said.threads,
        asserts=messages,
        made=GpuTile("transpose", said.threads, boxed.box),
    ) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        results = list(zip(dispatch.results, buffers[len(dispatch.inputs) :]))
        write_box(
            Box(boxed, kernel.rtask()),
            said.threads,
            results,
            lambda lanes: _elements(dispatch, buffers, lanes, messages, kernel.status),
        )
    return kernel.module


def _emit_scatter(problem: Elementwise, scatter: Scatter, said: GpuTile) -> ir.Module:
    (keys,), dispatch = said.block, problem.dispatch
    made = GpuTile("scatter", said.threads, (keys,))
    with builder.kernel(
        problem.name, dispatch.types, rtasks=-(-scatter.keys // keys), block=said.threads, made=made
    ) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        elements = _elements(dispatch, buffers, 1, [], None)
        write_scatter(scatter, kernel.rtask(), keys, said.threads, elements, buffers[-1])
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


def trace(dispatch: Dispatch, lanes: Sequence[int] = ()) -> tuple[list[str], list[list[Access]], bool]:
    """The messages of run-time checks and the accesses of every part, and whether index arithmetic differs by lanes.

    From a kernel that is thrown away, of `lanes` per part, one where they are left out.
    """
    messages: list[str] = []
    found, differs = [], False
    with builder.kernel("trace", dispatch.types, rtasks=1, block=32) as kernel:
        buffers = dispatch.buffers(kernel.buffers)
        for number, part in enumerate(dispatch.parts):
            own = lanes[number] if lanes else 1
            elements = _elements(dispatch, buffers, own, messages, None)
            point = builder.thread_id().value
            with builder.if_(True):
                elements.bases[0] = point
                loops = loop_digits(Flat(0, part.points, own), part.extents)
                _stores(dispatch, part, elements, buffers, [loops])
            found.append(elements.accesses)
            differs = differs or elements.differs_by_lane
    return messages, found, differs


def covers_of(problem: Elementwise, said: GpuTile) -> list[Cover]:
    """How every part is dealt out: the largest as `block` and `vector` say, the others as `parts` do, in their order."""
    others, found = iter(zip(said.parts[::2], said.parts[1::2])), []
    for number, part in enumerate(problem.dispatch.parts):
        block, lanes = (said.block[0], said.vector) if number == problem.main else next(others)
        each = block // (said.threads * lanes)
        if number == problem.main and part.window is not None:
            each = said.thread[0]
        found.append(cover_of(part, said.threads, each, lanes))
    return found


def gpu_of(problem: Elementwise, covers: Sequence[Cover]) -> GpuTile:
    """The schedule of a kernel whose parts are dealt out so."""
    main = problem.main
    others = [own.gpu for number, own in enumerate(covers) if number != main]
    return replace(covers[main].gpu, parts=tuple(n for own in others for n in (own.block[0], own.vector)))


def _write_part(
    dispatch: Dispatch,
    part: Part,
    own: Cover,
    buffers: list[Buffer],
    kernel: builder.Kernel,
    messages: list[str],
    first_rtask: int,
    is_one_of_several: bool,
) -> None:
    rtask, status = kernel.rtask(), kernel.status
    main = own.blocks - -(-own.rest // own.threads)
    number = rtask - first_rtask
    several = is_one_of_several or bool(own.rest and main)

    def among(low: int, high: int) -> builder.Operand:
        return (rtask - low < high - low) if several else True

    with builder.if_(among(first_rtask, first_rtask + main) if main else False):
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
        with builder.if_(among(first_rtask + main, first_rtask + own.blocks)):
            elements = _elements(dispatch, buffers, 1, messages, status)
            point = (number - main) * own.threads + builder.thread_id()
            elements.bases[0] = builder.raw(builder.minimum(point, own.rest - 1) + (own.points - own.rest))
            tiles = own.tile.loops(Flat(0, own.points, 1), part.extents)
            _stores(dispatch, part, elements, buffers, tiles, [point < own.rest] * len(tiles))


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
    for own, holds in zip(pending, alive, strict=True):
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
