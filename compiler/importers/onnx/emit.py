"""A rebuilt ONNX graph as linalg on tensors: weights told from constants, torch-mlir's importer and pipelines run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.errors import CompilerCrashError, PassError, UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers import to_linalg
from tilewright.compiler.importers.onnx import fourier as onnx_fourier
from tilewright.compiler.importers.onnx import scalar as onnx_scalar
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.operands import STATIC_OPERANDS
from tilewright.compiler.importers.onnx.values import CARRIERS, DTYPES, Value, seen_as
from tilewright.compiler.ir import context, functions, ir, onnx_importer, parse, run_upstream
from tilewright.compiler.workers import modules
from tilewright.runtime.signature import Output

CONSTANT_ELEMENTS = 16
"""A known integer or bool tensor of at most this many elements stays in the IR; see docs/onnx.md."""

TO_TORCH = (
    "builtin.module(func.func(convert-torch-onnx-to-torch{allow-non-finites=true},"
    "torch-decompose-complex-ops,canonicalize))"
)
REFINE = "builtin.module(torch-onnx-to-torch-backend-pipeline)"
WITHOUT_REFINING = (
    "builtin.module(func.func(cse,torch-scalarize-shapes),torch-refine-public-return,"
    "func.func(canonicalize,torch-decompose-complex-ops,canonicalize))"
)
"""What `REFINE` does beside inlining a function for the shape of every operator, twice, and folding it."""

TO_LINALG = f"builtin.module({to_linalg.TO_LINALG})"

_REFINED = re.compile(r"!torch\.vtensor<\[[\d,]*\],(?!unk)[^>]+>")


@dataclass(frozen=True)
class Argument:
    """One argument of `@main`: its role, its name in the model, and its array when it is a weight."""

    role: str
    name: str
    value: Value


class _Constants(onnx_importer.ContextCache):
    """Constants become dense attributes whatever their type: folders and matchers see through those."""

    __slots__ = ()

    def tensor_proto_to_attr(self, tp: TensorProto) -> ir.Attribute:
        array = numpy_helper.to_array(tp)
        element = self.tensor_element_type(tp.data_type)
        with self._c, ir.Location.unknown():
            type_ = ir.RankedTensorType.get(array.shape, element)
            if array.size == 0:
                return ir.Attribute.parse(f"dense<> : {type_}")
            if tp.data_type == TensorProto.BOOL:
                items = [ir.BoolAttr.get(bool(item)) for item in array.reshape(-1)]
                return ir.DenseElementsAttr.get(items, type_)
            carrier = np.frombuffer(array.tobytes(), dtype=f"u{array.dtype.itemsize}").reshape(array.shape)
            return ir.DenseElementsAttr.get(carrier, shape=list(array.shape), type=element)


def carried(array: np.ndarray, dtype: int) -> np.ndarray:
    """The array as its bytes when its element type is carried by one; otherwise itself."""
    if dtype not in CARRIERS:
        return array
    target = helper.tensor_dtype_to_np_dtype(CARRIERS[dtype])
    if dtype in (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2):
        return array.astype(target)
    return array.view(target)


def dtype_name(dtype: int) -> str:
    """The runtime's name of an element type."""
    return DTYPES[CARRIERS.get(dtype, dtype)]


def is_constant(value: Value) -> bool:
    """Whether a known tensor stays in the IR: a single element, few integers, or one element repeated."""
    array = value.array
    if array is None:
        return False
    return (
        array.size <= 1
        or (not value.is_float and array.size <= CONSTANT_ELEMENTS)
        or (not value.weight and is_splat(array))
    )


def is_splat(array: np.ndarray) -> bool:
    """Whether all elements have the same bits, so that one of them says it all."""
    bits = (
        array.reshape(-1).view(f"u{array.dtype.itemsize}") if array.dtype.itemsize <= 8 else array.reshape(-1)
    )
    return array.size > 0 and bool((bits == bits[0]).all())


