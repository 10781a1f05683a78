"""The options of passes that weigh Winograd's algorithm: what they know of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tilewright.compiler.passes.base import Pass
from tilewright.compiler.target import Target
from tilewright.compiler.tuning.winograd_choice import WinogradMachine


@dataclass(frozen=True)
class ForMachine(Pass):
    """A pass whose options describe a machine: `cores` with `registers` of `vector_bits`, f32 `gflops` of all cores,
    `shared_gbps` of the memory that they share, and `private_bytes` of cache each."""

    cores: int = 2
    vector_bits: int = 512
    registers: int = 32
    gflops: float = 200.0
    shared_gbps: float = 80.0
    private_bytes: int = 1048576

    @classmethod
    def for_target(cls, target: Target) -> Self:
        """The pass with a target's numbers."""
        return cls(
            cores=target.num_cores,
            vector_bits=target.vector_bits,
            registers=target.registers_per_thread,
            gflops=float(target.peak_gflops["f32"]),
            shared_gbps=float(target.memory[0].bandwidth_gbps) * 2,
            private_bytes=min(level.capacity_bytes for level in target.memory[:-2]),
        )

    @property
    def machine(self) -> WinogradMachine:
        """The same numbers as the estimate takes them, for f32."""
        return WinogradMachine(
            self.cores,
            self.vector_bits // 32,
            self.registers,
            self.gflops,
            self.shared_gbps,
            self.private_bytes,
        )
