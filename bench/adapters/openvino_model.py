"""OpenVINO's CPU plugin in latency mode, in the precision that all are held to."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.bench.adapters import Prepared, Task, as_numpy, require
from tilewright.bench.adapters.onnx_file import exported


def prepare(task: Task) -> Prepared:
    """Compiles the exported ONNX model; inference requests reuse their tensors."""
    openvino = require("openvino", "tilewright[openvino]")
    core = openvino.Core()
    config = {
        "INFERENCE_NUM_THREADS": task.threads,
        "PERFORMANCE_HINT": "LATENCY",
        # Left to itself the plugin computes in bf16 where the CPU has it.
        "INFERENCE_PRECISION_HINT": task.dtype,
    }
    compiled = core.compile_model(core.read_model(str(exported(task))), "CPU", config)
    request = compiled.create_infer_request()
    feed = [_tensor(openvino, tensor) for tensor in task.inputs]

    def outputs() -> list:
        request.infer(feed)
        return [_array(openvino, request.get_output_tensor(i)) for i in range(len(compiled.outputs))]

    return Prepared(lambda: request.infer(feed, share_inputs=True, share_outputs=True), outputs)


def _tensor(openvino: Any, tensor: Any) -> Any:
    """A torch tensor's memory as OpenVINO's; bf16, which numpy lacks, goes by its bits."""
    array = as_numpy(tensor)
    if array.dtype.name != "bfloat16":
        return openvino.Tensor(array, shared_memory=True)
    return openvino.Tensor(array.view(np.uint16), openvino.Shape(array.shape), openvino.Type.bf16)


def _array(openvino: Any, tensor: Any) -> np.ndarray:
    """A copy of an output; bf16 as f32."""
    if tensor.element_type != openvino.Type.bf16:
        return tensor.data.copy()
    # The bindings show the bits as float16.
    bits = tensor.data.view(np.uint16)
    return (bits.astype(np.uint32) << 16).view(np.float32)
