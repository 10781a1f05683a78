"""collapse-loops: neighbouring loops of a dispatch that every tensor runs through together become one loop."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import dims
from tilewright.compiler.analysis.placement import OVERWRITES, STRIDES
from tilewright.compiler.ir import func, ir, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import body, indexing_maps, terminator

KINDS = frozenset({"elementwise", "reduction", "matmul"})
"""Values of `tilewright.operator` whose dispatches are collapsed."""


@dataclass(frozen=True)
class CollapseLoops(Pass):
    """Merges adjacent dimensions of the tensors of a dispatch where none of its ops tells them apart.

    Before, a sum over two loops, of which a vectoriser takes one:

        %s = call @reduction(%x) : (tensor<64x56x56xf32>) -> tensor<64xf32>
        func.func private @reduction(%x: tensor<64x56x56xf32>) -> tensor<64xf32> {
          linalg.generic {indexing_maps = [(d0, d1, d2) -> (d0, d1, d2), (d0, d1, d2) -> (d0)]} ...

    After, a sum over one long loop of consecutive elements:

        %c = tensor.collapse_shape %x [[0], [1, 2]]
        %s = call @reduction(%c) : (tensor<64x3136xf32>) -> tensor<64xf32>
        func.func private @reduction(%x: tensor<64x3136xf32>) -> tensor<64xf32> {
          linalg.generic {indexing_maps = [(d0, d1) -> (d0, d1), (d0, d1) -> (d0)]} ...

    Likewise the pixels of a pointwise convolution become the rows of a product, whatever blocks its weight lies in:

        {(n, h, w, f, c) -> (n, h, w, c), (f floordiv 16, c, f mod 16), (n, h, w, f)}
        {(m, f, c) -> (m, c), (f floordiv 16, c, f mod 16), (m, f)}

    Two loops merge when they are of one kind, no `linalg.index` reads them, no place is computed from them, and every
    operand that runs through one runs through both, side by side, in dimensions that all other ops of the dispatch keep
    together too.
    Tensors that other than fills, generics and empties touch stay as they are. Runs on functions with
    `tilewright.operator`, after they are outlined; callers get reshapes, which are views.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        calls: dict[str, list[ir.Operation]] = defaultdict(list)
        for call in walk(op, "func.call"):
            calls[ir.FlatSymbolRefAttr(call.attributes["callee"]).value].append(call)
        for function in walk(op, "func.func"):
            if "tilewright.operator" not in function.attributes:
                continue
            if ir.StringAttr(function.attributes["tilewright.operator"]).value in KINDS:
                seams = together(function)
                if any(seams.values()):
                    _collapse(function, seams, calls[ir.StringAttr(function.attributes["sym_name"]).value])


Seams = dict[ir.Value, set[int]]
"""For each tensor, every k whose dimensions k and k + 1 can be merged."""


def together(function: ir.Operation) -> Seams:
    """The dimensions of the tensors in `function` that all its ops keep together; does not change the IR."""
    block = body(function)
    seams: Seams = {}
    for value in [
        *block.arguments,
        *(result for view in block.operations for result in view.operation.results),
    ]:
        if isinstance(value.type, ir.RankedTensorType):
            seams[value] = set(range(max(0, value.type.rank - 1))) if value.type.has_static_shape else set()
    for value, strides in _strided(function):
        shape = list(value.type.shape)
        seams[value] = {k for k in seams[value] if strides[k] == strides[k + 1] * shape[k + 1]}
    before = None
    while before != (before := sum(map(len, seams.values()))):
        for view in block.operations:
            _restrict(view.operation, seams)
    return seams


def _strided(function: ir.Operation) -> list[tuple[ir.Value, list[int]]]:
    """Arguments and returned values of a dispatch that carry strides, with these."""
    block = body(function)
    found = []
    for name, values in (("arg_attrs", block.arguments), ("res_attrs", terminator(block).operands)):
        if name in function.attributes:
            for value, entry in zip(values, function.attributes[name]):
                if STRIDES in entry:
                    found.append((value, list(ir.DenseI64ArrayAttr(entry[STRIDES]))))
    return found


def _restrict(op: ir.Operation, seams: Seams) -> None:
    """Takes from `seams` what `op` cannot merge."""
    if op.name in ("tensor.empty", "func.return"):
        return
    outs = [value for value in op.operands if value in seams][-len(op.results) :] if len(op.results) else []
    if op.name == "linalg.generic":
        pairs = loop_pairs(op, seams)
        for value, map_ in zip(op.operands, indexing_maps(op)):
            if value in seams:
                seams[value] &= {k for k in range(len(map_.results) - 1) if _pair_at(map_, k) in pairs}
        captured = (value for inner in walk(op) if inner != op for value in inner.operands)
    elif op.name == "linalg.fill":
        captured = iter(())
    else:
        captured, outs = (value for inner in walk(op) for value in (*inner.operands, *inner.results)), []
    for value in captured:
        if value in seams:
            seams[value] = set()
    for out, result in zip(outs, op.results):
        seams[out] = seams[result] = seams[out] & seams[result]


def loop_pairs(generic: ir.Operation, seams: Seams) -> set[int]:
    """Every loop i that can be merged with loop i + 1."""
    maps = indexing_maps(generic)
    kinds = [str(kind) for kind in generic.attributes["iterator_types"]]
    indexed = {
        ir.IntegerAttr(inner.attributes["dim"]).value
        for inner in walk(generic)
        if inner.name == "linalg.index"
    }
    pairs = {i for i in range(len(kinds) - 1) if kinds[i] == kinds[i + 1] and not {i, i + 1} & indexed}
    for value, map_ in zip(generic.operands, maps):
        loops = [_loop(expr) for expr in map_.results]
        computed = {d for expr, loop in zip(map_.results, loops) if loop is None for d in dims(expr)}
        pairs = {i for i in pairs if not {i, i + 1} & computed}
        allowed = seams.get(value, set())
        for i in list(pairs):
            if (loops.count(i), loops.count(i + 1)) == (0, 0):
                continue
            if (
                (loops.count(i), loops.count(i + 1)) != (1, 1)
                or loops.index(i + 1) != loops.index(i) + 1
                or loops.index(i) not in allowed
            ):
                pairs.discard(i)
    return pairs


def _loop(expr: ir.AffineExpr) -> int | None:
    return expr.position if isinstance(expr, ir.AffineDimExpr) else None


def _pair_at(map_: ir.AffineMap, k: int) -> int | None:
    """The loop i when results k and k + 1 of a map are loops i and i + 1."""
    first, second = _loop(map_.results[k]), _loop(map_.results[k + 1])
    return first if first is not None and second == first + 1 else None


def groups(rank: int, merged: set[int]) -> list[list[int]]:
    """The dimensions 0..rank-1 in runs joined at the seams: (4, {1}) gives [[0], [1, 2], [3]]."""
    runs: list[list[int]] = []
    for dim in range(rank):
        if runs and dim - 1 in merged:
            runs[-1].append(dim)
        else:
            runs.append([dim])
    return runs


def _collapsed_type(type_: ir.RankedTensorType, merged: set[int]) -> ir.RankedTensorType:
    shape = [math.prod(type_.shape[dim] for dim in run) for run in groups(type_.rank, merged)]
    return ir.RankedTensorType.get(shape, type_.element_type, type_.encoding)


def _collapse(function: ir.Operation, seams: Seams, calls: list[ir.Operation]) -> None:
    block = body(function)
    arguments = [seams.get(value, set()) for value in block.arguments]
    results = [seams.get(value, set()) for value in terminator(block).operands]
    for view in block.operations:
        if view.operation.name == "linalg.generic" and (pairs := loop_pairs(view.operation, seams)):
            _merge_loops(view.operation, pairs)
    for value, merged in seams.items():
        if merged:
            value.set_type(_collapsed_type(value.type, merged))
    inputs = [value.type for value in block.arguments]
    outputs = [value.type for value in terminator(block).operands]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs))
    for name, several in (("arg_attrs", arguments), ("res_attrs", results)):
        if name in function.attributes:
            function.attributes[name] = ir.ArrayAttr.get(
                [_collapsed_strides(entry, seams) for entry, seams in zip(function.attributes[name], several)]
            )
    for call in calls:
        _rewrite_call(call, arguments, results, outputs)


