"""A GPU schedule is what its kernel is made of, or it is refused: nothing that it says is passed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from dispatch_runs import dispatches
from torch.nn import functional as F

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import PassError, ScheduleError
from tilewright.compiler.families.gpu import families
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Reduction, Schedule
from tilewright.compiler.targets.target import resolve


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


HALF = torch.float16
SIZES = (
    "gpu.threads",
    "threads",
    "shared memory",
    "block_n",
    "block_m",
    "warps take",
    "stages",
    "registers",
    "gpu.block",
)
CASES: dict[str, tuple[Callable, tuple[torch.Tensor, ...], str, str]] = {
    "relu": (torch.relu, (r(256, 256),), "a100", "elementwise"),
    "ragged": (lambda x: x.tanh() + 1, (r(7, 13, 5),), "v100", "elementwise"),
    "halves": (lambda x: x * 2, (r(64, 96, dtype=HALF),), "h100", "elementwise"),
    "two results": (lambda x: (x + 1, x.abs()), (r(32, 48),), "a100", "elementwise"),
    "depthwise": (lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w, groups=16).permute(0, 2, 3, 1), (r(1, 24, 24, 16), r(16, 1, 3, 3)), "a100", "windows"),
    "pooling": (lambda x: F.max_pool2d(x, 2), (r(1, 8, 24, 24),), "v100", "windows"),
    "transpose": (lambda x: x.permute(1, 0).contiguous() * 2, (r(300, 200),), "a100", "transpose"),
    "scatter": (lambda x, i, s: x.index_add(0, i, s), (r(40, 16), torch.arange(6), r(6, 16)), "a100", "scatter"),
    "softmax": (lambda x: torch.softmax(x, -1), (r(64, 500),), "a100", "rows"),
    "long rows": (lambda x: x.sum(-1), (r(4, 60000),), "a100", "rows"),
    "columns": (lambda x: x.mean(0), (r(3000, 40),), "v100", "rows"),
    "variance": (lambda x: x.var(0), (r(9000, 4),), "a100", "rows"),
    "sort": (lambda x: x.sort(-1), (r(6, 100),), "a100", "sort"),
    "scan": (lambda x: x.cumsum(-1), (r(6, 300),), "v100", "scan"),
    "simt": (torch.matmul, (r(200, 96), r(96, 120)), "a100", "simt"),
    "mma": (torch.matmul, (r(256, 128, dtype=HALF), r(128, 192, dtype=HALF)), "a100", "mma"),
    "volta": (torch.matmul, (r(256, 128, dtype=HALF), r(128, 192, dtype=HALF)), "v100", "mma"),
    "wgmma": (torch.matmul, (r(2048, 512, dtype=HALF), r(512, 2048, dtype=HALF)), "h100", "wgmma"),
    "skinny": (torch.matmul, (r(2, 512), r(512, 384)), "a100", "skinny"),
    "attention": (F.scaled_dot_product_attention, (r(1, 2, 128, 64, dtype=HALF),) * 3, "a100", "attention"),
    "attention, f32": (F.scaled_dot_product_attention, (r(1, 2, 100, 40),) * 3, "v100", "attention"),
    "attention, wgmma": (F.scaled_dot_product_attention, (r(1, 2, 256, 64, dtype=HALF),) * 3, "h100", "wgmma"),
}  # fmt: skip


def dispatch(case: str) -> tuple[ir.Module, ir.Operation]:
    """The constructed dispatch of a case that its kernel is about, the last one of its kind."""
    function, args, target, kernel = CASES[case]
    module, found = dispatches(function, args, target)
    *_, own = [f for f in found.values() if asked_of(f).kernel == kernel]
    return module, own


def asked_of(function: ir.Operation) -> GpuTile:
    schedule = schedule_attribute.read(function)
    assert schedule is not None and schedule.gpu is not None
    return schedule.gpu


def emitted(function: ir.Operation, schedule: Schedule, target: str) -> ir.Module:
    """The kernel of a dispatch with another schedule."""
    with function.context, function.location:
        described = resolve(target)
        return families.emit(families.complete(function, schedule, described), described)


def schedule_of(kernel: ir.Module) -> Schedule:
    """What a kernel says that it is made of."""
    schedule = schedule_attribute.read(kernel_of(kernel))
    assert schedule is not None
    return schedule


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_is_made_of_what_was_constructed(case: str) -> None:
    _module, function = dispatch(case)
    asked = schedule_attribute.read(function)
    assert asked is not None
    kernel = emitted(function, asked, CASES[case][2])
    assert schedule_of(kernel) == replace(asked, levels=())


@pytest.mark.parametrize("case", CASES)
def test_every_field_is_obeyed_or_refused(case: str) -> None:
    """A field halved, doubled, or set where the family has none: the kernel has it so, or an error names it."""
    _module, function = dispatch(case)
    target, made = CASES[case][2], asked_of(function)
    for field in fields(GpuTile):
        for value in neighbours(getattr(made, field.name)):
            asked = Schedule(gpu=replace(made, **{field.name: value}))
            try:
                kernel = emitted(function, asked, target)
            except (ScheduleError, PassError) as refusal:
                # Sizes that do not go together may be refused by the name of another one.
                assert any(word in str(refusal) for word in (field.name, str(value), *SIZES)), refusal
                continue
            found = schedule_of(kernel).gpu
            assert found is not None and getattr(found, field.name) == value


@pytest.mark.parametrize(
    "said",
    [
        {"reductions": (Reduction("products", (4, 16)),)},
        {"prefetch": 4096},
        {"stream": True},
        {"unroll": 4},
        {"vector": 4},
    ],
)
def test_fields_of_cpus_are_refused(said: dict) -> None:
    _module, function = dispatch("simt")
    asked = replace(Schedule(gpu=asked_of(function)), **said)
    with pytest.raises(ScheduleError, match=f"{next(iter(said))} is of kernels for CPUs; leave it out"):
        emitted(function, asked, CASES["simt"][2])


def neighbours(value: object) -> list:
    """Other values for a field of a schedule that may or may not be possible."""
    if isinstance(value, str):
        return ["mma.m16n8k4096", "fallback"] if value else ["mma.m16n8k4096"]
    if isinstance(value, tuple):
        grown = [tuple(n * 2 if i == at else n for i, n in enumerate(value)) for at in range(len(value))]
        return [*grown, (*value[:-1], value[-1] + 1)] if value else [(999, 1)]
    assert isinstance(value, int)
    return [value * 2, value // 2 or 3] if value else [7]


@pytest.mark.parametrize(
    ("case", "schedule", "rule"),
    [
        ("mma", Schedule(gpu=GpuTile("wgmma", block=(128, 128, 64))), "gpu.kernel is `wgmma`, which does not compute it"),
        ("simt", Schedule(gpu=GpuTile("rows")), "gpu.kernel is `rows`, which does not compute it: a contraction"),
        ("simt", Schedule(gpu=GpuTile("attention")), "gpu.kernel is `attention`, which does not compute it"),
        ("relu", Schedule((1, 256), gpu=GpuTile("elementwise")), "say gpu.block"),
        ("relu", Schedule((999, 999)), "say gpu.block"),
        ("relu", Schedule(gpu=GpuTile("elementwise", 256, (1000,))), "take 1 to 8 vectors"),
        ("relu", Schedule(gpu=GpuTile("windows")), "gpu.kernel is windows"),
        ("relu", Schedule(gpu=GpuTile("transpose")), "gpu.kernel is transpose"),
        ("simt", Schedule(gpu=GpuTile("simt", warp=(999, 1))), "gpu.warp is .999, 1., which kernels of family simt"),
        ("simt", Schedule(gpu=GpuTile("simt", instruction="wgmma.m64n128k16")), "gpu.instruction is wgmma"),
        ("simt", Schedule(gpu=GpuTile("simt", swizzle=77)), "gpu.swizzle is 77"),
        ("simt", Schedule(gpu=GpuTile("skinny")), "gpu.kernel is skinny.*at most 64 rows"),
        ("softmax", Schedule((4, 0), gpu=GpuTile("rows", 128)), "say gpu.block"),
        ("softmax", Schedule(gpu=GpuTile("rows", 96, (1, 96))), "powers of two"),
    ],
)  # fmt: skip
def test_what_no_kernel_has_is_refused(case: str, schedule: Schedule, rule: str) -> None:
    _module, function = dispatch(case)
    with pytest.raises(ScheduleError, match=rule):
        emitted(function, schedule, CASES[case][2])


def test_a_tile_is_the_fallbacks_and_cuts_it() -> None:
    _module, function = dispatch("relu")
    kernel = emitted(function, Schedule((4096,), gpu=GpuTile("fallback", 128)), "a100")
    assert schedule_of(kernel) == Schedule((4096,), gpu=GpuTile("fallback", 128))
    with pytest.raises(ScheduleError, match="tile 70000 of loop 0 exceeds its extent 65536"):
        emitted(function, Schedule((70000,), gpu=GpuTile("fallback")), "a100")
