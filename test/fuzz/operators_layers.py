"""Layers and losses in other forms: windows of unequal sides, groups, dilation, rounding up, modes, modules."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import draw_form
from fuzz.generator import Growth

_WINDOWS = {
    "window": (
        "F.conv1d({t:2,4,9}, {t:6,2,3}, {t:6}, stride=(2,), padding=(<1|2>,), dilation=<1|2>, groups=2)",
        "F.conv2d({t:1,4,7,6}, {t:4,1,3,2}, padding=(1, 0), stride=(1, 2), groups=4)",
        "F.conv2d({t:1,3,7,6}, {t:2,3,3,2}, {t:2}, padding=(<0|2|3>, 1), dilation=(2, 1))",
        "F.conv2d({t:3,7,6}, {t:2,3,3,3}, padding='<same|valid>', dilation=<1|2>)",
        "F.conv2d({t:2,4,5,5}, {t:8,2,1,1}, groups=2, stride=<1|3>)",
        "F.conv3d({t:1,2,4,3,5}, {t:4,1,2,2,3}, {t:4}, padding=(1, 0, 1), stride=(1, 1, 2), groups=2)",
        "F.conv1d(F.pad({t:1,2,5}, (2, 0)), {t:3,2,3})",
        "F.conv_transpose1d({t:1,3,4}, {t:3,2,3}, {t:2}, stride=<2|3>, padding=1, output_padding=1)",
        "F.conv_transpose2d({t:1,4,3,4}, {t:4,2,3,2}, {t:4}, (2, 1), (1, 0), (1, 0), 2, (1, 1))",
        "F.conv_transpose2d({t:2,3,3,3}, {t:3,1,2,2}, stride=2, dilation=2)",
        "F.conv_transpose3d({t:1,2,2,3,2}, {t:2,2,2,2,2}, stride=(1, 2, 1))",
        "F.unfold({t:1,2,5,6}, (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))",
        "F.fold({t:1,8,6}, (3, 4), (2, 2))",
        "F.fold({t:2,4,9}, (6, 6), 2, stride=2)",
    ),
    "exact": (
        "F.max_pool2d({t:1,2,7,6}, (2, 3), (1, 2), (1, 1), dilation=(2, 1), ceil_mode=<True|False>)",
        "F.max_pool2d({t:2,5,5}, 3, 2, ceil_mode=True)",
        "F.max_pool1d({t:2,3,7}, 2, dilation=2, return_indices=<True|False>)",
        "F.max_pool2d({t:1,2,5,6}, 2, return_indices=True)",
        "F.max_pool3d({t:1,2,4,4,5}, (2, 1, 3), stride=(1, 2, 1), padding=(1, 0, 1))",
        "F.max_unpool2d(*F.max_pool2d({t:1,2,4,6}, 2, return_indices=True), 2)",
        "F.adaptive_max_pool1d({t:2,3,7}, <1|3|5>)",
        "F.adaptive_max_pool2d({t:1,2,5,7}, <(2, 3)|(None, 2)|1>)",
        "F.adaptive_max_pool2d({t:1,2,5,7}, (2, 3), return_indices=True)",
        "F.<pixel_unshuffle|pixel_shuffle>({t:1,4,4,6}, 2)",
        "torch.nn.<Identity()|Flatten()|Flatten(0, 1)|ReLU()|MaxPool2d(2)|ZeroPad2d(1)|ReflectionPad2d((1, 0, 1, 1))|Unflatten(1, (2, -1))>({t:2,4,4,4})",
    ),
    "sum": (
        "F.avg_pool2d({t:1,2,7,6}, (3, 2), divisor_override=<4|7>)",
        "F.avg_pool2d({t:1,2,7,6}, 3, 2, 1, ceil_mode=True, count_include_pad=<True|False>)",
        "F.avg_pool1d({t:2,3,7}, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)",
        "F.avg_pool3d({t:1,2,4,5,4}, (2, 3, 2), (2, 1, 2), (1, 1, 0), count_include_pad=False)",
        "F.lp_pool1d({t:1,2,7}, <1|2|3>, 3, ceil_mode=<True|False>)",
        "F.adaptive_avg_pool1d({t:2,3,7}, <1|3|5>)",
        "F.adaptive_avg_pool2d({t:1,2,5,7}, <(2, 3)|(None, 2)|7>)",
        "F.adaptive_avg_pool3d({t:1,2,4,5,3}, (2, None, 1))",
        "F.interpolate({t:1,2,5}, size=<3|8>, mode='<nearest|linear|nearest-exact|area>')",
        "F.interpolate({t:1,2,5,4}, scale_factor=<(2, 0.5)|1.5|0.6>, mode='<nearest|bilinear|bicubic|nearest-exact|area>')",
        "F.interpolate({t:1,2,5,4}, size=(<3|9|1>, 6), mode='<bilinear|bicubic>', align_corners=True)",
        "F.interpolate({t:1,1,3,4,3}, scale_factor=2, mode='<nearest|trilinear>')",
        "F.upsample({t:1,2,3,3}, scale_factor=2)",
        "F.grid_sample({t:1,2,5,6}, {unit:1,3,4,2} * 2.4 - 1.2, mode='<bilinear|nearest>', padding_mode='<zeros|border|reflection>', align_corners=<True|False>)",
        "F.affine_grid({t:1,2,3}, (1, 1, 3, 4), align_corners=<True|False>)",
        "F.local_response_norm({t:1,4,3,3}, <2|3>)",
        "torch.nn.<AvgPool2d(2)|AdaptiveAvgPool2d(1)|Softmax2d()|LPPool2d(2, 2)|UpsamplingBilinear2d(scale_factor=2)>({t:2,4,4,4})",
    ),
}

_NORMS = {
    "sum": (
        "F.layer_norm({t:2,3,4}, (3, 4), {t:3,4}, {t:3,4}, eps=<1e-5|1e-2>)",
        "F.layer_norm({t:2,3,4}, (4,), None, {t:4})",
        "F.layer_norm({t:4}, (4,))",
        "F.group_norm({t:2,4,3}, 2, {t:4}, {t:4})",
        "F.group_norm({t:2,6,3,2}, <1|3|6>, eps=1e-3)",
        "F.instance_norm({t:2,3,4,4}, weight={t:3}, bias={t:3})",
        "F.instance_norm({t:2,3,4}, {t:3}, {unit:3}, use_input_stats=False)",
        "F.batch_norm({t:4,3}, {t:3}, {unit:3}, {t:3}, {t:3}, eps=1e-2)",
        "F.batch_norm({t:4,3,2}, None, None, {t:3}, None, True)",
        "F.rms_norm({t:2,3,4}, (3, 4), {t:3,4})",
        "F.rms_norm({t:2,4}, (4,))",
        "torch.nn.<LayerNorm(4, elementwise_affine=False)|RMSNorm(4, elementwise_affine=False)|Softmax(-1)|LogSoftmax(1)|InstanceNorm1d(3)|Softmin(0)>({t:2,3,4})",
    ),
    "inside": (
        "torch.nn.<GELU()|SiLU()|ELU(0.5)|Hardswish()|Mish()|Softplus(2)|Tanhshrink()|Hardtanh(-2, 2)|Threshold(0.1, 5)|LogSigmoid()|CELU()|GLU(-1)|PReLU().requires_grad_(False)>({t:2,3,4})",
        "torch.nn.Sequential(torch.nn.GELU(), torch.nn.Tanh(), torch.nn.Identity())({t:3,4})",
    ),
}

_LOSSES = {
    "sum": (
        "F.cross_entropy({t:4,5}, {at:4;5}, reduction='<mean|sum|none>', label_smoothing=<0.0|0.1>)",
        "F.cross_entropy({t:4,5}, {at:4;5}, weight={unit:5}, ignore_index=<1|-100>)",
        "F.cross_entropy({t:2,5,3}, {at:2,3;5}, reduction='<mean|none>')",
        "F.cross_entropy({t:4,5}, {unit:4,5})",
        "F.cross_entropy({t:5}, {at:;5})",
        "F.nll_loss({t:4,5}, {at:4;5}, ignore_index=2, reduction='<mean|sum|none>')",
        "F.nll_loss({t:2,5,3,2}, {at:2,3,2;5}, weight={unit:5})",
        "F.binary_cross_entropy({unit:3,4}, {unit:3,4}, reduction='<mean|none>')",
        "F.binary_cross_entropy({unit:3,4}, {unit:3,4}, weight={unit:4})",
        "F.binary_cross_entropy_with_logits({t:3,4}, {unit:3,4}, pos_weight={unit:4})",
        "F.kl_div({t:3,4}, {unit:3,4}, reduction='<batchmean|sum|none>', log_target=<True|False>)",
        "F.smooth_l1_loss({t:3,4}, {t:3,4}, beta=<0.5|2.0>)",
        "F.huber_loss({t:3,4}, {t:3,4}, delta=0.3, reduction='none')",
        "F.hinge_embedding_loss({t:3,4}, {unit:3,4}.round() * 2 - 1)",
        "F.margin_ranking_loss({t:4}, {t:4}, {unit:4}.round() * 2 - 1, margin=0.1)",
        "F.soft_margin_loss({t:3,4}, {unit:3,4}.round() * 2 - 1)",
        "F.cosine_embedding_loss({t:3,4}, {t:3,4}, {at:3;2} * 2 - 1)",
        "F.triplet_margin_loss({t:3,4}, {t:3,4}, {t:3,4}, swap=<True|False>)",
        "F.multilabel_soft_margin_loss({t:3,4}, {at:3,4;2})",
        "F.multi_margin_loss({t:3,4}, {at:3;4})",
        "F.poisson_nll_loss({t:3,4}, {unit:3,4}, log_input=<True|False>)",
        "torch.nn.<MSELoss()|L1Loss(reduction='sum')|SmoothL1Loss()|HuberLoss()>({t:3,4}, {t:3,4})",
    ),
}


@operator(6)
def windowed(g: Growth) -> None:
    draw_form(g, _WINDOWS)


@operator(3)
def normalised(g: Growth) -> None:
    draw_form(g, _NORMS)


@operator(3)
def lost(g: Growth) -> None:
    draw_form(g, _LOSSES)