def _collapsed_strides(entry: ir.DictAttr, merged: set[int]) -> ir.DictAttr:
    """The attributes of an argument or result whose dimensions at the seams `merged` have become one."""
    fields = {named.name: named.attr for named in ir.DictAttr(entry)}
    if STRIDES in fields:
        strides = list(ir.DenseI64ArrayAttr(fields[STRIDES]))
        runs = groups(len(strides), merged)
        fields[STRIDES] = ir.DenseI64ArrayAttr.get([strides[run[-1]] for run in runs])
    return ir.DictAttr.get(fields)


def _merge_loops(generic: ir.Operation, pairs: set[int]) -> None:
    kinds = list(generic.attributes["iterator_types"])
    runs = groups(len(kinds), pairs)
    loop_of = {loop: number for number, run in enumerate(runs) for loop in run}
    renamed = ir.AffineMap.get(
        len(runs), 0, [ir.AffineDimExpr.get(loop_of[loop]) for loop in range(len(kinds))]
    )
    maps = []
    for map_ in indexing_maps(generic):
        exprs = [expr.compose(renamed) for expr in map_.results if not _continues(expr, pairs)]
        maps.append(ir.AffineMapAttr.get(ir.AffineMap.get(len(runs), 0, exprs)))
    generic.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
    generic.attributes["iterator_types"] = ir.ArrayAttr.get([kinds[run[0]] for run in runs])
    for inner in walk(generic):
        if inner.name == "linalg.index":
            dim = loop_of[ir.IntegerAttr(inner.attributes["dim"]).value]
            inner.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)


def _continues(expr: ir.AffineExpr, pairs: set[int]) -> bool:
    """Whether an operand's dimension follows a loop that has become part of the one before it."""
    loop = _loop(expr)
    return loop is not None and loop - 1 in pairs


def _rewrite_call(
    call: ir.Operation, arguments: list[set[int]], results: list[set[int]], types: list
) -> None:
    """Collapses what a call gives and expands what it gets back."""
    with call.location, ir.InsertionPoint(call):
        operands = []
        for value, merged in zip(call.operands, arguments):
            if merged:
                runs = groups(value.type.rank, merged)
                value = tensor.collapse_shape(_collapsed_type(value.type, merged), value, runs)
            operands.append(value)
        callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        collapsed = func.CallOp(types, callee, operands)
        if OVERWRITES in call.attributes:
            collapsed.operation.attributes[OVERWRITES] = call.attributes[OVERWRITES]
        for old, new, merged in zip(call.results, collapsed.results, results):
            if merged:
                shape = list(old.type.shape)
                runs = groups(old.type.rank, merged)
                new = tensor.expand_shape(old.type, new, runs, output_shape=[], static_output_shape=shape)
            old.replace_all_uses_with(new)
    call.erase()
