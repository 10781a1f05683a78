"""PyTorch's own database of operators and sample arguments, as programs of one statement."""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from fuzz.tensors import DTYPES, FLOATS, values

RANDOM = [
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "normal",
    "uniform",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.rrelu",
    "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "svd_lowrank",
    "pca_lowrank",
]
UNDEFINED = [
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
]
"""Operators whose values are whatever was in memory."""
_OPEN = ["mode", "topk", "kthvalue", "median", "nanmedian", "msort"]
"""Operators that may name any of several equal elements: only their first result is compared."""
_EXACT = [
    "view",
    "reshape",
    "permute",
    "transpose",
    "expand",
    "narrow",
    "slice",
    "select",
    "split",
    "chunk",
    "unbind",
    "squeeze",
    "unsqueeze",
    "flatten",
    "cat",
    "stack",
    "gather",
    "scatter",
    "index",
    "take",
    "where",
    "masked_fill",
    "flip",
    "roll",
    "rot90",
    "tile",
    "repeat",
    "pad",
    "sort",
    "tril",
    "triu",
    "diag",
    "clone",
    "contiguous",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "cummax",
    "cummin",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical",
    "bitwise",
    "is",
    "sign",
    "abs",
    "neg",
    "relu",
    "unfold",
    "movedim",
    "swapaxes",
    "swapdims",
    "t",
    "as_strided",
    "broadcast",
    "hstack",
    "vstack",
    "dstack",
    "column_stack",
    "full",
    "zeros",
    "ones",
    "eye",
    "one_hot",
]


@dataclass(frozen=True)
class Sample:
    """One call of an operator: Python in which `{name}` stands for tensors, and the tensors."""

    operator: str
    source: str
    tensors: dict[str, torch.Tensor]
    rounding: str
    results: int


@cache
def database() -> dict[str, list[Any]]:
    """Operators by name, each with its variants; without random and undefined ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    found: dict[str, list[Any]] = {}
    for info in op_db:
        if info.name not in (*RANDOM, *UNDEFINED) and path_of(info.name) and "jiterator" not in info.name:
            found.setdefault(info.name, []).append(info)
    return found


@cache
def claimed() -> tuple[str, ...]:
    """Names in the database of operators that torch-mlir has a form for, or that are decomposed while tracing."""
    import torch_mlir.dialects._torch_ops_gen as generated

    from tilewright.compiler.importers.torch.decompositions import decomposition_table

    with open(generated.__file__, encoding="utf-8") as file:
        named = set(re.findall(r'OPERATION_NAME = "torch\.(?:aten|prims)\.(\w+)', file.read()))
    named |= {str(op).split(".")[1] for op in decomposition_table() if str(op).startswith("aten.")}
    return tuple(
        sorted(name for name, infos in database().items() if any(i.aten_name in named for i in infos))
    )


@cache
def path_of(name: str) -> str | None:
    """How an operator is called in Python."""
    for base in ("torch.", "torch.Tensor."):
        with contextlib.suppress(AttributeError, SyntaxError):
            eval(base + name, {"torch": torch})
            return base + name
    return None


def samples(name: str, dtype: str, seed: int, most: int = 4, special: bool = False) -> list[Sample]:
    """Up to `most` calls of an operator on a dtype, spread over those of the database; with special values if asked."""
    made: list[Sample] = []
    kind = getattr(torch, dtype)
    for info in database()[name]:
        if not info.supports_dtype(kind, "cpu"):
            continue
        torch.manual_seed(seed)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            listed = list(info.sample_inputs("cpu", kind, requires_grad=False))
        step = max(1, math.ceil(len(listed) / most))
        for sample in listed[seed % step :: step][:most]:
            found = _written(name, info, sample, dtype, seed if special else None)
            if found is not None:
                made.append(found)
    return made


def _written(name: str, info: Any, sample: Any, dtype: str, special: int | None) -> Sample | None:
    tensors: dict[str, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(special or 0)
    elementwise = type(info).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo", "ShapeFuncInfo")

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            if (
                value.layout != torch.strided
                or str(value.dtype)[6:] not in DTYPES
                or value.device.type != "cpu"
            ):
                raise ValueError
            if (
                special is not None
                and (elementwise or value.is_floating_point())
                and value.dtype == getattr(torch, dtype)
            ):
                value = values(tuple(value.shape), dtype, "special", generator)
            key = f"t{len(tensors)}"
            tensors[key] = value.detach()
            return f"{{{key}}}"
        if isinstance(value, (list, torch.Size)) or type(value) is tuple:
            inner = "".join(f"{text(v)}, " for v in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        if value is None or isinstance(
            value, (bool, int, float, str, torch.dtype, slice, torch.memory_format)
        ):
            return repr(value).replace("{", "{{").replace("}", "}}")
        raise ValueError

    try:
        arguments = [text(sample.input), *(text(a) for a in sample.args)]
        if name == "where":  # the database gives the condition second
            arguments[:2] = arguments[1::-1]
        arguments += [f"{k}={text(v)}" for k, v in sample.kwargs.items() if k not in ("device", "pin_memory")]
    except ValueError:
        return None
    if sum(t.numel() for t in tensors.values()) > 3000:
        return None
    short = name.rpartition(".")[2].strip("_")
    exact = any(short == word or short.startswith(word + "_") for word in _EXACT) or not tensors
    rounding = "exact" if exact else ("once" if elementwise else "sum")
    if short.startswith("conv") and not exact:
        rounding = "window"
    if dtype not in FLOATS and not elementwise:
        rounding = "exact" if exact else "sum"
    source = f"{path_of(name)}({', '.join(arguments)})"
    results = _results(source, tensors)
    if results is None or (special is None and not _same_as(info, sample, source, tensors)):
        return None
    if results == 0 or (short in _OPEN and results > 1):
        source, results = f"{source}[0]", 1
    return Sample(name, source, tensors, rounding, results)


def _same_as(info: Any, sample: Any, source: str, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether the call does what the database's own function does, which may take its arguments otherwise."""
    from fuzz.program import namespace

    function = eval(path_of(info.name) or "None", {"torch": torch})
    if info.op is function:
        return True
    names = {**namespace(), **{key: value.clone() for key, value in tensors.items()}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        ours = eval(source.format(**{key: key for key in tensors}), names)
        theirs = info.op(sample.input, *sample.args, **sample.kwargs)
    return str(ours) == str(theirs)


def _results(source: str, tensors: dict[str, torch.Tensor]) -> int | None:
    """How many tensors a call returns, 0 for a tuple of one; None when it returns anything else, or raises."""
    from fuzz.program import namespace

    names = {**namespace(), **{key: value.clone() for key, value in tensors.items()}}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            found = eval(source.format(**{key: key for key in tensors}), names)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return None
    parts = list(found) if isinstance(found, (tuple, list)) else [found]
    if not parts or not all(isinstance(p, torch.Tensor) and str(p.dtype)[6:] in DTYPES for p in parts):
        return None
    if any(p.layout != torch.strided for p in parts):
        return None
    return 0 if isinstance(found, (tuple, list)) and len(parts) == 1 else len(parts)
