"""The ONNX backend interface (`onnx.backend.base`) over tilewright, on the CPU.

    from tilewright import onnx_backend
    outputs = onnx_backend.prepare(model).run([x])

Shapes are fixed when a model is compiled: a prepared model compiles again for inputs of other shapes, or where a
shape depends on an input's values, of other values, and keeps what it compiled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from tilewright.compiler.driver import compile_imported
from tilewright.compiler.errors import ModelImportError, UnsupportedError
from tilewright.compiler.importers.onnx.emit import carried
from tilewright.compiler.importers.onnx.file import load
from tilewright.compiler.importers.onnx.model import OpenShapeError, import_onnx
from tilewright.compiler.importers.onnx.values import CARRIERS
from tilewright.runtime.model import CompiledModel

KEPT_SPECIALISATIONS = 16
"""Compiled forms that one prepared model keeps, the least recently used dropped first."""

__all__ = ["TilewrightBackend", "TilewrightRep", "prepare", "run_model", "run_node", "supports_device"]


class TilewrightRep(BackendRep):
    """A prepared model; `run` compiles for shapes it has not met. Options go to `tilewright.compile`."""

    def __init__(self, model: onnx.ModelProto, **options: Any):
        self.model, _ = load(model)
        self.options = options
        weights = {tensor.name for tensor in self.model.graph.initializer}
        self.declared = [info for info in self.model.graph.input if info.name not in weights]
        self.outputs = list(self.model.graph.output)
        self._compiled: OrderedDict[Any, CompiledModel] = OrderedDict()
        try:
            imported = import_onnx(self.model)
        except OpenShapeError:
            return
        compiled = compile_imported(imported, "cpu", self.options)
        self._compiled[tuple((s.dtype, s.shape) for s in imported.signature.inputs)] = compiled

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs as numpy arrays (sequences as lists), a tuple that also has them by name.

        `inputs` is a sequence in the order of the graph's inputs, a mapping by name, or one array.
        """
        arrays = self._arrays(inputs)
        results = self._specialised(arrays)(*[_carried(value) for value in arrays])
        restored = [_restored(value, info.type) for value, info in zip(results, self.outputs)]
        return namedtupledict("Outputs", [info.name for info in self.outputs])(*restored)

    def _arrays(self, inputs: Any) -> list[Any]:
        if isinstance(inputs, Mapping):
            inputs = [inputs[info.name] for info in self.declared]
        elif isinstance(inputs, np.ndarray) or not isinstance(inputs, Sequence):
            inputs = [inputs]
        if len(inputs) != len(self.declared):
            names = [info.name for info in self.declared]
            raise ModelImportError(f"{len(inputs)} inputs given, the model takes {len(names)}: {names}")
        return [_plain(value) for value in inputs]

    def _specialised(self, arrays: list[Any]) -> CompiledModel:
        static = tuple((_name(a), a.shape) for a in arrays if isinstance(a, np.ndarray))
        for key in (static, repr([_key(a) for a in arrays])):
            if key in self._compiled:
                self._compiled.move_to_end(key)
                return self._compiled[key]
        imported = import_onnx(self.model, arrays)
        by_value = any(tree.kind == "array" for _, tree in imported.signature.arguments)
        plain = not by_value and all(isinstance(a, np.ndarray) for a in arrays)
        compiled = compile_imported(imported, "cpu", self.options)
        self._compiled[static if plain else repr([_key(a) for a in arrays])] = compiled
        if len(self._compiled) > KEPT_SPECIALISATIONS:
            self._compiled.popitem(last=False)
        return compiled


class TilewrightBackend(Backend):
    """Compiles and runs ONNX models on the CPU."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TilewrightRep:
        """A model ready to run; raises UnsupportedError or ModelImportError."""
        _check_device(device)
        return TilewrightRep(model, **kwargs)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepares and runs once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node, at the newest opset unless `opset_version` says otherwise."""
        _check_device(device)
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        given = [inputs[n] for n in names] if isinstance(inputs, Mapping) else list(inputs)
        arrays = [_plain(value) for value in given]
        types = {
            name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays)
        }
        opset = helper.make_opsetid(node.domain, version)
        schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=version, domain=node.domain)
        data = {name: numpy_helper.from_array(a, name) for name, a in zip(names, arrays)}
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=[opset])
        graph = helper.make_graph(
            [node],
            "node",
            [helper.make_value_info(name, type_) for name, type_ in types.items()],
            [helper.make_value_info(name, inferred[name]) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=[opset])
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for the CPU."""
        return Device(device).type == DeviceType.CPU

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model compiles; a model of open shapes is taken to, until it is run."""
        try:
            cls.prepare(model, device, **kwargs)
        except (UnsupportedError, ModelImportError):
            return False
        return True


def _check_device(device: str) -> None:
    if not TilewrightBackend.supports_device(device):
        raise ValueError(f"device `{device}` is not supported; the ONNX backend runs on `CPU`")


def _plain(value: Any) -> Any:
    """numpy arrays, lists of them, or None."""
    if value is None:
        return None
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return np.asarray(value)


def _name(array: np.ndarray) -> str:
    return array.dtype.name


def _key(value: Any) -> Any:
    if isinstance(value, list):
        return [_key(item) for item in value]
    return (
        value
        if value is None
        else (value.dtype.name, value.shape, value.tolist() if value.size < 4096 else 0)
    )


def _carried(value: Any) -> Any:
    if isinstance(value, list):
        return [_carried(item) for item in value]
    if isinstance(value, np.ndarray):
        return carried(value, helper.np_dtype_to_tensor_dtype(value.dtype))
    return value


def _restored(value: Any, type_: onnx.TypeProto) -> Any:
    """Bytes that stand for a small element type as that type again."""
    if value is None:
        return None
    if isinstance(value, list):
        inner = type_.optional_type.elem_type if type_.HasField("optional_type") else type_
        return [_restored(item, inner.sequence_type.elem_type) for item in value]
    dtype = type_.tensor_type.elem_type
    if dtype not in CARRIERS:
        return np.array(value)
    target = helper.tensor_dtype_to_np_dtype(dtype)
    if target.name.startswith(("int", "uint")):
        return value.astype(target)
    return value.view(target)


prepare = TilewrightBackend.prepare
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
is_compatible = TilewrightBackend.is_compatible
