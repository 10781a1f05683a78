"""Puts the rTasks of independent kernels into one kernel: a block for each, or fewer blocks that take them in turn.

    combined("both", [a, b])                        combined("both", [a, b], blocks=7)
      t = block                                       for t = block to 20 step 7:
      if t < 12: body of a, rTask t                     if t < 12: body of a, rTask t
      else:      body of b, rTask t - 12                else:      body of b, rTask t - 12
                                                        barrier

What a co-scheduler makes of dispatches that do not depend on each other, which is for it to know. Where a kernel's blocks
have shares of several rTasks, its shares are dealt out like rTasks. Bodies lie over each other in shared memory, each has its
own part of the workspace, and of the counters in it that are zero between launches. Source: L. Ma et al., "Rammer",
OSDI 2020, §3.1 (`compute_rtask(rtask_id)`) and §4.1 (rTasks of several operators in persistent blocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.gpu.builder import (
    WIDE,
    Kernel,
    Value,
    barrier,
    if_,
    if_else,
    index,
    kernel,
    raw,
    thread_id,
)
from tilewright.compiler.gpu.launch import LAUNCH, asserts_of, launch_of
from tilewright.compiler.gpu.primitives import named_barrier
from tilewright.compiler.gpu.tensor_maps import tensor_map
from tilewright.compiler.ir import ir, memref, walk

_ALIGNMENT = 256
"""Bytes at whose multiples parts of the workspace start, as a whole one does. Source: CUDA C++ Programming Guide, "Device
Memory Accesses": what the driver allocates is aligned to 256 bytes at least."""
_BARRIER = 15
"""The named barrier of a body with fewer threads than the block; 0 is that of all threads."""
_MINIMUM_BLOCKS = "nvvm.minctasm"
_OVERLAP = ("tilewright.grid_dependency_wait", "tilewright.launch_dependents")
"""`overlap-launches` places them anew, outside of any branch."""


def combined(name: str, modules: Sequence[ir.Module], blocks: int = 0) -> ir.Module:
    """A kernel `name` that does what the kernels of `modules` do, whose shared memory has been placed.

    Its buffers are theirs, one kernel after the other; `blocks` is 0 or up to the number of rTasks. It has a block for each rTask, or `blocks` that take them in turn;
    run `overlap-launches` on it, and check its limits. Raises ScheduleError for kernels whose gangs, or whose barriers in
    shared memory, do not allow it. Needs a location.
    """
    bodies = [Body(kernel_of(module)) for module in modules]
    for body in bodies:
        body.check(in_turn=bool(blocks), threads=max(b.launch.block for b in bodies))
    launches = [body.launch for body in bodies]
    places, zeroed_bytes, workspace_bytes = _places(bodies)
    minimum = [body.minimum_blocks for body in bodies]
    first, maps = 0, []
    for body in bodies:
        own = [replace(map_, buffer=map_.buffer + first) for map_ in body.launch.tensor_maps]
        maps += [tensor_map(**vars(map_)) for map_ in own]
        first += len(body.buffers)
    with kernel(
        name,
        [buffer.type for body in bodies for buffer in body.buffers],
        rtasks=sum(launch.grid for launch in launches),
        gangs=blocks,
        block=max(launch.block for launch in launches),
        workspace_bytes=workspace_bytes,
        zeroed_bytes=zeroed_bytes,
        tensor_maps=maps,
        asserts=[text for body in bodies for text in body.asserts],
        blocks_per_core=min(minimum),
        points=1 << 31 if any(WIDE in body.kernel.attributes for body in bodies) else 0,
    ) as made:
        if blocks:
            made.share().each([], lambda number: _in_turn(made, bodies, places, number))
        else:
            _one_of(made, bodies, places, made.rtask())
    fields = {entry.name: entry.attr for entry in ir.DictAttr(made.function.attributes[LAUNCH])}
    i64 = ir.IntegerType.get_signless(64)
    shared_bytes = max(launch.shared_bytes for launch in launches)
    made.function.attributes[LAUNCH] = ir.DictAttr.get(
        {**fields, "shared_bytes": ir.IntegerAttr.get(i64, shared_bytes)}
    )
    return made.module


def _in_turn(made: Kernel, bodies: list[Body], places: list[Place], number: Value) -> None:
    _one_of(made, bodies, places, number)
    # The next body has the same shared memory.
    barrier()


def _one_of(made: Kernel, bodies: list[Body], places: list[Place], number: Value) -> None:
    """The body whose rTask has this number among all, in a branch that all threads of a block take."""
    (body, *others), (place, *rest) = bodies, places
    if not others:
        body.write(made, place, number)
        return

    def own() -> list[Value]:
        body.write(made, place, number)
        return []

    def other() -> list[Value]:
        _one_of(made, others, rest, number - body.launch.grid)
        return []

    if_else(number < body.launch.grid, own, other, [])


@dataclass(frozen=True)
class Place:
    """Where a body's arguments are among those of the kernel: its first buffer, map and check, and bytes of the workspace.

    `counters` is where its zeroed bytes start, `workspace` where the others do.
    """

    buffer: int
    map: int
    check: int
    counters: int
    workspace: int


