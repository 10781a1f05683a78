"""CPUs that code is generated for, by what their instructions multiply; and products and convolutions that these take."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernel_contractions import split
from kernel_draws import Case, Draw

from tilewright.compiler.targets.cpus import x86
from tilewright.compiler.targets.target import GIB, KIB, MIB, PRESETS, X86_V3, X86_V4, Target, resolve

_CACHES = {"L1": 48 * KIB, "L2": MIB, "L3": 32 * MIB}
_BEYOND_V4 = tuple(f for f in resolve("sapphire-rapids").cpu_features if f not in X86_V4)


def _without(*prefixes: str) -> tuple[str, ...]:
    return (*X86_V4, *(f for f in _BEYOND_V4 if not f.startswith(prefixes)))


def _variant(name: str, features: tuple[str, ...], fma_bits: int) -> Target:
    return x86(name, features, name, 2, 2.5, _CACHES, 16 * GIB, fma_bits)


PRESET_CPUS = {
    name: resolve(name)
    for name in PRESETS
    if name != "cpu" and resolve(name).kind == "cpu" and resolve(name).has_code
}
CPUS: dict[str, Target] = {
    **PRESET_CPUS,
    "AVX2 with VNNI": _variant("alderlake", (*X86_V3, "avxvnni", "gfni"), 512),
    "AVX-512 with VNNI": _variant("cascadelake", (*X86_V4, "avx512vnni"), 1024),
    "AVX-512 with bf16": _variant("znver4", _without("amx", "avxvnni", "avx512fp16"), 512),
    "AMX on two cores": _variant("sapphirerapids", _without(), 1024),
}
"""Presets, and what lies between them; ARM has schedules and no code. Few cores cut kernels into other rTasks."""

_EXTENTS = (4, 7, 16, 17, 31, 32, 47, 48, 64, 80, 96, 130, 256, 300, 515, 1030)
_DTYPES = (torch.bfloat16, torch.bfloat16, torch.int8, torch.uint8, torch.float16, torch.float32)


def product(draw: Draw) -> Case:
    """A product of extents around those of vectors and tiles, by a weight or of two inputs, plain or in a batch."""
    dtype = draw.pick(_DTYPES)
    m, n = draw.pick(_EXTENTS), draw.pick(_EXTENTS)
    k = draw.pick([e for e in _EXTENTS if m * n * e <= 1 << 24])
    batch = draw.pick([(), (), (), (3,)])
    x, w = draw.tensor((*batch, m, k), dtype), draw.tensor((*batch, k, n), dtype)
    form = draw.pick(["weight", "weight", "inputs", "transposed"])
    name = f"product {form} {[*batch]} {m}x{n}x{k} {dtype}"
    wide = torch.int32 if not dtype.is_floating_point else dtype
    terms = k if dtype.is_floating_point else 0
    if form == "transposed":
        w = w.mT.contiguous()
        return Case(name, lambda x, w: x.to(wide) @ w.to(wide).mT, (x, w), (), terms)
    return Case(name, lambda x, w: x.to(wide) @ w.to(wide), *split(x, w, form == "weight"), terms)


def image_product(draw: Draw) -> Case:
    """A convolution with as many channels as dot products and tiles want, and others."""
    dtype = draw.pick((torch.bfloat16, torch.bfloat16, torch.float16, torch.float32))
    inputs, outputs = draw.pick([3, 16, 24, 34, 64, 70]), draw.pick([7, 16, 32, 48, 64])
    kernel, stride, padding = draw.pick([1, 3, 3, 5]), draw.pick([1, 1, 2]), draw.pick([0, 1, 2])
    x = draw.tensor((draw.pick([1, 2]), inputs, *(draw.pick([7, 9, 14, 20, 28]) for _ in range(2))), dtype)
    w = draw.tensor((outputs, inputs, kernel, kernel), dtype)
    name = f"image {[*x.shape]} by {[*w.shape]} {stride=} {padding=} {dtype}"
    terms = inputs * kernel * kernel + 300
    return Case(name, lambda x, w: F.conv2d(x, w, None, stride, padding), (x,), (w,), terms)