@dataclass(frozen=True)
class Graph:
    """The rebuilt graph ready to be lowered: its proto, its arguments and what it returns."""

    proto: onnx.ModelProto
    arguments: list[Argument]
    outputs: list[Value]

    @property
    def weights(self) -> list[np.ndarray]:
        """The arrays of the weight arguments in order, small types as bytes."""
        found = [a.value for a in self.arguments if a.role == "weight"]
        return [carried(v.array, v.dtype) for v in found if v.array is not None]

    @classmethod
    def of(
        cls, builder: Builder, inputs: list[tuple[str, Value]], outputs: list[Value], names: dict[str, str]
    ) -> Graph:
        """Keeps live nodes only; tells weights from constants."""
        needed = {value.name for value in outputs}
        live: list[onnx.NodeProto] = []
        static: set[str] = set()
        for node in reversed(builder.nodes):
            if needed.intersection(node.output):
                live.append(node)
                needed.update(name for name in node.input if name)
                places = STATIC_OPERANDS.get(node.op_type, ())
                static.update(node.input[i] for i in places if i < len(node.input))
        live.reverse()
        # What makes a shape is a constant, and what is returned an argument: one that does both is both.
        copied = {v.name: builder.fresh(v.dtype, v.shape, v.array) for v in outputs if v.name in static}
        outputs = [copied.get(v.name, v) for v in outputs]
        needed.update(v.name for v in copied.values())
        names = names | {v.name: names.get(old, f"folded_{old}") for old, v in copied.items()}
        arguments = [Argument("input", name, value) for name, value in inputs]
        returned, given = {value.name for value in outputs}, {value.name for _, value in inputs}
        constants = []
        for name in sorted(needed, key=lambda name: int(name[1:])):
            value = builder.values[name]
            if value.array is None:
                continue
            if (name in static or is_constant(value)) and name not in returned:
                constants.append(value)
            elif name not in given:  # an input without elements is known, too
                arguments.append(Argument("weight", names.get(name, f"folded_{name}"), value))
        return cls(_proto_of(builder, live, arguments, constants, outputs), arguments, outputs)


@dataclass(frozen=True)
class Results:
    """What `@main` returns, as (name, value), and where each output of the model comes from."""

    results: list[tuple[str, Value]]
    outputs: tuple[Output, ...]


def _proto_of(builder: Builder, live, arguments, constants, outputs: list[Value]) -> onnx.ModelProto:
    """The graph handed to torch-mlir's importer: every value typed, weights as inputs."""
    graph = onnx.GraphProto(name="main")
    for value in constants:
        assert value.array is not None
        array = carried(value.array, value.dtype)
        array = array.view(helper.tensor_dtype_to_np_dtype(seen_as(value.dtype)))
        tensor = numpy_helper.from_array(array, value.name)
        graph.node.append(helper.make_node("Constant", [], [value.name], value=tensor))
    graph.node.extend(live)
    given = {a.value.name for a in arguments}
    returned = {v.name: v for v in outputs if v.name not in given}
    produced = [name for node in live for name in node.output if name and name not in returned]
    typed = [(graph.input, a.value) for a in arguments] + [(graph.output, v) for v in returned.values()]
    typed += [(graph.value_info, builder.values[name]) for name in produced]
    for target, value in typed:
        target.append(helper.make_tensor_value_info(value.name, seen_as(value.dtype), value.shape))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", builder.newest)])
    model.ir_version = 10
    return model


