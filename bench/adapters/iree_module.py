"""IREE's llvm-cpu backend on its local-task driver."""

from __future__ import annotations

import subprocess

import numpy as np

from tilewright.bench.adapters import Prepared, Task, Unavailable, as_numpy, require
from tilewright.bench.adapters.onnx_file import exported


def prepare(task: Task) -> Prepared:
    """ONNX -> MLIR -> a module for this CPU, run with `threads` workers."""
    require("iree.compiler", "tilewright[iree]")
    require("iree.runtime", "tilewright[iree]")
    import iree.compiler.tools as tools
    import iree.runtime as runtime

    mlir = task.folder / "iree.mlir"
    imported = subprocess.run(
        ["iree-import-onnx", str(exported(task)), "-o", str(mlir)],
        capture_output=True,
        text=True,
        check=False,
    )
    if imported.returncode:
        raise Unavailable(f"iree-import-onnx: {imported.stderr.strip().splitlines()[-1][:160]}")
    try:
        binary = tools.compile_file(
            str(mlir),
            input_type="onnx",
            target_backends=["llvm-cpu"],
            extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
        )
    except tools.CompilerToolError as error:
        raise Unavailable(f"iree-compile: {str(error).splitlines()[0][:160]}") from None
    assert binary is not None
    runtime.flags.parse_flags(f"--task_topology_group_count={task.threads}")
    config = runtime.Config("local-task")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary))
    module = next(iter(m for name, m in context.modules.items() if name != "hal"))
    entry = next(
        name for name in module.vm_module.function_names if not name.startswith("__") and "$" not in name
    )
    function = module[entry]
    feed = [runtime.asdevicearray(config.device, as_numpy(tensor)) for tensor in task.inputs]

    def outputs() -> list:
        results = function(*feed)
        results = results if isinstance(results, (list, tuple)) else [results]
        return [np.asarray(result.to_host()) for result in results]

    return Prepared(lambda: function(*feed), outputs)
