"""Kernels as they travel between the profiler and its children, in JSON, and as they are told apart."""

from __future__ import annotations

import base64
import hashlib
import json
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


def object_digest(kernel: Kernel, tasks: int) -> str:
    """SHA-256 of a kernel's code and of what the runtime needs to run so many rTasks of it, but for its names.

    Symbols of GPU kernels carry a hash of the compiler's sources; kernels that differ in that alone are the same. A GPU
    is asked for blocks: which rTasks they do is in the code.
    """
    symbol = kernel.symbol.encode()
    launch = kernel.launch and {**asdict(kernel.launch), "ptx": ""}
    if launch:
        tasks = launch["grid"]
        del launch["rtasks"]
    facts = json.dumps(
        {"scratch_bytes": kernel.scratch_bytes, "tasks": tasks, "launch": launch}, sort_keys=True
    )
    return hashlib.sha256(kernel.object.replace(symbol, b"_" * len(symbol)) + facts.encode()).hexdigest()


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
