"""Rebuilds an ONNX graph node by node: every value's type known, constants folded, every node in a form that lowers.

One forward pass visits the source nodes in order. A node whose inputs are all known is evaluated; a node with a
rule (`onnx_rules.RULES`) is replaced by what the rule builds; a node with a function body is expanded; any other
node is kept when the lowering takes it, and reported when not. Because the pass goes forward, every rule sees
static shapes and the values of constant operands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tilewright.compiler.errors import ModelImportError, UnsupportedOperator
from tilewright.compiler.importers.onnx.evaluate import evaluated
from tilewright.compiler.importers.onnx.file import array_of, checked_shape, type_name
from tilewright.compiler.importers.onnx.guards import with_safe_operands
from tilewright.compiler.importers.onnx.operands import (
    STATIC_OPERANDS,
    check_operands,
    operand_name,
    with_vectors,
)
from tilewright.compiler.importers.onnx.values import (
    CARRIERS,
    POISON,
    SIGNED,
    NeedsConstant,
    Node,
    Refused,
    Scope,
    Value,
    decode_attributes,
    defaults_of,
    encode_attributes,
    schema_of,
)

FOLD_ELEMENTS = 1 << 16
"""Largest number of elements, in and out, of a node that is evaluated while importing."""

SHAPE_ELEMENTS = 1024
"""Largest known operand whose elements shape inference gets to see."""

MOVES = {"Reshape", "Transpose", "Slice", "Concat", "Expand", "Gather", "GatherElements", "GatherND", "Split", "Tile",
         "Squeeze", "Unsqueeze", "Flatten", "Where", "ScatterElements", "ScatterND", "DepthToSpace",
         "SpaceToDepth"}  # fmt: skip
"""Operators that move elements and never look at them, without a `reduction`."""

SIGN_FREE = {"Add", "Sub", "Mul", "Neg", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "ReduceSum",
             "ReduceProd", "ReduceSumSquare", "CumSum", "MatMul", "Gemm", "Trilu", "Pad", "EyeLike", "Sum"}  # fmt: skip
"""Operators whose result has the same bits for signed and unsigned integers."""

SHORT = (TensorProto.FLOAT16, TensorProto.BFLOAT16)

SHORT_INSIDE = {"Acosh", "Asinh", "Atanh", "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "InstanceNormalization", "LRN",
                "LayerNormalization", "Mish", "Pow", "ReduceL1",
                "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Sum",
                "Tan"}  # fmt: skip
"""Operators that torch-mlir lowers to several, each of which would round a short float."""

SKIP_FOLD = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
             "If", "Loop", "Scan", "SequenceMap", "Constant", "Identity", "MaxPool", "AveragePool", "LpPool"}  # fmt: skip
"""What is not evaluated while importing; of pooled planes, onnx's evaluator counts indices from 0 for each."""

SHAPED_BY_DATA = {"NonZero", "Unique", "NonMaxSuppression"}
"""Operators that are refused unless their operands are known."""

