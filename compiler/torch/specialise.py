"""Graphs with symbolic shapes: one compiled graph per concrete shapes, in a bounded cache."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from tilewright.compiler.errors import UnsupportedOperator
from tilewright.compiler.importers.torch.decompositions import decomposition_table
from tilewright.compiler.torch import fallback
from tilewright.compiler.torch.options import Options
from tilewright.compiler.torch.partition import Parameters, build, run_eagerly

LARGEST_CACHE = 64
"""Shapes of one graph that are compiled; further ones run in eager PyTorch."""

MOST_KEPT = 8
"""Shapes of one graph that parameters are kept for as their kernels read them."""


def is_dynamic(module: GraphModule) -> bool:
    """True when the graph computes with symbolic sizes."""
    return any(_symbolic(node.meta.get("val")) for node in module.graph.nodes)


def _symbolic(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if isinstance(value, torch.Tensor):
        return any(isinstance(s, torch.SymInt) for s in (*value.shape, *value.stride()))
    return isinstance(value, (list, tuple)) and any(map(_symbolic, value))


class Specialising:
    """Runs a graph with symbolic shapes by compiling it for each concrete set of shapes.

    Only the first `MOST_KEPT` keep copies of the parameters laid out for them: copies of a large model for
    dozens of lengths of text would fill the memory.
    """

    def __init__(self, module: GraphModule, options: Options, parameters: Parameters):
        self.module = module
        self.options = options
        self.parameters = parameters
        self._runs: dict[Any, Any] = {}

    def __call__(self, arguments: list[Any]) -> list[Any]:
        key = tuple(
            (tuple(a.shape), tuple(a.stride()), a.dtype, a.device) if isinstance(a, torch.Tensor) else a
            for a in arguments
        )
        run = self._runs.get(key)
        if run is None:
            if len(self._runs) >= LARGEST_CACHE:
                place = UnsupportedOperator(
                    "<graph>",
                    f"more than {LARGEST_CACHE} different shapes were met; further ones run in eager PyTorch",
                )
                fallback.warn([place])
                return run_eagerly(self.module, arguments)
            kept = self.parameters.kept and len(self._runs) < MOST_KEPT
            parameters = Parameters(self.parameters.numbers, kept)
            run = self._runs[key] = build(self._specialised(arguments), self.options, parameters, arguments)
        return run(arguments)

    def _specialised(self, arguments: list[Any]) -> GraphModule:
        """The graph traced again on fake tensors of these shapes; its Python numbers are constants."""
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]

        def run(*values: Any) -> Any:
            with preserve_node_meta():
                return torch.fx.Interpreter(self.module).run(*values)

        with mode, torch.no_grad(), torch.amp.autocast("cpu", enabled=False):
            return make_fx(run, decomposition_table=decomposition_table())(*fakes)
