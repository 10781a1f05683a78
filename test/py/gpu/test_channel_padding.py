"""Channels of zeros that make copies wide: when they pay, and that what is computed stays the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from gpu_compilation import check, compile_for
from torch import nn

import tilewright
from tilewright.compiler import driver
from tilewright.compiler.phases import run_phases
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.gpu.channel_padding import ChanneledGemm, stored_channels

RESNET = ChanneledGemm(1, 32 * 112 * 112, 64, 49, 3, "f16", 32 * 230 * 230, 7, (2, 230, 460, 52900), True)
VGG = ChanneledGemm(1, 32 * 224 * 224, 64, 9, 3, "f16", 32 * 226 * 226, 3, (1, 226, 226, 51076), True)


@pytest.mark.parametrize("channels, stride, bytes_", [(3, 2, 2), (4, 2, 8), (4, 1, 8), (8, 1, 16), (6, 1, 4)])
def test_accesses_are_as_wide_as_pixels_and_steps_allow(channels: int, stride: int, bytes_: int) -> None:
    product = replace(RESNET, steps=(stride, 230, 460, 52900)).gemm(channels)
    assert (product.a_vector * 2, product.k, product.a_bytes) == (
        bytes_,
        49 * channels,
        32 * 230 * 230 * channels * 2,
    )
    # Windows overlap: pixels are a dimension of a tensor map, whose strides are multiples of 16 bytes.
    assert product.tensor_maps == (channels % 8 == 0)
    assert product.run == channels


def test_patches_are_loaded_row_by_row() -> None:
    """A transformer's patches of 16 x 16 pixels do not overlap: a row of one is contiguous."""
    product = ChanneledGemm(1, 32 * 196, 768, 256, 3, "f16", 32 * 224 * 224, 16, (16, 224, 3584, 50176), True)
    assert (product.gemm(3).tensor_maps, product.gemm(3).run) == (True, 48)


def test_numbers_of_channels_fill_accesses() -> None:
    assert RESNET.wider == [4, 8]
    assert replace(RESNET, channels=1).wider == [2, 4, 8]
    assert replace(RESNET, channels=12).wider == [16]
    assert replace(RESNET, dtype="f32").wider == [4]
    assert replace(RESNET, dtype="i8").wider == [4, 8, 16]


@pytest.mark.parametrize("target", ["a100", "h100", "h200"])
@pytest.mark.parametrize("images", [1, 32])
def test_stems_of_three_channels_get_a_fourth(target: str, images: int) -> None:
    product = replace(RESNET, m=images * 112 * 112, pixels=images * 230 * 230)
    assert stored_channels(product, resolve(target)) == 4
    assert stored_channels(replace(product, dtype="bf16"), resolve(target)) == 4


def test_a_product_that_waits_for_memory_keeps_its_channels() -> None:
    """Results of 64 channels are 21 times the image: DRAM takes as long as copying its elements one by one does."""
    assert stored_channels(VGG, resolve("a100")) == 3
    assert stored_channels(VGG, resolve("h200")) == 4


def test_a_copy_of_its_own_has_to_pay() -> None:
    single = replace(RESNET, m=112 * 112, pixels=230 * 230, steps=(2, 230, 460))
    assert stored_channels(replace(single, copied=False), resolve("h200")) == 3
    assert stored_channels(replace(RESNET, copied=False), resolve("h200")) == 4


@pytest.mark.parametrize(
    "product, target",
    [
        (replace(RESNET, channels=64, steps=(1, 58, 58, 3364)), "h200"),  # accesses are wide already
        (replace(RESNET, dtype="f32"), "h200"),  # lanes would multiply zeros
        (RESNET, "mi50"),  # no matrix instructions
        (RESNET, "k80"),
    ],
)
def test_other_products_keep_their_channels(product: ChanneledGemm, target: str) -> None:
    assert stored_channels(product, resolve(target)) == product.channels


def _stem(kernel: int, stride: int, padding: int, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(kernel)
    model = nn.Sequential(nn.Conv2d(3, 24, kernel, stride, padding), nn.ReLU())
    return model.to(dtype).eval(), torch.randn(2, 3, 29, 37).to(dtype)


@pytest.mark.parametrize(
    "target, kernel, stride, padding, dtype",
    [
        ("sm_80", 7, 2, 3, torch.float16),
        ("sm_90a", 7, 2, 3, torch.bfloat16),
        ("sm_80", 3, 1, 1, torch.bfloat16),
        ("sm_90a", 3, 2, 0, torch.float16),
    ],
)
def test_padded_stems_compute_what_pytorch_does(
    target: str, kernel: int, stride: int, padding: int, dtype: torch.dtype
) -> None:
    model, x = _stem(kernel, stride, padding, dtype)
    assert f"x24x{kernel}x{kernel}x4" in _dispatched(model, x, target)
    emulated = tilewright.compile(model, (x,), target=f"emulate:{target}")
    wanted = model.double()(x.double()).detach()
    for seed in (0, 1, 2):
        emulated.executable.seed = seed
        tolerance = 4e-3 if dtype == torch.float16 else 3e-2
        torch.testing.assert_close(emulated(x).double(), wanted, rtol=tolerance, atol=tolerance)


def _dispatched(model: nn.Module, x: torch.Tensor, target: str) -> str:
    module = driver.import_model(model, (x,)).module
    run_phases(module, resolve(f"cuda:{target}"), "graph", "dispatch")
    return str(module)


def test_a_border_of_zeros_is_written_with_the_weights() -> None:
    """One dispatch brings the image to its place with all of its channels, one multiplies."""
    model, x = _stem(7, 2, 3, torch.float16)
    main = _dispatched(model, x, "sm_80").partition("func.func @prepack")[0]
    assert len(re.findall(r" call @", main)) == 2
    assert "[0, 3, 3, 0] [2, 29, 37, 4] [1, 1, 1, 1] {tilewright.in_place}" in main


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_stems_are_copied_asynchronously(target: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    stem = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.ReLU()).half().eval()
    check(*compile_for(target, stem, (torch.empty(32, 3, 224, 224, dtype=torch.float16),)))
    (path,) = tmp_path.glob("conv_*.ptx")
    code = path.read_text()
    copied = re.findall(r"cp\.async\.c[ag]\.shared\.global \[.*?\], \[.*?\], (\d+)", code)
    assert set(copied) == {"8", "16"}
    assert not re.search(r"(ld\.global|st\.shared)(\.nc)?\.b16", code)
