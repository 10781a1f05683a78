"""Views, joins, constants and indices in other forms: negative steps of dimensions, lists, `None`, masks, tuples."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import draw_form
from fuzz.generator import Growth

_VIEWS = (
    "{any1}[..., None]",
    "{any2}[:, None, ::2]",
    "{any3}[..., 0, None, 1:]",
    "{any1}[..., None, <1:5:2|:-1|-2:|10:|-100:100>]",
    "{any1}[<-1|-2:|:-1|10:|-100:100|::3|3:1|True|None, ..., None|-1:, None>]",
    "{any2}[..., <-1|-1:|:0>]",
    "{any2}[<0, ...|None, :, None|:1, -1:|:, -2|-1, 0>]",
    "{any2}.<T|mT|mH|H>",
    "{any}.real",
    "{any}.swapaxes(0, -1)",
    "{any2}.<moveaxis|movedim>((0, 1), (-1, 0))",
    "{any2}.movedim((1, -2), (0, -1))",
    "{any1}.<flip(-1)|flip((0,))|flipud()>",
    "{any2}.<fliplr()|flip((0, -1))|rot90(-1)|rot90(2, (0, -1))|rot90(3)>",
    "{any1}.<roll(2)|roll(-1)|roll((3,), (-1,))>",
    "{any2}.roll((1, -7), (0, -1))",
    "{any1}.unflatten(<-1|0>, <(1, -1)|(-1, 1)|(-1,)>)",
    "{any2}.flatten(<0, 1|-2|-2, -1>)",
    "{any3}.flatten(<1|0, 1|-2, -1|1, 1>)",
    "{any2}.squeeze(<(0, 1)|(0, -1)|-1|(1,)>)",
    "{any}.unsqueeze(<-1|0>).unsqueeze(-1)",
    "{any}.reshape(<-1, 1|1, -1|(-1,)|1, -1, 1>)",
    "{any}.view(<1, -1|-1|-1, 1>)",
    "{any1}.expand(2, *[-1] * {a}.dim())",
    "{any}.expand(<3, 1, *{a}.shape|2, *{a}.shape|*{a}.shape>)",
    "{any}.repeat(<2, 1|1, 3>, *[1] * max(0, {a}.dim() - 2))",
    "{any}.tile((<2,|1, 2|2, 1, 1>))",
    "{any1}.repeat_interleave(<3|1>, {dim})",
    "{any}.repeat_interleave(<2|3>)",
    "torch.atleast_<1|2|3>d({any})",
    "torch.diag_embed({any1}, <1|-1>, 0, 1)",
    "torch.diag_embed({any1}, dim1=-1, dim2=0)",
    "torch.diagonal({any2}, offset=<-2|-1|0|1|3>, dim1=-1, dim2=-2)",
    "torch.diag({any22}, <1|-1|0>)",
    "torch.<tril|triu>({any2}, diagonal=<-5|-1|0|1|5>)",
    "torch.tril_indices(3, 4, <-1|1>)",
    "torch.triu_indices(4, 3, <-1|2>)",
    "{any1}.unfold({dim}, 1, <1|2>)",
    "torch.narrow({any1}, <0|-1>, -1, 1)",
    "{any1}.narrow_copy(0, 0, 1)",
    "torch.select({any1}, {dim}, <-1|0>)",
    "torch.view_copy({any}, (-1,))",
    "torch.squeeze_copy({any})",
    "{any2}.as_strided((2,), (1,))",
    "{any1}.<hsplit|tensor_split>(1)[0]",
    "{any1}.tensor_split(<2|3|(1, 3)|(0,)|[2]>, {dim})",
    "{any1}.split([1, {a}.shape[0] - 1])",
    "{any1}.split(<1|2|3>, {dim})",
    "{any1}.unbind({dim})",
    "{any1}.chunk(<2|5>, {dim})",
    "[*{any1}]",
)

_JOINS = (
    "torch.column_stack(({any1}, {a}))",
    "torch.dstack(({any}, {a}))",
    "torch.<hstack|vstack|row_stack>([{any}, {new}])",
    "torch.cat([{any1}, {a}[:0], {a}], <0|-1>)",
    "torch.cat([{any1}], {dim})",
    "torch.<cat|concat|concatenate>([{any1}, {new}], dim=-1)",
    "torch.cat((torch.empty(0), {any1}))",
    "torch.cat([t * 2 for t in {number1}.split(2)])",
    "torch.stack([{any}] * 3, dim=-1)",
    "torch.stack({any1}.unbind(-1), 0)",
    "torch.block_diag({any22}, {a}[:1])",
    "torch.meshgrid({any11}, {a}, indexing='<xy|ij>')",
    "torch.cartesian_prod({any11}, {a}[:2])",
    "torch.broadcast_tensors({any}, {like})",
    "F.pad({any1}, (<-1, 2|2, -1|0, 0|-1, -1>))",
    "F.pad({any1}, (1, 1), 'constant', <True|2|0.5>)",
    "F.pad({any2}, (1, 0, 2, -1))",
    "F.pad({any3}, (0, 1, 1, 0, 2, 0), value=1)",
    "F.pad({float33}, (1, 2), mode='<reflect|replicate|circular>')",
    "torch.diagonal_scatter({any2}, torch.zeros_like(torch.diagonal({a})))",
    "torch.select_scatter({any1}, torch.ones_like({a}[0]), 0, -1)",
    "torch.slice_scatter({any1}, torch.ones_like({a}[::2]), 0, step=2)",
    "torch.slice_scatter({any2}, torch.zeros_like({a}[:, 1:]), -1, 1)",
    "torch.constant_pad_nd({any1}, (2, 1), 3)",
    "torch.tensor([[1.5, -2.0]]).to(torch.{dtype}).repeat(2, 1)",
)

_INDICES = {
    "exact": (
        "{any2}[:, [0, -1]]",
        "{any1}[[0, 0, -1]]",
        "{any2}[[0, -1], [0, -1]]",
        "{any3}[:, [0], [-1]]",
        "{any3}[[0, 0], :, [-1, 0]]",
        "{any2}[[0], None]",
        "{any2}[None, [0, -1]]",
        "{any3}[..., [0, -1], :]",
        "{any3}[0, :, [0, -1]]",
        "{any2}[1:, [0]]",
        "{any1}[[[0, 0], [-1, 0]]]",
        "{any1}[torch.tensor([0, -1], dtype=torch.<int64|int32>)]",
        "{any1}[torch.tensor(<0|-1>)].clone()",
        "{any2}[..., torch.tensor([0])]",
        "{any2}[torch.tensor([[0], [-1]]), torch.tensor([0, -1, 0])]",
        "{any1}.take(torch.tensor([<0|-1>, 0]))",
        "{any1}.take_along_dim({a}.argsort(stable=True, dim=0), 0)",
        "{any1}.gather(-1, torch.zeros_like({a}, dtype=torch.int64))",
        "{any}.flatten().take_along_dim(torch.tensor([0]))",
        "{any1}.index_select(-1, torch.tensor([0, 0]))",
        "torch.masked_fill({any1}, {a}.isnan(), 1)",
        "{any2}.index_put((torch.tensor([-1]), torch.tensor([0])), torch.tensor(1, dtype={a}.dtype))",
        "{any1}.index_fill({dim}, torch.tensor([0]), <1|0>)",
        "{any1}.scatter(0, torch.zeros_like({a}[:1], dtype=torch.int64), <1|True|0>)",
        "F.one_hot({at:3;4}, num_classes=5)",
        "torch.bincount({at:9;4}, minlength=<4|5>)",
        "F.embedding({at:2,2;3}, {t:3,4}, padding_idx=<1|-1>)",
        "torch.searchsorted(torch.tensor([-1.0, 0.0, 0.0, 2.0]), {float}.float(), <right=True|side='right'|out_int32=True>)",
        "torch.bucketize({number}, torch.tensor([0, 1, 2]), <right=True|out_int32=True>)",
    ),
    "sum": (
        "{any1}.index_put((torch.tensor([0, -1]),), {a}[:1].sum().to({a}.dtype))",
        "{any1}.index_reduce(0, torch.tensor([0, 0]), {a}[[0, 0]], '<amax|amin|prod|mean>')",
        "{any1}.index_add(0, torch.tensor([0, {a}.shape[0] - 1]), {a}[[0, 0]], alpha=<2|1>)",
        "{any1}.scatter(0, torch.zeros_like({a}[:1], dtype=torch.int64), <1|2>, reduce='<add|multiply>')",
        "{any1}.scatter_reduce(0, torch.zeros_like({a}, dtype=torch.int64), {a}, '<sum|amax|amin|prod|mean>')",
        "{any}.put(torch.tensor([0]), torch.ones(1, dtype={a}.dtype), accumulate=<True|False>)",
        "F.embedding_bag({at:2,3;4}, {t:4,5}, mode='<sum|mean|max>')",
        "F.embedding_bag({at:6;4}, {t:4,5}, torch.tensor([0, 2, 2]), mode='<sum|mean>')",
    ),
}


@operator(7)
def viewed(g: Growth) -> None:
    draw_form(g, {"exact": _VIEWS})


@operator(5)
def joined(g: Growth) -> None:
    draw_form(g, {"exact": _JOINS})


@operator(6, plain=False)
def indexed(g: Growth) -> None:
    draw_form(g, _INDICES)
