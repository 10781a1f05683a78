"""Computes the contractions of an f32 model from bf16 operands, where the module asks for `tilewright.precision = "bf16"`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.dialects.precision import ATTRIBUTE
from tilewright.compiler.ir import arith, functions, ir, linalg, tensor
from tilewright.compiler.passes.graph.separate_bias import is_contraction
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import (
    body,
    elementwise,
    indexing_maps,
    input_count,
    is_copy,
    terminator,
)

_VIEWS = frozenset({"tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.cast"})


@dataclass(frozen=True)
class LowerPrecision(Pass):
    """Rounds the operands of f32 contractions with weights to bf16, and what passes between them as well.

    Before:

        %c = linalg.conv_2d_nchw_fchw ins(%x, %w : f32, f32) outs(%zero : f32)
        %r = linalg.generic ins(%c, %bias) { addf, maximumf }                  // f32
        %p = tensor.pad %r
        %d = linalg.conv_2d_nchw_fchw ins(%p, %v) outs(%zero)
        %s = linalg.generic ins(%d, %r) { addf }

    After, where `%w1` and `%v1` are rounded weights, which `hoist-weights` computes at load:

        %c = linalg.conv_2d_nchw_fchw ins(%x1, %w1 : bf16, bf16) outs(%zero : f32)
        %r = linalg.generic ins(%c, %bias) { addf, maximumf }                  // f32
        %r1 = linalg.generic ins(%r) { truncf }                                // bf16, joins the epilogue of %c
        %p = tensor.pad %r1
        %d = linalg.conv_2d_nchw_fchw ins(%p, %v1) outs(%zero)
        %s = linalg.generic ins(%d, %r1) { extf, addf }

    Sums are f32, and so is every operation between contractions. A value that a contraction reads is stored rounded,
    for its other readers too, so that it is stored once and takes half the memory. Arguments, results of the function,
    what depends on weights alone and what comes out of a normalisation keep their f32 for others: the residual
    stream of a transformer, rounded at every layer, would double the error. Moves of elements (pads, reshapes, slices,
    transposes) carry bf16. Contractions of two activations stay f32, and so do depthwise convolutions, which have
    no reduction to pair up, and everything in a module that does not ask. Inputs marked `tilewright.parameter` are
    weights here that are rounded at every call: in training, and where one graph runs in many shapes.

    Source: Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", 2019, §3, for what rounding to
    bf16 with sums in f32 does to networks.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        if ATTRIBUTE not in op.attributes:
            return
        precision = ir.StringAttr(op.attributes[ATTRIBUTE]).value
        if (
            precision == "tf32"
        ):  # operands stay f32: `construct-schedules` chooses instructions that round them
            return
        if precision != "bf16":
            raise self.refusal(op, f'`{ATTRIBUTE}` is "{precision}"; it can be "bf16" or "tf32"')
        for function in functions(op.opview):
            if len(function.regions[0].blocks) == 1:
                _Lowering(function).run()


def ask_precision(module: ir.Module, precision: str) -> None:
    """Writes down what `precision` the module is to be compiled in; f32 is what it says already."""
    if precision != "f32":
        with module.context:
            module.operation.attributes[ATTRIBUTE] = ir.StringAttr.get(precision)


