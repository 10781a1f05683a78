"""What the tests of PyTorch programs share: they draw the same numbers each time."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """PyTorch's generator begins alike in every test: what fails once fails again."""
    torch.manual_seed(0)
