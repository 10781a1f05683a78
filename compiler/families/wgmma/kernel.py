"""Puts a wgmma kernel together: shared memory, barriers, one producer warpgroup, consumers, results.

thread 0: barriers;  all: wait for them, then for the kernels before this one
warpgroup 0: gives registers back; its first thread produces
others: take registers; multiply, epilogue, store, unit after unit
"""

from __future__ import annotations

from tilewright.compiler.families.contraction.addresses import Addresses
from tilewright.compiler.families.wgmma.consumer import Consumer
from tilewright.compiler.families.wgmma.epilogue import PANEL_BYTES, ResultWriter
from tilewright.compiler.families.wgmma.pipeline import Pipeline, Turn
from tilewright.compiler.families.wgmma.plan import Plan, panel_widths
from tilewright.compiler.families.wgmma.producer import Producer
from tilewright.compiler.families.wgmma.schedule import TileSchedule
from tilewright.compiler.families.wgmma.split import Reduction, Workspace
from tilewright.compiler.families.wgmma.tile import SWIZZLE_ATOM_BYTES, WARPGROUP_THREADS
from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import (
    Kernel,
    barrier,
    i32,
    if_,
    if_else,
    kernel,
    shared,
    thread_id,
)
from tilewright.compiler.gpu.launch import cluster_of
from tilewright.compiler.gpu.tensor_maps import tensor_map
from tilewright.compiler.ir import ir


def build(plan: Plan, cores: int) -> ir.Module:
    """The kernel of a plan for a device of `cores` multiprocessors, in gpu-level IR."""
    schedule = TileSchedule(plan, cores)
    workspace = Workspace(schedule)
    with kernel(
        plan.contraction.name,
        [buffer.type for buffer in plan.contraction.buffers],
        rtasks=schedule.units,
        gang=cluster_of(plan.tile.cluster),
        gangs=schedule.clusters,
        block=plan.tile.threads,
        workspace_bytes=workspace.bytes,
        zeroed_bytes=workspace.zeroed_bytes if workspace.bytes else 0,
        tensor_maps=[tensor_map(**vars(own)) for own in plan.tensor_maps],
        blocks_per_core=1,
        made=plan.gpu,
    ) as k:
        _body(k, plan, schedule, workspace)
    return k.module


def _body(k: Kernel, plan: Plan, schedule: TileSchedule, workspace: Workspace) -> None:
    tile, byte = plan.tile, ir.IntegerType.get_signless(8)
    a_memory = shared([tile.stages * tile.a_bytes], byte, SWIZZLE_ATOM_BYTES)
    b_memory = shared([tile.stages * tile.b_bytes], byte, SWIZZLE_ATOM_BYTES)
    staging = (
        shared([tile.warpgroups * plan.panels * PANEL_BYTES], byte, SWIZZLE_ATOM_BYTES)
        if plan.panels
        else None
    )
    flags = shared([tile.warpgroups], ir.IntegerType.get_signless(32), 16) if workspace.slots else None
    pipeline = Pipeline.allocate(tile.stages, tile.warpgroups * tile.cluster)
    thread = thread_id()
    warpgroup = primitives.uniform(thread // WARPGROUP_THREADS).to(ir.IndexType.get())
    inside = thread % WARPGROUP_THREADS
    clustered = tile.cluster > 1
    rank = primitives.cluster_rank().to(ir.IndexType.get()) if clustered else 0
    share = k.share()
    with if_(thread.equals(0)):
        pipeline.initialise()
        primitives.fence_mbarrier_init()
    primitives.cluster_sync() if clustered else barrier()
    primitives.grid_dependency_wait()
    addresses = Addresses.of(plan.contraction, k.buffers)

    def produce() -> list:
        if tile.registers:
            primitives.set_max_registers(tile.registers[0], increase=False)
        producer = Producer(plan, schedule, pipeline, a_memory, b_memory, k.maps[0], k.maps[1], share, rank)
        with if_(inside.equals(0)):
            producer.run()
        return []

    def consume() -> list:
        if tile.registers:
            primitives.set_max_registers(tile.registers[1], increase=True)
        number = warpgroup - 1
        consumer = Consumer(plan, pipeline, a_memory, b_memory, number, inside)
        writer = ResultWriter(plan, addresses, staging, _result_maps(plan, k), number, inside, i32(warpgroup))
        reduction = (
            Reduction(workspace, k.workspace, flags, number, inside, i32(warpgroup), rank)
            if k.workspace is not None and flags is not None
            else None
        )

        def unit(own, *carried) -> list:
            # Parts of tiles read nothing ahead: only one of them will write results.
            early = writer.read_ahead(own) if reduction is None else {}
            sums, turn = consumer.multiply(own, Turn.of(list(carried)))
            if reduction is None:
                writer.write(own, lambda eighth: sums[4 * eighth : 4 * eighth + 4], early)
            else:
                reduction.write(own, sums, lambda total: writer.write(own, total, early))
            return turn.carried()

        schedule.each(share, rank, Turn.first().carried(), unit)
        writer.finish()
        return []

    if_else(warpgroup.equals(0), produce, consume, [])
    if clustered:
        # A block's barriers and stages must be there until the others have stopped writing to them.
        primitives.cluster_sync()


def _result_maps(plan: Plan, k: Kernel) -> tuple[dict[int, ir.Value] | None, ...]:
    """The tensor maps of every store by the width of a panel, None where threads store themselves."""
    rest, widths = iter(k.maps[2:]), sorted(set(panel_widths(plan.tile.columns)))
    return tuple(None if c is None else {width: next(rest) for width in widths} for c in plan.c)
