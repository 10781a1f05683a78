"""Runs PyTorch functions as GPU kernels under emulation, and says which families wrote them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils import _pytree as pytree

from tilewright.compiler import driver, phases
from tilewright.compiler.families.gpu.families import FAMILIES
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.targets.target import resolve

ELEMENTS = frozenset(FAMILIES["elementwise"])
"""What is computed element by element."""
SEEDS = (0, 1, 2)
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}


def check(
    function: Callable,
    *args: torch.Tensor,
    kernels: frozenset[str] = ELEMENTS,
    tolerance: float | None = None,
    seeds: tuple[int, ...] = SEEDS,
    arch: str = "sm_90a",
) -> None:
    """The function's kernels, all of these kinds, give PyTorch's results in several orders of threads."""
    compiled = driver.compile(function, args, target=f"emulate:{arch}")
    notes = compiled.executable.package.notes["dispatches"]
    found = {note["name"]: note["family"] for note in notes}
    assert set(found.values()) <= kernels, found
    with torch.no_grad():
        expected = pytree.tree_leaves(function(*args))
    for seed in seeds:
        compiled.executable.seed = seed
        for ours, theirs in zip(pytree.tree_leaves(compiled(*args)), expected, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            allowed = tolerance if tolerance is not None else TOLERANCES.get(theirs.dtype, 2e-5)
            torch.testing.assert_close(ours, theirs, rtol=allowed, atol=allowed, equal_nan=True)


def dispatches(
    function: Callable, *args: torch.Tensor, arch: str = "sm_90a"
) -> tuple[ir.Module, dict[str, ir.Operation]]:
    """A function's module after the schedule phase, and the dispatches in it by name."""
    imported = driver.import_model(function, args)
    phases.run_phases(imported.module, resolve(f"cuda:{arch}"))
    found = [f for f in functions(imported.module) if "tilewright.operator" in f.attributes]
    return imported.module, {ir.StringAttr(f.attributes["sym_name"]).value: f for f in found}


def sample(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Numbers around 0, small integers, or booleans."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        return torch.randint(low, 10, shape, dtype=dtype, generator=generator)
    return torch.randn(shape, generator=generator).to(dtype)
