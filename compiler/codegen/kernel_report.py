"""What each kernel of a package takes of a GPU: threads, registers, shared memory, spills, occupancy."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.targets.occupancy import occupancy
from tilewright.compiler.targets.target import Target
from tilewright.runtime.program import Package


@dataclass(frozen=True)
class KernelReport:
    """One kernel; `registers` per thread, 0 where no assembler ran, and then no `occupancy` either.

    `occupancy` is the part of a multiprocessor's warps that can be in use at once; `steps` counts its launches per call.
    """

    name: str
    family: str
    grid: int
    block: int
    cluster: int
    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: float | None
    steps: int


def kernel_reports(package: Package, target: Target) -> list[KernelReport]:
    """The kernels of a package for a GPU, in the order of their numbers."""
    steps = [step.kernel for step in package.main.steps]
    families = {note["kernel"]: note["family"] for note in package.notes.get("dispatches", ())}
    found = []
    for number, kernel in enumerate(package.kernels):
        launch = kernel.launch
        if launch is None:
            continue
        share = (
            occupancy(target, launch.block, launch.registers, launch.shared_bytes)
            if launch.registers
            else None
        )
        found.append(
            KernelReport(
                kernel.symbol,
                families.get(number, "prepack"),
                launch.grid,
                launch.block,
                launch.cluster,
                launch.registers,
                launch.shared_bytes,
                launch.spill_bytes,
                share,
                steps.count(number),
            )
        )
    return found
