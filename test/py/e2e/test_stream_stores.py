"""Results that are stored past the caches are whole and exact, wherever in memory they and their rows begin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tilewright
from tilewright.compiler import phases
from tilewright.compiler.codegen.lower_cpu import lower
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.importers import Imported
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.targets.host import host
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.executable import Executable


class Scaled(nn.Module):
    """An element-wise operation that ends in another type."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2 - 1).to(self.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16], ids=str)
@pytest.mark.parametrize("shift", [0, 1, 5])
def test_every_element_is_stored(dtype, shift):
    width = torch.empty(0, dtype=dtype).element_size()
    count = host().memory[1].capacity_bytes // width + 1237
    x = torch.arange(count, dtype=torch.float32) % 1000
    run = tilewright.compile(Scaled(dtype), (x,)).executable
    room = np.full(count + 64, 7, dtype=torch.empty(0, dtype=dtype).numpy().dtype)
    begin = (-room.ctypes.data % 64) // width + shift
    found = room[begin : begin + count]
    run.run([x.data_ptr()], [found.ctypes.data])
    np.testing.assert_array_equal(found, (x * 2 - 1).to(dtype).numpy())
    assert (room[:begin] == 7).all() and (room[begin + count :] == 7).all()


def scheduled(module: nn.Module, x: torch.Tensor, stream: bool) -> tuple[Imported, ir.Operation]:
    """The module, and its one dispatch with stores past the caches or without, whatever its size."""
    imported = import_model(module.eval(), (x,))
    phases.run_phases(imported.module, resolve("cpu"))
    dispatch = next(f for f in functions(imported.module) if "tilewright.operator" in f.attributes)
    schedule = schedule_attribute.read(dispatch)
    assert schedule is not None and not schedule.stream
    schedule_attribute.write(dispatch, replace(schedule, stream=stream))
    return imported, dispatch


def kernel_text(module: nn.Module, x: torch.Tensor, stream: bool) -> str:
    """LLVM IR of the dispatch's kernel."""
    imported, dispatch = scheduled(module, x, stream)
    with imported.module.context, ir.Location.unknown(imported.module.context):
        return lower(dispatch, resolve("cpu"))[0]


def streamed(module: nn.Module, x: torch.Tensor) -> Executable:
    """The module, its one dispatch with stores past the caches."""
    imported, _ = scheduled(module, x, True)
    package = phases.package_module(imported.module, resolve("cpu"), phases.Report())
    return Executable(package, list(imported.weights), 1)


@pytest.mark.parametrize(
    "module, shape",
    [
        (nn.Softmax(-1), (9, 263)),
        (nn.LayerNorm(300), (5, 3, 300)),
        (nn.Softmax(-1), (3, 5, 1024)),
        (nn.GELU(), (7, 411)),
    ],
    ids=str,
)
@pytest.mark.parametrize("shift", [0, 3])
def test_every_row_is_stored(module, shape, shift):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    run = streamed(module, x)
    room = np.full(x.numel() + 64, 7, dtype=np.float32)
    begin = (-room.ctypes.data % 64) // 4 + shift
    found = room[begin : begin + x.numel()]
    run.run([x.data_ptr()], [found.ctypes.data])
    with torch.inference_mode():
        expected = module(x).numpy()
    np.testing.assert_allclose(found.reshape(shape), expected, rtol=2e-5, atol=2e-6)
    assert (room[:begin] == 7).all() and (room[begin + x.numel() :] == 7).all()


def test_one_fence_follows_the_last_rtask_of_a_call():
    x = torch.randn(9, 263)
    for stream in (True, False):
        text = kernel_text(nn.Softmax(-1), x, stream)
        entry = text[text.index("define i32 @tw_kernel") :]
        assert text.count("call void @llvm.x86.sse.sfence()") == stream
        assert ("done:\n  call void @llvm.x86.sse.sfence()" in entry) is stream


def test_rows_that_are_too_short_are_refused_by_the_field():
    with pytest.raises(ScheduleError, match="stream is true, but an rTask's results are no dense rows"):
        streamed(nn.Softmax(-1), torch.randn(8, 40))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "sapphire-rapids"])
def test_what_exceeds_the_last_cache_is_streamed_and_offered_both_ways(target):
    machine = resolve(target)
    rows = machine.memory[1].capacity_bytes // 4 // 1024
    for count, streams in ((rows, True), (rows // 4, False)):
        imported = import_model(nn.Softmax(-1), (torch.empty(count, 1024),))
        phases.run_phases(imported.module, machine)
        (dispatch,) = (f for f in functions(imported.module) if "tilewright.operator" in f.attributes)
        with imported.module.context, ir.Location.unknown(imported.module.context):
            found = ConstructSchedules.for_target(machine).candidates_or_none(dispatch)
        first, *others = (candidate.schedule for candidate in found)
        assert first.stream is streams and replace(first, stream=not streams) in others[:2]
        assert schedule_attribute.read(dispatch) == first
