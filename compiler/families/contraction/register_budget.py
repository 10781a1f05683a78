"""How many blocks of a contraction should share a multiprocessor's registers: what the assembler is asked to leave room for.

Left alone, it sometimes spills a few registers for the sake of more blocks, or takes so many that one block fits where
two would hide each other's waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.families.contraction.operand_copies import Copies
from tilewright.compiler.families.contraction.problem import element_bytes
from tilewright.compiler.tuning.gpu.occupancy import MOST_ASKED_BLOCKS

_FILE = 65536
"""32-bit registers of a multiprocessor. Source: CUDA C Programming Guide, "Technical Specifications per Compute
Capability", the same from sm_70 on."""
_OTHERS = 24
"""Registers of a thread for addresses and the loop."""
_SLACK = 1.15
"""Where more than two blocks fit, what is estimated may be off by this much."""


def resident_blocks(threads: int, held: int, copies: Sequence[Copies]) -> int:
    """Blocks of `threads` threads that fit: `held` are 32-bit registers of sums and of elements to multiply."""
    waiting = sum(
        plan.count * -(-plan.lanes * element_bytes(plan.source_dtype) // 4)
        for plan in copies
        if not plan.deferred
    )
    each = held + waiting + _OTHERS
    blocks = _FILE // (threads * each)
    if blocks > 2:
        blocks = max(2, int(_FILE / (threads * each * _SLACK)))
    return max(1, min(blocks, MOST_ASKED_BLOCKS))