OLDEST_OPSET = 7
"""From it on every operator is taken in its own form; older forms only where they mean the same."""

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""What rules raise that compute with the numbers of a node as they stand, where those mean nothing: an axis beyond
the rank, a window of no elements, a list where a number belongs."""

EXPANSION_DEPTH = 24
"""Deepest nesting of rules and function bodies; only a model that defines itself in a circle is deeper."""


class Builder:
    """Collects the nodes of the rebuilt graph; rules build through `op` and `const`."""

    def __init__(
        self,
        rules,
        upgrades,
        lowered,
        widened,
        same_meaning=(),
        functions=None,
        can_bind=lambda sources: False,
    ):
        self.same_meaning = same_meaning
        self.widened = widened
        self.rules = rules
        self.upgrades = upgrades
        self.lowered = lowered
        self.functions = functions or {}
        self.can_bind = can_bind
        self.newest = onnx.defs.onnx_opset_version()
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, Value] = {}
        self.refused: list[UnsupportedOperator] = []
        self.place = ""
        self.taken: Value | None = None  # where the part that is being built is taken, unless always
        self.depth = 0
        self.listed_depth = 0
        self._serial = 0

    # Values

    def fresh(self, dtype: int, shape, array=None, sources=frozenset()) -> Value:
        self._serial += 1
        shape = tuple(int(d) for d in shape)
        checked_shape(shape, f"a result of {self.place}" if self.place else "a tensor")
        if array is None and 0 in shape and dtype != TensorProto.STRING:
            array = np.empty(shape, helper.tensor_dtype_to_np_dtype(dtype))  # nothing in it is unknown
        value = Value(f"v{self._serial}", int(dtype), shape, array, None, sources)
        self.values[value.name] = value
        return value

    def const(self, array, dtype: int | None = None) -> Value:
        """A known tensor; `dtype` (a TensorProto code) converts it."""
        array = np.asarray(array)
        if dtype is not None:
            array = array.astype(helper.tensor_dtype_to_np_dtype(dtype))
        return self.fresh(
            helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, np.array(array, order="C")
        )

    def ints(self, *numbers) -> Value:
        return self.const(np.array(numbers, dtype=np.int64))

    def scalar(self, number, like: Value) -> Value:
        """A rank-0 constant of `like`'s element type."""
        return self.const(np.array(number), like.dtype)

    def sequence(self, items: list[Value]) -> Value:
        self._serial += 1
        return Value(f"s{self._serial}", 0, (), items=items)

    # Nodes

    def op(self, op: str, *inputs, outputs: int = 1, **attrs) -> Any:
        """Builds one node of the newest opset; its rule, folding and expansion apply. One value, or a list."""
        node = Node(op, list(inputs), attrs, outputs, "", self.newest, self.place, wanted=(True,) * outputs)
        results = self.build(node)
        return results[0] if outputs == 1 else results

    def keep(self, node: Node) -> list[Value]:
        """Emits the node as it stands, for the lowering to take."""
        inferred = self.infer(node)
        unsigned = {v.dtype for v in node.inputs if v is not None and v.dtype in SIGNED}
        reduction = node.attrs.get("reduction", "none")
        moves = node.op in MOVES and reduction == "none"
        if unsigned and not moves and node.op not in SIGN_FREE and reduction not in ("add", "mul"):
            return self.widened(self, node, [dtype for dtype, _ in inferred])
        small = {v.dtype for v in node.inputs if v is not None} & set(CARRIERS)
        if small and not moves:
            raise Refused(f"it computes on {type_name(small.pop())}; cast to a wider type first")
        if node.op in SHORT_INSIDE and any(v is not None and v.dtype in SHORT for v in node.inputs):
            return self._in_f32(node, [dtype for dtype, _ in inferred])
        sources = frozenset().union(*(v.sources for v in node.inputs if v is not None))
        outputs = [self.fresh(dtype, shape, sources=sources) for dtype, shape in inferred]
        self.emit(node, outputs)
        return outputs

    def _in_f32(self, node: Node, results: list[int]) -> list[Value]:
        """A node over short floats done in f32, its results rounded once."""
        to = TensorProto.FLOAT
        inputs = [self.op("Cast", v, to=to) if v is not None and v.dtype in SHORT else v for v in node.inputs]
        found = self.kept(node.op, *inputs, outputs=node.outputs, **node.attrs)
        made = found if node.outputs > 1 else [found]
        return [self.op("Cast", value, to=dtype) for value, dtype in zip(made, results)]

    def kept(self, op: str, *inputs, outputs: int = 1, **attrs) -> Any:
        """Like `op` without applying a rule: what a rule uses to emit the very operator it stands for."""
        node = Node(op, list(inputs), attrs, outputs, "", self.newest, self.place, wanted=(True,) * outputs)
        folded = self.fold(node)
        results = self.keep(node) if folded is None else folded
        return results[0] if outputs == 1 else results

    def emit(self, node: Node, outputs: list[Value]) -> None:
        """Adds a node to the rebuilt graph, unless its results have no elements and are known."""
        if all(value.array is not None for value in outputs):
            return
        node = with_safe_operands(self, node)
        names = [v.name if v is not None else "" for v in node.inputs]
        proto = helper.make_node(
            node.op, names, [v.name for v in outputs], name=node.place, domain=node.domain
        )
        proto.attribute.extend(encode_attributes(node.attrs))
        self.nodes.append(proto)

    def build(self, node: Node) -> list[Value]:
        """The values of a node's outputs, by folding, rule, keeping or expansion, in that order."""
        if any(v is POISON for v in node.inputs):
            return self._passed_on(node)
        if self.depth > EXPANSION_DEPTH:
            raise Refused("its definition expands without end")
        self.depth += 1
        try:
            node = with_vectors(self, self._upgrade(node))
            for index in STATIC_OPERANDS.get(node.op, ()) if node.domain == "" else ():
                value = node.input(index)
                if value is not None:
                    value.known(operand_name(node.op, index, self.newest))
            folded = self.fold(node)
            if folded is not None:
                return folded
            if node.domain == "":
                check_operands(node, self.newest)
            rule = self.rules.get((node.domain, node.op))
            if rule is not None:
                try:
                    built = rule(self, node)
                except KeyError as missing:
                    raise Refused(f"it lacks the attribute {missing}") from None
                if built is not None:
                    built = [built] if isinstance(built, Value) else list(built)
                    return built + [POISON] * (node.outputs - len(built))
            if node.domain == "" and node.op in self.lowered:
                # torch-mlir knows some defaults, as those of Selu, to five digits.
                schema = schema_of(node.op, self.newest)
                node.attrs = {**(defaults_of(schema, AttributeProto.FLOAT) if schema else {}), **node.attrs}
                return self.keep(node)
            expanded = self._expand(node)
            if expanded is not None:
                return expanded
            raise Refused("there is no lowering for it")
        finally:
            self.depth -= 1

    def _refuse_whatever_its_operands(self, node: Node) -> None:
        """Raises Refused for an operator that is not known, so that it is listed after others that are not."""
        known = (node.domain, node.op) in self.rules or (node.domain, node.op) in self.functions
        of_onnx = node.domain == "" and (node.op in self.lowered or node.op in self.upgrades)
        if node.op in SHAPED_BY_DATA or not (known or of_onnx or self._schema(node).has_function
                                             or self._schema(node).has_context_dependent_function):  # fmt: skip
            raise Refused(
                "the shape of its result depends on data" if known else "there is no lowering for it"
            )

    def _passed_on(self, node: Node) -> list[Value]:
        """The outputs of a node that reads one of a refused node, once what it holds that is not known is listed."""
        self._refuse_whatever_its_operands(node)
        self.depth += 1
        try:
            local = self.functions.get((node.domain, node.op))
            if local is not None:
                with self.listing():
                    self.call(local, node, {})
            for graph in node.attrs.values():
                if isinstance(graph, onnx.GraphProto):
                    self.subgraph(graph, node, [POISON] * len(graph.input))
        finally:
            self.depth -= 1
        return [POISON] * node.outputs

    def _schema(self, node: Node) -> onnx.defs.OpSchema:
        schema = schema_of(node.op, max(node.version, 1) if node.domain else self.newest, node.domain)
        if schema is None:
            raise Refused(f"no operator of domain `{node.domain or 'ai.onnx'}` has this name")
        return schema

    def _upgrade(self, node: Node) -> Node:
        if node.domain == "" and node.version < OLDEST_OPSET:
            self._check_ancient(node)
        upgrade = self.upgrades.get(node.op) if node.domain == "" else None
        if upgrade is not None and node.version < self.newest:
            schema = schema_of(node.op, node.version)
            if schema is None:
                raise Refused(f"opset {node.version} has no such operator")
            node.attrs.pop("consumed_inputs", None)
            try:
                upgraded = upgrade(self, node, schema.since_version)
            except KeyError as missing:
                raise Refused(f"it lacks the attribute {missing}") from None
            node = upgraded if upgraded is not None else node
        return node

    def _check_ancient(self, node: Node) -> None:
        """Forms from before opset 7 are taken where they are known to mean the same, or have an upgrade."""
        then, later = schema_of(node.op, node.version), schema_of(node.op, OLDEST_OPSET)
        if then is not None and later is not None and then.since_version == later.since_version:
            return
        if node.op not in self.upgrades and node.op not in self.same_meaning:
            raise Refused(f"its form of opset {node.version} is not taken, {OLDEST_OPSET} is the oldest")

    # Types and folding

    def infer(self, node: Node) -> list[tuple[int, tuple[int, ...]]]:
        """Element type and static shape of every output; raises Refused when they cannot be told."""
        schema = schema_of(node.op, self.newest, node.domain)
        if schema is None:
            raise Refused("it is not an operator of a known opset")
        check_operands(node, self.newest)
        proto, types, data = self._proto(node)
        try:
            inferred = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=[helper.make_opsetid("", self.newest)]
            )
        except Exception as error:  # the binding raises several unrelated types
            raise Refused(f"its operands do not fit: {str(error).strip()}") from None
        found = []
        for name in proto.output:
            type_ = inferred.get(name)
            if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
                raise Refused("the shape of its result depends on data")
            dims = type_.tensor_type.shape.dim
            if not all(d.HasField("dim_value") for d in dims):
                raise Refused("the shape of its result depends on data")
            found.append((type_.tensor_type.elem_type, tuple(d.dim_value for d in dims)))
        return found

    def _proto(self, node: Node):
        names = [f"i{n}" if v is not None else "" for n, v in enumerate(node.inputs)]
        outputs = [f"o{n}" for n in range(node.outputs)]
        proto = helper.make_node(node.op, names, outputs, domain=node.domain)
        proto.attribute.extend(encode_attributes(node.attrs))
        types = {n: v.type_proto for n, v in zip(names, node.inputs) if v is not None}
        data = {
            n: numpy_helper.from_array(v.array, n)
            for n, v in zip(names, node.inputs)
            if v is not None and v.array is not None and v.size <= SHAPE_ELEMENTS
        }
        return proto, types, data

    def fold(self, node: Node) -> list[Value] | None:
        """Evaluates a node of known inputs; None when one is unknown, large, or the evaluator does not know it."""
        if node.op in SKIP_FOLD or not node.inputs:
            return None
        for value in node.inputs:
            if value is not None and (value.array is None or value.weight or value.size > FOLD_ELEMENTS):
                return None
        inferred: list[tuple[int | None, tuple[int, ...]]]
        try:
            inferred = [*self.infer(node)]
        except Refused:
            inferred = [(None, ())] * node.outputs
        # Before it is evaluated: a few numbers can ask for more memory than there is.
        if any(math.prod(shape) > FOLD_ELEMENTS for _, shape in inferred):
            return None
        arrays = evaluated(node, self.newest)
        if arrays is None or any(a.size > FOLD_ELEMENTS for a in arrays):
            return None
        return [self.const(array, dtype) for array, (dtype, _) in zip(arrays, inferred)]

    # Graphs

    def run(
        self, nodes, scope: Scope, version: dict[str, int], caller: dict | None = None, place=None
    ) -> None:
        """Visits the nodes of a graph or function body in order, binding their outputs in `scope`."""
        for index, proto in enumerate(nodes):
            name = proto.name or next(iter(proto.output), proto.op_type)
            here = f'node {index} "{name}"'
            if place is not None:
                here = f"{place}, {here}" if self.depth == self.listed_depth else place
            self._visit(proto, scope, version, caller, here)

    def _visit(self, proto, scope, version, caller, here) -> None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        opset = version.get(domain, version.get("ai.onnx", self.newest) if domain == "" else 1)
        outer, self.place = self.place, here
        wanted = tuple(name != "" for name in proto.output)
        inputs = [scope.find(name, here) for name in proto.input]
        try:
            attrs = decode_attributes(proto.attribute, caller)
            results = len(proto.output)
            node = Node(
                proto.op_type, inputs, attrs, results, domain, opset, here, scope, version, caller, wanted
            )
            results = self.build(node)
        except _UNREADABLE as error:
            raise ModelImportError(
                f"{here}: `{proto.op_type}` cannot be read, its attributes or operands do not fit "
                f"({type(error).__name__}: {error})"
            ) from error
        except (Refused, NeedsConstant) as refusal:
            bindable = isinstance(refusal, NeedsConstant) and self.can_bind(refusal.value.sources)
            if self.depth > self.listed_depth or bindable:
                raise
            listed = UnsupportedOperator(proto.op_type, str(refusal), here)
            if listed not in self.refused:  # as in every iteration of a loop
                self.refused.append(listed)
            results = [POISON] * len(proto.output)
        finally:
            self.place = outer
        for name, value in zip(proto.output, results):
            if name:
                scope.values[name] = value

    def subgraph(self, graph: onnx.GraphProto, node: Node, inputs: list[Value | None]) -> list[Value]:
        """Builds a subgraph in place of `node`, its inputs bound, and gives its outputs."""
        scope = Scope(node.scope)
        for tensor in graph.initializer:
            scope.values[tensor.name] = self.const(array_of(tensor))
        for info, value in zip(graph.input, inputs):
            scope.values[info.name] = value
        with self.listing():
            self.run(graph.node, scope, node.opsets, node.caller, place=node.place)
        outputs = [scope.find(info.name, node.place) for info in graph.output]
        return [POISON if value is None else value for value in outputs]

    @contextmanager
    def listing(self) -> Iterator[None]:
        """What is built inside belongs to the model: nodes are refused one by one, not as the node around them."""
        outer = self.listed_depth
        if self.depth == outer + 1:
            self.listed_depth = self.depth
        try:
            yield
        finally:
            self.listed_depth = outer

    def call(self, function: onnx.FunctionProto, node: Node, defaults: dict[str, Any]) -> list[Value]:
        """Expands a function's body in place of a call."""
        attrs = {**defaults, **decode_attributes(function.attribute_proto), **node.attrs}
        inner = Scope()
        for index, name in enumerate(function.input):
            inner.values[name] = node.input(index)
        opsets = {"": self.newest} | {o.domain: o.version for o in function.opset_import}
        self.run(function.node, inner, opsets, attrs, place=self.place)
        results = [inner.values.get(name) for name in function.output]
        return [POISON if value is None else value for value in results]

    def _expand(self, node: Node) -> list[Value] | None:
        local = self.functions.get((node.domain, node.op))
        if local is not None:
            with self.listing():
                return self.call(local, node, {})
        schema = self._schema(node)
        text = b""
        if schema.has_function:
            text = schema.get_function_with_opset_version(max(schema.function_opset_versions))
        elif schema.has_context_dependent_function:
            proto, types, _ = self._proto(node)
            listed = [types[n].SerializeToString() if n else b"" for n in proto.input]
            version = max(schema.context_dependent_function_opset_versions)
            text = schema.get_context_dependent_function_with_opset_version(
                version, proto.SerializeToString(), listed
            )
        if not text:
            return None
        function = onnx.FunctionProto.FromString(text)
        return self.call(function, node, defaults_of(schema))
