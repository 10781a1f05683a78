"""The precision that a module's contractions compute in, as the attribute `tilewright.precision` of the module."""

from __future__ import annotations

ATTRIBUTE = "tilewright.precision"

PRECISIONS = ("f32", "bf16", "tf32")
"""`f32` computes as the model says; `bf16` lets contractions of f32 round their operands to bf16. `tf32` lets matrix
units of GPUs round f32 operands to 10 bits of mantissa as they read them; where there are none, products stay f32."""
