"""The tensors that programs are called with: shapes, dtypes, values and memory layouts, all made from a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int64", "int32", "int16", "int8")
INTEGERS = (*SIGNED, "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
LAYOUTS = ("dense", "transposed", "strided", "offset", "expanded", "channels_last", "reversed_order")


@dataclass(frozen=True)
class Tensor:
    """One tensor of a program: `fill` says which values it holds, `layout` how they lie in memory.

    `alias` is an expression of earlier inputs whose memory the tensor shares.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    fill: str = "normal"
    layout: str = "dense"
    role: str = "input"
    alias: str | None = None

    def build(self, seed: int, others: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
        """The tensor with its values for a seed; `others` holds the inputs built before."""
        if self.alias is not None:
            return eval(self.alias, dict(others or {}))
        generator = torch.Generator().manual_seed((seed * 1000003 + sum(map(ord, self.name)) * 8191) % 2**31)
        return placed(values(self.shape, self.dtype, self.fill, generator), self.layout)

    def literal(self) -> str:
        """The tensor as it is written into a program."""
        return written(self.build(0))

    def expression(self, seed: int) -> str:
        """Python that makes the tensor again, with its layout."""
        if self.alias is not None:
            return self.alias
        made = self.build(seed)
        if self.layout == "dense":
            return written(made)
        base = torch.empty(0, dtype=made.dtype).set_(made.untyped_storage())
        return f"{written(base)}.as_strided({tuple(made.shape)}, {made.stride()}, {made.storage_offset()})"


def written(tensor: torch.Tensor) -> str:
    """A tensor as a Python expression, with every value."""
    if tensor.numel() > 512:
        kind = "randn" if tensor.dtype.is_floating_point else "ones"
        return f"torch.{kind}({tuple(tensor.shape)}).to({tensor.dtype})"
    if tensor.numel() == 0:
        return f"torch.zeros({tuple(tensor.shape)}, dtype={tensor.dtype})"
    return f"torch.tensor({tensor.tolist()}, dtype={tensor.dtype})"


def values(shape: tuple[int, ...], dtype: str, fill: str, generator: torch.Generator) -> torch.Tensor:
    """A dense tensor of one of the fills that `fills` lists, or `index:N`, `faulty:N`, `permutation:N`."""
    kind = getattr(torch, dtype)
    count = math.prod(shape)
    if ":" in fill:
        return _indices(shape, kind, fill, generator)
    if dtype == "bool":
        constant = {"zeros": 0.0, "ones": 1.0}.get(fill, 0.5)
        return torch.rand(shape, generator=generator) < constant
    if fill in ("zeros", "ones"):
        return torch.full(shape, float(fill == "ones")).to(kind)
    if not kind.is_floating_point:
        return _integers(shape, kind, fill, generator)
    wide = torch.randn(shape, generator=generator, dtype=torch.float64)
    if fill == "integers":
        wide = (wide * 2).round()
    elif fill == "unit":
        wide = torch.rand(shape, generator=generator, dtype=torch.float64) * 0.98 + 0.01
    elif fill == "positive":
        wide = wide.abs() + 0.1
    elif fill == "wide":
        wide = wide * 10 ** (torch.rand(shape, generator=generator, dtype=torch.float64) * 8 - 4)
    made = wide.to(kind)
    if fill in ("special", "finite"):
        special = _special_floats(kind)[3 if fill == "finite" else 0 :]
        chosen = special[torch.randint(0, len(special), (count,), generator=generator)].reshape(shape)
        made = torch.where(torch.rand(shape, generator=generator) < 0.4, chosen, made)
    return made


def _special_floats(kind: torch.dtype) -> torch.Tensor:
    info = torch.finfo(kind)
    tiny, large = info.smallest_normal, info.max
    listed = [math.nan, math.inf, -math.inf]
    listed += [0.0, -0.0, large, -large, tiny, -tiny, tiny / 4, -tiny / 4]
    listed += [1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, 3.0, 100.0, -100.0, 1e4, info.eps, 88.0, -88.0]
    return torch.tensor(listed, dtype=torch.float64).to(kind)


def _integers(
    shape: tuple[int, ...], kind: torch.dtype, fill: str, generator: torch.Generator
) -> torch.Tensor:
    info = torch.iinfo(kind)
    low = max(info.min, -9)
    made = torch.randint(low, 10, shape, generator=generator)
    if fill == "positive":
        made = made.abs() + 1
    if fill == "unit":
        made = made.abs() % 2
    made = made.to(kind)
    if fill in ("special", "wide", "finite"):
        listed = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, info.max // 2, info.max // 2 + 1]
        listed += [] if info.min == 0 else [-1, -2, info.min // 2]
        special = torch.tensor(listed, dtype=torch.int64)
        chosen = special[torch.randint(0, len(listed), shape, generator=generator)].to(kind)
        made = torch.where(torch.rand(shape, generator=generator) < 0.5, chosen, made)
    return made


def _indices(
    shape: tuple[int, ...], kind: torch.dtype, fill: str, generator: torch.Generator
) -> torch.Tensor:
    """`index:N` from 0, `signed:N` from -N, `faulty:N` beside them too, `permutation:N` each once along dim 0."""
    name, _, text = fill.partition(":")
    bound = int(text)
    if name == "permutation":
        return torch.randperm(bound, generator=generator)[: math.prod(shape)].reshape(shape).to(kind)
    low = -bound if name == "signed" else 0
    made = torch.randint(low, max(bound, low + 1), shape, generator=generator)
    if name == "faulty" and made.numel():
        flat = made.reshape(-1)
        at = int(torch.randint(0, flat.numel(), (), generator=generator))
        flat[at] = bound + 1 if bound % 2 else -bound - 3
    return made.to(kind)


def placed(dense: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values in another layout of memory; `expanded` repeats the first along one dimension."""
    dims = dense.dim()
    if layout == "transposed" and dims > 1:
        return dense.transpose(0, dims - 1).contiguous().transpose(0, dims - 1)
    if layout == "strided" and dims:
        room = torch.zeros([*dense.shape[:-1], dense.shape[-1] * 2 + 1], dtype=dense.dtype)
        view = room[..., 1::2]
        view.copy_(dense)
        return view
    if layout == "offset":
        room = torch.zeros(dense.numel() + 3, dtype=dense.dtype)
        view = room[3:].view(dense.shape)
        view.copy_(dense)
        return view
    if layout == "expanded" and dims and dense.shape[0] > 1:
        return dense[:1].clone().expand(dense.shape)
    if layout == "channels_last" and dims == 4:
        return dense.contiguous(memory_format=torch.channels_last)
    if layout == "reversed_order" and dims > 1:
        order = list(reversed(range(dims)))
        return dense.permute(order).contiguous().permute(order)
    return dense
