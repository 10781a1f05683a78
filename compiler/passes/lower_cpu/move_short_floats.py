"""move-short-floats: bf16 is read, written, chosen and rounded as the integers that it is, never as a float of LLVM's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass

_UNORDERED = 14
"""LLVM's `fcmp uno`: true for NaN."""


_ARITHMETIC = ("fadd", "fsub", "fmul", "fdiv", "frem", "fcmp", "sitofp", "uitofp", "fptosi", "fptoui")
_CHOICES = (
    "fneg",
    "intr.fabs",
    "intr.copysign",
    "intr.maximum",
    "intr.minimum",
    "intr.maxnum",
    "intr.minnum",
)
"""What has one of its operands for its result, or that of the other sign: nothing is left to round."""
_MOVES = re.compile(r"intr\.(masked|vector\.(?!reduce)|experimental)")


@dataclass(frozen=True)
class MoveShortFloats(Pass):
    """Rewrites what LLVM's dialect does to bf16 numbers and vectors of them; f32 does the arithmetic.

    Before: %b = llvm.load %p : !llvm.ptr -> bf16 ; %s = llvm.fadd %b, %b : bf16
            %c = llvm.select %any, %b, %s : i1, bf16
    After:  %i = llvm.load %p : !llvm.ptr -> i16 ; %f = (%i << 16) as f32 ; %s = llvm.fadd %f, %f : f32
            %j = %s rounded to the nearest, ties to even, in integers
            %c = (llvm.select %any, %i, %j : i1, i16) as bf16

    Left alone, LLVM computes and chooses between bf16 numbers in f32 and rounds by an instruction of AVX512-BF16
    that takes denormals for zero, and ends the process on shuffles of bf16 that its vectoriser makes of reads and
    writes with a stride. Instructions for dot products, named by kernels, stay.
    """

    def run(self, op: ir.Operation) -> None:
        moves = {"llvm.load": _load, "llvm.store": _store, "llvm.select": _select}
        types = _Shortness()
        for inner in walk(op):
            if not any(types[value.type] for value in (*inner.operands, *inner.results)):
                continue
            kind = inner.name.removeprefix("llvm.")
            with ir.InsertionPoint(inner), inner.location:
                if inner.name in moves:
                    moves[inner.name](inner)
                elif kind == "fpext":
                    _replace(inner, _converted(_extended(inner.operands[0]), inner.results[0].type))
                elif kind == "fptrunc":
                    value = inner.operands[0]
                    _replace(inner, _rounded(_converted(value, _like(value.type, ir.F32Type.get()))))
                elif kind in _CHOICES:
                    _compute(inner, _cut)
                elif kind in _ARITHMETIC or (kind.startswith("intr.") and not _MOVES.match(kind)):
                    _compute(inner, _rounded)


class _Shortness(dict[ir.Type, bool]):
    """Whether types are bf16 or vectors of it; a kernel has thousands of values of a few types."""

    def __missing__(self, type: ir.Type) -> bool:
        found = self[type] = _is_short(type)
        return found


def _load(op: ir.Operation) -> None:
    short = op.results[0].type
    wide = ir.Operation.create("llvm.load", [_integer(16, short)], list(op.operands), _attributes(op))
    _replace(op, _cast(wide.results[0], short))


def _store(op: ir.Operation) -> None:
    value, *rest = op.operands
    bits = _cast(value, _integer(16, value.type))
    ir.Operation.create("llvm.store", [], [bits, *rest], _attributes(op))
    op.erase()


def _select(op: ir.Operation) -> None:
    condition, first, second = op.operands
    bits = _integer(16, first.type)
    chosen = _op("llvm.select", condition, _cast(first, bits), _cast(second, bits))
    _replace(op, _cast(chosen, first.type))


