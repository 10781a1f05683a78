"""fold-batch-norm: per-channel scales and shifts behind a convolution move into its weights and one bias."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tilewright.compiler.analysis.structure import starts_from_zero
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.ir import arith, ir, static_shape, tensor, walk
from tilewright.compiler.passes.graph.separate_bias import is_contraction
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import (
    body,
    drop_operands,
    elementwise,
    indexing_maps,
    input_count,
    is_read,
    terminator,
)


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Rewrites `(conv(x, w) + b - mean) * s + t`, all but x weights, to `conv(x, w * s) + (b - mean) * s + t`.

    Before, with `%mean`, `%s`, `%t` of one element per output channel:

        %c = linalg.conv_2d_nchw_fchw ins(%x, %w) outs(%zero)
        %d = linalg.generic ins(%c, %mean) { subf }
        %e = linalg.generic ins(%d, %s) { mulf }
        %f = linalg.generic ins(%e, %t) { addf }

    After, where `%v` and `%u` depend on weights only, so that `hoist-weights` computes them at load:

        %v = linalg.generic ins(%w, %s) { mulf }
        %u = ... (0 - %mean) * %s + %t, one element per channel
        %c = linalg.conv_2d_nchw_fchw ins(%x, %v) outs(%zero)
        %f = linalg.generic ins(%c, %u) { addf }

    Holds for every contraction and convolution, named or generic, whose filter is computed from weights: grouped
    ones with the collapse of their channels, depthwise ones, matmuls. The chain ends at the first op that is not
    affine in the convolution's element with per-channel weights, or whose operand has another reader. A chain
    without a scale by a tensor is left alone. Equal up to the rounding of one product per weight. Runs after
    `separate-bias`.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for function in walk(op, "func.func"):
            if len(function.regions[0].blocks) != 1:
                continue
            operations = [view.operation for view in body(function).operations]
            candidates = [op for op in operations if is_contraction(op) and _may_be_scaled(op)]
            if not candidates:
                continue
            flow = WeightFlow.of(function, argument_roles(function))
            for contraction in candidates:
                chain = match(contraction, flow.values)
                if chain is not None:
                    _rewrite(chain)


def _may_be_scaled(contraction: ir.Operation) -> bool:
    """Whether a product or quotient follows, one reader after the other: only then weights are worth tracing."""
    value = contraction.results[0] if len(contraction.results) == 1 else None
    while value is not None:
        uses = list(value.uses)
        if len(uses) != 1:
            return False
        op = uses[0].owner.operation
        if op.name == "linalg.generic":
            if any(view.operation.name in ("arith.mulf", "arith.divf") for view in body(op).operations):
                return True
        elif op.name != "tensor.collapse_shape":
            return False
        value = op.results[0] if len(op.results) == 1 else None
    return False


@dataclass
class Chain:
    """A contraction whose filter is operand `filter`, and the ops behind it that are affine per channel.

    `channels` are the dimensions of the contraction's result that index the filter too; each step says which
    dimensions of its own result they are.
    """

    contraction: ir.Operation
    filter: int
    channels: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)


@dataclass
class Step:
    """One op of a chain; `operand` is the number of the operand that continues it."""

    op: ir.Operation
    operand: int
    channels: tuple[int, ...]


def match(contraction: ir.Operation, weight_values: set[ir.Value]) -> Chain | None:
    """The chain behind `contraction` that is worth folding, None if there is none; does not change the IR."""
    type_ = ir.RankedTensorType(contraction.results[0].type)
    if not isinstance(type_.element_type, ir.FloatType) or len(contraction.operands) != 3:
        return None
    filters = [i for i in (0, 1) if contraction.operands[i] in weight_values]
    if len(filters) != 1 or not starts_from_zero(contraction):
        return None
    filter_type = ir.RankedTensorType(contraction.operands[filters[0]].type)
    if filter_type.element_type != type_.element_type or not filter_type.has_static_shape:
        return None
    maps = indexing_maps(contraction)
    in_filter = {_loop(expr) for expr in maps[filters[0]].results}
    channels = tuple(
        i for i, expr in enumerate(maps[2].results) if _loop(expr) is not None and _loop(expr) in in_filter
    )
    chain = Chain(contraction, filters[0], channels)
    value, scaled, length = contraction.results[0], False, 0
    while (step := _next_step(value, channels, weight_values)) is not None:
        chain.steps.append(step)
        if step.op.name == "linalg.generic":
            scaled = scaled or _scales(step)
            length = len(chain.steps)
        value, channels = step.op.results[0], step.channels
    del chain.steps[length:]
    return chain if scaled and chain.channels else None


def _loop(expr: ir.AffineExpr) -> int | None:
    return expr.position if isinstance(expr, ir.AffineDimExpr) else None


def _next_step(value: ir.Value, channels: tuple[int, ...], weight_values: set[ir.Value]) -> Step | None:
    """The op behind `value` if it is its only reader and can be folded."""
    uses = list(value.uses)
    if len(uses) != 1:
        return None
    op, operand = uses[0].owner.operation, uses[0].operand_number
    if op.name == "tensor.collapse_shape":
        collapsed = _collapsed_channels(op, channels)
        return None if collapsed is None else Step(op, operand, collapsed)
    if op.name == "linalg.generic" and _is_affine(op, operand, channels, weight_values):
        return Step(op, operand, channels)
    return None


def _groups(collapse: ir.Operation) -> list[list[int]]:
    return [[ir.IntegerAttr(i).value for i in group] for group in collapse.attributes["reassociation"]]


def _collapsed_channels(collapse: ir.Operation, channels: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where the channels are after a collapse; None when it merges a channel with another dimension."""
    collapsed = []
    for number, group in enumerate(_groups(collapse)):
        inside = [dim for dim in group if dim in channels]
        if inside and inside != group:
            return None
        if inside:
            collapsed.append(number)
    return tuple(collapsed)