def finish(module: ir.Module, graph: Graph) -> Results:
    """Names the arguments of `@main` and takes out results that are an argument or another result."""
    function = next(functions(module))
    block = function.regions[0].blocks[0]
    place = {a.value.name: (a.role, i) for i, a in enumerate(graph.arguments)}
    inputs = sum(a.role == "input" for a in graph.arguments)
    terminator = block.operations[len(block.operations) - 1]
    returned = list(dict.fromkeys(v.name for v in graph.outputs if v.name not in place))
    kept: list[ir.Value] = []
    source: dict[str, tuple[str, int]] = {}
    for name, (role, index) in place.items():
        source[name] = (role, index - (0 if role == "input" else inputs))
    by_name = {v.name: v for v in graph.outputs}
    results = []
    for name, operand in zip(returned, terminator.operands):
        dtype = by_name[name].dtype
        given = (i for i, a in enumerate(graph.arguments) if a.value.dtype == dtype)
        argument = next((i for i in given if block.arguments[i] == operand), None)
        equal = (i for i, (_, v) in enumerate(results) if v.dtype == dtype)
        twin = next((i for i in equal if kept[i] == operand), None)
        if argument is not None:
            source[name] = source[graph.arguments[argument].value.name]
        elif twin is not None:
            source[name] = ("result", twin)
        else:
            source[name] = ("result", len(kept))
            results.append((f"output{len(kept)}", by_name[name]))
            kept.append(operand)
    with context(), ir.Location.unknown():
        with ir.InsertionPoint(terminator):
            ir.Operation.create("func.return", operands=kept)
        terminator.erase()
        type_ = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in kept])
        function.attributes["function_type"] = ir.TypeAttr.get(type_)
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [
                ir.DictAttr.get(
                    {
                        "tilewright.role": ir.StringAttr.get(a.role),
                        "tilewright.name": ir.StringAttr.get(a.name),
                    }
                )
                for a in graph.arguments
            ]
        )
    outputs = tuple(Output(*source[v.name], dtype_name(v.dtype), v.shape) for v in graph.outputs)
    return Results(results, outputs)


_DEFINITIONS = {
    onnx_scalar.OPERATOR: onnx_scalar.definition,
    onnx_fourier.OPERATOR: onnx_fourier.definition,
}
"""Of an operator of ours, what writes the function that a node of it calls."""


class _Importer(onnx_importer.NodeImporter):
    """Nodes of operators of ours become calls; `definitions` collects what they call."""

    __slots__ = ("definitions",)

    def __init__(self, base: onnx_importer.NodeImporter):
        super().__init__(
            base._gi,
            parent_op=base._p,
            block=base._b,
            context_cache=base._cc,
            module_op=base._m,
            module_cache=base._mc,
        )
        self._nv_map = base._nv_map
        self.definitions: list[str] = []

    def import_node(self, node: onnx.NodeProto) -> None:
        if node.domain != onnx_scalar.DOMAIN:
            return super().import_node(node)
        graph = self._gi
        types = {name: graph.find_type_proto_for_name(name) for name in (*node.input, *node.output)}
        name = f"{node.op_type.lower()}_{len(self.definitions)}"
        self.definitions.append(_DEFINITIONS[node.op_type](name, node, types))
        operands = [self._nv_map[n] for n in node.input]
        results = [self._cc.type_proto_to_type(types[output]) for output in node.output]
        func = onnx_importer.func_dialect
        with context(), ir.Location.name(node.name):
            type_ = ir.FunctionType.get([v.type for v in operands], results)
            declared = func.FuncOp(
                name, type_, ip=ir.InsertionPoint(self._m.regions[0].blocks[0]), visibility="private"
            )
            self._populate_graph_attrs(declared)
            with ir.InsertionPoint(self._b):
                self._nv_map.update(zip(node.output, func.CallOp(declared, operands).results))
        return None


def torch_module(model: onnx.ModelProto) -> tuple[ir.Module, list[str]]:
    """The model in torch-mlir's `torch.operator "onnx.*"` form, and the functions that its calls still lack."""
    info = onnx_importer.ModelInfo(model)
    module = info.create_module(context=context())
    cache = _Constants(context())
    base = onnx_importer.NodeImporter.define_function(info.main_graph, module.operation, context_cache=cache)
    importer = _Importer(base)
    importer.import_all()
    return module, importer.definitions


