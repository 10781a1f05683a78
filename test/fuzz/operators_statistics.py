"""Reductions, scans, orders and products in other forms: keywords, dtypes, empty and negative dimensions, corrections."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import draw_form
from fuzz.generator import Growth

_REDUCTIONS = {
    "sum": (
        "torch.sum({any}, dim=())",
        "{any}.sum({dims}, dtype=torch.{dtype})",
        "torch.sum({any}, axis={dim}, keepdims=True)",
        "{any}.sum(<-1|0>).sum()",
        "{any}.mean({dims}, <True|False>, dtype=torch.<float32|float64>)",
        "{any}.prod({dim}, dtype=torch.{dtype})",
        "{any}.prod()",
        "{any}.<cumsum|cumprod>({dim}, dtype=torch.{dtype})",
        "{float}.<var|std>({dims}, unbiased=<True|False>)",
        "{float}.<var|std>()",
        "torch.<std_mean|var_mean>({float}, {dims}, correction=<0|2>, keepdim=True)",
        "torch.nansum({any}, {dims}, <True|False>)",
        "torch.nanmean({float}, {dims})",
        "torch.logsumexp({any}, {dims}{keep})",
        "torch.logcumsumexp({float}, {dim})",
        "torch.norm({float}, <0|1|2|inf|-inf|'fro'>, {dim})",
        "{float}.norm(<1|2|3>)",
        "torch.linalg.norm({float1})",
        "torch.linalg.norm({float22}, <'fro'|1|-1|inf|-inf>)",
        "torch.linalg.matrix_norm({float2}, <'fro'|1|inf|-inf|-1>)",
        "torch.linalg.vector_norm({float}, <0|-1|-inf|0.5|4>, {dims}{keep})",
        "torch.linalg.vector_norm({float}, dtype=torch.float64)",
        "F.normalize({float1}, p=<1|2|3>, dim=<0|-1>, eps=1e-3)",
        "torch.renorm({float2}, 2, <0|-1>, 1.0)",
        "torch.diff({any1}, n=<1|2>, dim=-1)",
        "torch.diff({number1}, prepend={a}[..., :1])",
        "torch.<trapezoid|cumulative_trapezoid>({float1}, dx=0.5)",
        "torch.gradient({float11})",
        "torch.gradient({float22}, dim=0, spacing=2.0)",
        "torch.trace({any22})",
        "torch.vander({float11}, 3)",
        "torch.dist({float}, {like}, <1|2|inf|0|3>)",
        "F.softmax({number1}.float(), dim={dim})",
        "torch.softmax({any1}, {dim}, dtype=torch.float32)",
        "F.log_softmax({any1}, {dim}, dtype=torch.float64)",
        "{float}.softmax(<0|-1>)",
        "F.cosine_similarity({float1}, {new}, dim=<0|-1>, eps=1e-3)",
        "F.pairwise_distance({float2}, {new}, p=<1|2>, keepdim=True)",
        "torch.cdist({float22}, {a} * 2, p=<1.0|2.0|inf>)",
        "torch.quantile({float}.float(), <0.5|0.25|torch.tensor([0.1, 0.9]).to({a}.device)>)",
        "torch.quantile({float1}.float(), 0.3, dim={dim}, interpolation='<linear|lower|higher|nearest|midpoint>')",
        "torch.nanquantile({float1}.float(), 0.6, dim={dim})",
        "torch.histc({float}, 4, -2, 2)",
    ),
    "exact": (
        "torch.<any|all>({any}, {dims}{keep})",
        "{any}.<any|all>(<dim=0|-1, True>)",
        "torch.count_nonzero({any}, dim={dims})",
        "torch.<argmax|argmin>({any}, keepdim=True)",
        "torch.<argmax|argmin>({any}, dim={dim}{keep})",
        "torch.<max|min>({any}, {dim}).values",
        "torch.<max|min>({any}, {dim}, keepdim=True)",
        "torch.<max|min>({any}, {other})",
        "torch.aminmax({any})",
        "torch.<amax|amin>({any}, ())",
        "torch.<amax|amin>({any}, dim={dims}, keepdim=True)",
        "torch.<median|nanmedian|mode>({any}, {dim}).values",
        "torch.msort({any1})",
        "torch.sort({any}, stable=True, dim={dim}, descending=<True|False>)",
        "{any}.sort({dim}).values",
        "torch.topk({any1}, 1, dim={dim}, largest=<True|False>).values",
        "torch.<cummax|cummin>({any}, {dim})",
        "{any}.<max|min>()",
        "torch.argsort({any1}, stable=True, descending=True)",
    ),
}

_PRODUCTS = (
    "torch.addr({t:3,4}, {t:3}, {t:4}, beta=<1|0.5|0>, alpha=2)",
    "torch.addbmm({t:3,5}, {t:2,3,4}, {t:2,4,5}, beta=0.5, alpha=2)",
    "torch.baddbmm({t:2,1,5}, {t:2,3,4}, {t:2,4,5}, beta=<0|2>)",
    "torch.addmm({t:5}, {t:3,4}, {t:4,5}, beta=<0|-1>, alpha=0.5)",
    "torch.linalg.multi_dot(({t:3,4}, {t:4,2}, {t:2,5}))",
    "torch.linalg.matrix_power({t:3,3}, <0|1|2|3>)",
    "torch.einsum('bij,bjk->bik', {t:2,3,4}, {t:2,4,3})",
    "torch.einsum('bhqd,bhkd->bhqk', {t:1,2,3,4}, {t:1,2,5,4})",
    "torch.einsum('ij,j,i->', {t:3,4}, {t:4}, {t:3})",
    "torch.einsum('...i,...i->...', {t:2,3,4}, {t:3,4})",
    "torch.einsum('ii->i', {t:3,3})",
    "torch.einsum('ij->ji', {t:3,2})",
    "torch.einsum('i,j->ij', {t:3}, {t:4})",
    "torch.tensordot({t:2,3,4}, {t:4,3,5}, dims=([1, 2], [1, 0]))",
    "torch.linalg.vecdot({t:2,3}, {t:2,3})",
    "torch.vdot({t:4}, {t:4})",
    "torch.matmul({t:4}, {t:4})",
    "torch.matmul({t:4}, {t:2,4,3})",
    "torch.matmul({t:2,1,3,4}, {t:3,4,2})",
    "torch.matmul({t:0,3}, {t:3,2})",
    "torch.matmul({t:2,0}, {t:0,3})",
    "torch.bmm({t:3,1,2}, {t:3,2,1})",
    "F.linear({t:4}, {t:3,4}, {t:3})",
    "F.linear({t:2,3,4}, {t:4})",
    "F.bilinear({t:2,3}, {t:2,4}, {t:5,3,4}, {t:5})",
    "torch.kron({t:2,3}, {t:3})",
    "torch.<linalg.cross|cross>({t:4,3}, {t:4,3}, dim=-1)",
    "torch.outer({t:3}, {t:4})",
    "{t:3}.addmv({t:3,4}, {t:4}, alpha=3)",
    "{t:2,3} @ {t:3,4} @ {t:4,2}",
    "({t:3,4} @ {t:4,5}).relu().sum(0)",
    "{t:2,3,4}.mT @ {t:2,3,4}",
    "{t:5,3}.t().mm({t:5,2})",
    "F.scaled_dot_product_attention({t:1,4,3,8}, {t:1,2,5,8}, {t:1,2,5,8}, enable_gqa=True)",
    "F.scaled_dot_product_attention({t:2,3,8}, {t:2,5,8}, {t:2,5,4})",
    "F.scaled_dot_product_attention({t:1,2,3,8}, {t:1,2,5,8}, {t:1,2,5,8}, is_causal=True)",
    "F.scaled_dot_product_attention({t:2,2,3,8}, {t:2,2,5,8}, {t:2,2,5,8}, attn_mask={t:2,1,1,5} > 0)",
)


@operator(10, plain=False)
def reduced_otherwise(g: Growth) -> None:
    draw_form(g, _REDUCTIONS)


@operator(4)
def products_otherwise(g: Growth) -> None:
    draw_form(g, {"sum": _PRODUCTS})
