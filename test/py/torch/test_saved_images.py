"""What graphs for training save for gradients: images channels last, no views, and gradients that autograd keeps."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

from tilewright.compiler.importers.torch.graph import import_graph
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.phases import run_phases
from tilewright.compiler.rewriting.layout_rules import transposed_by
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.torch import backend
from tilewright.compiler.torch.partition import reshape_views

aten = torch.ops.aten


def block(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).train()


class Returned(nn.Module):
    """Gives an image to the caller that gradients need too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        y = torch.relu(self.first(x))
        return y, self.second(torch.sigmoid(y))


class Attending(nn.Module):
    """Patches, then heads of a rank that images have, too."""

    def __init__(self):
        super().__init__()
        self.patches, self.project = nn.Conv2d(3, 8, 2, 2), nn.Linear(8, 24)

    def forward(self, x):
        x = torch.tanh(self.patches(x)).flatten(2).transpose(1, 2)
        q, k, v = self.project(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v)


NETWORKS = {
    "normed": (lambda: block(nn.Conv2d(3, 5, 3, 2, 1), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 3)), (2, 3, 9, 11)),
    "pooled": (lambda: block(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 3, 1)), (3, 2, 9, 8)),
    "averaged": (lambda: block(nn.Conv2d(2, 4, 3), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 2)), (1, 2, 8, 8)),
    "grouped": (lambda: block(nn.Conv2d(4, 6, 3, groups=2), nn.GELU(), nn.Conv2d(6, 6, 3, groups=6)), (2, 4, 8, 7)),
    "dilated": (lambda: block(nn.Conv2d(3, 4, 3, dilation=2), nn.Tanh(), nn.Conv2d(4, 4, 2, 2)), (2, 3, 10, 9)),
    "transposed": (lambda: block(nn.ConvTranspose2d(3, 4, 4, 2, 1), nn.BatchNorm2d(4), nn.ReLU(),
                                 nn.ConvTranspose2d(4, 2, 3)), (2, 3, 5, 4)),
    "of one dimension": (lambda: block(nn.Conv1d(3, 5, 4, 2), nn.ELU(), nn.Conv1d(5, 2, 3)), (2, 3, 17)),
    "of three dimensions": (lambda: block(nn.Conv3d(2, 3, 2), nn.Sigmoid(), nn.Conv3d(3, 2, 2)), (2, 2, 4, 5, 4)),
    "of one pixel": (lambda: block(nn.Conv2d(3, 5, 3), nn.Tanh(), nn.Conv2d(5, 4, 1)), (2, 3, 3, 3)),
    "returned": (Returned, (2, 3, 6, 6)),
    "attending": (Attending, (2, 3, 6, 8)),
}  # fmt: skip


def directed(found) -> torch.Tensor:
    found = found if isinstance(found, tuple) else (found,)
    return sum((y * torch.cos(torch.arange(y.numel()).reshape(y.shape))).sum() for y in found)  # type: ignore[return-value]


