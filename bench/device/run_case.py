"""One case: contenders prepared, checked against f64, then timed in turn."""

from __future__ import annotations

import gc
import statistics
from typing import Any

import torch

from tilewright.bench.device import clock
from tilewright.bench.device.cases import DeviceCase
from tilewright.bench.device.contenders import (
    TOLERANCE,
    Setting,
    error,
    flat,
    place,
    prepare,
    reference,
    rounding,
)

OURS = "ours"


def run(case: DeviceCase, setting: Setting) -> dict[str, Any]:
    """The case's record: sizes, and per contender its status, error, compile time and times in us.

    A contender that fails is recorded with its message; a fault of the device goes on as an exception, since
    nothing more can run in this process.
    """
    module, inputs = place(*case.build(), case.dtype, setting.device)
    record: dict[str, Any] = {
        "key": case.key,
        "part": case.part,
        "name": case.name,
        "dtype": case.dtype,
        "flops": case.flops,
        "bytes": case.bytes or _bytes(module, inputs),
        "outcomes": {},
    }
    with rounding(case.dtype):
        expected = reference(module, inputs)
        if not case.bytes:
            record["bytes"] += sum(t.numel() * inputs_width(t, case.dtype) for t in expected)
        calls = {}
        # Inductor for a CPU says nothing about a GPU.
        wanted = [name for name in case.contenders if setting.is_cuda or not name.startswith("inductor")]
        for name in wanted:
            outcome = record["outcomes"][name] = {"status": "ok"}
            try:
                prepared = prepare(name, module, inputs, case.dtype, setting)
                outcome["compile_s"] = round(prepared.compile_s, 3)
                outcome["error"] = error(flat(prepared.call()), expected)
                setting.synchronize()
            except Exception as raised:
                if is_fault(setting):
                    raise
                outcome.update(status="failed", note=f"{type(raised).__name__}: {raised}"[:400])
                continue
            if outcome["error"] > TOLERANCE[case.dtype]:
                outcome["status"] = "wrong"
            calls[name] = prepared.call
        del expected
        if case.part not in ("check", "compile"):
            for name, medians in _time(case, calls, setting).items():
                outcome = record["outcomes"][name]
                outcome["rounds_us"] = [round(us, 3) for us in medians]
                outcome["median_us"] = round(statistics.median(medians), 3)
    del module, inputs, calls
    gc.collect()
    if setting.is_cuda:
        torch.cuda.empty_cache()
    return record


def _time(case: DeviceCase, calls: dict, setting: Setting) -> dict[str, list[float]]:
    """Whole models as their caller sees them, kernels by the device's own clock."""
    if not calls:
        return {}
    if not setting.is_cuda:
        return clock.host_rounds(calls, setting.synchronize, rounds=1, round_s=0.0)
    if case.part == "models":
        return clock.host_rounds(calls, setting.synchronize)
    return clock.device_rounds(calls)


def is_fault(setting: Setting) -> bool:
    """Whether the device's context is lost: every later call in this process would fail, whatever fault it was."""
    try:
        setting.synchronize()
    except Exception:
        return True
    return False


def inputs_width(tensor: torch.Tensor, dtype: str) -> int:
    """Bytes of an element of a result that was computed in f64 for comparison."""
    return {"f16": 2, "bf16": 2}.get(dtype, 4) if tensor.is_floating_point() else tensor.element_size()


def _bytes(module: torch.nn.Module, inputs: tuple) -> int:
    tensors = [*module.parameters(), *module.buffers(), *(x for x in inputs if isinstance(x, torch.Tensor))]
    return sum(t.numel() * t.element_size() for t in tensors)