class _Lowering:
    """One function: which values are stored rounded, each once."""

    def __init__(self, function: ir.Operation):
        self.block = function.regions[0].blocks[0]
        self.static = WeightFlow.of(function, argument_roles(function, parameters="weight")).values
        self.rounded: dict[ir.Value, ir.Value] = {}
        self.bf16 = ir.BF16Type.get()

    def run(self) -> None:
        operations = [view.operation for view in self.block.operations]
        kept = {*self.static, *self.block.arguments, *_normalised(operations)}
        for op in operations:
            if self.is_taken(op):
                self.lower(op)
        for value, rounded in list(self.rounded.items()):
            if value not in kept:
                self.share(value, rounded)

    def is_taken(self, op: ir.Operation) -> bool:
        """Whether `op` sums f32 products over pairs of elements, one operand of which depends on weights alone."""
        if not is_contraction(op) or op.name.startswith("linalg.depthwise") or len(op.operands) != 3:
            return False
        if not all(_is_f32(operand.type) for operand in op.operands):
            return False
        if sum(operand in self.static for operand in list(op.operands)[:2]) != 1:
            return False
        if op.name != "linalg.generic":
            return True
        names = [inner.operation.name for inner in body(op).operations]
        return names == ["arith.mulf", "arith.addf", "linalg.yield"]

    def lower(self, op: ir.Operation) -> None:
        left, right = (self.round(value) for value in list(op.operands)[:2])
        with op.location, ir.InsertionPoint(op):
            attributes = {name: op.attributes[name] for name in op.attributes}
            lowered = ir.Operation.create(
                op.name,
                results=[op.results[0].type],
                operands=[left, right, op.operands[2]],
                attributes=attributes,
                regions=1,
            )
            if op.name == "linalg.generic":
                _widened_product(lowered, op.results[0].type.element_type)
            else:
                linalg.fill_builtin_region(lowered)
        op.results[0].replace_all_uses_with(lowered.results[0])
        op.erase()

    def round(self, value: ir.Value) -> ir.Value:
        """`value` as bf16: its sources where it only moves elements, else rounded behind what computes it."""
        if value not in self.rounded:
            owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
            moved = self.moved(owner) if owner is not None else None
            self.rounded[value] = moved if moved is not None else self.rounding(value)
        return self.rounded[value]

    def rounding(self, value: ir.Value) -> ir.Value:
        after = (
            ir.InsertionPoint.at_block_begin(self.block)
            if isinstance(value.owner, ir.Block)
            else ir.InsertionPoint.after(value.owner)
        )
        location = self.block.owner.location if isinstance(value.owner, ir.Block) else value.owner.location
        with location, after:
            return _cast(value, self.bf16, arith.truncf)

    def moved(self, op: ir.Operation) -> ir.Value | None:
        """The bf16 result of an operation that only moves elements, of a rounded source; None for any other."""
        if op.name == "tensor.pad":
            padding = terminator(body(op)).operands[0]
            if isinstance(padding.owner, ir.Block) or padding.owner.name != "arith.constant":
                return None
            return self.padded(op, ir.FloatAttr(padding.owner.attributes["value"]).value)
        if op.name in _VIEWS:
            operands = [self.round(op.operands[0]), *list(op.operands)[1:]]
        elif is_copy(op):
            with op.location, ir.InsertionPoint(op):
                type_ = _as(op.results[0].type, self.bf16)
                source, maps = self.round(op.operands[0]), indexing_maps(op)
                return elementwise(type_, [source], [maps[0]], lambda x: x).results[0]
        else:
            return None
        with op.location, ir.InsertionPoint(op):
            clone = ir.Operation.create(
                op.name,
                results=[_as(op.results[0].type, self.bf16)],
                operands=operands,
                attributes={name: op.attributes[name] for name in op.attributes},
            )
        return clone.results[0]

    def padded(self, op: ir.Operation, padding: float) -> ir.Value:
        operands = [self.round(op.operands[0]), *list(op.operands)[1:]]
        type_ = _as(op.results[0].type, self.bf16)
        with op.location, ir.InsertionPoint(op):
            zero = arith.constant(self.bf16, ir.FloatAttr.get(self.bf16, padding))
            clone = ir.Operation.create(
                op.name,
                results=[type_],
                operands=operands,
                attributes={name: op.attributes[name] for name in op.attributes},
                regions=1,
            )
            index = ir.IndexType.get()
            block = ir.Block.create_at_start(
                clone.regions[0], [index] * type_.rank, [op.location] * type_.rank
            )
            with ir.InsertionPoint(block):
                tensor.yield_(zero)
        return clone.results[0]

    def share(self, value: ir.Value, rounded: ir.Value) -> None:
        """Lets the linalg operations that read `value` read `rounded`, unless the function returns `value` anyway."""
        users = [use.owner.operation for use in value.uses]
        if any(user.name == "func.return" for user in users):
            return
        readers = [
            user
            for user in users
            if user.name == "linalg.generic"
            and not any(result == rounded for result in user.results)
            and value in list(user.operands)[: input_count(user)]
        ]
        for user in dict.fromkeys(readers):
            with user.location, ir.InsertionPoint(user):
                wide = _cast(rounded, ir.F32Type.get(), arith.extf)
            for number in range(input_count(user)):
                if user.operands[number] == value:
                    user.operands[number] = wide


def _normalised(operations: list[ir.Operation]) -> set[ir.Value]:
    """What comes out of sums that are no contractions, through operations that go element by element."""
    found: set[ir.Value] = set()
    for op in operations:
        sums = op.name == "linalg.generic" and any(
            inner.operation.name == "arith.addf" for inner in body(op).operations
        )
        if op.name == "linalg.generic" and "reduction" in str(op.attributes["iterator_types"]):
            if sums and not is_contraction(op):
                found.update(op.results)
        elif op.name in ("linalg.generic", *_VIEWS) and any(value in found for value in op.operands):
            found.update(op.results)
    return found


def _is_f32(type_: ir.Type) -> bool:
    return isinstance(type_, ir.RankedTensorType) and isinstance(type_.element_type, ir.F32Type)


def _as(type_: ir.Type, element: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(ir.RankedTensorType(type_).shape, element)


def _cast(value: ir.Value, element: ir.Type, cast: Callable[..., ir.Value]) -> ir.Value:
    """`value` with its elements cast, as an elementwise generic."""
    type_ = _as(value.type, element)
    identity = ir.AffineMap.get_identity(type_.rank)
    return elementwise(type_, [value], [identity], lambda x: cast(element, x)).results[0]


def _widened_product(generic: ir.Operation, sum_: ir.Type) -> None:
    """Gives a generic of two bf16 operands the body that adds their product in f32."""
    elements = [ir.RankedTensorType(operand.type).element_type for operand in generic.operands]
    block = ir.Block.create_at_start(generic.regions[0], elements, [generic.location] * 3)
    with ir.InsertionPoint(block):
        left, right = (arith.extf(sum_, argument) for argument in list(block.arguments)[:2])
        linalg.YieldOp([arith.addf(block.arguments[2], arith.mulf(left, right))])
