"""Fused attention on GPUs, by emulation: results beside PyTorch's in f64, what is assembled, what schedules may ask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from dispatch_runs import dispatches, run
from family_kernels import completed, emitter
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_mutants import survivors
from torch.nn.functional import scaled_dot_product_attention

from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.codegen.ptxas import assemble
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.passes.lower_gpu.place_shared import PlaceShared
from tilewright.compiler.targets.target import resolve

OFF = {torch.float32: 3e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def tensors(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shapes[0]) + sum(shapes[0]))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def check(function: Callable, args: list[torch.Tensor], target: str) -> None:
    """Every dispatch of attention is written by the family, and the result is what f64 gives."""
    taken = []

    def emit(dispatch, schedule, described):
        written = emitter("attention")(dispatch, schedule, described)
        taken.append(written)
        return written

    (found,) = run(function, args, emit, emitter("elementwise"), emitter("fallback"), target=target)
    assert any(taken)
    expected = function(*(x.double() if x.is_floating_point() else x for x in args))
    assert found.dtype == args[0].dtype
    assert torch.allclose(found.double(), expected, rtol=0, atol=OFF[args[0].dtype], equal_nan=True)


@pytest.mark.parametrize("dtype", OFF, ids=str)
@pytest.mark.parametrize("target", ["v100", "a100", "h100"])
def test_results_are_pytorchs(target: str, dtype: torch.dtype) -> None:
    shapes = [(2, 3, 37, 24), (2, 3, 45, 24), (2, 3, 45, 40)]
    check(scaled_dot_product_attention, tensors(shapes, dtype), target)


@settings(max_examples=8, deadline=None)
@given(
    st.integers(8, 80),
    st.integers(1, 90),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(list(OFF)),
    st.booleans(),
)
def test_any_shape(rows: int, keys: int, inner: int, width: int, dtype: torch.dtype, causal: bool) -> None:
    def function(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)

    keys = max(keys, 2)
    shapes = [(2, rows, inner), (2, keys, inner), (2, keys, width)]
    check(function, tensors(shapes, dtype), "a100")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_masks_of_booleans_and_numbers(dtype: torch.dtype) -> None:
    shapes = [(2, 2, 21, 16), (2, 2, 19, 16), (2, 2, 19, 16)]
    q, k, v = tensors(shapes, dtype)
    seen = torch.rand(2, 1, 21, 19, generator=torch.Generator().manual_seed(1)) > 0.3
    seen[..., 0] = True
    check(lambda q, k, v, m: scaled_dot_product_attention(q, k, v, attn_mask=m), [q, k, v, seen], "h100")
    bias = torch.randn(21, 19, generator=torch.Generator().manual_seed(2)).to(dtype)
    check(lambda q, k, v, m: scaled_dot_product_attention(q, k, v, attn_mask=m), [q, k, v, bias], "h100")


def test_heads_lie_side_by_side_in_one_projection() -> None:
    def function(x):
        q, k, v = x.view(2, 30, 3, 2, 32).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 30, 64)

    for dtype in (torch.float32, torch.bfloat16):
        check(function, tensors([(2, 30, 192)], dtype), "a100")


def dispatch_of(dtype: torch.dtype, target: str, shape: tuple[int, ...] = (1, 12, 197, 64)):
    """The module of an attention, which must be kept, and its dispatch."""
    module, found = dispatches(scaled_dot_product_attention, tensors([shape] * 3, dtype), target)
    (dispatch,) = (f for name, f in found.items() if name.startswith("attention"))
    return module, dispatch


@pytest.mark.parametrize(
    ("target", "dtype", "size"),
    [
        ("v100", torch.float32, 64),
        ("v100", torch.float16, 64),
        ("a100", torch.float16, 64),
        ("a100", torch.bfloat16, 128),
        ("h100", torch.float32, 64),
        ("h100", torch.float32, 128),
        ("h100", torch.float16, 64),
        ("h100", torch.bfloat16, 128),
    ],
    ids=str,
)
@pytest.mark.parametrize("scheduled", [True, False])
def test_standard_sizes_do_not_spill(target: str, dtype: torch.dtype, size: int, scheduled: bool) -> None:
    described = resolve(target)
    _module, dispatch = dispatch_of(dtype, target, (1, 12, 512, size))
    schedule = schedule_attribute.read(dispatch) if scheduled else Schedule(gpu=GpuTile("attention"))
    module = emitter("attention")(dispatch, schedule, described)
    with module.context:
        (function,) = walk(module.operation, "gpu.func")
        PlaceShared(max_bytes=described.level("shared").capacity_bytes).run(function)
        code = compile_ptx(module, described.arch)
    made = assemble(code.text, described.arch)
    assert made is not None
    assert (made.resources.spill_bytes, made.resources.warnings) == (0, ())
    if dtype != torch.float32 and target == "h100" and scheduled:
        assert "wgmma.mma_async.sync.aligned" in code.text
    elif dtype != torch.float32 and target != "v100":
        assert "mma.sync.aligned.m16n8k16" in code.text
        assert "ldmatrix.sync.aligned.m8n8.x4.trans" in code.text
        assert "cp.async.cg.shared.global" in code.text


def test_matrix_instructions_where_types_and_targets_have_them() -> None:
    for target, dtype, expected in (
        ("v100", torch.float16, False),
        ("a100", torch.float16, True),
        ("a100", torch.float32, False),
    ):
        _module, dispatch = dispatch_of(dtype, target, (1, 2, 40, 32))
        chosen = completed("attention", dispatch, None, resolve(target)).gpu
        assert chosen is not None
        assert chosen.instruction.startswith("mma.m16n8k16") is expected


def test_a_schedule_that_does_not_fit_is_refused() -> None:
    target = resolve("a100")
    _module, dispatch = dispatch_of(torch.float16, "a100")
    for block, threads, rule in (
        ((24, 64), 128, "multiple of 16"),
        ((1024, 1024), 128, "does not fit 166,912 B of shared memory"),
        ((16, 64), 512, "do not divide the queries"),
        ((64, 64), 32, "does not fit the registers"),
    ):
        tile = GpuTile("attention", threads, block)
        with pytest.raises(ScheduleError, match=rule):
            emitter("attention")(dispatch, Schedule(gpu=tile), target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("target", ["v100", "a100"])
def test_nothing_that_synchronises_can_be_left_out(target: str, dtype: torch.dtype) -> None:
    args = tensors([(1, 1, 64, 16)] * 3, dtype)
    expected = scaled_dot_product_attention(*(x.double() for x in args))
    module, found = dispatches(scaled_dot_product_attention, args, target)
    (dispatch,) = (f for name, f in found.items() if name.startswith("attention"))
    assert module
    matrices = dtype == torch.float16 and target == "a100"
    tile = GpuTile("attention", 64, (32, 16), instruction="mma.m16n8k16.f16" if matrices else "")
    kernel = emitter("attention")(dispatch, Schedule(gpu=tile), resolve(target))

    def is_right(mutant, seed: int) -> bool:
        arrays = [x.numpy().reshape(shape) for x, shape in zip(args, shapes)]
        result = np.zeros(shapes[-1], arrays[0].dtype)
        run_kernel(mutant, [*arrays, result], seed=seed)
        return bool(np.abs(result.reshape(expected.shape) - expected.numpy()).max() < OFF[dtype])

    type_ = dispatch.attributes["function_type"].value
    shapes = [tuple(ir.ShapedType(t).shape) for t in (*type_.inputs, *type_.results)]
    assert survivors(kernel, is_right) == []
