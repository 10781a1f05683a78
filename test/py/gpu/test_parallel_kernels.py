"""Element-wise kernels, data movement, gathers, scatters and windows on GPUs against eager PyTorch, by emulation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from family_kernels import emitter
from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_models import ELEMENTS, check, dispatches, sample
from torch import nn

from tilewright.compiler import driver
from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import resolve

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip
FAST = settings(max_examples=8, derandomize=True, deadline=None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_on_a_shape_that_no_vector_divides(dtype: torch.dtype) -> None:
    if dtype == torch.bool:
        check(lambda a, b: (a & ~b) | (a ^ b), sample(37, 29, dtype=dtype), sample(29, dtype=dtype))
    else:
        check(lambda a, b: a * b + a, sample(37, 29, dtype=dtype), sample(29, dtype=dtype))


EXPRESSIONS = {
    "gelu": lambda a: F.gelu(a),
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "silu_f16": lambda a: F.silu(a.half()),
    "sigmoid_bf16": lambda a: torch.sigmoid(a.bfloat16()),
    "compare": lambda a: (a > 0.5, a.abs().sqrt(), torch.isnan(a)),
    "several_results": lambda a: (a + 1, (a * 2).to(torch.float16), a.to(torch.int32)),
    "where": lambda a: torch.where(a > 0, a, torch.tensor(-1.0)),
    "casts": lambda a: a.to(torch.int8).to(torch.float32) + a.to(torch.float64).to(torch.float32),
    "flip": lambda a: a.flip(0, 1),
    "roll": lambda a: a.roll((3, 2), (0, 1)),
    "cat": lambda a: torch.cat([a, a[:, :5] * 2, a[:, 7:]], 1),
    "stack": lambda a: torch.stack([a, -a], 1),
    "pad": lambda a: F.pad(a, (1, 2, 3, 0), value=7.0),
    "pad_reflect": lambda a: F.pad(a[None], (3, 2), mode="reflect"),
    "strided": lambda a: a[1::3, ::2] * 2,
    "triu": lambda a: a.triu(2),
    "arange": lambda a: a + torch.arange(a.shape[1], dtype=torch.float32),
    "wide_integers": lambda a: torch.arange(21) * 10**10 + (a > 0).long(),
    "one_hot": lambda a: F.one_hot((a > 0).long(), 3),
    "expand": lambda a: a[:, None, :].expand(-1, 3, -1).contiguous(),
    "upsample_nearest": lambda a: F.interpolate(a[None, None], scale_factor=2),
    "upsample_bilinear": lambda a: F.interpolate(a[None, None], size=(31, 26), mode="bilinear"),
    "pixel_shuffle": lambda a: F.pixel_shuffle(a[:32, :9].reshape(2, 16, 3, 3), 2),
    "unfold": lambda a: a.unfold(1, 4, 3).contiguous(),
    "masked_fill": lambda a: a.masked_fill(a > 0.3, float("-inf")),
    "repeat": lambda a: a.repeat(2, 3),
    "diagonal": lambda a: a.diagonal().clone(),
}


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_expressions(name: str) -> None:
    check(EXPRESSIONS[name], sample(33, 21), seeds=(1,), tolerance=2e-2 if "bf16" in name else None)


@FAST
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    kept=st.integers(0, 15),
    last=st.sampled_from([1, 3, 4, 8, 16, 20]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.int8]),
)
def test_broadcasts(shape: list[int], kept: int, last: int, dtype: torch.dtype) -> None:
    shape = [*shape, last]
    small = [n if kept >> i & 1 else 1 for i, n in enumerate(shape)]
    check(lambda a, b: a - b, sample(*shape, dtype=dtype), sample(*small, dtype=dtype), seeds=(0,))


@FAST
@given(
    order=st.permutations([0, 1, 2]),
    shape=st.tuples(st.integers(1, 5), st.sampled_from([24, 33, 40]), st.sampled_from([32, 36, 47, 65])),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.int8, torch.float64, torch.bool]),
)
def test_transposes(order: list[int], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check(lambda a: a.permute(order).contiguous(), sample(*shape, dtype=dtype), seeds=(2,))


@FAST
@given(
    threads=st.sampled_from([32, 96, 512, 1024]),
    vector=st.sampled_from([0, 1, 2, 4, 8, 16]),
    block=st.integers(1, 4000),
    turned=st.booleans(),
)
def test_any_schedule_gives_the_same_results(threads: int, vector: int, block: int, turned: bool) -> None:
    a, b = sample(67, 41), sample(67) if turned else sample(41)
    function = (lambda x, y: x.t().contiguous() + y) if turned else (lambda x, y: x - y)
    _module, found = dispatches(function, a, b)
    (dispatch,) = found.values()
    schedule = Schedule((1, block), gpu=GpuTile("elementwise", threads, vector=vector))
    module = emitter("elementwise")(dispatch, schedule, resolve("cuda:sm_90a"))
    expected = function(a, b)
    result = torch.zeros_like(expected)
    run_kernel(module, [a.numpy(), b.numpy(), result.numpy()], seed=1)
    torch.testing.assert_close(result, expected)


def test_transposes_with_operands_of_both_orders() -> None:
    check(lambda a, b: a.transpose(1, 2) * 2 + b, sample(2, 65, 48), sample(2, 48, 65))


def test_conversions_between_channels_first_and_last() -> None:
    check(lambda a: a.permute(0, 2, 3, 1).contiguous(), sample(2, 3, 33, 29))
    check(lambda a: a.permute(0, 3, 1, 2).contiguous(), sample(2, 17, 23, 40, dtype=torch.float16))


def test_embeddings_copy_rows() -> None:
    check(nn.Embedding(50, 24).eval(), torch.randint(0, 50, (7, 5)))
    check(lambda i, t: t[i], torch.randint(-9, 9, (11,)), sample(9, 13))


def test_gathers_along_rows() -> None:
    check(lambda a, i: a.gather(1, i), sample(9, 31), torch.randint(0, 31, (9, 17)))
    check(lambda a, i: torch.take_along_dim(a, i, 0), sample(9, 31), torch.randint(0, 9, (4, 31)))


def test_an_index_beyond_its_tensor_is_reported() -> None:
    table, good = sample(9, 16), torch.randint(0, 9, (40,))
    compiled = driver.compile(lambda i, t: F.embedding(i, t), (good, table), target="emulate:sm_80")
    torch.testing.assert_close(compiled(good, table), table[good])
    bad = good.clone()
    bad[33] = 9
    with pytest.raises(Exception, match="index out of range"):
        compiled(bad, table)


def test_scatters_apply_updates_in_their_order() -> None:
    index = torch.randint(0, 5, (1100,))
    check(
        lambda a, i, u: a.index_add(0, i, u), sample(5, 9), index, sample(1100, 9), seeds=(1,), tolerance=1e-4
    )
    check(lambda a, i, u: a.index_put((i,), u), sample(60), torch.randperm(60)[:30], sample(30))
    rows = torch.randint(0, 6, (3, 17))
    check(lambda a, i, u: a.scatter_add(1, i, u), sample(3, 17), rows, sample(3, 17), tolerance=1e-4)
    of_planes = torch.randint(0, 5, (3, 4, 1)).expand(3, 4, 6)
    check(lambda a, i, u: a.scatter(1, i, u), sample(3, 5, 6), of_planes, sample(3, 4, 6), seeds=(1,))


def test_folding_of_windows() -> None:
    check(lambda a: F.fold(a, (4, 5), 2), sample(1, 8, 12), seeds=(1,))


@FAST
@given(
    channels=st.sampled_from([1, 3, 4, 16, 20]),
    size=st.tuples(st.integers(5, 14), st.integers(5, 14)),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    kind=st.sampled_from(["max", "avg"]),
    last=st.booleans(),
)
def test_poolings(
    channels: int, size: tuple[int, int], kernel: int, stride: int, kind: str, last: bool
) -> None:
    pool = F.max_pool2d if kind == "max" else F.avg_pool2d
    x = sample(2, channels, *size)
    x = x.to(memory_format=torch.channels_last) if last else x
    check(lambda a: pool(a, kernel, stride, padding=kernel // 2), x, seeds=(1,))


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (5, 1, 1), (3, 1, 2), (7, 2, 1)]
)
def test_depthwise_convolutions_with_epilogues(kernel: int, stride: int, dilation: int) -> None:
    conv = nn.Conv2d(20, 20, kernel, stride, kernel // 2, dilation, groups=20).eval()
    check(lambda x: F.relu6(conv(x)) * 2, sample(1, 20, 9, 11), seeds=(1,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_depthwise_convolutions_of_short_floats(dtype: torch.dtype) -> None:
    conv = nn.Conv2d(16, 16, 3, 1, 1, groups=16, dtype=dtype).eval()
    check(conv, sample(1, 16, 12, 8, dtype=dtype), tolerance=3e-2)


@pytest.mark.parametrize("columns", [12, 15, 14, 13])
def test_neighbours_that_share_windows(columns: int) -> None:
    """On a GPU of one core there are results enough for several per thread: four, five, seven; a prime number of none."""
    conv = nn.Conv2d(32, 32, 3, 1, 1, groups=32).eval()
    x = sample(1, 32, 36, columns).to(memory_format=torch.channels_last)
    _module, found = dispatches(conv, x, arch="sm_80")
    (name,) = [n for n in found if n.startswith("conv")]
    module = emitter("elementwise")(found[name], Schedule(), replace(resolve("cuda:sm_80"), num_cores=1))
    padded = F.pad(x, (1, 1, 1, 1)).permute(0, 2, 3, 1).contiguous()
    taps = conv.weight.detach().permute(2, 3, 1, 0).reshape(3, 3, 32).contiguous()
    result, bias = torch.zeros(1, 36, columns, 32), conv.get_parameter("bias")
    run_kernel(module, [t.numpy() for t in (padded, taps, bias.detach(), result)], seed=1)
    width = next((n for n in (4, 5, 7) if columns % n == 0), 1)
    assert str(module).count("vector.store") == width
    torch.testing.assert_close(result.permute(0, 3, 1, 2), conv(x).detach())


def test_pooling_with_indices() -> None:
    check(lambda a: F.max_pool2d(a, 2, return_indices=True), sample(2, 3, 8, 9))


def test_windows_written_across_memory() -> None:
    conv = nn.Conv2d(48, 48, 3, 1, 1, groups=48).eval()
    check(conv, sample(1, 48, 8, 7), seeds=(0,))


def test_results_inside_of_larger_tensors() -> None:
    """Pieces that a concatenation joins start between 16-byte boundaries, and have its strides."""
    check(lambda a, b: torch.cat([a * 2, b + 1, a - 1], 1) + 1, sample(3, 19, 32), sample(3, 7, 32))
    check(lambda a: F.max_pool2d(F.pad(torch.relu(a), (1, 1, 1, 1)), 3), sample(2, 5, 10, 13))


def test_slices_between_boundaries() -> None:
    check(lambda a: torch.relu(a)[3:] * 2, sample(9, 7))
    check(lambda a: (torch.relu(a)[1] * 2, a[2] + 1), sample(3, 33))


@pytest.mark.parametrize("arch", ["sm_70", "sm_80"])
def test_older_gpus(arch: str) -> None:
    check(lambda a, b: F.gelu(a) + b, sample(50, 40), sample(40), arch=arch)
    check(lambda a: a.transpose(0, 1).contiguous(), sample(70, 66, dtype=torch.bfloat16), arch=arch)


def test_nothing_at_all_is_no_kernel_of_this_family() -> None:
    check(lambda a: a[:0] + 1, sample(4, 4), kernels=ELEMENTS | {"fallback", "rows"})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_small_numbers_keep_their_digits(dtype: torch.dtype) -> None:
    """`log1p` and `expm1` are there for them; the logarithm of 1 + 1e-30 is 0."""
    limits = torch.finfo(dtype)
    small = torch.logspace(0, math.log10(limits.tiny), 40, dtype=torch.float64).to(dtype)
    check(lambda x: (torch.log1p(x), torch.expm1(x)), torch.cat([small, -small / 2]), seeds=(0,))
    found = driver.compile(torch.log1p, (small,), target="emulate:sm_90a")(small)
    torch.testing.assert_close(found[-10:], small[-10:], rtol=8 * limits.eps, atol=0)
