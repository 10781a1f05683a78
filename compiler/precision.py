"""The precision that a module's contractions compute in, as the attribute `tilewright.precision` of the module."""

from __future__ import annotations

ATTRIBUTE = "tilewright.precision"

PRECISIONS = ("f32", "bf16")
"""`f32` computes as the model says; `bf16` lets contractions of f32 round their operands to bf16."""
