"""Kernels as they travel between the profiler and its children, in JSON."""

from __future__ import annotations

import base64
from dataclasses import asdict

from tilewright.compiler.profiler.processes import Message
from tilewright.runtime.program import Kernel, Launch, TensorMap


def to_message(kernel: Kernel, tasks: int) -> Message:
    """A kernel of so many rTasks; its name is left to whoever reads it."""
    launch = kernel.launch
    return {
        "object": base64.b64encode(kernel.object).decode(),
        "symbol": kernel.symbol,
        "scratch_bytes": kernel.scratch_bytes,
        "asserts": list(kernel.asserts),
        "tasks": tasks,
        "launch": launch and {**asdict(launch), "ptx": base64.b64encode(launch.ptx).decode()},
    }


def from_message(name: str, message: Message) -> Kernel:
    """What `to_message` was given, called `name`."""
    launch = message.get("launch")
    return Kernel(
        name,
        message["symbol"],
        base64.b64decode(message["object"]),
        message["scratch_bytes"],
        tuple(message["asserts"]),
        None if launch is None else _launch(launch),
    )


def _launch(data: Message) -> Launch:
    maps = tuple(
        TensorMap(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
        for entry in data["tensor_maps"]
    )
    return Launch(**{**data, "tensor_maps": maps, "ptx": base64.b64decode(data["ptx"])})
