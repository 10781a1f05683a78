"""Lowers GPU primitives to inline PTX, after everything around them has become the LLVM dialect.

    "tilewright.mbarrier_wait"(%buffer, %offset, %parity)
becomes
    %0 = llvm.ptrtoint %aligned : !llvm.ptr<3> to i32
    %1 = llvm.add %0, %offset
    llvm.inline_asm has_side_effects "{ ... mbarrier.try_wait.parity ... }", "r,r,~{memory}" %1, %parity

Memory operands are casts of LLVM's memref descriptors at this point; the descriptor's pointer is what is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.errors import PassError
from tilewright.compiler.gpu import primitive_ptx
from tilewright.compiler.gpu.primitive_ptx import Asm
from tilewright.compiler.ir import ir, llvm, walk
from tilewright.compiler.nouns.primitive_table import PRIMITIVES, Operand, Primitive
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class LowerPrimitives(Pass):
    """Rewrites every primitive of a `gpu.module` in the LLVM dialect.

    arch: the architecture, as `sm_90a`; primitives that it lacks are refused. Empty allows all.
    """

    anchor: ClassVar[str] = "gpu.module"
    arch: str = ""

    def run(self, op: ir.Operation) -> None:
        found = [inner for inner in walk(op) if inner.name in PRIMITIVES]
        for inner in found:
            primitive = PRIMITIVES[inner.name]
            self._check_arch(inner, primitive)
            with ir.InsertionPoint(inner), inner.location:
                try:
                    results = _lower(inner, primitive)
                except PassError as error:
                    raise self.refusal(inner, str(error)) from None
            for old, new in zip(inner.results, results):
                old.replace_all_uses_with(new)
            inner.erase()
        _erase_dead_casts(op)

    def _check_arch(self, op: ir.Operation, primitive: Primitive) -> None:
        if not self.arch:
            return
        version = int(self.arch.removeprefix("sm_").rstrip("af"))
        if version < primitive.arch or (primitive.specific and self.arch != f"sm_{primitive.arch}a"):
            needed = f"sm_{primitive.arch}{'a' if primitive.specific else ' or newer'}"
            raise self.refusal(
                op, f"`{op.name}` needs {needed}, the target is {self.arch}; use another kernel family there"
            )


def _lower(op: ir.Operation, primitive: Primitive) -> list[ir.Value]:
    attributes = {name: _python(op.attributes[name]) for name, _ in primitive.attributes}
    operands = _Operands(op, primitive)
    match primitive.name:
        case "wgmma" | "wgmma_register":
            return _wgmma(operands, attributes, primitive.name == "wgmma_register")
        case "wgmma_wait":
            values = operands["accumulators"]
            asm = primitive_ptx.wgmma_wait([_letter(v) for v in values], int(attributes["groups"]))
            return _call(asm, values, [v.type for v in values])
        case "mma_m8n8k4":
            return _mma_m8n8k4(operands, attributes)
    values = [value for operand in primitive.operands for value in operands[operand.name]]
    counts = [1] * len(primitive.results) + [len(operands[o.name]) for o in primitive.operands]
    asm = primitive_ptx.simple(primitive, counts, attributes)
    return _call(asm, values, [r.type for r in op.results], pure=primitive.pure)


def _wgmma(operands: _Operands, attributes: primitive_ptx.Attributes, in_registers: bool) -> list[ir.Value]:
    accumulators = operands["accumulators"]
    n = int(attributes["n"])
    if len(accumulators) != n // 2:
        raise PassError(f"`tilewright.wgmma`: n = {n} takes {n // 2} accumulators, found {len(accumulators)}")
    if in_registers:
        (packed,) = operands["a"]
        left = [_lane(packed, i) for i in range(4 * int(attributes["k_steps"]))]
    else:
        left = [_descriptor(operands["a"][0], attributes, "a")]
    asm = primitive_ptx.wgmma(attributes, _letter(accumulators[0]), len(left) if in_registers else 0)
    right = _descriptor(operands["b"][0], attributes, "b")
    values = [*accumulators, *left, right, *operands["scale_d"]]
    return _call(asm, values, [v.type for v in accumulators])


def _mma_m8n8k4(operands: _Operands, attributes: primitive_ptx.Attributes) -> list[ir.Value]:
    pairs = ir.VectorType.get([2], _integer(32))
    words = [llvm.bitcast(pairs, operands[name][0]) for name in ("a", "b")]
    (c,) = operands["c"]
    values = [*(_lane(word, i) for word in words for i in range(2)), *(_lane(c, i) for i in range(8))]
    results = _call(primitive_ptx.mma_m8n8k4(attributes), values, [ir.F32Type.get()] * 8)
    vector = llvm.mlir_undef(c.type)
    for lane, value in enumerate(results):
        vector = llvm.insertelement(vector, value, _constant(lane, 32))
    return [vector]


class _Operands:
    """Registers of a primitive's operands by name, addresses computed."""

    def __init__(self, op: ir.Operation, primitive: Primitive):
        rest = list(op.operands)
        fixed = sum(2 if o.is_address else 1 for o in primitive.operands if not o.is_variadic)
        self._values: dict[str, list[ir.Value]] = {}
        for operand in primitive.operands:
            count = len(op.operands) - fixed if operand.is_variadic else 2 if operand.is_address else 1
            mine, rest = rest[:count], rest[count:]
            self._values[operand.name] = [_address(operand, *mine)] if operand.is_address else mine

    def __getitem__(self, name: str) -> list[ir.Value]:
        return self._values[name]