def _compute(op: ir.Operation, shortened: Callable[[ir.Value], ir.Value]) -> None:
    """The operation on f32, its result `shortened`."""
    operands = [_extended(value) if _is_short(value.type) else value for value in op.operands]
    types = [
        _like(value.type, ir.F32Type.get()) if _is_short(value.type) else value.type for value in op.results
    ]
    made = ir.Operation.create(op.name, types, operands, _attributes(op))
    for old, new in zip(op.results, made.results):
        old.replace_all_uses_with(shortened(new) if _is_short(old.type) else new)
    op.erase()


def _extended(value: ir.Value) -> ir.Value:
    type = value.type
    low = _op("llvm.zext", _cast(value, _integer(16, type)), type=_integer(32, type))
    return _cast(_op("llvm.shl", low, _constant(16, low.type)), _like(type, ir.F32Type.get()))


def _converted(value: ir.Value, type: ir.Type) -> ir.Value:
    """Numbers of f32 or f64 as the other."""
    if value.type == type:
        return value
    name = "llvm.fptrunc" if _element(value.type) == ir.F64Type.get() else "llvm.fpext"
    return _op(name, value, type=type)


def _rounded(value: ir.Value) -> ir.Value:
    """Half of the last place that is kept is added, less one bit where that place is even; NaN stays NaN."""
    wide = _integer(32, value.type)
    bits = _cast(value, wide)
    high = _op("llvm.lshr", bits, _constant(16, wide))
    last = _op("llvm.and", high, _constant(1, wide))
    half = _op("llvm.add", last, _constant(0x7FFF, wide))
    rounded = _op("llvm.lshr", _op("llvm.add", bits, half), _constant(16, wide))
    predicate = {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _UNORDERED)}
    truth = _integer(1, value.type)
    is_nan = ir.Operation.create("llvm.fcmp", [truth], [value, value], predicate).results[0]
    found = _op("llvm.select", is_nan, _op("llvm.or", high, _constant(0x40, wide)), rounded)
    return _short(found)


def _cut(value: ir.Value) -> ir.Value:
    """What is a bf16 number already, as one."""
    bits = _cast(value, _integer(32, value.type))
    return _short(_op("llvm.lshr", bits, _constant(16, bits.type)))


def _short(bits: ir.Value) -> ir.Value:
    """The lower halves of integers as bf16."""
    half = _op("llvm.trunc", bits, type=_integer(16, bits.type))
    return _cast(half, _like(bits.type, ir.BF16Type.get()))


def _element(type: ir.Type) -> ir.Type:
    return ir.VectorType(type).element_type if isinstance(type, ir.VectorType) else type


def _is_short(type: ir.Type) -> bool:
    return _element(type) == ir.BF16Type.get()


def _like(type: ir.Type, element: ir.Type) -> ir.Type:
    """The element type, or a vector of it of another's shape."""
    if not isinstance(type, ir.VectorType):
        return element
    return ir.VectorType.get(type.shape, element)


def _integer(bits: int, like: ir.Type) -> ir.Type:
    return _like(like, ir.IntegerType.get_signless(bits))


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def _constant(value: int, type: ir.Type) -> ir.Value:
    number = ir.IntegerAttr.get(_element(type), value)
    splat = ir.DenseElementsAttr.get_splat(type, number) if isinstance(type, ir.VectorType) else number
    return ir.Operation.create("llvm.mlir.constant", [type], [], {"value": splat}).results[0]


def _op(name: str, *operands: ir.Value, type: ir.Type | None = None) -> ir.Value:
    """An operation of one result, of the last operand's type unless told."""
    return ir.Operation.create(name, [type or operands[-1].type], list(operands)).results[0]


def _cast(value: ir.Value, type: ir.Type) -> ir.Value:
    """The same bits as another type; a cast of a cast is left out."""
    owner = value.owner
    if isinstance(owner, ir.Operation) and owner.name == "llvm.bitcast" and owner.operands[0].type == type:
        return owner.operands[0]
    return _op("llvm.bitcast", value, type=type)


def _replace(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()
