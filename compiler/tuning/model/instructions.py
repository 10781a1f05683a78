"""What instructions of a GPU take that every kernel has: index arithmetic, loops, and waiting for what came before."""

from __future__ import annotations

DIVISION = 5
"""Instructions of a quotient and remainder by a constant: multiply-high, shift, multiply-subtract, correction.
Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI'94, Figure 4.2."""

LOOP = 3
"""Instructions that one iteration of a loop adds: increment, compare, branch."""

DEPENDENT_CYCLES = 4
"""Cycles until an instruction may use what the one before it gives. Source: Jia et al., "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", 2018, table 4.1."""
