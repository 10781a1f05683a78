"""The suites of `tilewright bench`: named lists of cases, each built when its turn comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tilewright.bench import models

SUITES = (
    "models", "training", "resnet18-conv", "gemm", "experts", "decoding", "memory", "lines", "roller119",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One thing to time: `build()` gives (module, inputs); `published` holds others' figures for it.

    Where it is `training`, gradients of all parameters are computed too. `flops` of a call are given where PyTorch's counter
    does not know its operators; `unread_bytes` are those of weights that a call does not touch.
    """

    name: str
    build: Callable[[], tuple]
    published: dict = field(default_factory=dict)
    training: bool = False
    flops: int | None = None
    unread_bytes: int = 0


# What is trained: name -> (model, its options). Models are in training mode.
TRAINING: dict[str, tuple[str, dict]] = {
    "resnet18-b8": ("resnet18", {"batch": 8, "size": 128}),
    "bert_mini-b8": ("bert_mini", {"batch": 8}),
    "vit_mini-b8": ("vit_mini", {"batch": 8}),
    "dcgan-b16": ("dcgan", {"batch": 16}),
}

# The twelve convolutions of ResNet-18 at batch 1: (size, in, out, kernel, stride).
# Source: Chen et al., "Learning to Optimize Tensor Programs" (AutoTVM), NeurIPS'18, Table 1.
RESNET18_CONVS = (
    (224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 64, 1, 1), (56, 64, 128, 3, 2), (56, 64, 128, 1, 2),
    (28, 128, 128, 3, 1), (28, 128, 256, 3, 2), (28, 128, 256, 1, 2), (14, 256, 256, 3, 1),
    (14, 256, 512, 3, 2), (14, 256, 512, 1, 2), (7, 512, 512, 3, 1),
)  # fmt: skip

# (m, k, n, second operand is a weight, dtype): squares, a classifier (NASNet's), BERT's feed-forward products, an LSTM step's
# products.
GEMMS = (
    (512, 512, 512, False, "f32"), (512, 512, 512, True, "f32"),
    (1024, 1024, 1024, False, "f32"), (1024, 1024, 1024, True, "f32"),
    (2048, 2048, 2048, False, "f32"), (2048, 2048, 2048, True, "f32"),
    (128, 4032, 1000, True, "f32"), (128, 768, 3072, True, "f32"),
    (128, 4032, 1000, False, "f32"), (512, 3072, 768, False, "f32"), (32, 4096, 4096, False, "f32"),
    (1, 256, 1024, True, "f32"), (1, 768, 3072, True, "f32"),
    (1024, 1024, 1024, False, "bf16"), (1024, 1024, 1024, True, "bf16"),
)  # fmt: skip

# (experts, rows, k, n, dtype): rows of two tokens with four experts each, as one step of a decoder has them, up to those of
# a prompt; the up projections of small and of large experts.
EXPERTS = (
    (8, 8, 512, 1024, "f32"), (8, 256, 512, 1024, "f32"), (8, 1024, 512, 1024, "f32"),
    (8, 2, 1024, 3584, "f32"), (32, 8, 1024, 2048, "f32"),
    (8, 8, 512, 1024, "bf16"), (8, 256, 512, 1024, "bf16"), (8, 1024, 512, 1024, "bf16"),
)  # fmt: skip

# One step of a decoder, apart: (heads, positions, head size) of caches of a fixed length of which a row is written and all is
# read, as GPT-2's and as small and middling Llamas have them, and (rows, k, n, how weights are stored) of products in f32.
CACHES = ((12, 1024, 64), (8, 2048, 64), (32, 2048, 128))
STORED = (
    (1, 4096, 4096, "i8"), (4, 4096, 4096, "i8"), (1, 4096, 4096, "bf16"), (4, 4096, 4096, "bf16"), (1, 768, 3072, "i8"),
)  # fmt: skip

# (rows, k, n, group) of weights of 4 bits with a factor for every group of a column's elements.
GROUPED = ((1, 4096, 4096, 32), (1, 4096, 4096, 128), (4, 4096, 4096, 32), (1, 4096, 14336, 32))

# Attention's two products at batch 1 (heads, queries, keys, head size): BERT-base at 128 tokens, ViT-B/16, GPT-2 at 64,
# and a long sequence.
ATTENTIONS = {
    "bert": (12, 128, 128, 64),
    "vit": (12, 197, 197, 64),
    "gpt2": (12, 64, 64, 64),
    "long": (12, 512, 512, 64),
}