def _is_affine(
    op: ir.Operation, operand: int, channels: tuple[int, ...], weight_values: set[ir.Value]
) -> bool:
    """Whether a generic is `a * x + b` in operand number `operand`, with a and b from weights per channel."""
    maps = indexing_maps(op)
    identity = ir.AffineMap.get_identity(maps[-1].n_dims)
    if len(op.results) != 1 or maps[operand] != identity or maps[-1] != identity:
        return False
    if "reduction" in str(op.attributes["iterator_types"]) or operand >= input_count(op):
        return False
    if op.results[0].type != op.operands[operand].type or is_read(body(op).arguments[len(maps) - 1]):
        return False
    for number in range(input_count(op)):
        if number == operand:
            continue
        per_channel = _in_channels(maps[number], op.operands[number].type, channels)
        if per_channel is None or op.operands[number] not in weight_values:
            return False
    return _shape_of_body(op, operand) is not None


def _in_channels(map_: ir.AffineMap, type_: ir.Type, channels: tuple[int, ...]) -> ir.AffineMap | None:
    """How a step reads an operand of `type_`, as a map of the channels alone; None when it reads more than those."""
    exprs = []
    extents = ir.RankedTensorType(type_).shape if isinstance(type_, ir.RankedTensorType) else []
    for expr, extent in zip(map_.results, extents):
        loop = _loop(expr)
        if extent == 1:
            exprs.append(ir.AffineConstantExpr.get(0))
        elif loop in channels:
            exprs.append(ir.AffineDimExpr.get(channels.index(loop)))
        else:
            return None
    return ir.AffineMap.get(len(channels), 0, exprs)


@dataclass(frozen=True)
class _Affine:
    """`scale * x + shift`; None is a scale of 1 or a shift of 0."""

    scale: ir.Value | None
    shift: ir.Value | None


