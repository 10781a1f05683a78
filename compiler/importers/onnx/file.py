"""An ONNX file as it comes: read, checked, and its tensors as arrays; what is damaged is said here.

onnx's checker sees every node with its attributes, and no array is made of data that do not fit its tensor's type
and shape, so that what reads a graph after this meets no field of a type that it does not expect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.errors import ModelImportError

LARGEST_ELEMENTS = 1 << 40
"""No machine holds a tensor of more elements."""

OF_ONNX_RUNTIME = frozenset(["SimplifiedLayerNormalization"])
"""Operators that ONNX Runtime's optimiser writes into ONNX's own domain, where onnx knows none of their name."""

_PACKED = {getattr(TensorProto, name, None) for name in ("INT2", "UINT2", "INT4", "UINT4", "FLOAT4E2M1")}


def load(model: onnx.ModelProto | str | Path) -> tuple[onnx.ModelProto, Path]:
    """The checked model, external data left on disk, and its folder; raises ModelImportError when malformed."""
    folder = Path()
    if not isinstance(model, onnx.ModelProto):
        path = Path(model)
        folder = path.parent
        try:
            model = onnx.load(path, load_external_data=False)
        except FileNotFoundError:
            raise ModelImportError(f"{path}: there is no such file") from None
        except Exception as error:  # protobuf raises its own family of errors
            raise ModelImportError(f"{path}: this is not an ONNX model ({error})") from None
    for place, field in _texts_that_are_none(model, "model"):
        raise ModelImportError(f"the model is malformed: {place}.{field} is no UTF-8 text")
    name = model.graph.name or "the model"
    opset = {o.domain: o.version for o in model.opset_import}
    version = opset.get("", opset.get("ai.onnx", 1))
    if version > onnx.defs.onnx_opset_version():
        raise ModelImportError(
            f"{name} uses opset {version}, the installed onnx {onnx.__version__} knows up to "
            f"{onnx.defs.onnx_opset_version()}; install a newer onnx"
        )
    try:
        onnx.checker.check_model(_outline(model))
    except (onnx.checker.ValidationError, ValueError) as error:
        if "is deprecated in domain_version" not in str(error):  # such operators have upgrades
            raise ModelImportError(f"{name} is malformed: {error}") from None
    return model, folder


def _texts_that_are_none(message: Message, place: str) -> Iterator[tuple[str, str]]:
    """The text fields below `message` that do not decode, which protobuf gives as bytes."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            if any(isinstance(text, bytes) for text in (value if field.is_repeated else [value])):
                yield place, field.name
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _texts_that_are_none(inner, f"{place}.{field.name}")


def _outline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with empty initializers, so that none is too large to check, and outputs with types and shapes.

    The checker demands both of every output and stops at the first that lacks one; they are common, as where a value
    inside of a graph is made an output by its name alone, and inferred.
    """
    outline, graph = onnx.ModelProto(), onnx.GraphProto()
    _copy(model, outline, ["graph"])
    _copy(model.graph, graph, ["initializer"])
    for tensor in model.graph.initializer:
        graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0])
    outline.graph.CopyFrom(graph)
    _complete_types(outline.graph)
    for body in (outline.graph, *outline.functions):
        for node in _nodes(body):
            if node.op_type in OF_ONNX_RUNTIME and node.domain in ("", "ai.onnx"):
                node.domain = "onnxruntime"  # the checker leaves the nodes of other domains alone
    for imports in (outline.opset_import, *(f.opset_import for f in outline.functions)):
        imports.append(helper.make_opsetid("onnxruntime", 1))
    return outline


def _copy(source: Message, target: Message, without: list[str]) -> None:
    for field, value in source.ListFields():
        if field.name in without:
            continue
        if field.is_repeated:
            getattr(target, field.name).extend(value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The branches or the body of a node of control flow."""
    for attribute in node.attribute:
        yield from (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else []))


def _subgraphs(body: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    """The bodies of the control flow that stands directly in a graph or a function."""
    for node in body.node:
        yield from subgraphs(node)


def _nodes(body: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph or a function, and of the control flow in it."""
    yield from body.node
    for inner in _subgraphs(body):
        yield from _nodes(inner)


def _complete_types(graph: onnx.GraphProto, is_inner: bool = False) -> None:
    for info in (*graph.input, *graph.output) if is_inner else graph.output:
        if info.type.WhichOneof("value") is None:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    for info in (*graph.input, *graph.output):
        if info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape"):
            info.type.tensor_type.shape.SetInParent()
    for inner in _subgraphs(graph):
        _complete_types(inner, is_inner=True)


def type_name(dtype: int) -> str:
    """ONNX's name of an element type, or its number when it has none."""
    known = dtype in TensorProto.DataType.values()
    return TensorProto.DataType.Name(dtype) if known else f"element type {dtype}"


def array_of(tensor: TensorProto, folder: Path | None = None) -> np.ndarray:
    """The tensor's array; external data, which only initializers with a `folder` have, is mapped, not read."""
    name = f"tensor `{tensor.name}`" if tensor.name else "a tensor"
    if tensor.data_type not in helper.get_all_tensor_dtypes():
        raise ModelImportError(f"{name} holds {type_name(tensor.data_type)}, which is no type of elements")
    shape = tuple(tensor.dims)
    checked_shape(shape, name)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _mapped(tensor, shape, folder, name)
    try:
        array = numpy_helper.to_array(tensor)
    except (TypeError, ValueError, OverflowError) as error:
        text = "x".join(map(str, shape)) or "1"
        raise ModelImportError(
            f"{name} has not the data of {text} {type_name(tensor.data_type)} elements ({error})"
        ) from None
    return array


def checked_shape(shape: tuple[int, ...], name: str) -> None:
    """Raises ModelImportError for extents that no tensor has."""
    if any(extent < 0 for extent in shape) or math.prod(shape) > LARGEST_ELEMENTS:
        raise ModelImportError(f"{name} has a shape that no tensor has, {'x'.join(map(str, shape))}")


def _mapped(tensor: TensorProto, shape: tuple[int, ...], folder: Path | None, name: str) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = PurePosixPath(entries.get("location", ""))
    if folder is None:
        raise ModelImportError(f"{name} has its data in a file, which only initializers may")
    if not location.name or location.is_absolute() or ".." in location.parts:
        raise ModelImportError(f"{name}: expected a data file beside the model, found `{location}`")
    if tensor.data_type in _PACKED:
        raise ModelImportError(f"{name}: external data of less than a byte per element is not taken")
    if tensor.data_type == TensorProto.STRING:
        raise ModelImportError(f"{name}: strings are no external data")
    path = folder / location
    if not path.is_file():
        raise ModelImportError(f"{name}: its data file {path} does not exist")
    text = entries.get("offset", "0")
    if not text.isdecimal():
        raise ModelImportError(f"{name}: expected an offset in bytes, found `{text}`")
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    offset, held = int(text), path.stat().st_size
    needed = math.prod(shape) * dtype.itemsize
    if offset + needed > held:
        raise ModelImportError(f"{name}: {path} holds {held} bytes, {offset + needed} are needed")
    if needed == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
