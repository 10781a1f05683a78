"""Graph passes on imported PyTorch models compute what eager computes, and leave the form that they promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensor_function import TensorModule
from torch import nn

from tilewright.compiler.analysis.weight_flow import argument_roles
from tilewright.compiler.importers.torch.model import import_torch
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.passes.graph.separate_bias import is_contraction
from tilewright.compiler.pipeline.pipeline import run_pipeline

CLEAN = "canonicalize,cse,simplify-bodies,separate-bias,canonicalize,cse"


def imported(model: nn.Module, x: torch.Tensor, passes: str):
    """The module after `passes`, and its weights and input as arrays."""
    result = import_torch(model.eval(), (x,))
    run_pipeline(result.module.operation, f"builtin.module({passes})")
    result.module.operation.verify()
    arrays = [np.asarray(w.detach() if isinstance(w, torch.Tensor) else w) for w in result.weights]
    return result.module, [*arrays, x.numpy()]


def randomised(norm: nn.Module) -> nn.Module:
    """A batch norm with statistics and parameters that matter."""
    for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        if tensor is not None:
            tensor.data.uniform_(0.5, 2.0)
    return norm


def names(module: ir.Module, function: str) -> list[str]:
    found = next(
        f
        for f in walk(module.operation, "func.func")
        if ir.StringAttr(f.attributes["sym_name"]).value == function
    )
    return [op.name for op in walk(found)]


MODELS = {
    "conv2d": (lambda: [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)], (2, 3, 6, 7)),
    "conv2d without bias": (
        lambda: [nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8)],
        (2, 3, 9, 9),
    ),
    "conv1d": (lambda: [nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8)], (2, 3, 9)),
    "conv3d": (lambda: [nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4)], (1, 2, 4, 4, 4)),
    "grouped": (lambda: [nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8)], (1, 4, 6, 6)),
    "grouped without bias": (
        lambda: [nn.Conv2d(6, 9, 3, groups=3, bias=False), nn.BatchNorm2d(9)],
        (1, 6, 6, 6),
    ),
    "depthwise": (lambda: [nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4)], (1, 4, 6, 6)),
    "depthwise multiplied": (lambda: [nn.Conv2d(4, 8, 3, groups=4), nn.BatchNorm2d(8)], (1, 4, 6, 6)),
    "transposed": (lambda: [nn.ConvTranspose2d(4, 6, 3, stride=2), nn.BatchNorm2d(6)], (1, 4, 4, 4)),
    "linear": (lambda: [nn.Linear(5, 8), nn.BatchNorm1d(8)], (3, 5)),
    "without affine": (lambda: [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False)], (1, 3, 6, 6)),
    "two in a row": (lambda: [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)], (1, 3, 6, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_batch_norm_folds_and_weights_hoist(name: str):
    torch.manual_seed(1)
    layers, shape = MODELS[name]
    model = nn.Sequential(
        *[randomised(m) if hasattr(m, "running_mean") else m for m in layers()], nn.Tanh()
    ).eval()
    x = torch.randn(shape)
    module, arrays = imported(
        model, x, f"{CLEAN},fold-batch-norm,canonicalize,cse,hoist-weights,canonicalize,cse"
    )
    with torch.no_grad():
        exact = model(x).numpy()
    np.testing.assert_allclose(TensorModule(module)(*arrays)[0], exact, rtol=2e-5, atol=2e-6)
    # The statistics are gone from @main: behind the convolution are one shift and the activation.
    main = names(module, "main")
    assert not {"math.rsqrt", "math.sqrt", "arith.subf", "arith.divf"} & set(main)
    # A strided transposed convolution is four, one per phase, whose copies into place come on top.
    if name != "transposed":
        assert main.count("linalg.generic") == 2
    assert filter_role(module) == "packed"
    assert {"math.rsqrt", "math.sqrt"} & set(names(module, "prepack"))


def filter_role(module: ir.Module) -> str:
    """The role of the argument that the only contraction takes as its filter, reshapes seen through."""
    main = next(f for f in walk(module.operation, "func.func"))
    contraction = next(op for op in walk(main) if is_contraction(op))
    value = contraction.operands[1]
    while not isinstance(value.owner, ir.Block):
        assert value.owner.name in ("tensor.expand_shape", "tensor.collapse_shape"), value.owner.name
        value = value.owner.operands[0]
    return argument_roles(main)[ir.BlockArgument(value).arg_number]


def test_batch_norm_of_a_shared_convolution_stays():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), randomised(nn.BatchNorm2d(4))

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y

    model, x = Shared().eval(), torch.randn(1, 3, 6, 6)
    module, arrays = imported(model, x, f"{CLEAN},fold-batch-norm,hoist-weights")
    with torch.no_grad():
        np.testing.assert_allclose(TensorModule(module)(*arrays)[0], model(x).numpy(), rtol=1e-5, atol=1e-6)
    assert filter_role(module) == "weight"


def test_softmax_has_no_index():
    module, arrays = imported(nn.Softmax(-1), torch.randn(4, 33), CLEAN)
    assert "linalg.index" not in names(module, "main")
    exact = torch.softmax(torch.from_numpy(arrays[-1]), -1).numpy()
    np.testing.assert_allclose(TensorModule(module)(*arrays)[0], exact, rtol=1e-5, atol=1e-7)


def test_reciprocal_of_zero_is_infinite():
    class Reciprocal(nn.Module):
        def forward(self, x):
            return torch.reciprocal(x), torch.rsqrt(x), torch.pow(x, -2.0), torch.pow(x, 0.5)

    x = torch.tensor([0.0, -0.0, 2.0, float("inf")])
    module, arrays = imported(Reciprocal(), x, CLEAN)
    assert "cf.assert" not in names(module, "main")
    for got, exact in zip(TensorModule(module)(*arrays), Reciprocal()(x)):
        np.testing.assert_allclose(got, exact.numpy(), rtol=1e-6)


def test_hoisting_twice_changes_nothing():
    passes = f"{CLEAN},fold-batch-norm,canonicalize,cse,hoist-weights"
    layers, shape = MODELS["conv2d"]
    x = torch.randn(shape)
    torch.manual_seed(3)
    once, _ = imported(nn.Sequential(*layers()), x, passes)
    torch.manual_seed(3)
    twice, _ = imported(nn.Sequential(*layers()), x, f"{passes},hoist-weights")
    assert str(once) == str(twice)


def test_positional_tables_are_computed_once():
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))

        def forward(self, x):
            angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), self.frequencies)
            return x * torch.cos(angles).repeat(1, 2) + torch.tanh(x) * torch.sin(angles).repeat(1, 2)

    model, x = Rotary(), torch.randn(2, 6, 8)
    module, arrays = imported(model, x, f"{CLEAN},hoist-weights,canonicalize,cse")
    assert not {"math.cos", "math.sin"} & set(names(module, "main"))
    assert {"math.cos", "math.sin"} <= set(names(module, "prepack"))
    np.testing.assert_allclose(TensorModule(module)(*arrays)[0], model(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_that_of_eager(approximate: str):
    module, arrays = imported(nn.GELU(approximate), torch.linspace(-4, 4, 1000), CLEAN)
    exact = nn.GELU(approximate)(torch.from_numpy(arrays[-1]).double()).numpy()
    np.testing.assert_allclose(TensorModule(module)(*arrays)[0], exact, atol=1e-6)


@pytest.mark.parametrize("keepdim", [False, True])
def test_maximum_over_axes_is_one_reduction(keepdim: bool):
    class Maximum(nn.Module):
        def forward(self, x):
            return x.amax((1, 3), keepdim=keepdim), x.amin((0, 1, 2, 3))

    x = torch.randn(2, 3, 4, 5)
    module, arrays = imported(Maximum(), x, f"{CLEAN},merge-reductions")
    assert names(module, "main").count("linalg.generic") == 2
    for got, exact in zip(TensorModule(module)(*arrays), Maximum()(x)):
        np.testing.assert_array_equal(got, exact.numpy())
