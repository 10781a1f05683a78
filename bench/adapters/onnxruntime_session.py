"""ONNX Runtime's CPU provider with all graph optimisations."""

from __future__ import annotations

from tilewright.bench.adapters import Prepared, Task, Unavailable, as_numpy, require
from tilewright.bench.adapters.onnx_file import exported


def prepare(task: Task) -> Prepared:
    """A session over the exported model, fed numpy views of the inputs."""
    runtime = require("onnxruntime", "tilewright[onnxruntime]")
    path = exported(task)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except runtime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        raise Unavailable(f"no kernel: {' '.join(str(error).split())[:160]}") from None
    names = [entry.name for entry in session.get_inputs()]
    feed = {name: as_numpy(tensor) for name, tensor in zip(names, task.inputs, strict=True)}
    return Prepared(lambda: session.run(None, feed), lambda: session.run(None, feed))
