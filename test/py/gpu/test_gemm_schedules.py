"""Which kernel a contraction gets: what schedules ask for, what is chosen without one, and what is refused."""

from __future__ import annotations

import pytest
from family_kernels import emitter
from gemm_dispatches import Case, assert_close, matmul

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.families.contraction.choice import complete
from tilewright.compiler.families.contraction.mma_gemm import MmaTile
from tilewright.compiler.families.contraction.problem import read_contraction
from tilewright.compiler.families.contraction.rules import tile_of
from tilewright.compiler.families.contraction.simt_gemm import SimtTile
from tilewright.compiler.families.contraction.skinny_gemm import SkinnyTile
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.ir import functions
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import resolve


def chosen(case: Case, target: str, asked: GpuTile | None = None):
    (function,) = functions(module := case.module())
    assert module
    contraction, described = read_contraction(function), resolve(target)
    made = complete(contraction, Schedule(gpu=asked), described).gpu
    assert made is not None
    return tile_of(contraction, made, described)


@pytest.mark.parametrize(
    ("case", "target", "kind"),
    [
        (matmul(512, 512, 512), "v100", SimtTile),
        (matmul(512, 512, 512), "a100", SimtTile),
        (matmul(512, 512, 512, dtype="f64"), "h100", SimtTile),
        (matmul(512, 512, 512, dtype="f16"), "v100", VoltaTile),
        (matmul(512, 512, 512, dtype="bf16"), "v100", SimtTile),
        (matmul(512, 512, 512, dtype="bf16"), "a100", MmaTile),
        (matmul(512, 512, 512, dtype="i8"), "a100", MmaTile),
        (matmul(1, 512, 512, dtype="f16"), "a100", SkinnyTile),
        (matmul(12, 512, 512), "v100", SkinnyTile),
        (matmul(12, 512, 512, dtype="f16"), "a100", MmaTile),
    ],
)
def test_types_and_shapes_choose_the_kernel(case: Case, target: str, kind: type) -> None:
    assert isinstance(chosen(case, target), kind)


def test_large_products_get_large_tiles_small_ones_fill_the_machine() -> None:
    large, small = chosen(matmul(4096, 4096, 4096), "v100"), chosen(matmul(128, 128, 2048), "v100")
    assert (large.block_m, large.block_n, large.split_k) == (128, 128, 1)
    assert small.split_k > 1
    assert chosen(matmul(128, 128, 2048), "v100") == small


def test_a_schedule_is_followed_to_the_letter() -> None:
    asked = GpuTile("simt", block=(64, 32, 8), thread=(4, 4), stages=2, split_k=2, raster=2, resident=4)
    assert chosen(matmul(90, 70, 64), "a100", asked) == SimtTile(64, 32, 8, 4, 4, 2, 2, 2, True, 4, 4)
    asked = GpuTile("mma", block=(64, 32, 64), warp=(32, 16), instruction="mma.m16n8k16", stages=4)
    tile = chosen(matmul(90, 70, 64, dtype="bf16"), "a100", asked)
    assert (tile.instruction.name, tile.block_k, tile.warp_n, tile.stages) == ("mma.m16n8k16.bf16", 64, 16, 4)


def test_f32_is_rounded_to_tf32_only_when_asked() -> None:
    assert isinstance(chosen(matmul(512, 512, 512), "a100"), SimtTile)
    asked = GpuTile("mma", block=(64, 64, 16), warp=(32, 32), instruction="mma.m16n8k8.tf32")
    assert chosen(matmul(512, 512, 512), "a100", asked).instruction.dtype == "f32"
    with pytest.raises(ScheduleError, match="no instruction"):
        chosen(matmul(512, 512, 512), "a100", GpuTile("mma"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (GpuTile("simt", block=(64, 64)), "a contraction's block has 3 sizes"),
        (GpuTile("simt", block=(64, 64, 8), thread=(5, 4)), r"gpu.thread\[0\] is 5: a thread's tile divides the block's"),
        (GpuTile("simt", block=(16, 16, 8), thread=(4, 4)), "threads are no multiple of 32"),
        (GpuTile("simt", block=(64, 64, 8), thread=(4, 4), threads=128), "its sizes give 256 threads, it says 128"),
        (GpuTile("simt", block=(64, 64, 8), thread=(4, 4), stages=1), "2 stages or more"),
        (GpuTile("simt", block=(256, 256, 32), thread=(16, 16), stages=8), r"the 255 registers of a thread"),
        (GpuTile("simt", block=(256, 128, 32), thread=(8, 16), stages=8), r"the 166,912 B of shared memory.*use fewer stages"),
    ],
)  # fmt: skip
def test_illegal_schedules_are_refused(asked: GpuTile, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        chosen(matmul(90, 70, 64), "a100", asked)


@pytest.mark.parametrize(
    ("asked", "target", "message"),
    [
        (GpuTile("mma", block=(64, 64, 32), warp=(24, 32)), "a100", "warps take multiples of 16 rows"),
        (
            GpuTile("mma", block=(64, 64, 24), warp=(32, 32)),
            "a100",
            r"block\[2\] is 24: the instruction takes multiples of 16",
        ),
        (GpuTile("mma", instruction="mma.m16n8k32"), "a100", "no instruction `mma.m16n8k32`"),
        (GpuTile("mma", block=(64, 64, 32), warp=(32, 8)), "v100", "warps take multiples of 16 columns"),
        (
            GpuTile("mma", block=(64, 64, 30), warp=(32, 32)),
            "v100",
            r"block\[2\] is 30: the instruction takes multiples of 4",
        ),
        (GpuTile("mma", instruction="mma.m16n8k16"), "v100", "no instruction `mma.m16n8k16`"),
    ],
)
def test_illegal_matrix_schedules_are_refused(asked: GpuTile, target: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        chosen(matmul(90, 70, 64, dtype="f16"), target, asked)


def test_what_is_no_contraction_is_left_to_other_families() -> None:
    case = Case(
        {"n": 1, "h": 4, "w": 4, "c": 8, "i": 3, "j": 3}, ("n", "h + i", "w + j", "c"), ("i", "j", "c"), ("n", "h", "w", "c")
    )  # fmt: skip
    (function,) = functions(module := case.module())
    assert module
    with pytest.raises(Declined, match="all lies contiguous along the batch"):
        emitter("contraction")(function, Schedule(), resolve("a100"))


@pytest.mark.parametrize("target", ["v100", "a100", "h100"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_the_entry_point_computes_what_it_chose(target: str, dtype: str) -> None:
    case = matmul(50, 44, 70, dtype=dtype, epilogue="bias_relu")
    (function,) = functions(module := case.module())
    assert module
    kernel = emitter("contraction")(function, Schedule(), resolve(target))
    assert kernel is not None
    found, expected = case.emulate(kernel)
    assert_close(found, expected, "f32", "f32" if dtype == "f32" else "f16")
