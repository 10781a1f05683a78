"""Kernels with one synchronisation removed or weakened each: a test of the kernel's tests, and of the emulator.

    assert survivors(module, lambda mutant, seed: is_right(mutant, seed)) == []

where `is_right` runs the mutant and compares its results. A mutant is caught when a run of it raises EmulationError
or gives wrong results under any of the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilewright.compiler.ir import arith, builtin, ir, walk
from tilewright.compiler.pipeline.diagnostics import place
from tilewright.runtime.errors import EmulationError

REMOVED = {
    "gpu.barrier", "nvgpu.device_async_wait", "nvgpu.device_async_create_group", "tilewright.named_barrier",
    "tilewright.named_barrier_arrive", "tilewright.mbarrier_expect_tx", "tilewright.mbarrier_arrive",
    "tilewright.mbarrier_arrive_cluster", "tilewright.mbarrier_wait", "tilewright.fence_mbarrier_init",
    "tilewright.fence_async_shared", "tilewright.cluster_sync", "tilewright.thread_fence", "tilewright.bulk_commit",
    "tilewright.bulk_wait", "tilewright.wgmma_wait",
}  # fmt: skip
"""Operations that a mutant lacks."""

WEAKENED = {
    "nvgpu.device_async_wait": "numGroups",
    "tilewright.bulk_wait": "groups",
    "tilewright.wgmma_wait": "groups",
}
"""Waits of which a mutant leaves one group more pending, and the attribute that says how many."""


def mutants(module: ir.Module) -> Iterator[tuple[str, ir.Module]]:
    """What was done, with the place, and the module's text with it done, for every operation in turn."""
    for name in sorted(REMOVED | {"tilewright.atomic_add"}):
        for number, op in enumerate(walk(module.operation, name)):
            where = f"{name} number {number} ({place(op.location) or 'unknown place'})"
            if name in REMOVED:
                yield f"without {where}", _changed(module, name, number, _remove)
            if name in WEAKENED:
                yield f"one group more than {where}", _changed(module, name, number, _weaken)
            if name == "tilewright.atomic_add" and ir.StringAttr(op.attributes["order"]).value == "acq_rel":
                yield f"relaxed {where}", _changed(module, name, number, _relax)


def survivors(
    module: ir.Module, is_right: Callable[[ir.Module, int], bool], seeds: Sequence[int] = (0, 1, 2)
) -> list[str]:
    """The mutants that no seed catches: `is_right(mutant, seed)` never raised EmulationError, and was never False."""
    assert is_right(module, seeds[0]), "the kernel itself gives wrong results"
    return [
        what for what, mutant in mutants(module) if not any(_is_caught(mutant, is_right, s) for s in seeds)
    ]


def _is_caught(mutant: ir.Module, is_right: Callable[[ir.Module, int], bool], seed: int) -> bool:
    try:
        return not is_right(mutant, seed)
    except EmulationError:
        return True


def _changed(module: ir.Module, name: str, number: int, change: Callable[[ir.Operation], None]) -> ir.Module:
    clone = ir.Module.parse(module.operation.get_asm(enable_debug_info=True), module.context)
    with module.context, ir.Location.unknown(module.context):
        change(walk(clone.operation, name)[number])
    return clone


def _remove(op: ir.Operation) -> None:
    if op.name == "nvgpu.device_async_create_group":
        with ir.InsertionPoint(op):
            nothing = arith.constant(ir.IndexType.get(), 0)
            token = builtin.unrealized_conversion_cast([op.results[0].type], [nothing])
        op.results[0].replace_all_uses_with(token)
    for result, operand in zip(op.results, op.operands):
        if op.name == "tilewright.wgmma_wait":
            result.replace_all_uses_with(operand)
    op.erase()


def _weaken(op: ir.Operation) -> None:
    attribute = WEAKENED[op.name]
    groups = ir.IntegerAttr(op.attributes[attribute]).value if attribute in op.attributes else 0
    bits = 32 if op.name.startswith("nvgpu.") else 64
    op.attributes[attribute] = ir.IntegerAttr.get(ir.IntegerType.get_signless(bits), groups + 1)


def _relax(op: ir.Operation) -> None:
    op.attributes["order"] = ir.StringAttr.get("relaxed")
