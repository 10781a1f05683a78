"""TVM's Relax with its default schedules: nothing is tuned."""

from __future__ import annotations

import os

from tilewright.bench.adapters import Prepared, Task, Unavailable, as_numpy, require


def prepare(task: Task) -> Prepared:
    """Exported program -> Relax -> LLVM for this CPU, weights bound as constants."""
    # Read by TVM's pool when it starts, before anything is compiled.
    os.environ.setdefault("TVM_NUM_THREADS", str(task.threads))
    tvm = require("tvm", "tilewright[tvm]")
    import llvmlite.binding as llvm
    import torch
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    with torch.no_grad():
        program = torch.export.export(task.module, task.inputs)
    try:
        module = from_exported_program(program, keep_params_as_input=False)
    except Exception as error:
        raise Unavailable(f"from_exported_program: {type(error).__name__}: {str(error)[-160:]}") from None
    target = tvm.target.Target({"kind": "llvm", "mcpu": llvm.get_host_cpu_name(), "num-cores": task.threads})
    with target:
        module = relax.get_pipeline("zero")(module)
        executable = tvm.compile(module, target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    feed = [tvm.runtime.tensor(as_numpy(tensor)) for tensor in task.inputs]

    def outputs() -> list:
        return [part.numpy() for part in machine["main"](*feed)]

    return Prepared(lambda: machine["main"](*feed), outputs, "default schedules, not tuned")