# What memory bounds: name -> (a function of `operators`, its arguments). Depthwise convolutions are MobileNetV2's at
# 224x224 (Sandler et al., 2018, Table 2): channels, size, stride.
_DEPTHWISE = (
    (32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2), (384, 14, 1), (576, 14, 1),
    (576, 14, 2), (960, 7, 1),
)  # fmt: skip
MEMORY: dict[str, tuple] = {
    **{
        f"depthwise-{channels}x{size}s{stride}": (
            "conv2d",
            (1, channels, size, size),
            channels,
            3,
            stride,
            1,
            channels,
        )
        for channels, size, stride in _DEPTHWISE
    },
    "relu-1x64x112x112": ("elementwise", "relu", (1, 64, 112, 112)),
    "relu-32x64x112x112": ("elementwise", "relu", (32, 64, 112, 112)),
    "add-1x256x56x56": ("elementwise", "add", (1, 256, 56, 56)),
    "add-32x256x28x28": ("elementwise", "add", (32, 256, 28, 28)),
    "gelu-128x3072": ("elementwise", "gelu", (128, 3072)),
    "gelu-4096x3072": ("elementwise", "gelu", (4096, 3072)),
    "gelu-512x512-f64": ("elementwise", "gelu", (512, 512), "f64"),
    "scale-rows-16384x24": ("scale_rows", (16384, 24)),
    "sample-4x16x64x64": ("grid_sample", (4, 16, 64, 64)),
    "maxpool-64x112k3s2": ("max_pool2d", (1, 64, 112, 112), 3, 2, 1),
    "avgpool-64x56k3s1": ("avg_pool2d", (1, 64, 56, 56), 3, 1, "same"),
    "globalpool-2048x7": ("mean", (1, 2048, 7, 7), (2, 3)),
    "softmax-12x128x128": ("softmax", (12, 128, 128)),
    "softmax-4096x4096": ("softmax", (4096, 4096)),
    "layernorm-128x768": ("layer_norm", (128, 768)),
    "layernorm-8192x768": ("layer_norm", (8192, 768)),
    "mean-rows-4096x4096": ("mean", (4096, 4096), (1,)),
    "mean-columns-4096x4096": ("mean", (4096, 4096), (0,)),
    "mean-channels-32x256x28x28": ("mean", (32, 256, 28, 28), (0, 2, 3)),
}

# Running sums, sorts, sums of rows or elements by number, and Fourier transforms: name -> (function of `bench.operators`, arguments).
LINES = {
    "cumsum-rows-4096x1024": ("cumsum", (4096, 1024), 1),
    "cumsum-columns-1024x4096": ("cumsum", (1024, 4096), 0),
    "sort-4096x256": ("sort", (4096, 256)),
    "sort-1x50257": ("sort", (1, 50257)),
    "sort-numbers-20000": ("sort_numbers", 20000, 1000),
    "topk8-4096x1024": ("topk", (4096, 1024), 8),
    "topk50-1x50257": ("topk", (1, 50257), 50),
    "embedding-gradient-30522x256": ("index_add", (30522, 256), 1024),
    "index-add-10000x128": ("index_add", (10000, 128), 40000),
    "scatter-add-4096x256": ("scatter_add", (4096, 256)),
    "put-tokens-32x197x768": ("put_tokens", (32, 197, 768), 49),
    "greatest-of-edges-1000x64": ("greatest_of_edges", (1000, 64), 20000),
    "spectrogram-4x48000": ("spectrogram", (4, 48000), 400, 160),
    "spectral-layer-4x32x64x64": ("spectral_layer", (4, 32, 64, 64)),
}

_QUICK_GEMMS = {"512x512x512", "128x768x3072", "1x256x1024", "attention-bert-scores"}
_QUICK_EXPERTS = {"8x512x1024-rows8"}
_QUICK_DECODING = {"cache-12x1024x64", "1x768x3072-i8"}
_QUICK_MEMORY = {
    "depthwise-144x56s1",
    "relu-1x64x112x112",
    "softmax-12x128x128",
    "layernorm-128x768",
    "globalpool-2048x7",
}
_QUICK_LINES = {"sort-4096x256", "topk50-1x50257"}
_QUICK_CONVS = {1, 2, 5, 12}
_QUICK_TRAINING = {"dcgan-b16"}
_QUICK_ROLLER = {"C0", "C34", "D21", "E9", "M2", "P10", "R3"}


def suite(name: str, only: Sequence[str] = (), quick: bool = False, batch: int = 1) -> list[Case]:
    """The cases of suite `name`, in order; `only` keeps the named ones, `quick` a representative few.

    `batch` scales the leading dimension of models, trained ones too, and of Roller's operators (128 as published).
    Raises ValueError for a suite or case that does not exist.
    """
    makers = {
        "models": _models,
        "training": _training,
        "resnet18-conv": _convs,
        "gemm": _gemms,
        "experts": _experts,
        "decoding": _decoding,
        "memory": _memory,
        "lines": _lines,
        "roller119": _roller,
    }
    if name not in makers:
        raise ValueError(f"unknown suite `{name}`; the suites are: {', '.join(SUITES)}")
    if name == "models":
        return _models(only, quick, batch)
    cases = makers[name](only, quick, batch)
    known = {case.name for case in cases}
    if missing := [case for case in only if case not in known]:
        raise ValueError(
            f"suite `{name}` has no case {', '.join(missing)}; it has: {', '.join(sorted(known))}"
        )
    return [case for case in cases if case.name in only] if only else cases


