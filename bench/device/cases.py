"""What the device suite runs: cases by part, each built on the CPU when its turn comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tilewright.bench.gemm_shapes import GEMM_SHAPES, GemmShape

PARTS = ("check", "gemm", "memory", "attention", "models", "operators", "compile")
"""In the order they run: what is wrong is known before anything is timed."""

DTYPES = ("f32", "tf32", "f16", "bf16")
"""What products are computed from; `tf32` rounds operands of f32 on both sides."""


@dataclass(frozen=True)
class DeviceCase:
    """One thing to check and to time.

    `build()` gives (module, inputs) in f32 on the CPU; `dtype` is what they are converted to (`tf32` stays f32).
    `flops` counts a multiply-add as two; `bytes` are inputs, weights and outputs once. `peer` is the strongest
    contender besides Inductor, for the tables: a vendor's library as PyTorch calls it.
    """

    part: str
    name: str
    dtype: str
    build: Callable[[], tuple]
    contenders: tuple[str, ...]
    flops: int = 0
    bytes: int = 0
    peer: str = "cuBLAS"
    small: bool = False

    @property
    def key(self) -> str:
        return f"{self.part}/{self.name}/{self.dtype}"


def cases(part: str, quick: bool = False) -> list[DeviceCase]:
    """The cases of a part; `quick` keeps those small enough for the emulator. Raises ValueError for unknown parts."""
    makers = {
        "check": _checks,
        "gemm": _gemms,
        "memory": _memory,
        "attention": _attention,
        "models": _models,
        "operators": _operators,
        "compile": _compile,
    }
    if part not in makers:
        raise ValueError(f"unknown part `{part}`; the parts are: {', '.join(PARTS)}")
    return [case for case in makers[part]() if case.small or not quick]


def _operator(name: str, *arguments: object) -> tuple:
    """Makes an operator of `bench.operators`; torch is imported only now."""
    from tilewright.bench import operators

    return getattr(operators, name)(*arguments)


def _checks() -> list[DeviceCase]:
    from tilewright.bench.device.families import FAMILIES

    return [
        DeviceCase("check", name, dtype, partial(_family, name), ("ours",), small=True)
        for name, family in FAMILIES.items()
        for dtype in family.dtypes
    ]


def _family(name: str) -> tuple:
    from tilewright.bench.device.families import FAMILIES

    return FAMILIES[name].build()


def _gemms() -> list[DeviceCase]:
    return [
        DeviceCase(
            "gemm",
            shape.name,
            dtype,
            partial(_product, shape),
            ("ours", "eager"),
            flops=2 * shape.batch * shape.m * shape.n * shape.k,
            bytes=shape.batch
            * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n)
            * (4 if dtype in ("f32", "tf32") else 2),
        )
        for dtype in ("bf16", "f16", "f32", "tf32")
        for shape in GEMM_SHAPES
    ]


def _product(shape: GemmShape) -> tuple:
    from tilewright.bench.operators import Matmul, normal

    batch = (shape.batch,) if shape.batch > 1 else ()
    return Matmul().eval(), (normal(*batch, shape.m, shape.k), normal(*batch, shape.k, shape.n))


_MEMORY = {
    "relu-64Mi": ("elementwise", "relu", (64, 1024, 1024)),
    "add-32Mi": ("elementwise", "add", (32, 1024, 1024)),
    "gelu-32Mi": ("elementwise", "gelu", (32, 1024, 1024)),
    "softmax-32768x1024": ("softmax", (32768, 1024)),
    "softmax-4096x16384": ("softmax", (4096, 16384)),
    "layernorm-32768x1024": ("layer_norm", (32768, 1024)),
    "layernorm-8192x8192": ("layer_norm", (8192, 8192)),
    "mean-rows-16384x4096": ("mean", (16384, 4096), (1,)),
    "mean-columns-16384x4096": ("mean", (16384, 4096), (0,)),
    "transpose-8192x8192": ("transpose", (8192, 8192)),
    "maxpool-128x64x112": ("max_pool2d", (128, 64, 112, 112), 3, 2, 1),
    "depthwise-128x144x56": ("conv2d", (128, 144, 56, 56), 144, 3, 1, 1, 144),
    "relu-small": ("elementwise", "relu", (33, 65)),
    "softmax-small": ("softmax", (37, 100)),
    "layernorm-small": ("layer_norm", (19, 200)),
}


def _memory() -> list[DeviceCase]:
    """Bytes of a case are counted when it is built: inputs, weights and outputs."""
    return [
        DeviceCase(
            "memory",
            name,
            dtype,
            partial(_operator, *row),
            ("ours", "eager", "inductor"),
            peer="PyTorch",
            small=name.endswith("-small"),
        )
        for name, row in _MEMORY.items()
        for dtype in ("f32", "f16")
        if not name.startswith("depthwise") or dtype == "f32"
    ]


_ATTENTION = {
    "bert-32x12x128x64": (32, 12, 128, 128, 64, False),
    "gpt2-8x12x1024x64": (8, 12, 1024, 1024, 64, True),
    "llama-1x32x4096x128": (1, 32, 4096, 4096, 128, True),
    "vit-32x12x197x64": (32, 12, 197, 197, 64, False),
    "small-1x2x37x16": (1, 2, 37, 37, 16, False),
}


def _attention() -> list[DeviceCase]:
    return [
        DeviceCase(
            "attention",
            name,
            dtype,
            partial(_scaled_dot_product, *shape),
            ("ours", "eager", "inductor"),
            flops=4 * shape[0] * shape[1] * shape[2] * shape[3] * shape[4] // (2 if shape[5] else 1),
            bytes=shape[0]
            * shape[1]
            * shape[4]
            * (2 * shape[2] + 2 * shape[3])
            * (4 if dtype == "f32" else 2),
            peer="PyTorch",
            small=name.startswith("small"),
        )
        for name, shape in _ATTENTION.items()
        for dtype in ("f16", "bf16", "f32")
    ]


def _scaled_dot_product(batch: int, heads: int, queries: int, keys: int, size: int, causal: bool) -> tuple:
    from tilewright.bench.device.families import Attention
    from tilewright.bench.operators import normal

    shapes = [(batch, heads, rows, size) for rows in (queries, keys, keys)]
    return Attention(causal).eval(), tuple(normal(*shape) for shape in shapes)


def _models() -> list[DeviceCase]:
    from tilewright.bench import models

    return [_model("resnet18-reduced", dtype, _reduced, small=True) for dtype in ("f32", "f16")] + [
        _model(f"{name}-b{batch}", dtype, partial(models.build, name, batch=batch))
        for batch in (1, 32)
        for dtype in ("f32", "f16")
        for name in models.DEFAULT
        if not (name == "lstm" and dtype == "f16")
    ]


def _model(name: str, dtype: str, build: Callable[[], tuple], small: bool = False) -> DeviceCase:
    contenders = ("ours", "ours-no-overlap", "ours-no-graph", "eager", "inductor-graphs")
    return DeviceCase("models", name, dtype, build, contenders, peer="eager", small=small)


def _reduced() -> tuple:
    from tilewright.bench.models.reduced import REDUCED

    return REDUCED["resnet18"]()


def _operators() -> list[DeviceCase]:
    from tilewright.bench.suites import roller_rows

    return [
        DeviceCase(
            "operators",
            row["name"],
            "f32",
            partial(_operator, "from_row", row, 128),
            ("ours", "eager", "inductor-autotuned"),
            peer="cuDNN, cuBLAS",
        )
        for row in roller_rows()
    ]


def _compile() -> list[DeviceCase]:
    from tilewright.bench import models

    builders = {
        "resnet18-reduced": _reduced,
        **{name: partial(models.build, name) for name in models.DEFAULT},
    }
    return [
        DeviceCase("compile", name, "f32", build, ("ours", "inductor"), small=build is _reduced)
        for name, build in builders.items()
    ]
