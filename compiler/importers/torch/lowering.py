"""Lowers a functional ATen graph to linalg-on-tensors, and finds every node that cannot be lowered."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._decomp import global_decomposition_table
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.compiler.analysis.placement import UPDATED_BY
from tilewright.compiler.analysis.weight_flow import PARAMETER
from tilewright.compiler.errors import (
    CompilerCrashError,
    PassError,
    TilewrightError,
    UnsupportedError,
    UnsupportedOperator,
)
from tilewright.compiler.importers.to_linalg import TO_LINALG, lower_to_linalg
from tilewright.compiler.importers.torch.complex_parts import read_parts
from tilewright.compiler.importers.torch.constant_bytes import (
    fold_uniform_bytes,
    is_random,
    join_constant_bytes,
    signed_results,
)
from tilewright.compiler.importers.torch.determinants import TABLE as DETERMINANTS
from tilewright.compiler.importers.torch.determinants import TOO_LARGE
from tilewright.compiler.importers.torch.disjoint_sums import join_disjoint_terms
from tilewright.compiler.importers.torch.early_lowering import lower_early
from tilewright.compiler.importers.torch.expanded_reads import read_before_expanding
from tilewright.compiler.importers.torch.given_functions import REASON as GIVEN_FUNCTIONS
from tilewright.compiler.importers.torch.indexing import MASKS
from tilewright.compiler.importers.torch.linear_systems import TABLE as LINEAR_SYSTEMS
from tilewright.compiler.importers.torch.part_writes import read_what_was_written, write_where_wholes_lie
from tilewright.compiler.importers.torch.tracer import NEEDS_STORAGE
from tilewright.compiler.importers.torch.types import NO_TYPE, TORCH_FOLDER, has_name
from tilewright.compiler.ir import context, ir

TO_TORCH_BACKEND = "torchdynamo-export-to-torch-backend-pipeline"

RANDOM = (
    "draws random numbers, which compiled code does not: under torch.compile PyTorch's generator draws them, eagerly "
    "where they depend on data; else call model.eval(), or pass the numbers as an input"
)

MASKED = (
    "takes another number of values for another mask, and compiled shapes are fixed; assign one value (or one that "
    "broadcasts) for all elements of the mask, or use torch.where or masked_scatter"
)
_WRITES = {torch.ops.aten.index_put.default, torch.ops.aten._unsafe_index_put.default}

COMPLEX = "complex numbers are computed by their parts, and of this function there is no such form"
UNSIGNED = "computes on torch.uint32, which torch-mlir takes for signed numbers here and there; convert to torch.int64 first"
_SIGNLESS = """
_unsafe_view alias as_strided bitwise_and bitwise_not bitwise_or bitwise_xor cat clone constant_pad_nd copy detach empty
eq expand flip full full_like gather index index_put index_select lift_fresh_copy masked_fill ne permute repeat select
select_scatter slice slice_scatter split split_with_sizes squeeze stack t transpose unbind unsqueeze view where
"""
SIGNLESS = frozenset(_SIGNLESS.split())
"""Operators of ATen whose results are the same whether their operands have signs or not."""

UNREADABLE = "tilewright.unreadable"
"""In the metadata of a node: why it is refused in its graph, though it could be lowered alone."""

_verdicts: dict[Any, str | None] = {}


def lower_graph(module: GraphModule) -> ir.Module:
    """`@main` on linalg-on-tensors, one argument per placeholder and one result per output.

    Raises UnsupportedError that lists every node which cannot be lowered.
    """
    if any(_known_refusal(node) for node in module.graph.nodes):
        raise unsupported(module.graph)
    read_before_expanding(module.graph)
    read_what_was_written(module.graph)
    join_disjoint_terms(module.graph)
    read_parts(module.graph)
    write_where_wholes_lie(module.graph)
    fold_uniform_bytes(module.graph)
    join_constant_bytes(module.graph)
    try:
        return _lower(module.graph, "the import of a graph", is_kept=True)
    except (
        PassError,
        CompilerCrashError,
        NotImplementedError,
        AssertionError,
        TypeError,
        RuntimeError,
        ValueError,
        KeyError,
    ) as e:
        error = unsupported(module.graph)
        if error.operators:
            raise error from e
        if isinstance(e, CompilerCrashError):
            raise
        raise PassError(f"torch-mlir cannot lower the graph, though each of its operators alone: {e}") from e


def _lower(graph: Graph, what: str, is_kept: bool = False) -> ir.Module:
    from tilewright.compiler.ir import fx_importer

    _forget_devices(graph)
    importer = fx_importer.FxImporter(context=context(), config_check=False)
    with signed_results(graph):
        importer.import_stateless_graph(graph, func_name="main")
    module = importer.module
    lower_early(module)
    lower_to_linalg(module, f"builtin.module({TO_TORCH_BACKEND},{TO_LINALG})", what, is_kept)
    return module


def _forget_devices(graph: Graph) -> None:
    """Makes operators that name a device name the CPU: where a graph runs is not part of what it computes."""

    def on_cpu(value: Any) -> Any:
        return torch.device("cpu") if isinstance(value, torch.device) else value

    for node in graph.nodes:
        if node.op == "call_function":
            node.args = torch.fx.node.map_aggregate(node.args, on_cpu)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, on_cpu)


def _known_refusal(node: Node) -> str | None:
    """Why `node` is refused whatever torch-mlir makes of it."""
    if (
        node.op == "call_function" and UNREADABLE in node.meta
    ):  # not what stands for it in a part of its graph
        return node.meta[UNREADABLE]
    if is_random(node):
        return RANDOM
    if isinstance(node.target, HigherOrderOperator):
        return GIVEN_FUNCTIONS
    if node.target in _WRITES:
        indices: Any = node.args[1]
        if any(isinstance(index, Node) and index.meta["val"].dtype in MASKS for index in indices):
            return MASKED
    layout = other_layout(node)
    if layout is not None:
        return f"it reads or makes a tensor of layout {layout}; compiled code knows dense tensors only"
    unknown = _unknown_type(node)
    if unknown is not None:
        return f"{NO_TYPE} (it reads or makes {unknown})"
    if _computes_unsigned(node):
        return UNSIGNED
    # torch-mlir would eliminate without pivots.
    return TOO_LARGE if node.target in DETERMINANTS or node.target in LINEAR_SYSTEMS else None


def other_layout(node: Node) -> torch.layout | None:
    """A layout among the node's operands and results that is none with strides."""
    return next((value.layout for value in _tensors(node) if value.layout is not torch.strided), None)


