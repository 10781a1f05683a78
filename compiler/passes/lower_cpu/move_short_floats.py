"""move-short-floats: bf16 is read, written, chosen and rounded as the integers that it is, never as a float of LLVM's."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass

_UNORDERED = 14
"""LLVM's `fcmp uno`: true for NaN."""


_ARITHMETIC = ("fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "fcmp", "sitofp", "uitofp", "fptosi", "fptoui")


@dataclass(frozen=True)
class MoveShortFloats(Pass):
    """Rewrites what LLVM's dialect does to single bf16 numbers; f32 does the arithmetic.

    Before: %b = llvm.load %p : !llvm.ptr -> bf16 ; %s = llvm.fadd %b, %b : bf16
            %c = llvm.select %any, %b, %s : i1, bf16
    After:  %i = llvm.load %p : !llvm.ptr -> i16 ; %f = (%i << 16) as f32 ; %s = llvm.fadd %f, %f : f32
            %j = %s rounded to the nearest, ties to even, in integers
            %c = (llvm.select %any, %i, %j : i1, i16) as bf16

    Left alone, LLVM computes and chooses between bf16 numbers in f32 and rounds by an instruction of AVX512-BF16
    that takes denormals for zero, and ends the process on shuffles of bf16 that its vectoriser makes of reads and
    writes with a stride. Vectors stay as they are: kernels written with them use those instructions on purpose.
    """

    def run(self, op: ir.Operation) -> None:
        moves = {"llvm.load": _load, "llvm.store": _store, "llvm.select": _select}
        short = ir.BF16Type.get()
        for inner in walk(op):
            kind = inner.name.removeprefix("llvm.")
            types = [value.type for value in (*inner.operands, *inner.results)]
            if short not in types:
                continue
            with ir.InsertionPoint(inner), inner.location:
                if inner.name in moves:
                    moves[inner.name](inner)
                elif kind == "fpext":
                    _replace(inner, _converted(_extended(inner.operands[0]), inner.results[0].type))
                elif kind == "fptrunc":
                    _replace(inner, _rounded(_converted(inner.operands[0], ir.F32Type.get())))
                elif kind in _ARITHMETIC or kind.startswith("intr."):
                    _compute(inner)


def _load(op: ir.Operation) -> None:
    wide = ir.Operation.create("llvm.load", [_integer(16)], list(op.operands), _attributes(op))
    _replace(op, _cast(wide.results[0], ir.BF16Type.get()))


def _store(op: ir.Operation) -> None:
    value, *rest = op.operands
    ir.Operation.create("llvm.store", [], [_cast(value, _integer(16)), *rest], _attributes(op))
    op.erase()


def _select(op: ir.Operation) -> None:
    condition, first, second = op.operands
    chosen = _op("llvm.select", condition, _cast(first, _integer(16)), _cast(second, _integer(16)))
    _replace(op, _cast(chosen, ir.BF16Type.get()))


def _compute(op: ir.Operation) -> None:
    """The operation on f32, its result rounded."""
    short, wide = ir.BF16Type.get(), ir.F32Type.get()
    operands = [_extended(value) if value.type == short else value for value in op.operands]
    types = [wide if value.type == short else value.type for value in op.results]
    made = ir.Operation.create(op.name, types, operands, _attributes(op))
    for old, new in zip(op.results, made.results):
        old.replace_all_uses_with(_rounded(new) if old.type == short else new)
    op.erase()


def _extended(value: ir.Value) -> ir.Value:
    low = _op("llvm.zext", _cast(value, _integer(16)), type=_integer(32))
    return _cast(_op("llvm.shl", low, _constant(16)), ir.F32Type.get())


def _converted(value: ir.Value, type: ir.Type) -> ir.Value:
    """A number of f32 or f64 as the other."""
    if value.type == type:
        return value
    name = "llvm.fptrunc" if value.type == ir.F64Type.get() else "llvm.fpext"
    return _op(name, value, type=type)


def _rounded(value: ir.Value) -> ir.Value:
    """Half of the last place that is kept is added, less one bit where that place is even; NaN stays NaN."""
    bits = _cast(value, _integer(32))
    high = _op("llvm.lshr", bits, _constant(16))
    half = _op("llvm.add", _op("llvm.and", high, _constant(1)), _constant(0x7FFF))
    rounded = _op("llvm.lshr", _op("llvm.add", bits, half), _constant(16))
    predicate = {"predicate": ir.IntegerAttr.get(_integer(64), _UNORDERED)}
    is_nan = ir.Operation.create("llvm.fcmp", [_integer(1)], [value, value], predicate).results[0]
    found = _op("llvm.select", is_nan, _op("llvm.or", high, _constant(0x40)), rounded)
    return _cast(_op("llvm.trunc", found, type=_integer(16)), ir.BF16Type.get())


def _integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def _constant(value: int) -> ir.Value:
    attribute = {"value": ir.IntegerAttr.get(_integer(32), value)}
    return ir.Operation.create("llvm.mlir.constant", [_integer(32)], [], attribute).results[0]


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
