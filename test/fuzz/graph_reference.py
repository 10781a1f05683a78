"""What an ONNX node computes: by onnx's reference evaluator and by ONNX Runtime, which both have faults.

Where they agree, that is what is right; where they do not, either is; where only one runs the node, it is believed.
"""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from fuzz.paths import quiet

FAULTY = frozenset(["LRN"])
"""Operators that the reference evaluator has wrong by so little that it goes unnoticed: LRN leaves channels out."""


def evaluations(node: onnx.NodeProto, arrays: dict[str, np.ndarray], opset: int) -> list[list[np.ndarray]]:
    """The results of every reference that runs a node."""
    model, feeds = _single(node, arrays, opset)
    return model_evaluations(model, feeds)


def model_evaluations(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[list[np.ndarray]]:
    """The results of every reference that runs a model."""
    faulty = any(node.op_type in FAULTY for node in model.graph.node)
    runs = (_by_runtime,) if faulty else (_by_reference, _by_runtime)
    found = [run(model, feeds) for run in runs]
    return [results for results in found if results is not None]


def agree(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two references have the same result, but for rounding."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype.kind in "biu":
        return bool((first == second).all())
    wide = first.astype(np.float64), second.astype(np.float64)
    loose = {2: 2e-2, 4: 1e-3, 8: 1e-6}[first.dtype.itemsize]
    if first.dtype == ml_dtypes.bfloat16:
        loose = 5e-2
    return bool(np.allclose(*wide, rtol=loose, atol=loose, equal_nan=True))


def names_read(node: onnx.NodeProto) -> list[str]:
    """Operands, and what the bodies of a node read from outside."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            made = {v.name for v in graph.input} | {t.name for t in graph.initializer}
            for inner in graph.node:
                found += [name for name in names_read(inner) if name not in made]
                made |= set(inner.output)
            found += [v.name for v in graph.output if v.name not in made]
    return list(dict.fromkeys(found))


def _single(
    node: onnx.NodeProto, arrays: dict[str, np.ndarray], opset: int
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    feeds = {name: arrays[name] for name in names_read(node) if name in arrays}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "single", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return model, feeds


def _by_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, {n: a.copy() for n, a in feeds.items()})
    except Exception:  # whatever it does not know, or knows to be wrong
        return None
    return _arrays(results)


def _by_runtime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    if any(array.dtype == ml_dtypes.bfloat16 for array in feeds.values()):
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        with quiet():
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, ["CPUExecutionProvider"]
            )
            results = session.run(None, feeds)
    except Exception:  # its errors have no common type
        return None
    return _arrays(results)


def _arrays(results: Any) -> list[np.ndarray] | None:
    if not all(isinstance(result, np.ndarray | np.generic) for result in results):
        return None
    return [np.asarray(result) for result in results]
