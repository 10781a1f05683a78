"""Single nodes evaluated by onnx's reference evaluator, for what is known while importing."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tilewright.compiler.importers.onnx.values import Node, encode_attributes


def evaluated(node: Node, version: int) -> list[np.ndarray] | None:
    """The results of a node of known inputs; None for what the evaluator does not know."""
    from onnx.reference import ReferenceEvaluator

    names = [f"i{n}" if v is not None else "" for n, v in enumerate(node.inputs)]
    proto = helper.make_node(node.op, names, [f"o{n}" for n in range(node.outputs)], domain=node.domain)
    proto.attribute.extend(encode_attributes(node.attrs))
    feeds = {n: v.array for n, v in zip(names, node.inputs) if v is not None}
    graph = helper.make_graph(
        [proto],
        "fold",
        [
            helper.make_tensor_value_info(n, v.dtype, v.shape)
            for n, v in zip(names, node.inputs)
            if v is not None
        ],
        [helper.make_empty_tensor_value_info(name) for name in proto.output],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # whatever the evaluator does not know is left to the lowering
        return None
    if not all(isinstance(r, np.ndarray | np.generic) for r in results):
        return None
    return [np.asarray(r) for r in results]
