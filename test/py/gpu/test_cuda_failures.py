"""Every call of the driver fails once: clean errors, nothing left behind, and the next use works."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from mock_cuda_driver import ILLEGAL_ADDRESS, OUT_OF_MEMORY, UNKNOWN, whole_model

from tilewright.runtime import cuda
from tilewright.runtime.cuda import CudaExecutable, DeviceArray
from tilewright.runtime.errors import DeviceError

X = np.linspace(-3, 5, 1000, dtype=np.float32)


def use_everything() -> None:
    """Loads, binds, calls in every way, rebinds."""
    for graph in (True, False):
        executable = CudaExecutable(whole_model(), [X], cuda_graph=graph)
        executable(X)
        executable.rebind([2 * X])
        arrays = [DeviceArray(4000) for _ in range(4)]
        arrays[0].write(X)
        executable.launch([arrays[0].address], [arrays[1].address, arrays[2].address])
        executable.launch([arrays[0].address], [arrays[2].address, arrays[3].address])
        executable.synchronize()
        arrays[3].read()
        executable.profile(repeats=1)
        executable.time([[arrays[0].address]], [arrays[1].address, arrays[2].address], 2, 1)
        executable.resources()


UNHEARD = {"cuCtxPushCurrent", "cuEventSynchronize", "cuStreamSynchronize"}
"""Calls that releasing a model makes too, where nobody hears of a failure."""


@pytest.fixture(autouse=True)
def nothing_of_other_tests():
    """What other tests left behind is released now: later, an injected failure would hit its release."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(("pools", "code"), [(1, UNKNOWN), (0, OUT_OF_MEMORY)])
def test_every_call_of_the_driver_may_fail(mock, pools, code):
    """Whatever fails, the error says what was being done, nothing leaks, and the next use works."""
    cuda.devices()
    mock.device(pools=pools)
    start = mock.calls
    use_everything()
    total = mock.calls - start
    assert total > 400
    assert mock.live == []
    unheard = 0
    for number in range(1, total + 1):
        mock.fail(number, code)
        error = failure_of(use_everything)
        failed = next(line.split()[-1] for line in mock.log if line.startswith("injected failure"))
        if error is None:
            is_retried = failed == "cuMemAlloc" and code == OUT_OF_MEMORY
            assert failed in UNHEARD or is_retried
            unheard += 1
            if failed == "cuCtxPushCurrent":  # without its context nothing can be released
                mock.reset()
                mock.device(pools=pools)
        else:
            assert "CUDA_ERROR_" in error.message
            assert not error.is_fatal
        assert mock.live == [], f"call {number}, {failed}"
        assert mock.problems == [], f"call {number}, {failed}"
        mock.taken()
    assert unheard < 80
    use_everything()


def test_faults_are_fatal_wherever_they_show(mock):
    cuda.devices()
    start = mock.calls
    use_everything()
    total = mock.calls - start
    for number in range(3, total + 1, 5):
        mock.fail(number, ILLEGAL_ADDRESS)
        error = failure_of(use_everything)
        assert error is None or error.is_fatal
        mock.reset()


@pytest.mark.parametrize("code", [701, 712])
def test_errors_that_are_no_faults_leave_the_device_usable(mock, code):
    """Too many resources for a launch, memory that is registered already: their numbers lie among those of faults."""
    cuda.devices()
    start = mock.calls
    use_everything()
    for number in range(5, mock.calls - start + 1, 60):
        mock.fail(number, code)
        error = failure_of(use_everything)
        assert error is None or not error.is_fatal
        mock.reset()


@dataclass(frozen=True)
class Failure:
    """An error without the frames that it would keep alive."""

    message: str
    is_fatal: bool


def failure_of(action: Callable[[], None]) -> Failure | None:
    try:
        action()
    except DeviceError as error:
        return Failure(str(error), error.is_fatal)
    return None
