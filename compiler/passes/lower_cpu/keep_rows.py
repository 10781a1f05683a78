"""keep-rows: loops along short rows stay loops until LLVM makes vectors of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.passes.lower_cpu.approximate_math import EXPANSIONS
from tilewright.compiler.passes.lower_cpu.attach_loop_annotations import ANNOTATION
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.expression import element_of
from tilewright.compiler.targets.target import Target

_ROLLED = "unroll = <disable = true>"
_MASKED = "vectorize = <predicateEnable = true>"
_UNROLLED_BY_LLVM = 64
"""Rows of as many elements are too much code for LLVM to unroll whole."""
_VECTORISED_ROWS = 512
"""From as many elements on, what is left of a row behind its last vector is little beside the row."""
_SCALARS = 3
"""As many elementary functions one by one take longer than one of a masked vector.

Measured on Zen 4, AVX-512, 4,096 rows, `tanh(a) * b`: of 19 elements 107 us and masked 77, of 17 elements 57 and 77.
"""


@dataclass(frozen=True)
class KeepRows(Pass):
    """Annotates innermost loops whose iterations write the elements of a row one behind the other.

    Before: scf.for %j = %c0 to %c24 step %c1 { … memref.store %v, %c[%i, %j] }
    After:  … {llvm.loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}

    LLVM unrolls a loop of few iterations whole before it looks for vectors, and then vectorises the loop around it,
    whose reads and writes lie a row apart. Measured on Zen 4 beside other load, 4,096 rows of f32 times a number for each: of 16
    elements 60 us, and kept 12; of 24 elements 88 and 17. `scale-rows-16384x24` of the suite `memory` is such.

    Rows of `fewest` elements and more are kept. LLVM vectorises loops of less than 16 iterations whole, with masks,
    which are slow to store by on AVX2 (9 to 15 elements: 17 us, and kept 44 to 65) and are not on AVX-512.
    With `masks`, a row with elementary functions ends in a masked vector, not in an element after the other.
    """

    anchor: ClassVar[str] = "func.func"
    fewest: int = 16
    masks: bool = False

    @classmethod
    def for_target(cls, target: Target) -> KeepRows:
        """The pass for a CPU."""
        return cls(fewest=5, masks=True) if target.vector_bits >= 512 else cls()

    def run(self, op: ir.Operation) -> None:
        for loop in walk(op, "scf.for"):
            said = self._said_of(loop)
            if said:
                loop.attributes[ANNOTATION] = ir.Attribute.parse(f"#llvm.loop_annotation<{', '.join(said)}>")

    def _said_of(self, loop: ir.Operation) -> list[str]:
        iterations = _iterations(loop)
        if not self.fewest <= iterations < _VECTORISED_ROWS or not _is_along_rows(loop):
            return []
        said = [_ROLLED] if iterations < _UNROLLED_BY_LLVM else []
        if self.masks and iterations >= 16 and iterations % 8 >= _SCALARS and _has_elementary_functions(loop):
            said.append(_MASKED)
        return said


def _iterations(loop: ir.Operation) -> int:
    """How often the loop runs; 0 if its bounds are no constants, or values are carried from iteration to iteration."""
    bounds = [operand.owner for operand in loop.operands]
    if len(bounds) != 3 or any(getattr(bound, "name", "") != "arith.constant" for bound in bounds):
        return 0
    low, high, step = (ir.IntegerAttr(bound.attributes["value"]).value for bound in bounds)
    return high - low if step == 1 else 0


def _is_along_rows(loop: ir.Operation) -> bool:
    """Whether it writes, and reads nothing and writes nothing but what lies one behind the other, or stays where it is."""
    body = loop.regions[0].blocks[0]
    index = body.arguments[0]
    stores = 0
    for view in body.operations:
        op = view.operation
        if op.name in ("memref.load", "memref.store"):
            written = op.name == "memref.store"
            memory, *at = list(op.operands)[1 if written else 0 :]
            moves = [value == index for value in at]
            strides, _ = ir.MemRefType(memory.type).get_strides_and_offset()
            if any(moves[:-1]) or (any(moves) and strides[-1] != 1) or (written and not any(moves)):
                return False
            stores += written
        elif op.regions or any(operand == index for operand in op.operands):
            return False
    return stores > 0


def _has_elementary_functions(loop: ir.Operation) -> bool:
    return any(
        inner.name in EXPANSIONS and element_of(inner.results[0].type).width <= 32 for inner in walk(loop)
    )