def gradients(model: nn.Module, function, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    directed(function(x)).backward()
    return [x.grad, *(p.grad for p in model.parameters())]  # type: ignore[list-item]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """The graphs that would be compiled, run by PyTorch instead."""
    found: list[torch.fx.GraphModule] = []

    def run(module, options, parameters):
        found.append(module)
        loose = copy.deepcopy(module)
        reshape_views(loose)

        def call(arguments):
            given = list(arguments)
            arguments.clear()
            return [y.clone() if isinstance(y, torch.Tensor) else y for y in loose(*given)]

        call._boxed_call = True
        return call

    monkeypatch.setattr(backend, "_compiled", run)
    torch._dynamo.reset()
    yield found  # type: ignore[misc]
    torch._dynamo.reset()


@pytest.mark.parametrize(("make", "shape"), NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize(
    "memory", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels last"]
)
def test_gradients_are_those_of_what_was_not_rearranged(graphs, make, shape, memory) -> None:
    if memory is torch.channels_last and len(shape) != 4:
        pytest.skip("a memory format of four dimensions")
    torch.manual_seed(3)
    model, x = make(), torch.randn(shape).to(memory_format=memory)
    wanted = gradients(model, model, x)
    found = gradients(model, torch.compile(model, backend="tilewright"), x)
    assert len(graphs) == 2
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def saved(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """What the forward graph computes and the backward graph is given, as the latter sees it."""
    output = next(node for node in forward.graph.nodes if node.op == "output")
    computed = {node.name for node in forward.graph.nodes if node.op == "call_function"}
    placeholders = [node for node in backward.graph.nodes if node.op == "placeholder"]
    assert len(output.args[0]) > len(computed & {node.name for node in placeholders})
    return [node for node in placeholders if node.name in computed]


@pytest.mark.parametrize(
    "name", ["normed", "pooled", "averaged", "dilated", "transposed", "of three dimensions"]
)
def test_images_are_saved_channels_last(graphs, name: str) -> None:
    make, shape = NETWORKS[name]
    model = make()
    gradients(model, torch.compile(model, backend="tilewright"), torch.randn(shape))
    images = [node for node in saved(*graphs) if node.meta["val"].dim() == len(shape)]
    full = [node for node in images if node.meta["val"].shape[1:].numel() > node.meta["val"].shape[-1]]
    assert full
    for node in full:
        assert [user.target for user in node.users] == [aten.permute.default]


def test_what_is_no_image_is_saved_as_it_is(graphs) -> None:
    make, shape = NETWORKS["attending"]
    model = make()
    gradients(model, torch.compile(model, backend="tilewright"), torch.randn(shape))
    heads = [node for node in saved(*graphs) if node.meta["val"].shape[-1] == 4]
    assert heads
    for node in heads:
        assert tuple(node.meta["val"].shape) != (2, 2, 12, 4) or node.meta["val"].is_contiguous()


def test_an_image_of_the_caller_s_crosses_once(graphs) -> None:
    make, shape = NETWORKS["returned"]
    model = make()
    gradients(model, torch.compile(model, backend="tilewright"), torch.randn(shape))
    output = next(node for node in graphs[0].graph.nodes if node.op == "output")
    shapes = [tuple(node.meta["val"].shape) for node in output.args[0]]
    assert shapes.count((2, 4, 4, 4)) >= 1 and len(set(output.args[0])) == len(
        {node.name for node in output.args[0]}
    )
    (relu,) = graphs[0].graph.find_nodes(op="call_function", target=aten.relu.default)
    assert output.args[0][0] in (relu, *relu.users)


def conversions(module: torch.fx.GraphModule) -> list[ir.Operation]:
    """The transpositions of images that are left when layouts are chosen."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    lowered = import_graph(module, [None] * len(placeholders)).module
    with lowered.context, ir.Location.unknown(lowered.context):
        run_phases(lowered, resolve("x86-64-v3"), "graph", "layout")
        generics = walk(lowered.operation, "linalg.generic")
        moved = [
            op
            for op in generics
            if (transposed_by(op) or (0,)) != tuple(range(len(transposed_by(op) or (0,))))
        ]
        return [op for op in moved if op.results[0].type.shape[0] == 2]


def test_nothing_but_the_model_s_own_images_is_brought_into_another_order(graphs) -> None:
    layers = [nn.Conv2d(3, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU()]
    model = block(*layers)
    x = torch.randn(2, 3, 10, 12)
    directed(torch.compile(model, backend="tilewright")(x)).backward()
    forward, backward = graphs
    # The argument, and the result; then the result's gradient, and the argument again.
    assert [len(conversions(forward)), len(conversions(backward))] == [2, 2]


def test_gradients_are_exact_where_operands_are_packed_at_every_call() -> None:
    """Channels a page apart, in filters that are transposed, mirrored and taken apart by phases at every call."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = block(
        nn.Conv2d(5, 512, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(512, 6, 3, 2),
        nn.Tanh(),
        nn.ConvTranspose2d(6, 128, 4, 2, 1),
        nn.Tanh(),
        nn.Conv2d(128, 512, 2, groups=2),
    )
    x = torch.randn(3, 5, 8, 7)
    exact = copy.deepcopy(model).double()
    wanted = gradients(exact, exact, x.double())
    found = gradients(model, torch.compile(model, backend="tilewright", options={"strict": True}), x)
    for a, b in zip(found, wanted):
        assert (a - b).norm() <= 1e-4 * b.norm()
    torch._dynamo.reset()


def test_gradients_become_the_parameters_without_a_copy() -> None:
    torch._dynamo.reset()
    model = block(nn.Conv2d(3, 4, 3, bias=False), nn.Tanh(), nn.ConvTranspose2d(4, 2, 3, 2, bias=False))
    model[2].to(memory_format=torch.channels_last)
    taken = []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: taken.append(gradient.data_ptr()))
    directed(
        torch.compile(model, backend="tilewright", options={"strict": True})(torch.randn(2, 3, 7, 8))
    ).backward()
    assert {p.grad.data_ptr() for p in model.parameters()} == set(taken)  # type: ignore[union-attr]
    torch._dynamo.reset()


@torch.library.custom_op("tilewright_test::times_rows", mutates_args=())
def times_rows(saved: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Multiplies what lies in memory in the same order, as a kernel does that heeds no strides."""
    flat = saved.as_strided([saved.numel()], [1])
    return (flat * grad.contiguous().reshape(-1)).reshape(grad.shape)


@times_rows.register_fake
def _(saved, grad):
    return torch.empty(grad.shape, dtype=grad.dtype)


class Squared(torch.autograd.Function):
    """Half of the square, with a gradient by an operator that nobody compiles."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x / 2

    @staticmethod
    def backward(ctx, *grads):
        return times_rows(ctx.saved_tensors[0], grads[0])


@pytest.mark.filterwarnings("ignore")
def test_operators_in_eager_pytorch_read_saved_images_row_major():
    first, second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)

    def model(x):
        return second(Squared.apply(torch.relu(first(x))))

    x = torch.randn(2, 3, 6, 5)
    gradients = []
    for run in (model, torch.compile(model, backend="tilewright")):
        first.zero_grad()
        run(x).sum().backward()
        gradients.append(first.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
