"""Tells dispatches which of their buffers may start between two 16-byte boundaries of memory.

    %b = tensor.extract_slice %a[6, 0] [2, 3] [1, 1]       // 72 bytes into %a
    %y = call @square(%b)
      =>
    func.func private @square(%x: tensor<2x3xf32> {tilewright.alignment = 8 : i64}) -> tensor<2x3xf32>

A buffer without the attribute starts at a multiple of 16 bytes in every call: memory of the runtime's own does, and
so do views of it whose offset is one. GPUs fault where a vector is read across.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.analysis.placement import Place, places
from tilewright.compiler.analysis.views import is_view
from tilewright.compiler.gpu.alignment import ALIGNMENT, FULL_BYTES
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.package.plan import dtype_name
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.runtime.program import ITEM_BYTES


@dataclass(frozen=True)
class MarkAlignment(Pass):
    """Writes `tilewright.alignment`, in bytes, on arguments and results of the functions that the module calls."""

    def run(self, op: ir.Operation) -> None:
        found: dict[str, list[int]] = {}
        for function in functions(op.opview):
            *ops, _ = (view.operation for view in function.regions[0].blocks[0].operations)
            calls = [inner for inner in ops if inner.name == "func.call"]
            placed = places(ops, is_view) if calls else {}
            for call in calls:
                name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
                here = [_alignment(value, placed) for value in (*call.operands, *call.results)]
                found[name] = [math.gcd(a, b) for a, b in zip(found.get(name, here), here)]
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(op.opview)}
        for name, alignments in found.items():
            if name in named and min(alignments, default=FULL_BYTES) < FULL_BYTES:
                _write(named[name], alignments)


def _alignment(value: ir.Value, placed: dict[ir.Value, Place]) -> int:
    place = placed.get(value)
    if place is None or not place.offset:
        return FULL_BYTES
    item = ITEM_BYTES[dtype_name(ir.RankedTensorType(value.type).element_type)]
    return math.gcd(place.offset * item, FULL_BYTES)


def _write(function: ir.Operation, alignments: list[int]) -> None:
    inputs = len(function.attributes["function_type"].value.inputs)
    for name, own in (("arg_attrs", alignments[:inputs]), ("res_attrs", alignments[inputs:])):
        if min(own, default=FULL_BYTES) == FULL_BYTES:
            continue
        known = (
            list(function.attributes[name])
            if name in function.attributes
            else [ir.DictAttr.get({})] * len(own)
        )
        function.attributes[name] = ir.ArrayAttr.get([_with(entry, size) for entry, size in zip(known, own)])


def _with(entry: ir.DictAttr, size: int) -> ir.DictAttr:
    if size == FULL_BYTES:
        return entry
    fields = {named.name: named.attr for named in ir.DictAttr(entry)}
    fields[ALIGNMENT] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), size)
    return ir.DictAttr.get(fields)