def _shape_of_body(op: ir.Operation, operand: int) -> str | None:
    """What a body does to its element number `operand`: `shift`, `scale` (by a tensor's element), or None."""
    block = body(op)
    argument = block.arguments[operand]
    from_tensor = {block.arguments[i] for i in range(input_count(op)) if i != operand}
    dependent, scaled = {argument}, False
    for view in block.operations:
        inner = view.operation
        if inner == terminator(block):
            continue
        hits = [value in dependent for value in inner.operands]
        if (
            len(inner.regions)
            or len(inner.results) != 1
            or inner.name.partition(".")[0] not in ("arith", "math")
        ):
            return None
        if not any(hits):
            if any(value in from_tensor for value in inner.operands):
                from_tensor.add(inner.results[0])
            continue
        if inner.name == "arith.negf" or (inner.name in ("arith.addf", "arith.subf") and sum(hits) == 1):
            pass
        elif (inner.name == "arith.mulf" and sum(hits) == 1) or (
            inner.name == "arith.divf" and hits == [True, False]
        ):
            scaled = scaled or inner.operands[hits.index(False)] in from_tensor
        else:
            return None
        dependent.add(inner.results[0])
    if terminator(block).operands[0] not in dependent:
        return None
    return "scale" if scaled else "shift"


def _scales(step: Step) -> bool:
    return _shape_of_body(step.op, step.operand) == "scale"


def _rewrite(chain: Chain) -> None:
    last = chain.steps[-1].op
    contraction = chain.contraction
    type_ = ir.RankedTensorType(contraction.results[0].type)
    space = ir.RankedTensorType.get([type_.shape[dim] for dim in chain.channels], type_.element_type)
    with last.location, ir.InsertionPoint(last):
        scale: ir.Value | None = None
        shift: ir.Value | None = None
        collapses: list[tuple[ir.Operation, ir.RankedTensorType]] = []
        channels = chain.channels
        for step in chain.steps:
            if step.op.name == "tensor.collapse_shape":
                collapses.append((step.op, space))
                groups = _channel_groups(step.op, channels)
                space = ir.RankedTensorType.get(
                    [_product(space.shape[i] for i in group) for group in groups], space.element_type
                )
                scale, shift = (_collapse(value, space, groups) for value in (scale, shift))
                channels = step.channels
            else:
                scale, shift = (_component(step, space, scale, shift, part) for part in ("scale", "shift"))
        assert scale is not None
        scale = _expand_back(scale, chain, collapses)
        scaled = _scale_filter(chain, scale)
        moved = contraction.clone(ip=ir.InsertionPoint(last)).operation
        moved.operands[chain.filter] = scaled
        result = moved.results[0]
        for collapse, _ in collapses:
            clone = collapse.clone(ip=ir.InsertionPoint(last)).operation
            clone.operands[0] = result
            result = clone.results[0]
        if shift is not None:
            result = _add_shift(result, shift, channels)
    last.results[0].replace_all_uses_with(result)
    for step in reversed(chain.steps):
        step.op.erase()
    contraction.erase()


def _product(extents) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


def _channel_groups(collapse: ir.Operation, channels: tuple[int, ...]) -> list[list[int]]:
    """The groups of a collapse that hold channels, as numbers of channels."""
    return [[channels.index(dim) for dim in group] for group in _groups(collapse) if group[0] in channels]


def _collapse(value: ir.Value | None, space: ir.RankedTensorType, groups: list[list[int]]) -> ir.Value | None:
    if value is None or value.type == space:
        return value
    return tensor.collapse_shape(space, value, groups)


def _expand_back(
    scale: ir.Value, chain: Chain, collapses: list[tuple[ir.Operation, ir.RankedTensorType]]
) -> ir.Value:
    """The scale in the shape of the contraction's own channels, which a collapse behind it may have merged."""
    channels = [chain.channels]
    for step in chain.steps:
        if step.op.name == "tensor.collapse_shape":
            channels.append(step.channels)
    for number in reversed(range(len(collapses))):
        collapse, space = collapses[number]
        if scale.type != space:
            groups = _channel_groups(collapse, channels[number])
            scale = tensor.expand_shape(
                space, scale, groups, output_shape=[], static_output_shape=static_shape(space)
            )
    return scale