def _unknown_type(node: Node) -> torch.dtype | None:
    """A dtype among the node's operands and results that compiled code has no tensors of: LLVM knows no arithmetic of it."""
    return next((value.dtype for value in _tensors(node) if not has_name(value.dtype)), None)


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    """The node's operands and results."""
    for source in (node, *node.all_input_nodes):
        value = source.meta.get("val")
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, torch.Tensor):
                yield part


def _computes_unsigned(node: Node) -> bool:
    """Whether `node` computes on numbers of 32 bits without a sign; from and to other numbers they are converted."""
    target = node.target
    values = [source.meta.get("val") for source in (node, *node.all_input_nodes)]
    made, *read = [value.dtype if isinstance(value, torch.Tensor) else None for value in values]
    if not isinstance(target, OpOverload) or torch.uint32 not in (made, *read):
        return False
    if target.overloadpacket in (torch.ops.prims.convert_element_type, torch.ops.aten._to_copy):
        return False
    return target.namespace != "aten" or target.overloadpacket.__name__ not in SIGNLESS


def refusal(node: Node) -> str | None:
    """Why `node` cannot be lowered on its own, or None when it can; cached by operator and types."""
    if node.op != "call_function" or node.target is operator.getitem:
        return None
    known = _known_refusal(node)
    if known is not None:
        return known
    key = _key(node)
    if key not in _verdicts:
        _verdicts[key] = _try_alone(node)
    return _verdicts[key]


def unsupported(graph: Graph, nodes: Iterable[Node] | None = None) -> UnsupportedError:
    """An error that lists every node of `graph` (or of `nodes`) that is refused, once per source line."""
    found: dict[tuple[str, str], UnsupportedOperator] = {}
    for node in graph.nodes if nodes is None else nodes:
        reason = refusal(node)
        if reason is not None:
            entry = UnsupportedOperator(operator_name(node), reason, location(node))
            found.setdefault((entry.operator, entry.location), entry)
    return UnsupportedError(list(found.values()))


