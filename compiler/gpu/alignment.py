"""How far buffers of a dispatch are aligned: 16 bytes, unless `mark-alignment` wrote less on an argument or result."""

from __future__ import annotations

from tilewright.compiler.ir import ir

ALIGNMENT = "tilewright.alignment"
"""On an argument or result of a dispatch: a power of two below 16, in bytes, at whose multiples its buffer may start."""

FULL_BYTES = 16
"""The widest access of one thread: `ld.global.v4.b32`. Every buffer is this far aligned unless it is marked."""


def buffer_alignments(function: ir.Operation) -> list[int]:
    """Bytes that the start of every buffer of a dispatch is a multiple of: arguments, then results."""
    type_ = function.attributes["function_type"].value
    found = []
    for name, count in (("arg_attrs", len(type_.inputs)), ("res_attrs", len(type_.results))):
        entries = list(function.attributes[name]) if name in function.attributes else [{}] * count
        found += [ir.IntegerAttr(e[ALIGNMENT]).value if ALIGNMENT in e else FULL_BYTES for e in entries]
    return found
