"""Suites and operators: the published shapes come out, scaled batches scale, unknown names are refused."""

from __future__ import annotations

import numpy
import pytest
import torch

from tilewright.bench import models, operators
from tilewright.bench.suites import (
    ATTENTIONS,
    GEMMS,
    MEMORY,
    RESNET18_CONVS,
    SUITES,
    TRAINING,
    roller_rows,
    suite,
)


@pytest.mark.parametrize("row", roller_rows(), ids=lambda row: row["name"])
def test_roller_operators_have_their_published_output(row: dict) -> None:
    with torch.device("meta"):
        built = _on_meta(row)
    module, inputs = built
    output = module(*inputs)
    if "output" in row:
        assert list(output.shape[2:]) == row["output"]
    elif row["kind"] == "matmul":
        assert tuple(output.shape) == (row["m"] // 128, row["n"])
    elif row["kind"] == "reduce_mean":
        assert output.dim() == len(row["input"]) - len(row["axes"])
    else:
        assert list(output.shape[1:]) == row["input"][1:]


def _on_meta(row: dict):
    """The operator at batch 1 with no memory behind it."""
    import unittest.mock

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, device="meta")

    with (
        unittest.mock.patch.object(operators, "normal", empty),
        unittest.mock.patch.object(operators, "seeded", lambda make: make().eval()),
    ):
        return operators.from_row(row, 1)


def test_there_are_119_of_them_in_six_kinds() -> None:
    kinds = [row["kind"] for row in roller_rows()]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts == {
        "conv2d": 44, "relu": 28, "depthwise_conv2d": 23, "avg_pool2d": 13, "matmul": 7, "reduce_mean": 4,
    }  # fmt: skip


def test_batches_scale() -> None:
    cases = {case.name: case for case in suite("roller119", ["M3", "R3"], batch=2)}
    module, (x,) = cases["R3"].build()
    assert x.shape == (2, 2048, 7, 7) and module(x).shape == (2, 2048)
    assert cases["M3"].build()[1][0].shape == (1024, 1024)


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "padding"),
    [(42, 3, 2, (0, 1)), (83, 3, 2, (1, 1)), (42, 5, 2, (1, 2)), (7, 3, 1, (1, 1)), (42, 1, 2, (0, 0))],
)
def test_same_padding_is_tensorflow_s(
    extent: int, kernel: int, stride: int, padding: tuple[int, int]
) -> None:
    assert operators.same_padding(extent, kernel, stride) == padding


def test_pooling_leaves_padding_out_of_the_mean() -> None:
    module, _ = operators.avg_pool2d((1, 1, 4, 4), 3, 2, "same")
    assert torch.equal(module(torch.ones(1, 1, 4, 4)), torch.ones(1, 1, 2, 2))


def test_resnet_has_twelve_convolutions() -> None:
    cases = suite("resnet18-conv")
    assert [case.name for case in cases] == [f"C{i}" for i in range(1, 13)]
    module, (x,) = cases[3].build()
    assert x.shape == (1, 64, 56, 56) and module(x).shape == (1, 128, 28, 28)
    assert len(RESNET18_CONVS) == 12


def test_products_with_a_weight_and_with_two_inputs() -> None:
    cases = {case.name: case for case in suite("gemm")}
    assert len(cases) == len(GEMMS) + 2 * len(ATTENTIONS)
    assert len(cases["1024x1024x1024"].build()[1]) == 1
    assert len(cases["1024x1024x1024-inputs"].build()[1]) == 2
    module, (x,) = cases["1024x1024x1024-bf16"].build()
    assert x.dtype == module.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_multiplies_queries_by_keys_and_that_by_values(name: str) -> None:
    heads, queries, keys, size = ATTENTIONS[name]
    cases = {case.name: case for case in suite("gemm", batch=2)}
    scores, (q, k) = cases[f"attention-{name}-scores"].build()
    values, (p, v) = cases[f"attention-{name}-values"].build()
    assert scores(q, k).shape == p.shape == (2 * heads, queries, keys)
    assert values(p, v).shape == q.shape == (2 * heads, queries, size)


@pytest.mark.parametrize("name", TRAINING)
def test_what_is_trained_is_in_training_mode_and_wants_all_gradients(name: str) -> None:
    (case,) = suite("training", [name], batch=2)
    module, inputs = case.build()
    assert case.training and module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert inputs[0].shape[0] == 2 * TRAINING[name][1]["batch"]


@pytest.mark.parametrize("name", MEMORY)
def test_operators_that_memory_bounds_can_be_made(name: str) -> None:
    function, *arguments = MEMORY[name]
    if max(numpy.prod(a) for a in arguments if isinstance(a, tuple)) > 2_000_000:
        pytest.skip("hundreds of megabytes of inputs; a smaller case of the same operator is made")
    module, inputs = getattr(operators, function)(*arguments)
    with torch.no_grad():
        assert torch.isfinite(module(*inputs)).all()


@pytest.mark.parametrize("name", SUITES)
def test_quick_is_a_part_of_the_whole(name: str) -> None:
    quick, whole = suite(name, quick=True), suite(name)
    assert 0 < len(quick) < len(whole)
    assert {case.name for case in quick} <= {case.name for case in whole}


@pytest.mark.parametrize(
    ("name", "only", "message"),
    [
        ("rolex", (), "unknown suite `rolex`; the suites are: models"),
        ("gemm", ("3x3x3",), "suite `gemm` has no case 3x3x3; it has: "),
        ("models", ("resnet99",), "unknown model `resnet99`; expected module:function"),
    ],
)
def test_unknown_names_are_refused(name: str, only: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        suite(name, only)
    assert message in str(refusal.value)


# Parameters in millions, as the models' papers and their usual implementations give them.
SIZES = {
    "resnet18": 11.69, "resnet50": 25.56, "mobilenet_v2": 3.50, "bert_base": 109.48, "vit_b16": 86.57,
    "bert_mini": 11.17, "gpt2": 124.44, "resnext29": 68.15, "resnext50": 25.03, "nasnet_a": 3.3,
    "convnext_t": 28.59, "inception_v3": 23.83, "efficientnet_v2_s": 21.46, "maxvit_t": 30.92,
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_models_have_their_published_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    home = import_module(f"tilewright.bench.models.{models.REGISTRY[name].place.partition(':')[0]}")
    # On the meta device nothing is allocated or initialised.
    monkeypatch.setattr(home, "seeded", lambda make: make())
    with torch.device("meta"):
        module, _ = models.build(name)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count / 1e6 == pytest.approx(SIZES[name], rel=0.01)


def test_the_same_weights_twice_and_the_caller_s_seed_untouched() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, inputs = models.build("nasnet_cell")
    assert torch.equal(torch.rand(3), expected)
    second, _ = models.build("nasnet_cell")
    assert torch.equal(first(*inputs), second(*inputs))
    assert not first.training


def test_an_unrolled_lstm_is_torch_s_own() -> None:
    from tilewright.bench.models.lstm import lstm

    module, (x,) = lstm(batch=2, layers=2, hidden=8, steps=3)
    own = torch.nn.LSTM(8, 8, 2)
    with torch.no_grad():
        for index, cell in enumerate(module.cells):
            for name, linear in (("ih", cell.from_input), ("hh", cell.from_state)):
                getattr(own, f"weight_{name}_l{index}").copy_(linear.weight)
                getattr(own, f"bias_{name}_l{index}").copy_(linear.bias)
        torch.testing.assert_close(module(x), own(x)[0][-1])