@cache
def _load_conversion_dialect() -> None:
    """`torch_c` is loaded by the pipeline that uses it, and only then parses."""
    run_upstream(parse("").operation, TO_LINALG)


def _define(module: ir.Module, definitions: list[str]) -> None:
    """Gives the called functions their bodies and inlines them."""
    if not definitions:
        return
    for op in list(module.body.operations):
        if not len(op.operation.regions[0].blocks):  # the declarations that stood in for them
            op.operation.erase()
    _load_conversion_dialect()
    source = parse("".join(definitions))
    for op in list(source.body.operations):
        module.body.append(op)
    onnx_fourier.inline_transforms(module)
    run_upstream(module.operation, "builtin.module(inline,symbol-dce)")


def is_refined(module: ir.Module) -> bool:
    """Whether every tensor's shape and element type are known."""
    known = True

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal known
        types = {str(result.type) for result in op.results}
        known = all(_REFINED.fullmatch(t) for t in types if t.startswith("!torch.vtensor"))
        return ir.WalkResult.ADVANCE if known else ir.WalkResult.INTERRUPT

    module.operation.walk(visit)
    return known


def _lower(model: onnx.ModelProto, what: str, is_kept: bool = False) -> ir.Module:
    module, definitions = torch_module(model)
    modules.run_upstream(module, TO_TORCH, what, is_kept)
    # The rebuilt graph is static: refining finds nothing but where a decomposition left a shape open.
    modules.run_upstream(module, WITHOUT_REFINING if is_refined(module) else REFINE, what, is_kept)
    _define(module, definitions)
    to_linalg.lower_to_linalg(module, TO_LINALG, what, is_kept)
    return module


def lower(model: onnx.ModelProto) -> ir.Module:
    """linalg on tensors; raises UnsupportedError that lists every node torch-mlir does not lower."""
    try:
        return _lower(model, "the import of a model", is_kept=True)
    except (PassError, CompilerCrashError) as error:
        raise UnsupportedError(
            _culprits(model) or [UnsupportedOperator("graph", _first(str(error)))]
        ) from None


def _first(diagnostics: str) -> str:
    lines = [line.strip() for line in diagnostics.splitlines() if "error:" in line]
    return lines[0] if lines else diagnostics.strip().splitlines()[0]


def _culprits(model: onnx.ModelProto) -> list[UnsupportedOperator]:
    """Lowers every distinct node alone and reports those that fail."""
    types = {v.name: v for v in (*model.graph.input, *model.graph.output, *model.graph.value_info)}
    constants = {n.output[0]: n for n in model.graph.node if n.op_type == "Constant"}
    tried: dict[bytes, str] = {}
    found = []
    for node in model.graph.node:
        if node.op_type == "Constant":
            continue
        graph = onnx.GraphProto(name="main")
        graph.node.extend(constants[name] for name in dict.fromkeys(node.input) if name in constants)
        graph.node.append(node)
        graph.input.extend(types[n] for n in dict.fromkeys(node.input) if n and n not in constants)
        graph.output.extend(types[n] for n in node.output if n in types)
        single = onnx.ModelProto(graph=graph, opset_import=model.opset_import, ir_version=model.ir_version)
        signature = onnx.NodeProto()
        signature.CopyFrom(node)
        signature.ClearField("name")
        shapes = [types[n].type.SerializeToString() for n in (*node.input, *node.output) if n in types]
        del signature.input[:], signature.output[:]
        key = signature.SerializeToString() + b"|".join(shapes)
        if key not in tried:
            try:
                _lower(single, f"the import of {node.op_type}")
                tried[key] = ""
            except (PassError, CompilerCrashError) as error:
                tried[key] = _first(str(error))
        if tried[key]:
            found.append(UnsupportedOperator(node.op_type, tried[key], node.name or "<unknown node>"))
    return found
