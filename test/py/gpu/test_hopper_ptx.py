"""wgmma kernels assemble for sm_90a as they are meant: registers handed over, no spills, no warnings, the right instructions."""

import re

import pytest
from family_kernels import emitter
from hopper_products import Convolution, Product

from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.codegen.ptxas import assemble, find
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.ir import context, functions, ir, parse
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve

needs_ptxas = pytest.mark.skipif(find("sm_90a") is None, reason="no assembler that knows sm_90a is installed")


def emitted(problem: Product | Convolution, gpu: GpuTile | None) -> ir.Module:
    """The kernel of a dispatch for the h100 preset, shared memory placed."""
    with context(), ir.Location.unknown():
        (function,) = functions(module := parse(problem.text()))
        found = emitter("wgmma")(function, Schedule(gpu=gpu), resolve("h100"))
        run_pipeline(found.operation, "builtin.module(gpu.module(gpu.func(place-shared)))")
        del module
        return found


def ptx(problem: Product | Convolution, gpu: GpuTile | None = None) -> str:
    found = emitted(problem, gpu)
    with context(), ir.Location.unknown():
        return compile_ptx(found, "sm_90a").text


STANDARD = [
    (Product(4096, 4096, 4096, "bf16", result="bf16", epilogue="bias_relu"), None),
    (Product(4096, 4096, 4096, "f16", b="kn"), GpuTile("wgmma", block=(128, 256, 64), cluster=2)),
    (Product(4096, 4096, 4096, "f16", a="km", epilogue="residual_gelu"), GpuTile("wgmma", block=(128, 192, 64))),
    (Product(4096, 4096, 4096, "f16"), GpuTile("wgmma", block=(192, 128, 64))),
    (Product(4096, 4096, 4096, "f16", result="f32"), GpuTile("wgmma", block=(256, 128, 64))),
    (Product(1024, 1280, 8192, "f16"), GpuTile("wgmma", block=(128, 256, 64), split_k=3)),
    (Product(4096, 1280, 8192, "f16"), GpuTile("wgmma", block=(128, 256, 64), split_k=2)),
    (Product(1000, 1000, 1000, "f16", result="f32"), GpuTile("wgmma", block=(128, 256, 64))),
    (Product(2048, 2048, 2048, "f32", result="f32"), GpuTile("wgmma", block=(128, 256, 32), instruction="wgmma.m64n256k8.tf32")),
    (Product(2048, 2048, 2048, "i8", result="f32", epilogue="scaled"), GpuTile("wgmma", block=(128, 256, 128))),
    (Convolution(32, 58, 58, 64, 64), None),
    (Convolution(32, 57, 57, 128, 256, stride=2), None),
]  # fmt: skip


@needs_ptxas
@pytest.mark.parametrize(("problem", "gpu"), STANDARD)
def test_no_spills_and_no_warnings(problem, gpu):
    """Neither spills nor warnings: C7508 would say that setmaxnreg is ignored, C7510 that wgmma are serialised."""
    text = ptx(problem, gpu)
    resources = assemble(text, "sm_90a").resources
    assert resources.warnings == ()
    assert resources.spill_bytes == 0
    threads = int(re.search(r"\.reqntid (\d+)", text)[1])
    if threads > 256:
        assert resources.registers == 65536 // threads // 8 * 8
        assert text.count("setmaxnreg.inc") == text.count("setmaxnreg.dec") == 1


def test_instructions():
    """TMA multicasts b to both blocks of a cluster, wgmma reads across k what lies across, results leave by TMA."""
    text = ptx(*STANDARD[1])
    assert (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        in text
    )
    assert re.search(r"wgmma\.mma_async\.sync\.aligned\.m64n256k16\.f32\.f16\.f16 .*, 1, 1, 0, 1;", text)
    assert "stmatrix.sync.aligned.m8n8.x4.shared" in text
    assert "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group" in text
    assert "fence.proxy.async.shared::cta" in text
    assert "cvt.rn.f16x2.f32" in text


def test_one_group_stays_in_flight():
    """The loop waits for all but the last group of wgmma, and for the last one behind it."""
    text = ptx(*STANDARD[1])
    waits = re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", text)
    assert set(waits[:-1]) == {"1"}
    assert waits[-1] == "0"


def test_residuals_are_read_before_the_k_loop():
    """What the epilogue adds row by row is on its way while the product is computed; a bias is read when it is needed."""
    gpu = GpuTile("wgmma", block=(128, 128, 64))
    residual, bias = (
        ptx(Product(1024, 1024, 1024, epilogue=own), gpu) for own in ("residual_gelu", "bias_relu")
    )
    loads = [re.search(r"ld\.global[.\w]*\.b32", text).start() for text in (residual, bias)]
    first, last = residual.index("wgmma.mma_async"), bias.rindex("wgmma.mma_async")
    assert loads[0] < first
    assert loads[1] > last


def test_windows_take_the_dimensions_of_the_tensor():
    """A convolution of stride 2 is copied box by box from maps of four dimensions, as data and filters have."""
    text = ptx(*STANDARD[-1])
    assert set(re.findall(r"cp\.async\.bulk\.tensor\.(\d)d\.shared", text)) == {"4"}


@pytest.mark.parametrize(
    ("gpu", "rule"),
    [
        (GpuTile("wgmma", block=(96, 128, 64)), "multiple of 64"),
        (GpuTile("wgmma", block=(128, 128, 32)), "multiple of 64, n, 64"),
        (GpuTile("wgmma", block=(128, 256, 64), stages=5), "use fewer"),
        (GpuTile("wgmma", block=(128, 100, 64)), "columns of f16 are 8 to 256"),
        (GpuTile("wgmma", block=(128, 128, 64), cluster=3), "clusters are of"),
    ],
)
def test_illegal_schedules_are_refused(gpu, rule):
    """A tile that cannot be is an error with the rule and the remedy, not another tile."""
    with pytest.raises(ScheduleError, match=rule):
        emitted(Product(512, 512, 512), gpu)


@pytest.mark.parametrize(
    ("problem", "gpu"),
    [
        (Product(64, 64, 60), None),
        (Product(64, 64, 64, "f32", result="f32"), None),
        (Product(8, 512, 512), None),
        (Convolution(2, 16, 16, 3, 64), None),
    ],
)
def test_others_are_left_to_other_families(problem, gpu):
    """Strides that are no multiples of 16 bytes, exact f32, and few rows."""
    with pytest.raises(Declined):
        emitted(problem, gpu)
