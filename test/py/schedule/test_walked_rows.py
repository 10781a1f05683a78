"""Rows that a dispatch walks again are fetched for the next rTask where they come from beyond a core's own caches."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tilewright.compiler import phases
from tilewright.compiler.codegen.lower_cpu import lower
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.complete_schedule import complete
from tilewright.compiler.importers import Imported
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target, resolve
from tilewright.runtime.executable import Executable

TARGETS = ("x86-64-v3", "x86-64-v4", "sapphire-rapids")


class Sums(nn.Module):
    """Rows that are walked once."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1)


def scheduled(
    module: nn.Module, x: torch.Tensor, target: Target, edit: Callable[[Schedule], Schedule] | None = None
) -> tuple[Imported, ir.Operation, Schedule]:
    """The module, its one dispatch, and its schedule as constructed, or edited."""
    imported = import_model(module.eval(), (x,))
    phases.run_phases(imported.module, target)
    (dispatch,) = (f for f in functions(imported.module) if "tilewright.operator" in f.attributes)
    schedule = schedule_attribute.read(dispatch)
    assert schedule is not None
    if edit is not None:
        schedule = edit(schedule)
        schedule_attribute.write(dispatch, schedule)
    return imported, dispatch, schedule


def kernel_text(imported: Imported, dispatch: ir.Operation, target: Target) -> str:
    with imported.module.context, ir.Location.unknown():
        return lower(dispatch, target)[0]


def distance(module: nn.Module, shape: tuple[int, ...], tile: tuple[int, ...], name: str) -> int:
    """What is constructed around a tile."""
    target = resolve(name)
    imported, dispatch, _ = scheduled(module, torch.empty(shape), target)
    with imported.module.context, dispatch.location:
        return complete(dispatch, Schedule(tile), target).prefetch


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("module", (nn.Softmax(-1), nn.LayerNorm(4096)), ids=("softmax", "layer norm"))
def test_rows_from_beyond_the_cores_caches_are_fetched_for_the_next_rtask(
    module: nn.Module, name: str
) -> None:
    assert distance(module, (8192, 4096), (1, 0), name) == 4096 * 4
    assert distance(module, (2, 4096, 4096), (1, 1, 0), name) == 4096 * 4


@pytest.mark.parametrize("name", TARGETS[:2])
@pytest.mark.parametrize("rows", (4096, 16384))
def test_the_constructed_rtask_has_no_more_rows_than_are_fetched_ahead(rows: int, name: str) -> None:
    """Where they come from memory; of rows in the caches it is as large as starting it asks for."""
    _, _, far = scheduled(nn.Softmax(-1), torch.empty(rows, 4096), resolve(name))
    assert far.tile[0] > 0 and far.prefetch == far.tile[0] * 4096 * 4 <= 65536
    _, _, near = scheduled(nn.Softmax(-1), torch.empty(256, 128), resolve(name))
    assert not near.prefetch


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("module", "shape", "tile"),
    (
        (nn.Softmax(-1), (64, 512), (1, 0)),
        (nn.Softmax(-1), (8192, 4096), (0, 0)),
        (nn.Softmax(-1), (8192, 4096), (512, 0)),
        (Sums(), (8192, 4096), (1,)),
    ),
    ids=("in the caches", "not cut", "more than caches hold", "walked once"),
)
def test_others_are_not(module: nn.Module, shape: tuple[int, ...], tile: tuple[int, ...], name: str) -> None:
    assert distance(module, shape, tile, name) == 0


@pytest.mark.parametrize(
    ("module", "shape", "tile"),
    (
        (nn.Softmax(-1), (9, 263), (1, 0)),
        (nn.Softmax(-1), (3, 5, 77), (1, 2, 0)),
        (nn.LayerNorm(301), (7, 301), (2, 0)),
        (nn.LogSoftmax(-1), (6, 130), (4, 0)),
    ),
    ids=str,
)
def test_what_is_computed_stays_right(
    module: nn.Module, shape: tuple[int, ...], tile: tuple[int, ...]
) -> None:
    """Beyond the last row too, where the lines asked for are not the argument's."""
    target, x = resolve("cpu"), torch.randn(shape, generator=torch.Generator().manual_seed(0))
    results = []
    for edited in (Schedule(tile), Schedule(tile, prefetch=4096)):
        imported, dispatch, _ = scheduled(module, x, target, lambda _, edited=edited: edited)
        assert ("@llvm.prefetch" in kernel_text(imported, dispatch, target)) is bool(edited.prefetch)
        package = phases.package_module(imported.module, target, phases.Report())
        found = np.empty(shape, dtype=np.float32)
        Executable(package, list(imported.weights), 1).run([x.data_ptr()], [found.ctypes.data])
        results.append(found)
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(x.double()).float().numpy()
    for found in results:
        np.testing.assert_allclose(found, exact, rtol=2e-5, atol=2e-6)


class Rows(nn.Module):
    """Rows that are walked again, by a reduction of what is computed of them in a way that loops along rows may not take."""

    def __init__(self, step: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


COMPUTED = {
    "masked": lambda x: x.amax(-1, keepdim=True) + torch.where(x > 0.5, x, -3.0).softmax(-1),
    "lower triangle": lambda x: x.amax(-1, keepdim=True) + x.tril().softmax(-1),
    "rows of infinities": lambda x: torch.where((x == -torch.inf).all(-1, keepdim=True), 0.0, x).softmax(-1),
    "two sums from one fill": lambda x: (
        ((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)).clamp(-1, 1).softmax(-1)
    ),
    "transposed": lambda x: x.sum(-1, keepdim=True) + (x + x.T).softmax(-1),
    "doubled": lambda x: x.sum(-1) + x.double().pow(2).sum(-1).float(),
}


@pytest.mark.parametrize("name", TARGETS[:2])
@pytest.mark.parametrize("computed", COMPUTED)
def test_what_is_constructed_for_rows_that_are_computed_on_is_emitted(computed: str, name: str) -> None:
    """Of rows from beyond the caches, whether loops along them can fetch ahead or not."""
    target = resolve(name)
    imported = import_model(Rows(COMPUTED[computed]), (torch.empty(4096, 4096),))
    phases.run_phases(imported.module, target)
    for dispatch in [f for f in functions(imported.module) if "tilewright.operator" in f.attributes]:
        kernel_text(imported, dispatch, target)


@pytest.mark.parametrize(
    ("module", "tile"), ((Sums(), (1,)), (nn.Softmax(-1), (0, 0))), ids=("walked once", "not cut")
)
def test_what_cannot_be_fetched_is_refused_by_the_field(module: nn.Module, tile: tuple[int, ...]) -> None:
    target = resolve("cpu")
    edited = Schedule(tile, prefetch=4096)
    imported, dispatch, _ = scheduled(module, torch.empty(8, 128), target, lambda _: edited)
    with pytest.raises(ScheduleError, match="prefetch is 4096, but"):
        kernel_text(imported, dispatch, target)
