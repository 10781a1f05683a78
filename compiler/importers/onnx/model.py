"""The ONNX front end: a model file or proto becomes linalg on tensors with its weights as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.compiler.errors import ModelImportError, UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers import Imported
from tilewright.compiler.importers.onnx import algebra as onnx_algebra
from tilewright.compiler.importers.onnx import arithmetic as onnx_arithmetic
from tilewright.compiler.importers.onnx import classical as onnx_classical
from tilewright.compiler.importers.onnx import contrib as onnx_contrib
from tilewright.compiler.importers.onnx import contrib_attention as onnx_contrib_attention
from tilewright.compiler.importers.onnx import contrib_quantize as onnx_contrib_quantize
from tilewright.compiler.importers.onnx import control as onnx_control
from tilewright.compiler.importers.onnx import conv as onnx_conv
from tilewright.compiler.importers.onnx import emit as onnx_emit
from tilewright.compiler.importers.onnx import masked_writes as onnx_masked_writes
from tilewright.compiler.importers.onnx import movement as onnx_movement
from tilewright.compiler.importers.onnx import pooling as onnx_pooling
from tilewright.compiler.importers.onnx import quantize as onnx_quantize
from tilewright.compiler.importers.onnx import recurrent as onnx_recurrent
from tilewright.compiler.importers.onnx import resize as onnx_resize
from tilewright.compiler.importers.onnx import rewrites as onnx_rewrites
from tilewright.compiler.importers.onnx import sampling as onnx_sampling
from tilewright.compiler.importers.onnx import signal as onnx_signal
from tilewright.compiler.importers.onnx import support_vectors as onnx_support_vectors
from tilewright.compiler.importers.onnx import trees as onnx_trees
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.file import array_of, checked_shape, load, type_name
from tilewright.compiler.importers.onnx.rules import LOWERED, RULES
from tilewright.compiler.importers.onnx.upgrade import SAME_MEANING, UPGRADES
from tilewright.compiler.importers.onnx.values import (
    CARRIERS,
    DTYPES,
    POISON,
    NeedsConstant,
    Refused,
    Scope,
    Value,
)
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Signature, Tree

RULE_FILES = (
    onnx_algebra,
    onnx_arithmetic,
    onnx_classical,
    onnx_control,
    onnx_contrib,
    onnx_contrib_attention,
    onnx_contrib_quantize,
    onnx_conv,
    onnx_masked_writes,
    onnx_movement,
    onnx_pooling,
    onnx_quantize,
    onnx_recurrent,
    onnx_resize,
    onnx_rewrites,
    onnx_sampling,
    onnx_signal,
    onnx_support_vectors,
    onnx_trees,
)
"""Importing these registers their rules."""

VALUE_ELEMENTS = 4096
"""Largest input that may be specialised on its values when the shape of a result depends on them."""


class OpenShapeError(ModelImportError):
    """What is compiled depends on example inputs, and none were given."""


def examples_of(model: onnx.ModelProto, example_inputs) -> dict[str, np.ndarray]:
    """Example inputs by name; raises ModelImportError when there are too many or an unknown name."""
    weights = {tensor.name for tensor in model.graph.initializer}
    declared = [v.name for v in model.graph.input]
    required = [name for name in declared if name not in weights]
    if example_inputs is None:
        return {}
    if isinstance(example_inputs, Mapping):
        given = dict(example_inputs)
        unknown = sorted(set(given) - set(declared))
        if unknown:
            raise ModelImportError(
                f"example inputs {unknown} are not inputs of the model; those are {declared}"
            )
    else:
        listed = example_inputs if isinstance(example_inputs, Sequence) else (example_inputs,)
        names = required if len(listed) <= len(required) else declared
        if len(listed) > len(names):
            raise ModelImportError(
                f"{len(listed)} example inputs given, the model takes {len(names)}: {names}"
            )
        given = dict(zip(names, listed))
    return {name: _as_array(value) for name, value in given.items()}


def _as_array(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_as_array(item) for item in value]
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import ml_dtypes

            return value.contiguous().view(_torch_int16()).numpy().view(ml_dtypes.bfloat16)
        return value.numpy()
    return np.asarray(value)


def _torch_int16():
    import torch

    return torch.int16


def _tensor_type(name: str, type_: onnx.TypeProto, example: np.ndarray | None) -> tuple[int, tuple[int, ...]]:
    """Element type and static shape of an input tensor; the example binds what the model leaves open."""
    tensor = type_.tensor_type
    dtype = tensor.elem_type
    if dtype == TensorProto.STRING:
        raise Refused(f"input `{name}` holds strings")
    if dtype not in DTYPES and dtype not in CARRIERS:
        raise Refused(f"input `{name}` holds {type_name(dtype)}, which no kernel computes on")
    # PaddlePaddle's exporter writes -1 for an open extent, which ONNX Runtime takes as one, too.
    dims = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim]
    if example is None:
        if not tensor.HasField("shape") or None in dims:
            raise OpenShapeError(
                f"input `{name}` has a shape that is open; pass example inputs that give its extents"
            )
        shape = tuple(d for d in dims if d is not None)
        checked_shape(shape, f"input `{name}`")
        return dtype, shape
    wanted = helper.tensor_dtype_to_np_dtype(dtype)
    if example.dtype != wanted:
        raise ModelImportError(f"input `{name}` holds {wanted}, the example given for it {example.dtype}")
    fits = len(dims) == example.ndim and all(d in (None, e) for d, e in zip(dims, example.shape))
    if tensor.HasField("shape") and not fits:
        text = "x".join("?" if d is None else str(d) for d in dims)
        raise ModelImportError(f"input `{name}` has shape {text}, the example {example.shape}")
    return dtype, tuple(example.shape)


class Rebuilt:
    """A model rebuilt by the forward pass: the builder, its inputs and outputs, what was specialised on."""

    def __init__(self, model, folder, examples, bound: frozenset[str]):
        self.bound = bound
        self.examples = examples
        functions = {(f.domain, f.name): f for f in model.functions}

        def can_bind(sources: frozenset[str]) -> bool:
            missing = sorted(name for name in sources if name not in examples)
            if missing:
                raise OpenShapeError(
                    f"shapes depend on the values of the inputs {missing}; pass example inputs with these values"
                )
            return bool(sources) and all(
                isinstance(examples.get(name), np.ndarray) and examples[name].size <= VALUE_ELEMENTS
                for name in sources
            )

        self.builder = b = Builder(
            RULES, UPGRADES, LOWERED, onnx_arithmetic.widened, SAME_MEANING, functions, can_bind
        )
        self.names: dict[str, str] = {}
        self.inputs: list[tuple[str, Value]] = []
        self.arguments: list[tuple[str, Tree]] = []
        scope = Scope()
        initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        for info in model.graph.input:
            if info.name in initializers and info.name not in examples:
                continue
            try:
                value, tree = self._input(info.name, info.name, info.type, examples.get(info.name))
            except Refused as refusal:
                b.refused.append(UnsupportedOperator("graph input", str(refusal), f"input {info.name}"))
                value, tree = POISON, Tree("constant")
            scope.values[info.name] = value
            self.arguments.append((info.name, tree))
        for tensor in initializers.values():
            if tensor.name in scope.values:
                continue
            if tensor.data_type == TensorProto.STRING:
                b.refused.append(UnsupportedOperator("initializer", "it holds strings", tensor.name))
                scope.values[tensor.name] = POISON
                continue
            value = b.fresh(tensor.data_type, tensor.dims, array_of(tensor, folder))
            value.weight = value.size > onnx_emit.CONSTANT_ELEMENTS
            self.names[value.name] = tensor.name
            scope.values[tensor.name] = value
        for sparse in model.graph.sparse_initializer:
            b.refused.append(UnsupportedOperator("initializer", "it is sparse", sparse.values.name))
            scope.values[sparse.values.name] = POISON
        opsets = {o.domain: o.version for o in model.opset_import}
        b.run(onnx_masked_writes.rewritten(model.graph), scope, opsets)
        self.outputs: list[Value] = []
        trees = [self._output(info.name, scope.find(info.name, "the graph")) for info in model.graph.output]
        self.returns = Tree("tuple", tuple(trees))
        if b.refused:
            raise UnsupportedError(b.refused)

    def _input(self, name: str, path: str, type_: onnx.TypeProto, example) -> tuple[Value | None, Tree]:
        b = self.builder
        if type_.HasField("optional_type"):
            if name not in self.examples:
                raise OpenShapeError(
                    f"input `{path}` is optional; pass example inputs, None where it is absent"
                )
            if example is None:
                return None, Tree("constant")
            return self._input(name, path, type_.optional_type.elem_type, example)
        if type_.HasField("sequence_type"):
            if name not in self.examples:
                raise OpenShapeError(
                    f"input `{path}` is a sequence; pass example inputs that give its length"
                )
            if not isinstance(example, list):
                raise Refused(f"input `{path}` is a sequence; pass a list as its example")
            parts = [
                self._input(name, f"{path}[{i}]", type_.sequence_type.elem_type, item)
                for i, item in enumerate(example)
            ]
            items = [POISON if value is None else value for value, _ in parts]
            return b.sequence(items), Tree("list", tuple(tree for _, tree in parts))
        if not type_.HasField("tensor_type"):
            kind = (type_.WhichOneof("value") or "untyped value").removesuffix("_type")
            raise Refused(f"input `{path}` is a {kind}, which is not taken")
        dtype, shape = _tensor_type(path, type_, example)
        if name in self.bound:
            return b.const(example), Tree("array", value=[onnx_emit.dtype_name(dtype), example.tolist()])
        value = b.fresh(dtype, shape, sources=frozenset([name]))
        self.names[value.name] = path
        self.inputs.append((path, value))
        return value, Tree("tensor", index=len(self.inputs) - 1)

    def _output(self, name: str, value: Value | None) -> Tree:
        if value is None:
            return Tree("constant")
        if value.items is not None:
            return Tree(
                "list", tuple(self._output(f"{name}[{i}]", item) for i, item in enumerate(value.items))
            )
        if value is POISON and not self.builder.refused:
            raise ModelImportError(f"output `{name}`: the node that names it has fewer results")
        if value is not POISON and value.dtype not in DTYPES and value.dtype not in CARRIERS:
            reason = f"the output holds {type_name(value.dtype)}, which no kernel computes on"
            self.builder.refused.append(UnsupportedOperator("graph output", reason, f"output {name}"))
        self.outputs.append(value)
        return Tree("tensor", index=len(self.outputs) - 1)


def rebuild(model, folder, examples) -> Rebuilt:
    """Runs the forward pass; inputs that a shape depends on are bound to the examples' values, one round each."""
    bound: frozenset[str] = frozenset()
    while True:
        try:
            return Rebuilt(model, folder, examples, bound)
        except NeedsConstant as need:
            bound |= need.value.sources