def operator(name: str, *arguments) -> tuple:
    """Makes an operator; torch is imported only now, after the threads were set."""
    from tilewright.bench import operators

    return getattr(operators, name)(*arguments)


def _models(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    names = only or (models.QUICK if quick else models.DEFAULT)
    cases = []
    for name in names:
        if name not in models.REGISTRY and ":" not in name:
            raise ValueError(
                f"unknown model `{name}`; expected module:function or one of: {', '.join(models.REGISTRY)}"
            )
        # A function of the user's need not take a batch.
        options = {"batch": batch} if name in models.REGISTRY else {}
        cases.append(Case(name, partial(models.build, name, **options)))
    return cases


def _training(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    return [
        Case(name, partial(_trained, model, {**options, "batch": batch * options["batch"]}), training=True)
        for name, (model, options) in TRAINING.items()
        if only or not quick or name in _QUICK_TRAINING
    ]


def _trained(model: str, options: dict) -> tuple:
    """A model of the zoo in training mode, every parameter of which wants a gradient."""
    module, inputs = models.build(model, **options)
    return module.train().requires_grad_(True), inputs


def _convs(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    cases = []
    for number, (size, inputs, filters, kernel, stride) in enumerate(RESNET18_CONVS, 1):
        if only or not quick or number in _QUICK_CONVS:
            shape = (batch, inputs, size, size)
            make = partial(operator, "conv2d", shape, filters, kernel, stride, kernel // 2)
            cases.append(Case(f"C{number}", make))
    return cases


def _gemms(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    cases = []
    for m, k, n, weight, dtype in GEMMS:
        name = f"{m}x{k}x{n}{'' if weight else '-inputs'}{'' if dtype == 'f32' else f'-{dtype}'}"
        cases.append(Case(name, partial(operator, "matmul", m, k, n, weight, dtype)))
    for name, shape in ATTENTIONS.items():
        for part in ("scores", "values"):
            cases.append(
                Case(f"attention-{name}-{part}", partial(operator, f"attention_{part}", *shape, batch))
            )
    return [case for case in cases if only or not quick or case.name in _QUICK_GEMMS]


def _experts(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    cases = []
    for count, rows, k, n, dtype in EXPERTS:
        name = f"{count}x{k}x{n}-rows{rows}{'' if dtype == 'f32' else f'-{dtype}'}"
        make = partial(operator, "experts", count, rows, k, n, dtype)
        unread = max(0, count - rows) * k * n * (4 if dtype == "f32" else 2)
        cases.append(Case(name, make, flops=2 * rows * k * n, unread_bytes=unread))
    return [case for case in cases if only or not quick or case.name in _QUICK_EXPERTS]


def _decoding(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    cases = []
    for heads, length, size in CACHES:
        make = partial(operator, "cached_attention", heads, length, size)
        cases.append(Case(f"cache-{heads}x{length}x{size}", make, flops=4 * heads * length * size))
    for rows, k, n, stored in STORED:
        make = partial(operator, "stored_matmul", rows, k, n, stored)
        cases.append(Case(f"{rows}x{k}x{n}-{stored}", make, flops=2 * rows * k * n))
    for rows, k, n, group in GROUPED:
        make = partial(operator, "grouped_matmul", rows, k, n, group)
        cases.append(Case(f"{rows}x{k}x{n}-i4-by{group}", make, flops=2 * rows * k * n))
    return [case for case in cases if only or not quick or case.name in _QUICK_DECODING]


def _memory(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    return [
        Case(name, partial(operator, *row))
        for name, row in MEMORY.items()
        if only or not quick or name in _QUICK_MEMORY
    ]


def _lines(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    return [
        Case(name, partial(operator, *row))
        for name, row in LINES.items()
        if only or not quick or name in _QUICK_LINES
    ]


def roller_rows() -> list[dict]:
    """The rows of `data/roller119.json`."""
    return json.loads((Path(__file__).parent / "data" / "roller119.json").read_text())["operators"]


def _roller(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    return [
        Case(row["name"], partial(operator, "from_row", row, batch), {"v100_ms": row["v100_ms"]})
        for row in roller_rows()
        if only or not quick or row["name"] in _QUICK_ROLLER
    ]