def _places(bodies: list[Body]) -> tuple[list[Place], int, int]:
    """Places of all bodies, bytes of counters, and of the whole workspace: all counters first."""
    zeroed = 0
    counters, places = [], []
    for body in bodies:
        counters.append(zeroed)
        zeroed += _aligned(body.launch.zeroed_bytes)
    buffer = map_ = check = 0
    end = zeroed
    for body, start in zip(bodies, counters):
        places.append(Place(buffer, map_, check, start, end))
        buffer += len(body.buffers)
        map_ += len(body.launch.tensor_maps)
        check += len(body.asserts)
        end += _aligned(body.launch.workspace_bytes - body.launch.zeroed_bytes)
    return places, zeroed, end


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class Body:
    """The body of a kernel in gpu-level IR: what its block number `number` does, to be written as often as wanted, under any
    branch that all threads of a block take alike, on other buffers.
    """

    def __init__(self, kernel: ir.Operation):
        self.kernel, self.launch, self.asserts = kernel, launch_of(kernel), asserts_of(kernel)
        self.name = ir.StringAttr(kernel.attributes["sym_name"]).value
        arguments = list(kernel.regions[0].blocks[0].arguments)
        extra = bool(self.launch.workspace_bytes) + bool(self.asserts) + len(self.launch.tensor_maps)
        self.buffers = arguments[: len(arguments) - extra]
        self.minimum_blocks = (
            ir.IntegerAttr(kernel.attributes[_MINIMUM_BLOCKS]).value
            if _MINIMUM_BLOCKS in kernel.attributes
            else 0
        )

    def check(self, in_turn: bool, threads: int) -> None:
        """Raises ScheduleError where the body cannot stand beside others, in a block of `threads`."""
        launch = self.launch
        if launch.gang == "cluster":
            raise self.refusal(
                f"its rTasks are done by gangs of {launch.cluster} blocks of a cluster, expected gangs of one block, "
                "`alone`; use cluster 1"
            )
        if launch.gang == "grid":
            raise self.refusal(
                f"its {launch.grid} blocks wait for each other, gang `grid`, expected gangs of one block, `alone`; "
                "launch it by itself, or do not divide its rows"
            )
        if "shared_bytes" not in ir.DictAttr(self.kernel.attributes[LAUNCH]):
            raise self.refusal("expected placed shared memory, found none; run `place-shared` first")
        if len(self.kernel.regions[0].blocks) != 1:
            raise self.refusal("expected structured control flow, found branches; combine before lowering it")
        if in_turn and walk(self.kernel, "tilewright.mbarrier_init"):
            raise self.refusal(
                "it has barriers in shared memory, which are made once in the life of a block; "
                "give every rTask a block of its own"
            )
        if launch.block < threads and walk(self.kernel, "tilewright.named_barrier"):
            raise self.refusal(
                f"it has {launch.block} threads and named barriers, expected {threads} threads as in the largest "
                "kernel; give them as many threads"
            )

    def refusal(self, reason: str) -> ScheduleError:
        return ScheduleError(f"@{self.name} beside other kernels: {reason}", self.kernel.location)

    def write(self, made: Kernel, place: Place, number: Value) -> None:
        """Writes the body of block `number` at the insertion point."""
        threads = ir.DenseI32ArrayAttr(made.function.attributes["known_block_size"])[0]
        with if_(thread_id() < self.launch.block if self.launch.block < threads else True):
            # Where it is inserted, the clone is a place for its own operations.
            clone = self.kernel.clone().operation
            self._bind(clone, made, place)
            for op in walk(clone, "gpu.block_id"):
                op.results[0].replace_all_uses_with(number.value)
                op.erase()
            for unwanted in _OVERLAP:
                for op in walk(clone, unwanted):
                    op.erase()
            if self.launch.block < threads:
                for op in walk(clone, "gpu.barrier"):
                    with ir.InsertionPoint(op), op.location:
                        named_barrier(_BARRIER, self.launch.block)
                    op.erase()
            for view in list(clone.regions[0].blocks[0].operations)[:-1]:
                view.operation.move_before(clone)
            clone.erase()

    def _bind(self, clone: ir.Operation, made: Kernel, place: Place) -> None:
        """Makes a clone's body one over the arguments of the kernel that is being written."""
        arguments, count = list(clone.regions[0].blocks[0].arguments), len(self.buffers)
        for old, new in zip(arguments[:count], made.buffers[place.buffer :]):
            old.replace_all_uses_with(new)
        if self.launch.workspace_bytes:
            self._bind_workspace(arguments[count], raw(made.workspace), place)
            count += 1
        if self.asserts:
            self._bind_status(arguments[count], raw(made.status), place)
            count += 1
        for old, new in zip(arguments[count:], made.maps[place.map :]):
            old.replace_all_uses_with(new)

    def _bind_workspace(self, old: ir.Value, new: ir.Value, place: Place) -> None:
        zeroed = self.launch.zeroed_bytes
        for use in list(old.uses):
            view = use.owner.operation
            start = view.operands[1] if view.name == "memref.view" else None
            known = None if start is None else _known(start)
            if start is None or (zeroed and known is None):
                raise self.refusal(
                    f"expected views of its workspace at known places, found `{view}`; write counters and the rest "
                    "as views of their own"
                )
            is_counter = known is not None and known < zeroed
            offset = place.counters if is_counter else place.workspace - zeroed
            with ir.InsertionPoint(view), view.location:
                moved = Value(start) + offset if known is None else index(known + offset)
                found = memref.view(view.results[0].type, new, raw(moved), [])
            view.results[0].replace_all_uses_with(found)
            view.erase()

    def _bind_status(self, old: ir.Value, new: ir.Value, place: Place) -> None:
        """Checks are numbered through all bodies."""
        for use in list(old.uses):
            op = use.owner.operation
            if op.name != "memref.store":
                raise self.refusal(
                    f"expected stores to its status word, found `{op}`; store the check's number"
                )
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = raw(Value(op.operands[0]) + place.check)
            op.operands[1] = new


def _known(value: ir.Value) -> int | None:
    """The number that a constant of type index is; None for what is none."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.operation.attributes["value"]).value
