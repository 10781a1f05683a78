"""`tilewright run --check`: a model on an emulated GPU, under several orders of its threads, beside a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.compiler.cli.models import named_arrays
from tilewright.runtime.emulated import EmulatedExecutable
from tilewright.runtime.errors import EmulationError, KernelAssertError

TOLERANCE = {"float16": 1e-2, "bfloat16": 8e-2, "float32": 1e-3, "float64": 1e-9, "complex64": 1e-3}
"""How far results may be from the reference by dtype, relative to the largest value of each output; else 0.

Sums run in another order there, and softmax after many layers amplifies that."""


@dataclass(frozen=True)
class Checked:
    """What one seed showed: `problem` is a report or a comparison that failed, empty when all is well."""

    seed: int
    error: float
    problem: str


def reference(model: Any) -> Callable[..., Any]:
    """What computes a model's results independently of its GPU kernels: eager PyTorch, else this compiler for CPUs."""
    if hasattr(model, "module") and hasattr(model, "graph_signature"):
        return model.module()
    if callable(model):
        return model
    from tilewright.compiler import driver

    return driver.compile(model)


def check(
    compiled: Any,
    expected: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    seeds: int,
    factor: float = 1.0,
) -> list[Checked]:
    """Runs the model under `seeds` orders of threads and compares each with `expected` (None: with the first).

    `factor` widens the tolerance.
    """
    executable: EmulatedExecutable = compiled.executable
    wanted = None if expected is None else named_arrays(expected)
    rows = []
    for seed in range(seeds):
        executable.seed, executable.is_checked = seed, True
        try:
            found = named_arrays(compiled(*arguments, **keywords))
        except (EmulationError, KernelAssertError) as error:
            rows.append(Checked(seed, float("nan"), str(error)))
            continue
        if wanted is None:
            wanted = {name: array.copy() for name, array in found.items()}
        rows.append(Checked(seed, *compare(found, wanted, factor)))
    return rows


def compare(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], factor: float) -> tuple[float, str]:
    """The largest error relative to each output's largest value, and what is wrong, if anything."""
    largest, problems = 0.0, []
    if found.keys() != wanted.keys():
        return float("nan"), f"expected outputs {', '.join(wanted)}, found {', '.join(found)}"
    for name, array in found.items():
        other = wanted[name]
        if array.shape != other.shape:
            problems.append(f"{name}: expected shape {other.shape}, found {array.shape}")
            continue
        if not array.size:
            continue
        wide = np.complex128 if np.iscomplexobj(array) else np.float64
        left, right = array.astype(wide), other.astype(wide)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            distance = np.where(same, 0.0, np.abs(left - right))
        scale = np.max(np.abs(right), initial=0.0, where=np.isfinite(right)) or 1.0
        error = float(np.max(np.where(np.isnan(distance), np.inf, distance)) / scale)
        largest = max(largest, error)
        allowed = factor * TOLERANCE.get(str(array.dtype), 0.0)
        if error > allowed:
            worst = np.unravel_index(np.argmax(np.where(np.isnan(distance), np.inf, distance)), array.shape)
            place = ", ".join(str(int(i)) for i in worst)
            problems.append(
                f"{name}[{place}]: expected {other[worst]}, found {array[worst]}; relative to the largest value "
                f"the error is {error:.2g}, allowed {allowed:.2g}"
            )
    return largest, "\n".join(problems)
