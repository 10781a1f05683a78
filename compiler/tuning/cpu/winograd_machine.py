"""What passes that weigh Winograd's algorithm know of the machine, as their options."""

from __future__ import annotations

from typing import Any, Protocol

from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.winograd_choice import WinogradMachine


class MachineOptions(Protocol):
    """A pass for `cores` with `registers` of `vector_bits`, f32 `gflops` of all cores, `memory_gbps` of main memory,
    `shared_gbps` of the cache that they share, and `private_bytes` of cache each."""

    @property
    def cores(self) -> int: ...
    @property
    def vector_bits(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def gflops(self) -> float: ...
    @property
    def memory_gbps(self) -> float: ...
    @property
    def shared_gbps(self) -> float: ...
    @property
    def private_bytes(self) -> int: ...


def options_for(target: Target) -> dict[str, Any]:
    """The options with a target's numbers."""
    return {
        "cores": target.num_cores,
        "vector_bits": target.vector_bits,
        "registers": target.registers_per_thread,
        "gflops": float(target.peak_gflops["f32"]),
        "memory_gbps": float(target.memory[0].bandwidth_gbps),
        "shared_gbps": float(target.memory[1].bandwidth_gbps),
        "private_bytes": min(level.capacity_bytes for level in target.memory[:-2]),
    }


def machine_of(options: MachineOptions) -> WinogradMachine:
    """The machine as the estimate takes it, for f32."""
    return WinogradMachine(
        options.cores,
        options.vector_bits // 32,
        options.registers,
        options.gflops,
        options.memory_gbps,
        options.shared_gbps,
        options.private_bytes,
    )
