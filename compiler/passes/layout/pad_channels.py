"""Gives data and weights of contractions on GPUs more channels, of zeros, where the data is then copied in wide accesses.

    %t = linalg.transpose ins(%x) permutation = [0, 2, 3, 1]                          // tensor<1x224x224x3xf16>
    %p = tensor.pad %t low[0, 3, 3, 0] high[0, 3, 3, 0]
    %c = linalg.generic (n, h, w, o, i, j, c) ins(%p, %w : tensor<1x230x230x3xf16>, tensor<7x7x3x64xf16>)
      =>
    %t = linalg.generic (n, h, w, c) outs(tensor<1x224x224x4xf16>) { select(c < 3, %x[n, min(c, 2), h, w], 0) }
    %p = tensor.pad %t low[0, 3, 3, 0] high[0, 3, 3, 0]
    %v = linalg.generic (i, j, c, o) outs(tensor<7x7x4x64xf16>) { select(c < 3, %w[i, j, min(c, 2), o], 0) }
    %c = linalg.generic (n, h, w, o, i, j, c) ins(%p, %v : tensor<1x230x230x4xf16>, tensor<7x7x4x64xf16>)

A pixel of 6 bytes is copied element by element, one of 8 in one piece (PTX ISA, `cp.async`: 4, 8 or 16 bytes). What
brings the data into channels-last order writes the zeros with it; the weights get theirs once, in @prepack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims, row_major, stride_along, terms
from tilewright.compiler.analysis.placement import shape_of
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.dialects.precision import ATTRIBUTE
from tilewright.compiler.ir import arith, functions, ir
from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.passes.graph.generalize_pads import gathered
from tilewright.compiler.passes.graph.join_in_place import padding_value
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise
from tilewright.compiler.rewriting.layout_rules import transposed_by
from tilewright.compiler.targets.file import written
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.gpu.channel_padding import ChanneledGemm, stored_channels

_SUMS = {"arith.extf", "arith.extsi", "arith.mulf", "arith.muli", "arith.addf", "arith.addi", "linalg.yield"}
"""What a body consists of whose sum zeros in both factors do not change."""

_CASTS = {
    "arith.extf",
    "arith.truncf",
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "arith.sitofp",
    "arith.uitofp",
}


@dataclass(frozen=True)
class PadChannels(Pass):
    """Decides by `tuning/channel_padding.py` for `target`: a preset, a .json file or a target as JSON text.

    Left alone: contractions whose data is not contiguous along one summed loop, or whose weights are no weights or
    lie along it too; bodies that do more than multiply and add; data that is padded with something infinite. Targets
    without matrix instructions leave everything alone.
    """

    target: str = "cpu"

    @classmethod
    def for_target(cls, target: Target) -> PadChannels:
        """The pass for a target."""
        return cls(written(target))

    def run(self, op: ir.Operation) -> None:
        target = self.target_named(op, self.target)
        if not target.is_cuda:
            return
        precision = ir.StringAttr(op.attributes[ATTRIBUTE]).value if ATTRIBUTE in op.attributes else "f32"
        for function in functions(op.opview):
            if len(function.regions[0].blocks) != 1:
                continue
            weights = WeightFlow.of(function, argument_roles(function)).values
            for view in list(function.regions[0].blocks[0].operations):
                found = Channeled.read(view.operation)
                if (
                    found is None
                    or found.weight not in weights
                    or found.op.operands[found.position] in weights
                ):
                    continue
                channels = stored_channels(found.product, target, precision)
                if channels > found.product.channels:
                    found.store(channels)


@dataclass(frozen=True)
class Data:
    """What a contraction reads: `value`, its dimensions in `order`, converted by `casts` and padded by `pad`.

    `casts` are generics of one conversion each, in program order. `copied` says that some dispatch moves the data
    before the contraction reads it anyway.
    """

    value: ir.Value
    order: tuple[int, ...]
    casts: tuple[ir.Operation, ...]
    pad: ir.Operation | None
    copied: bool

    @classmethod
    def of(cls, operand: ir.Value) -> Data:
        value, pad, casts = operand, None, list[ir.Operation]()
        owner = _only_for(value)
        if owner is not None and _pads_space(owner):
            value, pad = owner.operands[0], owner
            owner = _only_for(value)
        while owner is not None and _is_cast(owner):
            value, casts = owner.operands[0], [owner, *casts]
            owner = _only_for(value)
        order = None if owner is None else transposed_by(owner)
        if owner is not None and order is not None:
            value = owner.operands[0]
        source = producer(value)
        if order is not None or casts:
            # What computes the source element by element would have done the same on its way.
            copied = source is None or source.name != "linalg.generic"
        else:
            # An argument is copied to where its border is.
            copied = pad is not None and source is None
        return cls(value, order or tuple(range(len(shape_of(value)))), tuple(casts), pad, copied)

    def with_channels(self, channels: int) -> ir.Value:
        """The data with zeros for the channels that it lacks."""
        shape = [*(shape_of(self.value)[dim] for dim in self.order[:-1]), channels]
        element = ir.RankedTensorType(self.value.type).element_type
        stored = gathered(self.value, shape, [0] * len(shape), _zero(element), self.order)
        for cast in self.casts:
            stored = _converted(cast, stored)
        return stored if self.pad is None else _padded(self.pad, stored)


@dataclass(frozen=True)
class Channeled:
    """A contraction that sums over `channels`, its innermost loop along the operand number `position`, its data.

    `at` is the weights' dimension of channels.
    """

    op: ir.Operation
    position: int
    at: int
    data: Data
    product: ChanneledGemm

    @property
    def weight(self) -> ir.Value:
        return self.op.operands[1 - self.position]

    @classmethod
    def read(cls, op: ir.Operation) -> Channeled | None:
        """The contraction that `op` is; None for what is none, or lies otherwise."""
        structured = Structured.read(op)
        if structured is None or not structured.is_contraction or not _only_sums(structured):
            return None
        for position in (0, 1):
            found = cls._read(structured, position)
            if found is not None:
                return found
        return None

    @classmethod
    def _read(cls, structured: Structured, position: int) -> Channeled | None:
        op, data, weight = structured.op, structured.maps[position], structured.maps[1 - position]
        channel, at = _channel(structured, data, weight)
        if channel is None:
            return None
        types = [ir.RankedTensorType(value.type) for value in list(op.operands)[:2]]
        dtype = str(types[0].element_type)
        if dtype not in BITS or types[1].element_type != types[0].element_type:
            return None
        moved, read, written = map_dims(data), map_dims(weight), map_dims(structured.result_map)
        rows, columns, summed = (written & moved) - read, (written & read) - moved, (moved & read) - written
        batch = written & moved & read
        if not rows or not columns or len(rows | columns | summed | batch) != len(structured.extents):
            return None
        shape, extents = shape_of(op.operands[position]), structured.extents
        steps = {loop: stride_along(data, loop, row_major(shape)) // shape[-1] for loop in moved - {channel}}
        strides = row_major(types[1 - position].shape)
        along = {loop: stride_along(weight, loop, strides) for loop in summed}
        rest = [loop for loop in summed if loop != channel]
        row = next((i for i in rest if steps[i] == 1 and along[i] == along[channel] * shape[-1]), None)

        def size(loops) -> int:
            return math.prod(extents[loop] for loop in loops)

        known = Data.of(op.operands[position])
        product = ChanneledGemm(
            size(batch), size(rows), size(columns), size(rest), shape[-1], dtype, math.prod(shape[:-1]),
            1 if row is None else extents[row],
            tuple(sorted(step for loop, step in steps.items() if loop != row and extents[loop] > 1)), known.copied,
        )  # fmt: skip
        return cls(op, position, at, known, product)

    def store(self, channels: int) -> None:
        """Lets the contraction read data and weights of so many channels."""
        op, weight, pad = self.op, self.weight, self.data.pad
        with op.location, ir.InsertionPoint(op):
            data = self.data.with_channels(channels)
            wide = list(shape_of(weight))
            wide[self.at] = channels
            zero = _zero(ir.RankedTensorType(weight.type).element_type)
            op.operands[1 - self.position] = gathered(weight, wide, [0] * len(wide), zero)
        op.operands[self.position] = data
        if pad is not None:
            pad.erase()


def _channel(structured: Structured, data: ir.AffineMap, weight: ir.AffineMap) -> tuple[int | None, int]:
    """The summed loop that the data is contiguous along, and the weights' dimension that it is; None where there is none.

    The weights are contiguous along a loop of the result.
    """
    last = data.results[-1] if len(data.results) else None
    if last is None or not is_dim(last) or structured.kinds[last.position] != "reduction":
        return None, 0
    channel = last.position
    linear = all(_is_linear(expr) for expr in data.results)
    if not linear or any(is_dim(term, channel) for expr in data.results[:-1] for term in terms(expr)):
        return None, 0
    if not all(is_dim(expr) for expr in weight.results):
        return None, 0
    loops = [expr.position for expr in weight.results]
    if loops.count(channel) != 1 or loops[-1] not in map_dims(structured.result_map):
        return None, 0
    return channel, loops.index(channel)


def _is_linear(expr: ir.AffineExpr) -> bool:
    """Whether an index is a sum of loops and of multiples of loops."""
    for term in terms(expr):
        if isinstance(term, ir.AffineMulExpr):
            if not (is_dim(term.lhs) and isinstance(term.rhs, ir.AffineConstantExpr)):
                return False
        elif not is_dim(term):
            return False
    return True


def _only_sums(structured: Structured) -> bool:
    """Whether the body multiplies its two factors, widened at most, and adds the product to the sum."""
    names = [view.operation.name for view in structured.body.operations]
    return set(names) <= _SUMS and sum(name in ("arith.mulf", "arith.muli") for name in names) == 1


def _only_for(value: ir.Value) -> ir.Operation | None:
    """The operation that computes `value` for one reader; None where there are more, and for arguments."""
    return producer(value) if len(list(value.uses)) == 1 else None


def _pads_space(op: ir.Operation) -> bool:
    """Whether `op` pads with a finite constant and leaves the channels as they are."""
    value = padding_value(op) if op.name == "tensor.pad" else None
    if value is None or any(list(op.attributes[f"static_{side}"])[-1] for side in ("low", "high")):
        return False
    constant = value.owner.operation.attributes["value"]
    return not isinstance(constant, ir.FloatAttr) or math.isfinite(ir.FloatAttr(constant).value)


def _is_cast(op: ir.Operation) -> bool:
    """Whether `op` converts every element to another type, in place; zeros stay zeros."""
    structured = Structured.read(op)
    if structured is None or len(structured.maps) != 2 or len(set(structured.maps)) != 1:
        return False
    inner = [view.operation for view in structured.body.operations]
    return (
        structured.maps[0] == ir.AffineMap.get_identity(structured.maps[0].n_dims)
        and [op.name for op in inner[1:]] == ["linalg.yield"]
        and inner[0].name in _CASTS
        and inner[0].operands[0] == structured.body.arguments[0]
    )


def _converted(cast: ir.Operation, source: ir.Value) -> ir.Value:
    inner = next(iter(cast.regions[0].blocks[0].operations)).operation
    rank, element = len(shape_of(source)), ir.RankedTensorType(cast.results[0].type).element_type

    def body(value: ir.Value) -> ir.Value:
        converted = inner.clone().operation
        converted.operands[0] = value
        return converted.results[0]

    type_ = ir.RankedTensorType.get(list(shape_of(source)), element)
    return elementwise(type_, [source], [ir.AffineMap.get_identity(rank)], body).results[0]


def _padded(pad: ir.Operation, source: ir.Value) -> ir.Value:
    """`source` padded as `pad` does; takes its body."""
    shape = list(shape_of(pad.results[0]))
    shape[-1] = shape_of(source)[-1]
    type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(source.type).element_type)
    attributes = {name: pad.attributes[name] for name in pad.attributes}
    new = ir.Operation.create("tensor.pad", [type_], [source], attributes, regions=1, loc=pad.location)
    pad.regions[0].blocks[0].append_to(new.regions[0])
    return new.results[0]


def _zero(element: ir.Type) -> ir.Value:
    return arith.constant(element, 0.0 if isinstance(element, ir.FloatType) else 0)