def import_onnx(model: onnx.ModelProto | str | Path, example_inputs=None) -> Imported:
    """linalg on tensors of an ONNX model (opset 7 to the newest), specialised to the shapes of `example_inputs`.

    `example_inputs` are arrays by position or by name; without them every input's shape must be fixed in the model.
    Raises ModelImportError when the model is malformed or the examples do not fit it, and UnsupportedError that
    lists every node which cannot be compiled.
    """
    loaded, folder = load(model)
    rebuilt = rebuild(loaded, folder, examples_of(loaded, example_inputs))
    graph = onnx_emit.Graph.of(rebuilt.builder, rebuilt.inputs, rebuilt.outputs, rebuilt.names)
    module = onnx_emit.lower(graph.proto)
    inputs = tuple(spec_of(name, value) for name, value in rebuilt.inputs)
    outputs = onnx_emit.finish(module, graph)
    signature = Signature(
        positional=tuple(name for name, _ in rebuilt.arguments),
        arguments=tuple(rebuilt.arguments),
        inputs=inputs,
        results=tuple(spec_of(name, value) for name, value in outputs.results),
        outputs=outputs.outputs,
        returns=rebuilt.returns,
        flavour="numpy",
        output_names=tuple(info.name for info in loaded.graph.output),
    )
    return Imported(module, signature, graph.weights)


def spec_of(name: str, value: Value) -> TensorSpec:
    """The runtime's description of a value."""
    return TensorSpec(name, onnx_emit.dtype_name(value.dtype), value.shape)
