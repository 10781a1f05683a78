"""Features of GPU schedules: blocks, resources, arithmetic and traffic of kernels that nobody has written yet, many at once.

    found = gpu_features(workload, schedules, target)
    found["shared"], found["resident"], found["traffic.L2.in0"]      // [n] each
    found.unit("traffic.L2")                                         // "bytes out of a memory, of all blocks"
    found.us, found.bound                                            // predicted microseconds, and the resource that is slowest

Schedules of several kernels may stand in one array. Counts are those of all blocks, unless their unit says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.schedule import KERNELS, GpuTile, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gpu_attention import attention_kernel
from tilewright.compiler.tuning.model.gpu_kernel import PARTIAL, PARTS, UNITS, GpuKernel
from tilewright.compiler.tuning.model.gpu_products import product_kernel
from tilewright.compiler.tuning.model.gpu_streams import named_operands, stream_kernel
from tilewright.compiler.tuning.model.product import read_product
from tilewright.compiler.tuning.model.statements import read_statements

VOLTA = "mma.m8n8k4"
_PRODUCTS = ("simt", "mma", "wgmma", "skinny")
_NEEDED: dict[str, tuple[str, ...]] = {
    "simt": ("threads", "block", "thread", "stages", "split_k", "raster"),
    "mma": ("threads", "block", "warp", "instruction", "stages", "split_k", "raster"),
    "wgmma": ("threads", "block", "instruction", "stages"),
    "skinny": ("threads", "block", "thread", "split_k"),
    "attention": ("threads", "block", "stages"),
    "elementwise": ("threads", "block", "vector"),
    "windows": ("threads", "block", "thread", "vector"),
    "transpose": ("threads", "block"),
    "scatter": ("threads", "block"),
    "rows": ("threads", "block", "vector", "split_k"),
    "sort": ("threads", "block"),
    "scan": ("threads", "block"),
    "fallback": ("threads",),
}
"""The fields of `gpu` that the kernels of a family are counted by."""
_SIZES = {"simt": 3, "mma": 3, "skinny": 3, "attention": 2, "rows": 2}
"""How many sizes a block has, where a kernel leaves no choice."""


@dataclass(frozen=True)
class GpuFeatures:
    """Columns [n] by name; the groups of schedules that have one kind of kernel, each with what is known of it.

    `kind` [n] names the kernel of each schedule, `us` [n] and `parts_us` the predicted times, of all and of each resource.
    """

    columns: Mapping[str, np.ndarray]
    kind: np.ndarray
    groups: tuple[tuple[np.ndarray, GpuKernel], ...]
    us: np.ndarray
    parts_us: Mapping[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.us)

    @property
    def bound(self) -> list[str]:
        """The resource that each schedule's kernel waits for."""
        names = list(self.parts_us)
        return [names[i] for i in np.stack([self.parts_us[name] for name in names]).argmax(axis=0)]

    @staticmethod
    def unit(name: str) -> str:
        """What a column counts."""
        return UNITS[name.partition(".")[0]]

    def matrix(self) -> np.ndarray:
        """All columns side by side: [n, columns]."""
        return np.stack(list(self.columns.values()), axis=1)


def gpu_features(workload: Workload, schedules: Sequence[Schedule], target: Target) -> GpuFeatures:
    """The features of complete schedules; raises ScheduleError that names the field for one that leaves one out.

    So it does for a kernel that does not compute the workload.
    """
    is_attention = any(s.label == "attention" for s in read_statements(workload))
    is_product = any((s.gpu or GpuTile()).kernel in _PRODUCTS for s in schedules) and bool(
        read_product(workload)
    )
    kinds = [_kind(workload, schedule, is_attention, is_product) for schedule in schedules]
    columns = {name: np.zeros(len(schedules)) for name in _names(workload)}
    us, parts = np.zeros(len(schedules)), {name: np.zeros(len(schedules)) for name in PARTS}
    groups = []
    for kind in sorted(set(kinds)):
        rows = np.asarray([row for row, own in enumerate(kinds) if own == kind])
        kernel = _kernel(workload, kind, [schedules[row] for row in rows], target)
        for name, values in kernel.columns.items():
            columns[name][rows] = values
        us[rows] = kernel.us
        for name, values in kernel.parts_us.items():
            parts[name][rows] = values
        groups.append((rows, kernel))
    return GpuFeatures(columns, np.asarray(kinds), tuple(groups), us, parts)


def _names(workload: Workload) -> list[str]:
    """All columns, the same for every kernel of a workload."""
    operands = [o.name for o in named_operands(workload)]
    found = []
    for name in UNITS:
        if name == "arithmetic":
            found += [f"{name}.{unit}" for unit in ("fma", "mma", "wgmma", "special")]
        elif name == "traffic":
            for level in ("DRAM", "L2", "shared"):
                found += [f"{name}.{level}", *(f"{name}.{level}.{own}" for own in (*operands, PARTIAL))]
        elif name in ("run", "sectors", "vector", "deferred"):
            found += [f"{name}.{own}" for own in operands]
        else:
            found.append(name)
    return found


def _kind(workload: Workload, schedule: Schedule, is_attention: bool, is_product: bool) -> str:
    """The kind of kernel of a schedule, which says all that its features are counted by."""
    said, who = schedule.gpu or GpuTile(), f"features of `{workload.op}` on a GPU"
    if said.kernel not in _NEEDED:
        found = f"`{said.kernel}`" if said.kernel else "open"
        raise ScheduleError(
            f"{who}: gpu.kernel is {found}; it is one of {', '.join(KERNELS)}. Complete the schedule first"
        )
    for name in _NEEDED[said.kernel]:
        if not getattr(said, name):
            raise ScheduleError(
                f"{who}: gpu.{name} is open; kernels of family {said.kernel} are counted by it. Complete the schedule first"
            )
    wanted = _SIZES.get(said.kernel, len(said.block))
    if len(said.block) != wanted:
        raise ScheduleError(
            f"{who}: gpu.block is {list(said.block)}; for kernel {said.kernel} it has {wanted} sizes"
        )
    if said.kernel == "attention" or (said.kernel == "wgmma" and is_attention):
        if not is_attention:
            raise ScheduleError(f"{who}: gpu.kernel is {said.kernel}, but the workload is no attention")
        kind = "wgmma" if said.kernel == "wgmma" else "mma" if said.instruction else "simt"
        return f"attention {kind}"
    if said.kernel in _PRODUCTS:
        if not is_product:
            raise ScheduleError(
                f"{who}: gpu.kernel is {said.kernel}, but the workload is no product of two matrices"
            )
        if said.kernel == "mma" and said.instruction.startswith(VOLTA):
            return "volta"
    return said.kernel


def _kernel(workload: Workload, kind: str, schedules: Sequence[Schedule], target: Target) -> GpuKernel:
    tiles = [schedule.gpu or GpuTile() for schedule in schedules]
    if kind.startswith("attention"):
        return attention_kernel(workload, kind.partition(" ")[2], tiles, target)
    if kind in (*_PRODUCTS, "volta"):
        product = read_product(workload)
        assert product is not None
        return product_kernel(product, kind, tiles, target)
    return stream_kernel(workload, kind, schedules, target)
