"""What arithmetic takes: vector instructions of a statement, and how much of a core's rate chains of sums leave unused."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.tuning.model.statements import Statement

IN_FLIGHT = 8
"""Independent multiply-adds that keep two units of four cycles' latency busy, as on every x86 core since 2013. Source:
Fog, "Instruction tables"."""

WINDOW = 320
"""Instructions that a core looks ahead: loops that are over sooner overlap with the next. Source: Fog, "The microarchitecture
of Intel, AMD and VIA CPUs" (reorder buffer of Zen 4: 320; Golden Cove has 512)."""

_FUNCTIONS = {
    "exp": 12,
    "exp2": 10,
    "erf": 30,
    "tanh": 24,
    "log": 20,
    "log1p": 24,
    "powf": 40,
    "sin": 24,
    "cos": 24,
}
"""Instructions that `rewriting/elementary.py` makes of one function; of others as many as of a long one."""
_OTHER_FUNCTION = 30
_DIVISION = 8
"""Multiply-adds that a division or a root takes the time of: 16 cycles for a vector of 512 bits, 8 for one of 256, on two
units. Source: Fog, "Instruction tables" (Skylake-X, Zen 4)."""
_REMAINDER = 50
"""The same of a remainder of f32, a division and six reductions in f64, two vectors of them. Measured on Zen 4, AVX-512, beside other load."""
_SHORT = ("absf", "ceil", "floor", "fma", "roundeven", "trunc")


def instructions(statement: Statement, axis: int | None) -> float:
    """Vector instructions of the arithmetic on one vector along an axis, in multiply-adds; a sum of products is one.

    What does not change along the axis is computed once for all of it.
    """
    varying = statement.varying(axis)
    before = {op.gives: op for op in statement.arithmetic}
    names = [op.name for op in varying]
    count = 0.0
    for op in varying:
        if op.dialect == "math":
            root = op.name in ("sqrt", "rsqrt")
            count += (
                1 if op.name in _SHORT else _DIVISION if root else _FUNCTIONS.get(op.name, _OTHER_FUNCTION)
            )
        elif op.name in ("divsi", "divui", "remsi", "remui"):
            count += _DIVISION
        elif op.name == "remf":
            count += _REMAINDER
        elif op.name == "divf":
            # What divides all of a row is inverted once: `multiply-by-reciprocals`.
            divisor = op.reads[-1] if len(op.reads) == 2 else ""
            fixed = before.get(divisor, op) not in varying or not divisor
            arguments = divisor[1:] if divisor.startswith("x") else ""
            row = arguments and not statement._moves(statement.places[int(arguments)], axis)  # type: ignore[arg-type]
            count += 1 if fixed or row else _DIVISION
        else:
            count += 1
    # Products whose sums are taken are one instruction with them.
    return count - min(names.count("mulf"), names.count("addf") + names.count("subf"))


def waiting(chain: np.ndarray, arithmetic: np.ndarray, loads: np.ndarray) -> np.ndarray:
    """Multiply-adds that could have been started while the longest chain of a tile's is waited for.

    As many tiles as the core looks ahead wait at the same time.
    """
    ahead = np.maximum(1.0, WINDOW / np.maximum(arithmetic + loads, 1.0))
    return np.maximum(0.0, chain / ahead - arithmetic)
