"""Makes a kernel's function a GPU kernel: a block does one of its rTasks.

    func @d(%task: index, %a: memref<4xf32>, %out: memref<4xf32>, %status: memref<1xi32>, %scratch: memref<?xi8>)
      =>
    gpu.module @kernels {
      gpu.func @d(%a: memref<4xf32>, %out: memref<4xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>,
        tilewright.launch = {grid = 12 : i64, block = 256 : i64, ...}}
    }

The status word is an argument only where checks are reported, the workspace only where temporaries lie in it: every
block's scratch is a part of it. Where a workspace for all rTasks at once would be larger than `workspace_bytes`, fewer blocks
take rTasks in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.dialects.kernel_form import EXPECTED, KernelArguments
from tilewright.compiler.gpu import builder
from tilewright.compiler.ir import functions, gpu, ir, memref
from tilewright.compiler.passes.lower_cpu.map_tasks import TASKS
from tilewright.compiler.passes.lower_cpu.place_scratch import SCRATCH_BYTES
from tilewright.compiler.passes.lower_cpu.report_asserts import ASSERTS
from tilewright.compiler.pipeline.pass_base import Pass

_HOISTED = ("memref.alloc", "arith.constant", "gpu.thread_id")
"""Operations that stay before the loop over a block's rTasks."""


@dataclass(frozen=True)
class FormGpuKernels(Pass):
    """Rewrites the one kernel of a module for blocks of `threads` threads.

    Raises PassError where there is none, or it did not go through `map-tasks`, `report-asserts` and `place-temporaries`.
    """

    threads: int = 256
    workspace_bytes: int = 1 << 28

    def run(self, op: ir.Operation) -> None:
        found = list(functions(op.opview))
        if len(found) != 1:
            raise self.refusal(op, f"expected one kernel, found {len(found)}; lower dispatches one by one")
        (function,) = found
        arguments = KernelArguments.of(function)
        if arguments is None:
            raise self.refusal(function, EXPECTED)
        for name, needed in (
            (TASKS, "map-tasks"),
            (ASSERTS, "report-asserts"),
            (SCRATCH_BYTES, "place-temporaries"),
        ):
            if name not in function.attributes:
                raise self.refusal(function, f"expected the attribute `{name}`; run `{needed}` first")
        tasks = ir.IntegerAttr(function.attributes[TASKS]).value
        scratch = ir.IntegerAttr(function.attributes[SCRATCH_BYTES]).value
        asserts = [ir.StringAttr(text).value for text in ir.ArrayAttr(function.attributes[ASSERTS])]
        gangs = min(tasks, max(1, self.workspace_bytes // scratch)) if scratch else tasks
        block = function.regions[0].blocks[0]
        buffers = [argument.type for argument in block.arguments][1:-2]
        name = ir.StringAttr(function.attributes["sym_name"]).value
        with (
            function.location,
            builder.kernel(
                name,
                buffers,
                rtasks=tasks,
                gangs=gangs,
                block=self.threads,
                workspace_bytes=gangs * scratch,
                asserts=asserts,
            ) as made,
        ):
            _fill(made, block, arguments, scratch)
        with ir.InsertionPoint(function):
            module = made.module.body.operations[0].operation
            module.detach_from_parent()
            function.parent.regions[0].blocks[0].append(module)
        function.erase()
        op.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _fill(made: builder.Kernel, block: ir.Block, arguments: KernelArguments, scratch: int) -> None:
    """Moves the function's body to the insertion point."""
    for old, new in zip(list(block.arguments)[1:-2], made.buffers):
        old.replace_all_uses_with(new)
    if made.status is not None:
        arguments.status.replace_all_uses_with(made.status)
    share = made.share()
    if made.workspace is not None:
        type_ = ir.MemRefType.get([scratch], ir.IntegerType.get_signless(8))
        own = memref.view(type_, made.workspace, (share.first * scratch).value, [])
        for use in list(arguments.scratch.uses):
            use.owner.operation.operands[use.operand_number] = own
    first = builder.index(0).value.owner.operation
    ops = [view.operation for view in block.operations][:-1]
    if made.gangs == made.rtasks:
        arguments.task.replace_all_uses_with(share.first.value)
        for op in ops:
            op.move_before(first)
        return

    def one(rtask: builder.Value) -> None:
        arguments.task.replace_all_uses_with(rtask.value)
        barrier = gpu.BarrierOp().operation
        for op in ops:
            op.move_before(first if op.name in _HOISTED or _of_workspace(op) else barrier)

    share.each([], one)


def _of_workspace(op: ir.Operation) -> bool:
    """Whether `op` computes where a temporary lies in the workspace."""
    return op.name == "memref.view"
