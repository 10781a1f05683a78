"""Takes a PyTorch model to linalg on tensors, without tilewright's importer, for tests of single passes."""

from __future__ import annotations

import numpy as np
import torch
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

from tilewright.compiler.ir import context, fx_importer, ir, run_upstream


def import_linalg(model: torch.nn.Module, *inputs: torch.Tensor) -> tuple[ir.Module, list[np.ndarray]]:
    """The module with one `main`, and the arrays of its arguments: weights, buffers, inputs."""
    program = torch.export.export(model.eval(), inputs, strict=False)
    program = program.run_decompositions(get_decomposition_table())
    with context():
        importer = fx_importer.FxImporter(context=context())
        importer.import_stateless_graph(program.graph, func_name="main")
        module = importer.module
    run_upstream(module.operation, "builtin.module(torchdynamo-export-to-torch-backend-pipeline)")
    run_upstream(module.operation, "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline)")
    given = iter(inputs)
    arguments = []
    for spec in program.graph_signature.input_specs:
        held = program.state_dict.get(spec.target) if spec.target else None
        held = program.constants.get(spec.target) if spec.target and held is None else held
        arguments.append((next(given) if held is None else held).detach().numpy())
    return module, arguments
