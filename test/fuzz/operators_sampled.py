"""Images sampled, resized and shuffled, distances, moments and sums over windows, losses with every option."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import draw_form
from fuzz.generator import Growth

_RESIZED = {
    "sum": (
        "F.interpolate({t:1,2,5,4}, size=(<3|9|1|5>, <6|2>), mode='<bilinear|bicubic>', antialias=True)",
        "F.interpolate({t:1,2,5,7}, size=(3, <4|7>), mode='<bilinear|bicubic>', align_corners=<True|False>, antialias=True)",
        "F.interpolate({t:2,1,6,6}, scale_factor=<0.5|1.7|(0.4, 2)>, mode='<bilinear|bicubic>', antialias=True)",
        "F.interpolate({t:1,2,5,4}, scale_factor=<1.3|0.7>, mode='<bilinear|bicubic|nearest|nearest-exact>', recompute_scale_factor=True)",
        "F.interpolate({t:1,2,5}, scale_factor=<1.3|2>, mode='linear', align_corners=<True|False>)",
        "F.interpolate({t:1,2,3,4,2}, size=(<2|5>, 3, 4), mode='<nearest|trilinear|area|nearest-exact>')",
        "F.interpolate({t:1,2,3,4,2}, size=(2, 5, 3), mode='trilinear', align_corners=True)",
        "F.grid_sample({t:2,3,5,6}, {t:2,3,4,2}, mode='<bilinear|nearest|bicubic>', padding_mode='<zeros|border|reflection>', align_corners=<True|False>)",
        "F.grid_sample({t:1,2,1,4}, {unit:1,2,3,2} * 3 - 1.5, '<bilinear|nearest|bicubic>', '<zeros|border|reflection>', <True|False>)",
        "F.grid_sample({t:1,2,3,4,3}, {unit:1,2,3,2,3} * 2.4 - 1.2, mode='<bilinear|nearest>', padding_mode='<zeros|border|reflection>', align_corners=<True|False>)",
        "F.affine_grid({t:2,2,3}, (2, 1, <3|1>, 4), align_corners=<True|False>)",
        "F.affine_grid({t:1,3,4}, (1, 1, 2, 3, <4|1>), align_corners=<True|False>)",
        "F.grid_sample({t:1,2,5,6}, F.affine_grid({t:1,2,3}, (1, 2, 3, 4), align_corners=False), align_corners=False)",
    ),
    "exact": (
        "F.pixel_shuffle({t:2,9,2,3}, <3|1>)",
        "F.pixel_unshuffle({t:1,2,4,6}, <2|1>)",
        "F.channel_shuffle({t:2,6,3,2}, <2|3|1|6>)",
        "F.channel_shuffle({t:1,4,5}, 2)",
        "F.max_unpool1d(*F.max_pool1d({t:1,2,6}, 2, return_indices=True), 2)",
        "F.max_unpool3d(*F.max_pool3d({t:1,1,4,4,2}, 2, return_indices=True), 2)",
        "F.adaptive_max_pool3d({t:1,2,4,5,3}, (2, 3, 1), return_indices=True)",
        "F.unfold({t:2,3,5,4}, <2|(1, 3)>, stride=<1|2>, padding=<0|1>, dilation=<1|2>)",
        "F.unfold({t:3,5,4}, (2, 2))",
    ),
    "window": (
        "F.fold({t:2,12,4}, (4, 4), (2, 2), stride=2, padding=0, dilation=1)",
        "F.fold({t:1,4,9}, (4, 4), 2, padding=<0|1>, stride=<1|2>)",
        "F.fold({t:4,12}, (4, 5), 2)",
        "F.fold({t:1,4,9}, (5, 4), (2, 2), dilation=(2, 1))",
        "F.lp_pool2d({t:1,2,5,6}, <1|2|3>, (2, 3), ceil_mode=<True|False>)",
        "F.conv_tbc({t:5,2,3}, {t:3,3,4}, {t:4}, <0|1>)",
    ),
}

_MOMENTS = {
    "sum": (
        "torch.cov({float12}, correction=<0|1>)",
        "torch.cov({float22}[:, :3].clone(), fweights=torch.tensor([1, 2, 3])[:{a}.shape[1]])",
        "torch.corrcoef({float12})",
        "torch.histc({float}, <1|4|7>, <-2, 2|0, 1|-1, 3>)",
        "torch.histc({number}, 3, 0, 5)",
        "torch.cdist({float22}, {new}, p=<0.0|1.0|2.0|3.0|inf|0.5>)",
        "torch.cdist({t:2,3,4}, {t:1,5,4}, p=<1.0|2.0|inf>, compute_mode='<use_mm_for_euclid_dist|donot_use_mm_for_euclid_dist>')",
        "F.pdist({float22}, <0|1|2|3|inf>)",
        "torch.renorm({float2}, <1|2|3|inf|0.5>, <0|1|-1>, <0.5|1|5>)",
        "torch.<trapezoid|trapz|cumulative_trapezoid>({float1}, {new}, dim={dim})",
        "torch.<trapezoid|cumulative_trapezoid>({float1}, dim={dim}, dx=<1|0.25>)",
        "torch.vander({number11}, <1|2|4|None>, <True|False>)",
        "torch.linalg.vander({float12}, N=<2|3>)",
        "torch.kron({number}, {other})",
        "torch.kron({t:2,3}, {t:2,1,2})",
        "torch.tensordot({t:2,3,4}, {t:3,4,5}, <2|([1, 2], [0, 1])>)",
        "torch.tensordot({t:3,4}, {t:2,4}, ([1], [1]))",
        "torch.tensordot({t:2,3}, {t:4}, 0)",
        "torch.inner({t:2,3,4}, {t:5,4})",
        "torch.chain_matmul({t:2,3}, {t:3,4}, {t:4,2})",
        "torch.einsum('bij,bkj->' + '<bik|bk|jb|ikb>', {t:2,3,4}, {t:2,5,4})",
        "torch.einsum('ab,bc,cd->' + '<ad|b|dca|>', {t:2,3}, {t:3,4}, {t:4,2})",
        "torch.linalg.cross({t:3,4}, {t:3,1}, dim=0)",
        "torch.linalg.det({t:3,3} + torch.eye(3, dtype=torch.<float32|float64>))",
        "torch.linalg.inv({t:3,3}.nan_to_num(0, 0, 0).clamp(-1, 1) + 4 * torch.eye(3, dtype=torch.<float32|float64>))",
        "torch.linalg.solve({t:2,3,3}.nan_to_num(0, 0, 0).clamp(-1, 1).double() + 4 * torch.eye(3), {t:3,4}.double())",
        "torch.linalg.solve_triangular({t:3,3}.nan_to_num(0, 0, 0).clamp(-1, 1).double() + 4 * torch.eye(3), {t:3,2}.double(), upper=<True|False>)",
        "torch.<logaddexp|logaddexp2>({float}, {like})",
        "torch.nan_to_num({float1}, 0, 0, 0).<cumsum|cumprod|logcumsumexp>({dim})",
        "torch.<std|var>({float}, {dims}, correction=<0|0.5|1|3>)",
        "torch.<std_mean|var_mean>({float}, <0|None>, correction=1)",
        "{float}.<nansum()|nanmean()|norm()|logsumexp(0)|std()|prod()>",
        "torch.gradient({float2}, spacing=<1.0|2.0>, dim=<0|1|(0, 1)>, edge_order=<1|2>)",
        "torch.diff({number1}, n=<1|2|3>, dim={dim}, append={a})",
        "torch.<cummax|cummin>({number}, {dim}).values.sum()",
        "torch.clamp({float}, min={like}, max={like}).mean({dims})",
        "torch.<nanquantile|quantile>({float1}.float(), torch.tensor([0.0, 0.3, 1.0]), {dim}, True, interpolation='<linear|lower|higher|nearest|midpoint>')",
    ),
}

_LOSSES = {
    "sum": (
        "F.multilabel_margin_loss({t:3,4}, {at:3,4;5} - 1, reduction='<mean|sum|none>')",
        "F.multilabel_margin_loss({t:5}, {at:5;6} - 1)",
        "F.multi_margin_loss({t:3,4}, {at:3;4}, p=<1|2>, margin=<1.0|0.3>, reduction='<mean|sum|none>')",
        "F.multi_margin_loss({t:3,4}, {at:3;4}, weight={unit:4}, p=<1|2>)",
        "F.multi_margin_loss({t:4}, {at:;4})",
        "F.multilabel_soft_margin_loss({t:3,4}, {at:3,4;2}, weight={unit:4}, reduction='<mean|sum|none>')",
        "F.triplet_margin_loss({t:3,4}, {t:3,4}, {t:3,4}, margin=<0.5|2.0>, p=<1|2|3>, reduction='<mean|sum|none>')",
        "F.triplet_margin_with_distance_loss({t:3,4}, {t:3,4}, {t:3,4}, swap=<True|False>)",
        "F.gaussian_nll_loss({t:3,4}, {t:3,4}, {unit:3,4}, full=<True|False>, reduction='<mean|none>')",
        "F.poisson_nll_loss({t:3,4}, {unit:3,4} * 5, full=True, log_input=<True|False>)",
        "F.smooth_l1_loss({t:3,4}, {t:3,4}, beta=<0.0|1.0>, reduction='<mean|sum|none>')",
        "F.hinge_embedding_loss({t:3,4}, {unit:3,4}.round() * 2 - 1, margin=0.3, reduction='<sum|none>')",
        "F.cosine_embedding_loss({t:3,4}, {t:3,4}, {at:3;2} * 2 - 1, margin=<0.2|-0.5>, reduction='<sum|none>')",
        "F.margin_ranking_loss({t:4}, {t:4}, {at:4;2} * 2 - 1, margin=<0.5|-1>, reduction='<sum|none>')",
        "F.binary_cross_entropy_with_logits({t:3,4}, {unit:3,4}, weight={unit:4}, reduction='<sum|none>')",
        "F.nll_loss(F.log_softmax({t:4,5}, 1), {at:4;5}, weight={unit:5}, ignore_index=2, reduction='<mean|sum|none>')",
        "F.nll_loss({t:2,5,3}, {at:2,3;5}, reduction='<mean|none>')",
        "F.cross_entropy({t:2,5,3}, {at:2,3;5}, weight={unit:5}, label_smoothing=<0.2|0.0>, reduction='<mean|sum|none>')",
        "F.cross_entropy({t:3,5}, F.softmax({t:3,5}, 1), weight={unit:5}, label_smoothing=0.1)",
        "F.kl_div(F.log_softmax({t:3,4}, 1), F.log_softmax({t:3,4}, 1), log_target=True, reduction='<batchmean|mean|none>')",
        "F.<mse_loss|l1_loss|huber_loss|soft_margin_loss>({t:3,4}, {t:3,4}, reduction='<mean|sum|none>')",
        "F.mse_loss({t:3,4}, {t:3,4}, weight={unit:3,4})",
    ),
}


@operator(4)
def resampled(g: Growth) -> None:
    draw_form(g, _RESIZED)


@operator(5)
def moments(g: Growth) -> None:
    draw_form(g, _MOMENTS)


@operator(4)
def losses_otherwise(g: Growth) -> None:
    draw_form(g, _LOSSES)