def operator_name(node: Node) -> str:
    """The operator as users know it, `aten.fft_fft.default`."""
    return str(node.target)


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def location(node: Node) -> str:
    """The innermost source line of the model that led to `node`, as `file:line in function`."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(TORCH_FOLDER)]
    if not (own or frames):
        return "<unknown location>"
    path, line, function = (own or frames)[-1]
    return f"{path}:{line} in {function}"


def _describe(value: Any) -> Any:
    if isinstance(value, Node):
        return _describe(value.meta.get("val"))
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_describe, value))
    if isinstance(value, dict):
        return tuple((key, _describe(inner)) for key, inner in sorted(value.items()))
    return (type(value).__name__, repr(value))


def _layout(value: torch.Tensor) -> Any:
    return (tuple(value.stride()), value.storage_offset())


def _key(node: Node) -> Any:
    key = (str(node.target), _describe(node.args), _describe(node.kwargs))
    if node.target in NEEDS_STORAGE:
        return (*key, *(_layout(source.meta["val"]) for source in node.all_input_nodes))
    return key


def _try_alone(node: Node) -> str | None:
    try:
        # A lowering may add constants, which belong to a module.
        alone = GraphModule(torch.nn.Module(), _graph_of(node))
        _lower(alone.graph, f"the import of {operator_name(node)}")
    except (
        TilewrightError,
        NotImplementedError,
        AssertionError,
        TypeError,
        RuntimeError,
        ValueError,
        KeyError,
    ) as e:
        if any(value.dtype.is_complex for value in _tensors(node)):
            return COMPLEX
        return _reason(str(e)) or type(e).__name__
    return None


def _reason(text: str) -> str:
    """The diagnostic that says most, in one line without IR."""
    if (
        "failed to legalize" in text
        or "'torch.operator'" in text
        or "has not been bound to an MLIR value" in text
    ):
        return "torch-mlir has no lowering of it for these types"
    for line in text.splitlines():
        match = re.search(r"error: [^:]*: ?(.*)|^(?!Failure|in `)(\S.*)", line)
        if match:
            return (match[1] or match[2] or "").strip()[:300]
    return text.strip()[:300]


def _graph_of(node: Node) -> Graph:
    """A graph that computes `node` alone from placeholders."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for source in node.all_input_nodes:
        copy = graph.placeholder(source.name)
        copy.meta["val"] = source.meta["val"]
        copies[source] = copy
    alone = graph.node_copy(node, lambda source: copies[source])
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        parts = []
        for index, part in enumerate(value):
            if isinstance(part, torch.Tensor):
                parts.append(graph.call_function(operator.getitem, (alone, index)))
                parts[-1].meta["val"] = part
        graph.output(tuple(parts))
    else:
        graph.output((alone,))
    return graph


def annotate(
    module: ir.Module,
    arguments: list[tuple[str, str]],
    parameters: Collection[str] = (),
    updates: Mapping[int, int] | None = None,
) -> None:
    """Sets `tilewright.role` and `tilewright.name` on the arguments of `@main`: (role, name) in order.

    Inputs named in `parameters` get `tilewright.parameter` too, and arguments numbered in `updates` the result that is their
    value after a call.
    """
    function = next(op for op in module.body.operations if op.operation.name == "func.func")
    with context():
        entries = []
        for number, (role, name) in enumerate(arguments):
            entry = {"tilewright.role": ir.StringAttr.get(role), "tilewright.name": ir.StringAttr.get(name)}
            if role == "input" and name in parameters:
                entry[PARAMETER] = ir.UnitAttr.get()
            if updates and number in updates:
                entry[UPDATED_BY] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), updates[number])
            entries.append(ir.DictAttr.get(entry))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)


def second_chance(graph: Graph, table: dict[Any, Any]) -> dict[Any, Any]:
    """Decompositions beyond `table` that turn refused nodes of `graph` into ones that can be lowered."""
    known = global_decomposition_table["post_autograd"]
    found = {}
    for node in graph.nodes:
        target = node.target
        if target in known and target not in table and target not in found and refusal(node):
            trial = {**table, target: known[target]}
            if _lowers_decomposed(node, trial):
                found[target] = known[target]
    return found


def _lowers_decomposed(node: Node, table: dict[Any, Any]) -> bool:
    """True when every operator that `node` decomposes into by `table` can be lowered."""
    if is_random(node):
        return False
    sources = list(node.all_input_nodes)

    def alone(*values: Any) -> Any:
        given = dict(zip(sources, values))
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: given[n])
        return node.target(*args, **kwargs)  # type: ignore[operator]

    values = [source.meta["val"] for source in sources]
    mode = next((v.fake_mode for v in values if hasattr(v, "fake_mode")), None)
    with mode or contextlib.nullcontext(), torch.no_grad():
        try:
            traced = make_fx(alone, decomposition_table=table)(*values)
        except Exception:
            return False
    return all(refusal(inner) is None for inner in traced.graph.nodes)
