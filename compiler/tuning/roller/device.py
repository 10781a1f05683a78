"""The device as Roller's construction sees it: memory layers from the fastest down, and units that compute tiles.

Derived from a `Target` alone, so a new device is new data (Roller, OSDI'22, §3.3 and §4, hardware abstraction layer):

    V100   registers of a thread -> shared memory of a block -> DRAM (with L2)     a warp computes, 80 SMs
    x86    vector registers -> L1 -> L2 -> L3 -> DRAM                              a vector unit computes, n cores
    IPU    registers -> local memory -> exchange                                   a vector unit computes, 1,216 tiles
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.target import MemoryLevel, Target

CACHE_SHARE = 0.5
"""The part of a cache that one tile may fill; the rest holds what streams through it. Source: Low et al., "Analytical
Modeling Is Enough for High-Performance BLIS", TOMS 2016, §4, which leaves about half of each cache's ways to the
streams."""


@dataclass(frozen=True)
class Layer:
    """One layer of memory that holds tiles; the last one of a device holds the tensors.

    `capacity_bytes` is what one tile may take: of one thread's registers, one block's shared memory, one core's
    cache. `bandwidth_gbps` is read from the layer by the whole device.
    """

    name: str
    capacity_bytes: int
    bandwidth_gbps: float
    transaction_bytes: int
    banks: int = 1
    bank_bytes: int = 4


@dataclass(frozen=True)
class Device:
    """Layers, fastest first; `units` execution units, each with `teus` that compute `lanes` points at once.

    `threaded` devices give every point of a register tile's grid a thread and stage tiles in memory that programs
    address; others run one register tile after another out of caches.
    """

    target: Target
    dtype: str
    layers: tuple[Layer, ...]
    units: int
    teus: int
    lanes: int
    threaded: bool
    peak_gflops: float

    @classmethod
    def of(cls, target: Target, dtype: str = "f32", matrix_unit: bool = False) -> Device:
        """The device that `target` describes, for tiles of `dtype`; `matrix_unit` takes its peak from those."""
        threaded = target.kind == "gpu"
        peak = target.peak_gflops.get(dtype) or target.peak_gflops["f32"]
        if target.kind != "cpu" and not matrix_unit and BITS[dtype] < 32:
            # Without matrix units narrow types run at the vector rate.
            peak = min(peak, 2 * target.peak_gflops["f32"])
        if dtype in ("f32", "i32") and target.sustained_gflops:
            peak = target.sustained_gflops
        levels = tuple(reversed(target.memory))
        layers = _threaded_layers(target, levels) if threaded else _cache_layers(target, levels)
        lanes = target.warp_size if threaded else max(1, target.vector_bits // BITS[dtype])
        return cls(
            target, dtype, layers, target.num_cores, max(1, target.schedulers), lanes, threaded, float(peak)
        )

    def layer(self, name: str) -> int:
        """The position of the layer called `name`; raises KeyError with those there are."""
        for position, layer in enumerate(self.layers):
            if layer.name == name:
                return position
        raise KeyError(
            f"{self.target.name} has no layer `{name}`; it has {', '.join(m.name for m in self.layers)}"
        )


def _layer(level: MemoryLevel, capacity_bytes: int) -> Layer:
    bandwidth = level.copy_gbps or level.bandwidth_gbps
    return Layer(
        level.name, capacity_bytes, bandwidth, level.transaction_bytes, level.banks, level.bank_bytes
    )


def _threaded_layers(target: Target, levels: tuple[MemoryLevel, ...]) -> tuple[Layer, ...]:
    """Registers of a thread, memory of a unit, and the slowest level with all caches before it (§4: L2 and DRAM)."""
    registers, staging, *rest = levels
    limit = target.tile_registers or target.registers_per_thread
    shared = target.tile_shared_bytes or staging.capacity_bytes
    slowest = rest[-1]
    return (
        _layer(registers, limit * 4),
        _layer(staging, shared),
        _layer(slowest, slowest.capacity_bytes),
    )


def _cache_layers(target: Target, levels: tuple[MemoryLevel, ...]) -> tuple[Layer, ...]:
    """Registers, half of each cache's share of one core (all of a memory that programs address), and the slowest."""
    registers, *middle, slowest = levels
    share = CACHE_SHARE if target.kind == "cpu" else 1.0
    held = (
        target.tile_registers * 4
        if target.tile_registers
        else target.registers_per_thread * target.vector_bits // 8
    )
    layers = [_layer(registers, held)]
    for level in middle:
        layer = _layer(level, int(level.capacity_bytes * share / max(1, level.shared_by)))
        # A shared cache whose part of one core is no larger than the core's own holds no larger tile.
        if layer.capacity_bytes > layers[-1].capacity_bytes:
            layers.append(layer)
    return (*layers, _layer(slowest, slowest.capacity_bytes))
