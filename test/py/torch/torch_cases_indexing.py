"""Shapes, indexing, gathering and scattering."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch_cases import case, made, randn

# Shapes and indexing.
case("view", lambda x: x.view(6, 10).reshape(2, 30), (3, 4, 5))
case("flatten", lambda x: torch.flatten(x, 1), (3, 4, 5))
case("unflatten", lambda x: x.unflatten(1, (2, 2)), (3, 4, 5))
case("permute", lambda x: x.permute(2, 0, 1) + 1, (3, 4, 5))
case("permute_contiguous", lambda x: x.permute(2, 0, 1).contiguous(), (3, 4, 5))
case("transpose_reshape", lambda x: x.transpose(0, 1).reshape(4, 15), (3, 4, 5))
case("movedim", lambda x: torch.movedim(x, 0, -1) * 2, (3, 4, 5))
case("squeeze", lambda x: x.squeeze(1).unsqueeze(0) + 1, (3, 1, 5))
case("expand", lambda x: x.expand(3, 4, 5) * 2, (4, 1))
case("broadcast_to", lambda x: torch.broadcast_to(x, (2, 4, 3)) + 1, (4, 1))
case("repeat", lambda x: x.repeat(2, 1, 3), (4, 5))
case("repeat_interleave", lambda x: torch.repeat_interleave(x, 2, 1), (4, 5))
case("tile", lambda x: torch.tile(x, (2, 3)), (4, 5))
case("cat", lambda x, y: torch.cat([x, y, x], 1), (3, 4), (3, 2))
case("stack", lambda x, y: torch.stack([x, y], 1), (3, 4), (3, 4))
case(
    "hstack_vstack",
    lambda x, y: (torch.hstack([x, y]), torch.vstack([x, y]), torch.dstack([x, y])),
    (3, 4),
    (3, 4),
)
case("split", lambda x: [t * 2 for t in torch.split(x, [1, 3], 1)], (3, 4))
case("chunk", lambda x: [t + 1 for t in x.chunk(3, 1)], (3, 7))
case("unbind", lambda x: [t + 1 for t in x.unbind(1)], (3, 4))
case("tensor_split", lambda x: [t + 1 for t in torch.tensor_split(x, 3, 1)], (3, 7))
case("slice", lambda x: x[1:, ::2, -3:-1] + 1, (3, 4, 5))
case("select", lambda x: x[:, -1] + x[0, 1], (3, 4, 5))
case("narrow", lambda x: x.narrow(1, 1, 2) * 2, (3, 4))
case("flip", lambda x: torch.flip(x, [0, 2]), (3, 4, 5))
case("roll", lambda x: torch.roll(x, (1, -2), (0, 1)), (3, 4))
case("rot90", lambda x: torch.rot90(x), (3, 4))
case("diag", lambda x: torch.diag(x), (4, 4))
case("diagonal", lambda x: torch.diagonal(x, 1, 0, 2) + 1, (4, 3, 5))
case("diag_embed", lambda x: torch.diag_embed(x), (2, 3))
case("tril_triu", lambda x: torch.tril(x) + torch.triu(x, 1), (4, 5))
case("unfold", lambda x: x.unfold(1, 3, 2) * 1, (3, 9))
case("as_strided", lambda x: torch.as_strided(x + 1, (2, 3), (1, 2)), (3, 4))
case("as_strided of a part", lambda x: torch.as_strided(x.kthvalue(2, 0, True)[0], (2, 3), (1, 2)), (3, 9))
case("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), (3,), (4,))
case("cartesian_arange", lambda x: x + torch.arange(4) + torch.linspace(0, 1, 4), (3, 4))
case(
    "creation",
    lambda x: (torch.zeros(2, 3), torch.ones_like(x), torch.full((2,), 7), torch.eye(3), torch.zeros_like(x)),
    (3, 4),
)
case("new_creation", lambda x: (x.new_zeros(2), x.new_ones(2), x.new_full((2,), 3.0)), (3, 4))
made("gather", lambda: (lambda x, i: torch.gather(x, 1, i), (randn(3, 5), torch.randint(0, 5, (3, 2)))))
made(
    "take_along_dim",
    lambda: (lambda x, i: torch.take_along_dim(x, i, 1), (randn(3, 5), torch.randint(0, 5, (3, 2)))),
)
made(
    "index_select", lambda: (lambda x, i: torch.index_select(x, 1, i), (randn(3, 5), torch.tensor([0, 4, 1])))
)
made("index_tensor", lambda: (lambda x, i: x[i], (randn(5, 3), torch.tensor([0, 4, -1]))))
made(
    "index_tensor_2",
    lambda: (lambda x, i, j: x[i, j], (randn(5, 3, 2), torch.tensor([0, 4]), torch.tensor([2, 1]))),
)
made("index_tensor_mid", lambda: (lambda x, i: x[:, i], (randn(5, 3, 2), torch.tensor([0, 2]))))
made("index_tensor_2d", lambda: (lambda x, i: x[i], (randn(5, 3), torch.randint(0, 5, (2, 2)))))
made(
    "index_put",
    lambda: (lambda x, i, v: x.clone().index_put_((i,), v), (randn(5, 3), torch.tensor([0, 4]), randn(2, 3))),
)
made(
    "index_put_accumulate",
    lambda: (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        (randn(5, 3), torch.tensor([0, 0]), randn(2, 3)),
    ),
)
made(
    "index_put_negative",
    lambda: (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        (randn(5, 3), torch.tensor([4, -1, -5]), randn(3, 3)),
    ),
)
made(
    "index_add",
    lambda: (lambda x, i, v: torch.index_add(x, 0, i, v), (randn(5, 3), torch.tensor([0, 4]), randn(2, 3))),
)
made(
    "index_copy",
    lambda: (lambda x, i, v: torch.index_copy(x, 0, i, v), (randn(5, 3), torch.tensor([0, 4]), randn(2, 3))),
)
made("index_fill", lambda: (lambda x, i: torch.index_fill(x, 0, i, 2.0), (randn(5, 3), torch.tensor([0, 4]))))
made(
    "scatter",
    lambda: (
        lambda x, i, v: torch.scatter(x, 1, i, v),
        (randn(3, 5), torch.tensor([[0, 1], [2, 3], [4, 0]]), randn(3, 2)),
    ),
)
made(
    "scatter_value",
    lambda: (lambda x, i: torch.scatter(x, 1, i, 2.5), (randn(3, 5), torch.tensor([[0, 1], [2, 3], [4, 0]]))),
)
made(
    "scatter_add",
    lambda: (
        lambda x, i, v: torch.scatter_add(x, 1, i, v),
        (randn(3, 5), torch.tensor([[0, 0], [2, 3], [4, 0]]), randn(3, 2)),
    ),
)
for _reduce in ["sum", "prod", "mean", "amax", "amin"]:
    made(
        f"scatter_reduce_{_reduce}",
        lambda r=_reduce: (
            lambda x, i, v: torch.scatter_reduce(x, 1, i, v, r),
            (randn(3, 5), torch.tensor([[0, 0], [2, 3], [4, 0]]), randn(3, 2)),
        ),
    )
made(
    "masked_select_like",
    lambda: (lambda x, m: torch.where(m, x, 0).sum(), (randn(3, 5), randn(3, 5, dtype=torch.bool))),
)
made(
    "masked_scatter",
    lambda: (lambda x, m, v: x.masked_scatter(m, v), (randn(3, 5), randn(3, 5, dtype=torch.bool), randn(15))),
)
case("select_scatter", lambda x, y: torch.select_scatter(x, y, 0, 1), (3, 4), (4,))
case("slice_scatter", lambda x, y: torch.slice_scatter(x, y, 0, 1, 3), (4, 3), (2, 3))
case("slice_assign", lambda x, y: _assign(x, y), (4, 3), (2, 3))
made("embedding", lambda: (nn.Embedding(10, 4), (torch.randint(0, 10, (2, 3)),)))
made("embedding_padding", lambda: (nn.Embedding(10, 4, padding_idx=0), (torch.randint(0, 10, (2, 3)),)))
for _mode in ["sum", "mean", "max"]:
    made(
        f"embedding_bag_{_mode}",
        lambda m=_mode: (nn.EmbeddingBag(10, 4, mode=m), (torch.randint(0, 10, (2, 3)),)),
    )
made("one_hot", lambda: (lambda x: F.one_hot(x, 7), (torch.randint(0, 7, (2, 3)),)))
made("isin", lambda: (lambda x: torch.isin(x, torch.tensor([1, 2])), (torch.randint(0, 7, (2, 3)),)))
case("tensordot", lambda x, y: torch.tensordot(x, y, 2), (3, 4, 5), (4, 5, 2))


def _assign(x, y):
    x = x.clone()
    x[1:3] = y
    x[0] += 1
    return x


made(
    "scatter_reduce_last",
    lambda: (
        lambda x, i, v: torch.scatter_reduce(x, -1, i, v, "amax"),
        (randn(3, 5), torch.tensor([[0, 0], [2, 3], [4, 0]]), randn(3, 2)),
    ),
)
made("take", lambda: (lambda x, i: torch.take(x, i), (randn(3, 5), torch.tensor([[0, 14], [-1, 7]]))))
case("diagonal_scatter", lambda x, y: torch.diagonal_scatter(x, y, 1), (3, 4), (3,))
case("diagonal_scatter_below", lambda x, y: torch.diagonal_scatter(x, y, -1), (4, 3), (3,))
case("logcumsumexp_large", lambda x: torch.logcumsumexp(x * 100, 1), (3, 6))
case("reductions_of_a_scalar", lambda x: (x.amax(0), x.argmin(0), x.sort()[0], x.softmax(0)), ())
