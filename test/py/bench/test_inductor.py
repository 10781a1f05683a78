"""Inductor as a contender: weights are folded where it is said to be frozen, and its settings are put back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tilewright.bench.adapters import Task, inductor


class Normed(nn.Module):
    """A convolution whose weights frozen batch norms are folded into; nothing is left of it but one call of oneDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


@pytest.fixture
def task(tmp_path: Path):
    torch.manual_seed(0)
    yield Task(Normed().eval(), (torch.randn(1, 3, 9, 9),), threads=1, folder=tmp_path)
    torch._dynamo.reset()


@pytest.mark.parametrize("prepare", [inductor.prepare_frozen, inductor.prepare_autotuned])
def test_frozen_weights_are_constants_of_the_code(task: Task, prepare) -> None:
    before = torch._inductor.config.freezing, torch._inductor.config.max_autotune
    prepared = prepare(task)
    assert (torch._inductor.config.freezing, torch._inductor.config.max_autotune) == before
    (first,) = prepared.outputs()
    with torch.no_grad():
        expected = task.module(*task.inputs)
        torch.testing.assert_close(torch.from_numpy(first), expected, rtol=1e-4, atol=1e-4)
        task.module.conv.weight.zero_()
        assert not torch.allclose(task.module(*task.inputs), expected)
    (again,) = prepared.outputs()
    assert (again == first).all()


def test_weights_that_are_inputs_are_noticed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    # What Dynamo answers when only Inductor is told.
    monkeypatch.setattr(torch._dynamo.variables.builder, "is_parameter_freezing", lambda: False)
    with pytest.raises(Exception, match="4 of 7 inputs of the graph are weights") as raised:
        inductor.prepare_frozen(task)
    assert "NotFrozen" in repr(raised.value) or isinstance(raised.value.__cause__, inductor.NotFrozen)
