"""The thirty matrix products that GPUs are judged by: squares, tall, skinny and deep ones, batches, and those of models.

Shapes of Roller: OSDI'22, Table 1 (M0 to M6, batch 128 x 512 tokens of BERT-Large, and a classifier at batch 128). BERT-base
at 32 x 128 tokens and Llama-7B at 2,048: hidden sizes 768 and 3,072 (Devlin et al., 2019), 4,096 and 11,008 (Touvron
et al., 2023).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GemmShape:
    """`batch` products [m, k] x [k, n], all row-major."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k


GEMM_SHAPES = (
    *(GemmShape(f"square-{size}", size, size, size) for size in (512, 1024, 2048, 4096, 8192, 16384)),
    GemmShape("tall-65536x256x1024", 65536, 256, 1024),
    GemmShape("tall-131072x64x256", 131072, 64, 256),
    GemmShape("deep-256x256x65536", 256, 256, 65536),
    GemmShape("skinny-1x4096x4096", 1, 4096, 4096),
    GemmShape("skinny-8x4096x4096", 8, 4096, 4096),
    GemmShape("skinny-16x11008x4096", 16, 11008, 4096),
    GemmShape("skinny-64x4096x11008", 64, 4096, 11008),
    GemmShape("batch-bert-scores", 128, 128, 64, batch=384),
    GemmShape("batch-bert-values", 128, 64, 128, batch=384),
    GemmShape("batch-llama-scores", 2048, 2048, 128, batch=32),
    GemmShape("batch-llama-values", 2048, 128, 2048, batch=32),
    GemmShape("bert-projection", 4096, 768, 768),
    GemmShape("bert-up", 4096, 3072, 768),
    GemmShape("bert-down", 4096, 768, 3072),
    GemmShape("llama-projection", 2048, 4096, 4096),
    GemmShape("llama-up", 2048, 11008, 4096),
    GemmShape("llama-down", 2048, 4096, 11008),
    GemmShape("roller-M0", 65536, 1024, 2),
    GemmShape("roller-M1", 128, 1000, 4032),
    GemmShape("roller-M2", 128, 1000, 2048),
    GemmShape("roller-M3", 65536, 4096, 1024),
    GemmShape("roller-M4", 65536, 1024, 1024),
    GemmShape("roller-M5", 65536, 1024, 4096),
    GemmShape("roller-M6", 65536, 1024, 30522),
)

DTYPES = ("f32", "tf32", "f16", "bf16")
"""What products are computed from: f32 exactly, f32 rounded to tf32 by matrix units, half precisions summed in f32."""