def _address(operand: Operand, buffer: ir.Value, offset: ir.Value) -> ir.Value:
    """A shared address as i32, or a pointer to an element of global memory."""
    type_ = ir.MemRefType(buffer.type)
    strides, first = type_.get_strides_and_offset()
    if first == ir.ShapedType.get_dynamic_stride_or_offset() or strides != [1] or type_.rank != 1:
        raise PassError(
            f"operand `{operand.name}` must be contiguous with one dimension and a static offset, found {type_}"
        )
    aligned = llvm.extractvalue(_pointer_type(buffer), _converted(buffer), [1])
    if operand.base == "shared":
        address = llvm.ptrtoint(_integer(32), aligned)
        if first:
            address = llvm.add(address, _constant(first, 32), [])
        return llvm.add(address, offset, [])
    position = _converted(offset)
    if first:
        position = llvm.add(position, _constant(first, ir.IntegerType(position.type).width), [])
    return llvm.getelementptr(aligned.type, aligned, [position], [-(2**31)], type_.element_type, None)


def _converted(value: ir.Value) -> ir.Value:
    """What a memref or an index was converted to: the operand of the cast that defines it."""
    cast = value.owner
    if (
        not isinstance(cast, (ir.Operation, ir.OpView))
        or cast.operation.name != "builtin.unrealized_conversion_cast"
    ):
        raise PassError(
            f"operand of type {value.type} is not in the LLVM dialect yet; run `convert-gpu-to-nvvm` first"
        )
    return cast.operation.operands[0]


def _pointer_type(buffer: ir.Value) -> ir.Type:
    space = "<3>" if "workgroup" in str(ir.MemRefType(buffer.type).memory_space) else ""
    return ir.Type.parse(f"!llvm.ptr{space}")


def _descriptor(address: ir.Value, attributes: primitive_ptx.Attributes, name: str) -> ir.Value:
    """The 64-bit wgmma descriptor of a shared address."""
    bits = primitive_ptx.descriptor(attributes, name)
    units = llvm.lshr(llvm.and_(address, _constant(0x3FFFF, 32)), _constant(4, 32))
    wide = llvm.zext(_integer(64), units)
    return llvm.or_(wide, _constant(bits - (1 << 64) if bits >> 63 else bits, 64))


def _call(asm: Asm, values: list[ir.Value], types: list[ir.Type], pure: bool = False) -> list[ir.Value]:
    """The inline assembly, and its results one by one."""
    result = None
    if len(types) == 1:
        result = types[0]
    elif types:
        result = llvm.StructType.get_literal(types)
    call = llvm.InlineAsmOp(result, values, asm.text, asm.constraints, has_side_effects=not pure)
    if len(types) <= 1:
        return list(call.operation.results)
    (struct,) = call.operation.results
    return [llvm.extractvalue(type_, struct, [i]) for i, type_ in enumerate(types)]


def _lane(vector: ir.Value, lane: int) -> ir.Value:
    return llvm.extractelement(vector, _constant(lane, 32))


def _letter(value: ir.Value) -> str:
    """The register class of an accumulator."""
    return "f" if isinstance(value.type, ir.F32Type) else "r"


def _integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def _constant(number: int, bits: int) -> ir.Value:
    type_ = _integer(bits)
    return llvm.mlir_constant(ir.IntegerAttr.get(type_, number))


def _python(attribute: ir.Attribute) -> int | bool | str:
    if isinstance(attribute, ir.BoolAttr):
        return attribute.value
    return (
        ir.StringAttr(attribute).value
        if isinstance(attribute, ir.StringAttr)
        else ir.IntegerAttr(attribute).value
    )


def _erase_dead_casts(op: ir.Operation) -> None:
    for cast in reversed(walk(op, "builtin.unrealized_conversion_cast")):
        if not any(len(list(result.uses)) for result in cast.results):
            cast.erase()
