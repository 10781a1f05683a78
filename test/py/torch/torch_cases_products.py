"""Linear algebra, convolutions and pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch_cases import case, made, module, randn

# Linear algebra.
case("mm", torch.mm, (3, 4), (4, 5))
case("matmul_batched", torch.matmul, (2, 3, 4), (2, 4, 5))
case("matmul_broadcast", torch.matmul, (2, 1, 3, 4), (5, 4, 6))
case("matmul_vector", lambda x, y, z: (x @ z, y @ x, z @ z), (3, 4), (3,), (4,))
case("bmm", torch.bmm, (2, 3, 4), (2, 4, 5))
case("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (5,), (3, 4), (4, 5))
case("baddbmm", lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5), (2, 3, 5), (2, 3, 4), (2, 4, 5))
case("addmv_outer", lambda x, y, z: (torch.mv(x, y), torch.outer(y, z), torch.dot(y, y)), (3, 4), (4,), (3,))
case("einsum", lambda x, y: torch.einsum("bij,bjk->bik", x, y), (2, 3, 4), (2, 4, 5))
case("einsum_attention", lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), (2, 2, 3, 4), (2, 2, 5, 4))
case("einsum_sum", lambda x, y: torch.einsum("ij,kj->i", x, y), (3, 4), (5, 4))
case("kron", torch.kron, (2, 3), (3, 2))
case("cross", lambda x, y: torch.linalg.cross(x, y), (4, 3), (4, 3))
case("cdist", torch.cdist, (2, 3, 4), (2, 5, 4))
case("det", torch.det, (3, 3))
case("mm_f64", torch.mm, (3, 4), (4, 5), dtype=torch.float64)
case("mm_bf16", torch.mm, (3, 4), (4, 5), dtype=torch.bfloat16)
case("mm_f16", torch.mm, (3, 4), (4, 5), dtype=torch.float16)
case("mm_i64", torch.mm, (3, 4), (4, 5), dtype=torch.int64)
case("mm_i32", torch.mm, (3, 4), (4, 5), dtype=torch.int32)
case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, 1), (3, 4), (3, 4))
case("pairwise_distance", F.pairwise_distance, (3, 4), (3, 4))
case("normalize", lambda x: F.normalize(x, dim=1), (3, 4))
module("linear", lambda: nn.Linear(4, 5), (3, 4))
module("linear_3d", lambda: nn.Linear(4, 5, bias=False), (2, 3, 4))
module("linear_1d", lambda: nn.Linear(4, 5), (4,))
module("linear_bf16", lambda: nn.Linear(4, 5).bfloat16(), (3, 4), dtype=torch.bfloat16, tolerance=2e-2)
made("bilinear", lambda: (nn.Bilinear(3, 4, 5), (randn(2, 3), randn(2, 4))))

# Convolutions and pooling.
module("conv1d", lambda: nn.Conv1d(3, 4, 3, padding=1), (2, 3, 9))
case("conv_tbc", lambda x, w, b: torch.conv_tbc(x, w, b, 1), (5, 2, 3), (3, 3, 4), (4,))
module("conv2d", lambda: nn.Conv2d(3, 4, 3), (2, 3, 8, 7))
module("conv2d_stride", lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), (2, 3, 8, 7))
module("conv2d_dilated", lambda: nn.Conv2d(3, 4, 3, dilation=2, padding=2), (2, 3, 8, 7))
module("conv2d_grouped", lambda: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 8, 7))
module("conv2d_depthwise", lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (2, 4, 8, 7))
module("conv2d_depthwise_multiplier", lambda: nn.Conv2d(4, 8, 3, groups=4), (2, 4, 8, 7))
module("conv2d_same", lambda: nn.Conv2d(3, 4, 3, padding="same"), (2, 3, 8, 7))
module("conv2d_same_even", lambda: nn.Conv2d(3, 4, 4, padding="same"), (2, 3, 8, 7))
module("conv2d_reflect", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 8, 7))
module("conv2d_circular", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (2, 3, 8, 7))
module("conv2d_1x1", lambda: nn.Conv2d(3, 4, 1), (2, 3, 8, 7))
module("conv2d_unbatched", lambda: nn.Conv2d(3, 4, 3), (3, 8, 7))
module(
    "conv2d_bf16", lambda: nn.Conv2d(3, 4, 3).bfloat16(), (2, 3, 8, 7), dtype=torch.bfloat16, tolerance=4e-2
)
module("conv2d_f64", lambda: nn.Conv2d(3, 4, 3).double(), (2, 3, 8, 7), dtype=torch.float64)
module("conv3d", lambda: nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 6))
case("conv3d_integers", F.conv3d, (1, 2, 4, 5, 6), (3, 2, 2, 3, 3), dtype=torch.int64)
case(
    "conv3d_grouped_integers",
    lambda x, w: F.conv3d(x, w, w[:, 0, 0, 0, 0], 2, 1, 1, 2),
    (1, 4, 5, 5, 6),
    (2, 2, 2, 2, 3),
    dtype=torch.int32,
)
module("conv3d_grouped", lambda: nn.Conv3d(2, 4, 3, groups=2), (1, 2, 4, 5, 6))
module("conv_transpose1d", lambda: nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1), (2, 3, 7))
module("conv_transpose2d", lambda: nn.ConvTranspose2d(3, 4, 3), (2, 3, 5, 6))
module(
    "conv_transpose2d_stride",
    lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
    (2, 3, 5, 6),
)
module("conv_transpose2d_grouped", lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 6))
module("conv_transpose2d_depthwise", lambda: nn.ConvTranspose2d(4, 4, 3, 2, 1, 1, 4), (2, 4, 5, 6))
module("conv_transpose2d_dilated", lambda: nn.ConvTranspose2d(3, 4, 3, dilation=2), (2, 3, 5, 6))
module("conv_transpose3d", lambda: nn.ConvTranspose3d(2, 3, 2, stride=2), (1, 2, 3, 4, 3))
module("max_pool1d", lambda: nn.MaxPool1d(3, 2), (2, 3, 9))
module("max_pool2d", lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 9, 8))
module("max_pool2d_ceil", lambda: nn.MaxPool2d(3, 2, ceil_mode=True), (2, 3, 8, 8))
module("max_pool2d_dilated", lambda: nn.MaxPool2d(2, 1, dilation=2), (2, 3, 8, 8))
module("max_pool2d_indices", lambda: nn.MaxPool2d(2, 2, return_indices=True), (2, 3, 8, 8))
module("max_pool3d", lambda: nn.MaxPool3d(2), (1, 2, 4, 4, 6))
module("avg_pool1d", lambda: nn.AvgPool1d(3, 2, 1), (2, 3, 9))
module("avg_pool2d", lambda: nn.AvgPool2d(3, 2, 1), (2, 3, 9, 8))
module("avg_pool2d_exclude", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 9, 8))
module("avg_pool2d_ceil", lambda: nn.AvgPool2d(3, 2, ceil_mode=True), (2, 3, 8, 8))
module("avg_pool3d", lambda: nn.AvgPool3d(2), (1, 2, 4, 4, 6))
module("adaptive_avg_pool1d", lambda: nn.AdaptiveAvgPool1d(3), (2, 3, 9))
module("adaptive_avg_pool2d_1", lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 9, 8))
module("adaptive_avg_pool2d", lambda: nn.AdaptiveAvgPool2d((3, 5)), (2, 3, 9, 8))
module("adaptive_avg_pool3d", lambda: nn.AdaptiveAvgPool3d(2), (1, 2, 4, 5, 6))
module("adaptive_max_pool1d", lambda: nn.AdaptiveMaxPool1d(3), (2, 3, 9))
module("adaptive_max_pool2d", lambda: nn.AdaptiveMaxPool2d((3, 4)), (2, 3, 9, 8))
module("lp_pool2d", lambda: nn.LPPool2d(2, 3), (2, 3, 9, 8))
made(
    "max_unpool2d",
    lambda: (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (randn(1, 2, 4, 4),)),
)
case("unfold2d", lambda x: F.unfold(x, 3, padding=1), (2, 3, 6, 5))
case("fold2d", lambda x: F.fold(x, (6, 5), 3, padding=1), (2, 27, 30))
case("pixel_shuffle", lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), (1, 8, 3, 4))
case("channel_shuffle", lambda x: F.channel_shuffle(x, 2), (1, 4, 3, 3))
