"""What holds transposing and scattering kernels together cannot be left out: the emulator finds every mutant."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from family_kernels import emitter
from parallel_models import dispatches, sample

from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.ir import ir, parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.errors import EmulationError


def kernel(prefix: str, function, *args: torch.Tensor) -> str:
    """The kernel of the first dispatch whose name starts so."""
    _module, found = dispatches(function, *args)
    dispatch = next(own for name, own in found.items() if name.startswith(prefix))
    return str(emitter("elementwise")(dispatch, Schedule(), resolve("cuda:sm_90a")))


def without(text: str, line: str, number: int) -> ir.Module:
    """The kernel without the given occurrence of a line."""
    lines = text.split("\n")
    found = [i for i, own in enumerate(lines) if own.strip().startswith(line)]
    del lines[found[number]]
    return parse("\n".join(lines))


def turned() -> tuple[str, list[np.ndarray]]:
    a = sample(72, 65)
    text = kernel("elementwise", lambda x: x.transpose(0, 1).contiguous(), a)
    return text, [a.numpy(), np.zeros((65, 72), np.float32)]


def scattered(count: int, width: int) -> tuple[str, list[np.ndarray]]:
    target, index, updates = sample(3, width), torch.arange(count).reshape(count, 1) % 3, sample(count, width)
    text = kernel("scatter", lambda a, i, u: a.index_add(0, i, u), target, index[:, 0], updates)
    arrays = [updates.reshape(count, 1, width), index.to(torch.int32), target]
    return text, [a.numpy().copy() for a in arrays] + [np.zeros((3, width), np.float32)]


def test_kernels_run_whole() -> None:
    text, (a, result) = turned()
    run_kernel(parse(text), [a, result], seed=1)
    np.testing.assert_array_equal(result, a.T)
    text, (updates, index, target, result) = scattered(40, 300)
    run_kernel(parse(text), [updates, index, target, result], seed=1)
    wanted = target.copy()
    np.add.at(wanted, index[:, 0], updates[:, 0])
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_boxes_are_whole_before_they_are_written() -> None:
    text, arrays = turned()
    assert text.count("gpu.barrier") == 1
    with pytest.raises(EmulationError):
        run_kernel(without(text, "gpu.barrier", 0), arrays, seed=1)


@pytest.mark.parametrize(("number", "count", "width"), [(0, 40, 300), (1, 1100, 2)])
def test_keys_are_whole_while_they_are_read(number: int, count: int, width: int) -> None:
    """One barrier before keys are read, one before the next ones take their place."""
    text, arrays = scattered(count, width)
    assert text.count("gpu.barrier") == 2
    with pytest.raises(EmulationError):
        run_kernel(without(text, "gpu.barrier", number), arrays, seed=1)
