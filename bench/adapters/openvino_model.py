"""OpenVINO's CPU plugin in latency mode, in f32 as the others."""

from __future__ import annotations

from tilewright.bench.adapters import Prepared, Task, require
from tilewright.bench.adapters.onnx_file import exported


def prepare(task: Task) -> Prepared:
    """Compiles the exported ONNX model; inference requests reuse their tensors."""
    openvino = require("openvino", "tilewright[openvino]")
    core = openvino.Core()
    config = {
        "INFERENCE_NUM_THREADS": task.threads,
        "PERFORMANCE_HINT": "LATENCY",
        # Left to itself the plugin computes in bf16 where the CPU has it.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(str(exported(task))), "CPU", config)
    request = compiled.create_infer_request()
    feed = [tensor.numpy() for tensor in task.inputs]

    def outputs() -> list:
        results = request.infer(feed)
        return [results[i].copy() for i in range(len(results))]

    return Prepared(lambda: request.infer(feed, share_inputs=True, share_outputs=True), outputs)
