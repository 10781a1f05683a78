"""The model zoo of the benchmarks: a name -> a seeded module in eval mode and its example inputs.

Models are plain `torch.nn`, randomly initialised: nothing is downloaded, and two runs see the same weights.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


class UnknownModelError(ValueError):
    """A model name is neither in the registry nor an importable `module:function`."""


@dataclass(frozen=True)
class Entry:
    """Where a model is made, what it is, and whether it belongs to the quick subset."""

    place: str
    about: str
    quick: bool = False


REGISTRY: dict[str, Entry] = {
    "resnet18": Entry("resnet:resnet18", "ResNet-18, 224x224", quick=True),
    "resnet50": Entry("resnet:resnet50", "ResNet-50, 224x224"),
    "mobilenet_v2": Entry("mobilenet:mobilenet_v2", "MobileNetV2, 224x224", quick=True),
    "bert_tiny": Entry("transformer:bert_tiny", "BERT, 2 layers of 128, 128 tokens", quick=True),
    "bert_mini": Entry("transformer:bert_mini", "BERT, 4 layers of 256, 128 tokens"),
    "bert_base": Entry("transformer:bert_base", "BERT, 12 layers of 768, 128 tokens"),
    "vit_b16": Entry("transformer:vit_b16", "ViT-B/16, 224x224"),
    "vit_mini": Entry("transformer:vit_mini", "ViT, 4 layers of 256, 224x224"),
    "gpt2": Entry("transformer:gpt2", "GPT-2 (124M) with its LM head, 64 tokens"),
    "grouped_token": Entry(
        "decoding:grouped_token", "one token, 16 heads that share 4 of keys, 1,024 known tokens"
    ),
    "dcgan": Entry("dcgan:dcgan", "the generator of a DCGAN, 64x64"),
    "lstm": Entry("lstm:lstm", "10 LSTM layers of 256, 100 steps written out"),
    "nasnet_cell": Entry("nasnet:nasnet_cell", "a NASNet-A normal and a reduction cell, 32x32", quick=True),
    "nasnet_a": Entry("nasnet:nasnet_a", "NASNet-A 6@768 for 32x32 images"),
    "resnext29": Entry("resnet:resnext29", "ResNeXt-29 16x64d, 32x32"),
    "resnext50": Entry("resnet:resnext50", "ResNeXt-50 32x4d, 224x224"),
    "convnext_t": Entry("convnext:convnext_t", "ConvNeXt-T, 224x224"),
    "convnext_blocks": Entry("convnext:convnext_blocks", "one block of each stage of ConvNeXt-T, 224x224"),
    "inception_v3": Entry("inception:inception_v3", "Inception-v3, 299x299"),
    "efficientnet_v2_s": Entry("efficientnet:efficientnet_v2_s", "EfficientNetV2-S, 384x384"),
    "maxvit_t": Entry("maxvit:maxvit_t", "MaxViT-T, 224x224"),
}
"""Every model by name."""

LARGE = ("inception_v3", "efficientnet_v2_s", "maxvit_t")
"""Models of very many kernels, by which cold compile times are judged."""

_BY_NAME = ("nasnet_a", "bert_mini", "vit_mini", "grouped_token", "convnext_t", "convnext_blocks", *LARGE)
"""What is no part of the default suite: models of it at another size, of which training uses two, a layer of one token, ConvNeXt,
and `LARGE`."""

DEFAULT = tuple(name for name in REGISTRY if name not in _BY_NAME)
QUICK = tuple(name for name, entry in REGISTRY.items() if entry.quick)


def build(name: str, **options: Any) -> tuple[Any, tuple]:
    """Makes model `name`: a registry name or `module:function`; returns (module, example inputs as a tuple).

    A function of the user's may return a module and its inputs (one tensor or a tuple of them). Modules are
    looked up in the current folder too. Raises UnknownModelError.
    """
    if name in REGISTRY:
        module_name, _, function = REGISTRY[name].place.partition(":")
        maker = getattr(import_module(f"{__name__}.{module_name}"), function)
    elif ":" in name:
        maker = _user_function(name)
    else:
        raise UnknownModelError(
            f"unknown model `{name}`; expected module:function or one of: {', '.join(REGISTRY)}"
        )
    made = maker(**options)
    if not (isinstance(made, tuple) and len(made) == 2):
        raise UnknownModelError(f"`{name}` returned {type(made).__name__}; expected (module, example inputs)")
    module, inputs = made
    return module, inputs if isinstance(inputs, tuple) else (inputs,)


def _user_function(name: str):
    module_name, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UnknownModelError(f"`{name}`: {error}; run where `{module_name}` lies") from None
    if not hasattr(module, function):
        raise UnknownModelError(f"`{name}`: module `{module_name}` has no `{function}`")
    made = getattr(module, function)
    if not callable(made):
        raise UnknownModelError(
            f"`{name}` is {type(made).__name__}; expected a function that returns (module, example inputs)"
        )
    return made