def _component(
    step: Step, space: ir.RankedTensorType, scale: ir.Value | None, shift: ir.Value | None, part: str
) -> ir.Value | None:
    """The scale or shift behind a generic, one element per channel, from those before it."""
    op, source = step.op, body(step.op)
    others = [i for i in range(input_count(op)) if i != step.operand]
    identity = ir.AffineMap.get_identity(space.rank)
    before = [value for value in (scale, shift) if value is not None]
    maps = [identity] * len(before)
    maps += [_in_channels(indexing_maps(op)[i], op.operands[i].type, step.channels) for i in others]
    missing = False

    def emit(*elements: ir.Value) -> ir.Value:
        nonlocal missing
        given = iter(elements)
        start = _Affine(
            next(given) if scale is not None else None, next(given) if shift is not None else None
        )
        values = {source.arguments[i]: element for i, element in zip(others, given)}
        result = _run_body(source, source.arguments[step.operand], start, values)
        chosen = result.scale if part == "scale" else result.shift
        missing = chosen is None
        return arith.constant(space.element_type, 0.0) if chosen is None else chosen

    inputs = [*before, *(op.operands[i] for i in others)]
    generic = elementwise(space, inputs, maps, emit)
    if missing:
        generic.erase()
        return None
    block = body(generic)
    for view in reversed(list(block.operations)[:-1]):
        if not is_read(view.operation.results[0]):
            view.operation.erase()
    return drop_operands(generic, [True]).results[0]


def _run_body(
    block: ir.Block, argument: ir.Value, start: _Affine, values: dict[ir.Value, ir.Value]
) -> _Affine:
    """Carries `start` through a body that `_shape_of_body` took, emitting ops for its scale and shift."""
    affine = {argument: start}
    for view in block.operations:
        op = view.operation
        if op == terminator(block):
            break
        hits = [value in affine for value in op.operands]
        if not any(hits):
            clone = op.clone().operation
            for number, value in enumerate(op.operands):
                clone.operands[number] = values.get(value, value)
            values[op.results[0]] = clone.results[0]
            continue
        before = affine[op.operands[hits.index(True)]]
        other = None
        if False in hits:
            other = op.operands[hits.index(False)]
            other = values.get(other, other)
        affine[op.results[0]] = _apply(op.name, before, other, hits[0], op.results[0].type)
    return affine[terminator(block).operands[0]]


def _apply(name: str, x: _Affine, c: ir.Value | None, x_first: bool, type_: ir.Type) -> _Affine:
    """`x op c`, or `c op x` when x is not first; `-x` where there is no c."""
    negated = name == "arith.negf" or (name == "arith.subf" and not x_first)
    if negated:
        scale = arith.constant(type_, -1.0) if x.scale is None else arith.negf(x.scale)
        shift = x.shift if x.shift is None else arith.negf(x.shift)
        x = _Affine(scale, shift)
    if c is None:
        return x
    if name == "arith.subf" and x_first:
        return _Affine(x.scale, arith.negf(c) if x.shift is None else arith.subf(x.shift, c))
    if name in ("arith.addf", "arith.subf"):
        return _Affine(x.scale, c if x.shift is None else arith.addf(x.shift, c))
    if name == "arith.mulf":
        scale = c if x.scale is None else arith.mulf(x.scale, c)
        return _Affine(scale, None if x.shift is None else arith.mulf(x.shift, c))
    scale = arith.divf(arith.constant(type_, 1.0) if x.scale is None else x.scale, c)
    return _Affine(scale, None if x.shift is None else arith.divf(x.shift, c))


def _scale_filter(chain: Chain, scale: ir.Value) -> ir.Value:
    """The filter times the scale of the output channel that each of its elements serves."""
    weights = chain.contraction.operands[chain.filter]
    maps = indexing_maps(chain.contraction)
    of_loop = {_loop(expr): position for position, expr in enumerate(maps[chain.filter].results)}
    positions = [of_loop[_loop(maps[2].results[dim])] for dim in chain.channels]
    type_ = ir.RankedTensorType(weights.type)
    per_channel = ir.AffineMap.get(type_.rank, 0, [ir.AffineDimExpr.get(position) for position in positions])
    return elementwise(
        type_, [weights, scale], [ir.AffineMap.get_identity(type_.rank), per_channel], arith.mulf
    ).results[0]


def _add_shift(value: ir.Value, shift: ir.Value, channels: tuple[int, ...]) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    per_channel = ir.AffineMap.get(type_.rank, 0, [ir.AffineDimExpr.get(dim) for dim in channels])
    return elementwise(
        type_, [value, shift], [ir.AffineMap.get_identity(type_.rank), per_channel], arith.addf
    ).results[0]
