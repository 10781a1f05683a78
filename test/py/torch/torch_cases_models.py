"""Padding, resampling, normalisation, attention, recurrences, losses, and kinds of arguments and results."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch_cases import case, made, module, randn

# Padding and resampling.
for _mode in ["constant", "reflect", "replicate", "circular"]:
    case(f"pad_{_mode}_1d", lambda x, m=_mode: F.pad(x, (1, 2), m), (2, 3, 5))
    case(f"pad_{_mode}_2d", lambda x, m=_mode: F.pad(x, (1, 2, 2, 1), m), (2, 3, 5, 6))
    case(f"pad_{_mode}_3d", lambda x, m=_mode: F.pad(x, (1, 0, 2, 1, 1, 1), m), (1, 2, 4, 5, 6))
case("pad_value", lambda x: F.pad(x, (1, -1), value=3.5), (2, 5))
case("upsample_nearest", lambda x: F.interpolate(x, scale_factor=2), (1, 2, 4, 5))
case("upsample_nearest_size", lambda x: F.interpolate(x, size=(7, 9)), (1, 2, 4, 5))
case("upsample_nearest_1d", lambda x: F.interpolate(x, scale_factor=2), (1, 2, 5))
case("upsample_nearest_3d", lambda x: F.interpolate(x, scale_factor=2), (1, 2, 3, 4, 2))
case("upsample_nearest_exact", lambda x: F.interpolate(x, size=(7, 9), mode="nearest-exact"), (1, 2, 4, 5))
case("upsample_linear", lambda x: F.interpolate(x, size=9, mode="linear"), (1, 2, 5))
case("upsample_bilinear", lambda x: F.interpolate(x, size=(7, 9), mode="bilinear"), (1, 2, 4, 5))
case(
    "upsample_bilinear_corners",
    lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
    (1, 2, 4, 5),
)
case("upsample_bilinear_down", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), (1, 2, 8, 6))
case("upsample_bicubic", lambda x: F.interpolate(x, size=(7, 9), mode="bicubic"), (1, 2, 4, 5))
case("upsample_trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (1, 1, 3, 4, 2))
case("upsample_area", lambda x: F.interpolate(x, size=(2, 3), mode="area"), (1, 2, 4, 6))
case(
    "grid_sample",
    lambda x, g: F.grid_sample(x, torch.tanh(g), align_corners=False),
    (1, 2, 4, 5),
    (1, 3, 3, 2),
)
case("affine_grid", lambda t: F.affine_grid(t, [1, 1, 3, 4], align_corners=False), (1, 2, 3))
case("affine_grid of one row", lambda t: F.affine_grid(t, [1, 1, 1, 4], align_corners=True), (1, 2, 3))

# Normalisation.
module("batch_norm1d", lambda: _stats(nn.BatchNorm1d(4)), (3, 4, 5))
module("batch_norm2d", lambda: _stats(nn.BatchNorm2d(4)), (3, 4, 5, 2))
module("batch_norm2d_plain", lambda: _stats(nn.BatchNorm2d(4, affine=False)), (3, 4, 5, 2))
module("batch_norm3d", lambda: _stats(nn.BatchNorm3d(4)), (2, 4, 3, 2, 2))
made("batch_norm2d_training", lambda: (nn.BatchNorm2d(4).train(), (randn(3, 4, 5, 2),)))
made("batch_norm2d_untracked", lambda: (nn.BatchNorm2d(4, track_running_stats=False), (randn(3, 4, 5, 2),)))
module("layer_norm", lambda: nn.LayerNorm(5), (3, 4, 5))
module("layer_norm_2", lambda: nn.LayerNorm((4, 5), elementwise_affine=False), (3, 4, 5))
module("layer_norm_bf16", lambda: nn.LayerNorm(8).bfloat16(), (3, 8), dtype=torch.bfloat16, tolerance=4e-2)
module("group_norm", lambda: nn.GroupNorm(2, 4), (3, 4, 5, 2))
module("instance_norm2d", lambda: nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 2))
module("rms_norm", lambda: nn.RMSNorm(5), (3, 4, 5))
module("local_response_norm", lambda: nn.LocalResponseNorm(2), (3, 4, 5, 2))
made("weight_norm", lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), (randn(3, 4),)))
made(
    "spectral_norm", lambda: (nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)).eval(), (randn(3, 4),))
)


def _stats(norm):
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm


# Attention, recurrent cells, transformers.
case("sdpa", F.scaled_dot_product_attention, (2, 2, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8))
case(
    "sdpa_causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
)
case(
    "sdpa_mask",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > 0),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
    (5, 5),
)
case(
    "sdpa_float_mask",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
    (1, 1, 5, 5),
)
case("sdpa_3d", F.scaled_dot_product_attention, (2, 5, 8), (2, 7, 8), (2, 7, 8))
case(
    "sdpa_bf16",
    F.scaled_dot_product_attention,
    (2, 2, 5, 8),
    (2, 2, 7, 8),
    (2, 2, 7, 8),
    dtype=torch.bfloat16,
)
case(
    "sdpa_scale",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
)
case(
    "sdpa_gqa",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    (2, 4, 5, 8),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
)


class Attention(nn.Module):
    """Self-attention through nn.MultiheadAttention."""

    def __init__(self, weights: bool):
        super().__init__()
        self.inner, self.weights = nn.MultiheadAttention(8, 2, batch_first=True), weights

    def forward(self, x):
        return self.inner(x, x, x, need_weights=self.weights)


module("multihead_attention", lambda: Attention(False), (2, 5, 8))
module("multihead_attention_weights", lambda: Attention(True), (2, 5, 8))
module("transformer_encoder_layer", lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8))
module(
    "transformer_encoder_layer_gelu",
    lambda: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True),
    (2, 5, 8),
)
module("transformer_decoder_layer", lambda: nn.TransformerDecoderLayer(8, 2, 16), (4, 2, 8), (5, 2, 8))
module("transformer", lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (2, 5, 8), (2, 3, 8))
module("rnn_cell", lambda: nn.RNNCell(4, 5), (3, 4), (3, 5))
module("gru_cell", lambda: nn.GRUCell(4, 5), (3, 4), (3, 5))
made("lstm_cell", lambda: (nn.LSTMCell(4, 5), (randn(3, 4), (randn(3, 5), randn(3, 5)))))
module("rnn", lambda: nn.RNN(4, 5, 2), (3, 2, 4))
module("rnn_relu", lambda: nn.RNN(4, 5, nonlinearity="relu"), (3, 2, 4))
module("gru", lambda: nn.GRU(4, 5, 2), (3, 2, 4))
module("gru_bidirectional", lambda: nn.GRU(4, 5, bidirectional=True, batch_first=True), (2, 3, 4))
module("lstm", lambda: nn.LSTM(4, 5, 2), (3, 2, 4))
module("lstm_bidirectional", lambda: nn.LSTM(4, 5, bidirectional=True, batch_first=True), (2, 3, 4))
module("lstm_projected", lambda: nn.LSTM(4, 5, proj_size=3), (3, 2, 4))
made("lstm_state", lambda: (nn.LSTM(4, 5), (randn(3, 2, 4), (randn(1, 2, 5), randn(1, 2, 5)))))

# Losses.
for _name in ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"]:
    _f = getattr(F, _name)
    for _reduction in ["mean", "sum", "none"]:
        case(
            f"loss_{_name}_{_reduction}",
            lambda x, y, f=_f, r=_reduction: f(x, y, reduction=r),
            (3, 4),
            (3, 4),
        )
made("loss_cross_entropy", lambda: (F.cross_entropy, (randn(5, 4), torch.randint(0, 4, (5,)))))
made("loss_cross_entropy_2d", lambda: (F.cross_entropy, (randn(2, 4, 3), torch.randint(0, 4, (2, 3)))))
made(
    "loss_cross_entropy_options",
    lambda: (
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=1),
        (randn(5, 4), torch.randint(0, 4, (5,))),
    ),
)
case("loss_cross_entropy_soft", lambda x, y: F.cross_entropy(x, y.softmax(1)), (5, 4), (5, 4))
made(
    "loss_nll",
    lambda: (lambda x, y: F.nll_loss(x.log_softmax(1), y), (randn(5, 4), torch.randint(0, 4, (5,)))),
)
case(
    "loss_kl_div",
    lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    (5, 4),
    (5, 4),
)
case("loss_bce", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (5, 4), (5, 4))
case("loss_bce_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (5, 4), (5, 4))
case("loss_hinge", lambda x, y: F.hinge_embedding_loss(x, y.sign()), (5, 4), (5, 4))
case("loss_cosine", lambda x, y, z: F.cosine_embedding_loss(x, y, z.sign()), (5, 4), (5, 4), (5,))
case("loss_margin", lambda x, y, z: F.margin_ranking_loss(x, y, z.sign()), (5,), (5,), (5,))
case("loss_triplet", F.triplet_margin_loss, (5, 4), (5, 4), (5, 4))
case("loss_poisson", F.poisson_nll_loss, (5, 4), (5, 4))
case("loss_soft_margin", lambda x, y: F.soft_margin_loss(x, y.sign()), (5, 4), (5, 4))
made("loss_multi_margin", lambda: (F.multi_margin_loss, (randn(5, 4), torch.randint(0, 4, (5,)))))

# Complex numbers and transforms.
case(
    "complex_rope",
    lambda x, f: torch.view_as_real(torch.view_as_complex(x) * torch.polar(torch.ones_like(f), f)),
    (3, 4, 2),
    (3, 4),
)

# Values in, values out.
case("scalar_tensor", lambda x: x * 2, ())
case("returns_constants", lambda x: (x + 1, None, 3, "text", 2.5, [True]), (3,))
case("returns_dict", lambda x: {"a": x + 1, "b": {"c": x * 2}}, (3,))
case("returns_input", lambda x: (x, x), (3,))
case("returns_view", lambda x: (x.view(2, 6), x[1:], x.t(), x.expand(2, 3, 4)), (3, 4))
case("returns_twice", lambda x: (lambda y: (y, y, y + 1))(x * 2), (3,))
case("returns_expanded", lambda x: (x + 1).expand(4, 3), (3,))
case("returns_transposed", lambda x: (x + 1).t(), (3, 4))
case("returns_slices", lambda x: (x + 1).chunk(2, 1), (3, 4))
case("no_inputs", lambda: torch.arange(4.0) * 2)
case("empty_input", lambda x: (x.sum(), x * 2, x.sum(0)), (0, 3))
case("empty_cat", lambda x, y: torch.cat([x, y], 0) + 1, (0, 3), (2, 3))
case("empty_matmul", lambda x, y: x @ y, (2, 0), (0, 3))
case("in_place", lambda x: x.add_(1).mul_(2), (3, 4))
case("in_place_view", lambda x: (x[0].fill_(7), x)[1], (3, 4))
case("in_place_local", lambda x: (lambda y: (y[:, 0].zero_(), y.relu_())[1])(x.clone()), (3, 4))
made("list_input", lambda: (lambda xs: xs[0] + xs[1], ([randn(3), randn(3)],)))
made("dict_input", lambda: (lambda d: d["a"] * d["b"], ({"a": randn(3), "b": randn(3)},)))
made("scalar_input", lambda: (lambda x, k, f: x[:k] * f, (randn(5), 3, 2.5)))
made("bool_input", lambda: (lambda x, m: x.masked_fill(m, 0), (randn(5), randn(5, dtype=torch.bool))))
made("noncontiguous_input", lambda: (lambda x: x + 1, (randn(5, 3).t(),)))
made(
    "channels_last_input",
    lambda: (nn.Conv2d(3, 4, 3), (randn(1, 3, 6, 6).to(memory_format=torch.channels_last),)),
)
