"""Fused attention on wgmma and TMA: by emulation beside PyTorch's in f64, mutants, what is assembled, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from dispatch_runs import dispatches, run
from family_kernels import completed, emitter
from kernel_mutants import survivors
from torch.nn.functional import scaled_dot_product_attention

from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.codegen.ptxas import assemble, find
from tilewright.compiler.dialects.attention import Attention
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.attention.masks import keeps_seen_scores
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.ir import context, ir, parse, walk
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.passes.lower_gpu.place_shared import PlaceShared
from tilewright.compiler.targets.target import resolve

TARGET = resolve("h100")
OFF = {torch.float16: 3e-3, torch.bfloat16: 2e-2}
needs_ptxas = pytest.mark.skipif(find("sm_90a") is None, reason="no assembler that knows sm_90a is installed")


def tensors(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def tile(rows: int, columns: int) -> Schedule:
    return Schedule(gpu=GpuTile("wgmma", block=(rows, columns)))


def is_on_warpgroups(kernel: ir.Module) -> bool:
    return bool(walk(kernel.operation, "tilewright.wgmma_register"))


def check(function: Callable, args: list[torch.Tensor], schedule: Schedule) -> None:
    """The attention of a function runs on wgmma, and the result is what f64 gives, in three orders of threads."""
    taken = []

    def emit(dispatch, _, described):
        written = emitter("attention")(dispatch, schedule, described)
        taken.append(is_on_warpgroups(written))
        return written

    (found,) = run(function, args, emit, emitter("elementwise"), emitter("fallback"), target="h100")
    assert taken == [True]
    expected = function(*(x.double() if x.is_floating_point() else x for x in args))
    assert found.dtype == args[0].dtype
    assert torch.allclose(found.double(), expected, rtol=0, atol=OFF[args[0].dtype], equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "rows", "keys", "inner", "width", "causal", "block"),
    [
        (torch.float16, 64, 96, 64, 64, False, (64, 32)),
        (torch.bfloat16, 130, 200, 64, 64, True, (128, 64)),
        (torch.float16, 100, 90, 96, 96, True, (64, 48)),
        (torch.bfloat16, 70, 75, 128, 128, False, (128, 64)),
        (torch.float16, 150, 150, 128, 128, True, (128, 32)),
        (torch.float16, 200, 60, 24, 40, False, (192, 16)),
        (torch.bfloat16, 40, 33, 144, 72, True, (64, 16)),
        (torch.float16, 64, 40, 16, 256, True, (64, 32)),
    ],
)
def test_results_are_pytorchs(
    dtype: torch.dtype, rows: int, keys: int, inner: int, width: int, causal: bool, block: tuple[int, int]
) -> None:
    """Whole and ragged queries and keys, heads of one to four panels, results narrower and wider than queries."""
    shapes = [(1, 2, rows, inner), (1, 2, keys, inner), (1, 2, keys, width)]
    check(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal),
        tensors(shapes, dtype),
        tile(*block),
    )


def test_masks_of_booleans_and_numbers() -> None:
    """What a region changes scores by is read where scores are, also with a causal mask and behind the last row."""
    q, k, v = tensors([(2, 2, 70, 32), (2, 2, 45, 32), (2, 2, 45, 32)], torch.float16)
    generator = torch.Generator().manual_seed(1)
    seen = torch.rand(2, 1, 70, 45, generator=generator) > 0.3
    seen[..., 3, :] = False
    bias = torch.randn(70, 45, generator=generator).to(torch.float16)
    both = bias + torch.zeros(70, 45).masked_fill(torch.ones(70, 45).tril() == 0, -torch.inf).to(
        torch.float16
    )
    for mask in (seen, bias, both):
        check(
            lambda q, k, v, m: scaled_dot_product_attention(q, k, v, attn_mask=m),
            [q, k, v, mask],
            tile(64, 32),
        )


def test_heads_of_one_projection_and_shared_keys() -> None:
    """Operands lie side by side in one tensor, or a group of query heads shares one of keys; nothing is copied apart."""

    def projected(x):
        q, k, v = x.view(2, 70, 3, 2, 32).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 70, 64)

    check(projected, tensors([(2, 70, 192)], torch.bfloat16), tile(64, 48))

    def grouped(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    shapes = [(2, 4, 70, 32), (2, 2, 70, 32), (2, 2, 70, 32)]
    check(grouped, tensors(shapes, torch.float16), tile(64, 32))


def test_rows_that_see_no_key() -> None:
    """A mask that starts below the diagonal, and a factor that is negative: the general way of weighing."""

    def function(q, k, v, scale):
        rows, keys = (torch.arange(x.shape[-2]) for x in (q, k))
        seen = keys[None, :] <= rows[:, None] - 20
        return scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)

    args = tensors([(2, 90, 32), (2, 70, 32), (2, 70, 32)], torch.float16)
    for scale in (0.2, -0.2):
        check(partial(function, scale=scale), args, tile(64, 16))


def attention_of(dtype: torch.dtype, shape: tuple[int, ...], causal: bool = False):
    """The module of an attention, which must be kept, and its dispatch."""

    def function(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)

    module, found = dispatches(function, tensors([shape] * 3, dtype), "h100")
    (dispatch,) = (f for name, f in found.items() if name.startswith("attention"))
    return module, dispatch


def test_nothing_that_synchronises_can_be_left_out() -> None:
    """Two consumers; rings of two stages go round more than once in the loops of hidden and of seen keys."""
    shape = (1, 1, 128, 16)
    args = tensors([shape] * 3, torch.float16)
    q, k, v = (x.double() for x in args)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True).numpy()
    _module, dispatch = attention_of(torch.float16, shape, True)
    kernel = emitter("attention")(dispatch, tile(128, 16), TARGET)
    assert kernel is not None

    def is_right(mutant: ir.Module, seed: int) -> bool:
        result = np.zeros(shape, np.float16)
        run_kernel(mutant, [*(x.numpy() for x in args), result], seed=seed)
        return bool(np.abs(result - expected).max() < OFF[torch.float16])

    assert survivors(kernel, is_right) == []


def compiled(dispatch: ir.Operation, schedule: Schedule | None) -> str:
    kernel = emitter("attention")(dispatch, schedule, TARGET)
    assert kernel is not None
    assert is_on_warpgroups(kernel)
    with kernel.context:
        (function,) = walk(kernel.operation, "gpu.func")
        PlaceShared(max_bytes=TARGET.level("shared").capacity_bytes).run(function)
        return compile_ptx(kernel, TARGET.arch).text


@needs_ptxas
@pytest.mark.parametrize(
    ("heads", "length", "size", "causal", "block"),
    [
        (12, 512, 64, False, (128, 128)),
        (12, 512, 64, False, (192, 128)),
        (32, 2048, 128, True, (128, 128)),
        (32, 2000, 128, False, (128, 176)),
        (8, 2048, 96, True, (192, 80)),
        (8, 1024, 256, True, (128, 80)),
    ],
)
def test_no_spills_and_no_warnings(
    heads: int, length: int, size: int, causal: bool, block: tuple[int, int]
) -> None:
    """C7508 would say that setmaxnreg is ignored, C7510 and C7512 that wgmma are serialised."""
    dtype = torch.bfloat16 if causal else torch.float16
    _module, dispatch = attention_of(dtype, (1, heads, length, size), causal)
    made = assemble(compiled(dispatch, tile(*block)), TARGET.arch)
    assert made is not None
    assert (made.resources.spill_bytes, made.resources.warnings) == (0, ())


def test_instructions() -> None:
    """The loop starts scores and results, waits for the scores alone, and for results behind the softmax."""
    _module, dispatch = attention_of(torch.bfloat16, (1, 2, 1024, 128), True)
    text = compiled(dispatch, tile(128, 128))
    scores = r"wgmma\.mma_async\.sync\.aligned\.m64n128k16\.f32\.bf16\.bf16 \{[^}]*\}, %?\w+, %?\w+, \w+, 1, 1, 0, 0;"
    results = r"wgmma\.mma_async\.sync\.aligned\.m64n128k16\.f32\.bf16\.bf16 \{[^}]*\}, \{[^}]*\}, %?\w+, 1, 1, 1, 1;"
    assert re.search(scores, text)
    assert re.search(results, text)
    waits = [(int(m[1]), m.start()) for m in re.finditer(r"wgmma\.wait_group\.sync\.aligned (\d)", text)]
    (first, start), (second, end) = next(p for p in pairwise(waits) if p[0][0] == 1)
    assert (first, second) == (1, 0)
    softmax = text[start:end]
    assert softmax.count("ex2.approx.ftz.f32") >= 64
    # A branch keeps the assembler from waiting for results first.
    assert "bra" in softmax[softmax.rindex("ex2.approx") :]
    assert text.count("setmaxnreg") == 2
    assert "cp.async.bulk.tensor.4d.global.shared::cta" in text or "cp.async.bulk.tensor.3d.global" in text


@pytest.mark.parametrize(
    ("block", "stages", "rule"),
    [
        ((96, 64), 2, "block.0. is 96: queries are multiples of 64 up to 192"),
        ((128, 40), 2, "block.1. is 40: keys are 16 to 256 in steps of 16"),
        ((128, 64), 1, "at least 2 stages"),
        ((192, 160), 2, "use fewer"),
        ((128, 128), 6, "of shared memory"),
    ],
)
def test_illegal_schedules_are_refused(block: tuple[int, int], stages: int, rule: str) -> None:
    _module, dispatch = attention_of(torch.float16, (1, 2, 256, 128))
    with pytest.raises(ScheduleError, match=rule):
        emitter("attention")(dispatch, Schedule(gpu=GpuTile("wgmma", block=block, stages=stages)), TARGET)


@pytest.mark.parametrize(
    ("target", "dtype", "size"),
    [
        ("a100", torch.float16, 64),
        ("h100", torch.float32, 64),
        ("h100", torch.float16, 60),
        ("h100", torch.float16, 264),
    ],
)
def test_others_are_left_to_other_kernels(target: str, dtype: torch.dtype, size: int) -> None:
    """Other targets and types, rows that are no multiples of 16 bytes, longer heads; asking for wgmma is refused."""
    _module, dispatch = attention_of(dtype, (1, 2, 128, size))
    assert not is_on_warpgroups(emitter("attention")(dispatch, None, resolve(target)))
    with pytest.raises(Declined):
        emitter("attention")(dispatch, Schedule(gpu=GpuTile("wgmma", block=(128, 64))), resolve(target))


def test_few_queries_are_left_to_single_warps() -> None:
    """Unless a schedule asks for warpgroups."""
    _module, dispatch = attention_of(torch.float16, (1, 2, 24, 64))
    for schedule, expected in ((None, False), (Schedule(gpu=GpuTile("wgmma")), True)):
        chosen = completed("attention", dispatch, schedule, TARGET).gpu
        assert chosen is not None
        assert (chosen.kernel == "wgmma") is expected


@pytest.mark.parametrize(
    ("region", "causal", "expected"),
    [
        ('"tilewright.yield"(%s)', None, True),
        ("%x = arith.cmpi sle, %n, %m : index {}", 0, True),
        ("%x = arith.cmpi sge, %m, %n : index {}", 0, True),
        ("%x = arith.cmpi slt, %n, %more : index {}", 2, True),
        ("%x = arith.cmpi sle, %n, %more : index {}", 2, False),
        ("%x = arith.cmpi sle, %n, %more : index {}", 3, True),
        ("%x = arith.cmpi slt, %n, %m : index {}", 0, False),
        ("%x = arith.cmpi ule, %n, %m : index {}", 0, False),
        ("%x = arith.cmpi eq, %n, %m : index {}", 0, False),
    ],
)
def test_regions_that_are_the_causal_mask(region: str, causal: int | None, expected: bool) -> None:
    """Only then may tiles that all rows see skip the region."""
    if region.endswith("{}"):
        region = f"""
    %low = arith.constant 0xFF800000 : f32
    %three = arith.constant 3 : index
    %more = arith.addi %m, %three : index
    {region.removesuffix("{}")}
    %y = arith.select %x, %s, %low : f32
    "tilewright.yield"(%y)"""
    types = ", ".join(["tensor<1x8x16xf16>"] * 3)
    maps = ", ".join(f"affine_map<(h, m, n, k, d) -> (h, {at})>" for at in ("m, k", "n, k", "n, d", "m, d"))
    attribute = f"causal = {causal} : i64, " if causal is not None else ""
    with context(), ir.Location.unknown():
        module = parse(f"""
func.func @f(%q: tensor<1x8x16xf16>) -> tensor<1x8x16xf16> {{
  %r = "tilewright.attention"(%q, %q, %q) ({{
  ^bb0(%s: f32, %m: index, %n: index):
    {region} : (f32) -> ()
  }}) {{{attribute}loops = [1, 8, 8, 16, 16], indexing_maps = [{maps}], scale = 1.0,
       operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}} : ({types}) -> tensor<1x8x16xf16>
  return %r : tensor<1x8x16xf16>
}}""")
        (op,) = walk(module.operation, "tilewright.attention")
        assert keeps_seen_scores(Attention.read(op)) is expected
