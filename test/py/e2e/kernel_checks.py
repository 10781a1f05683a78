"""Compiles batches of cases as one model and compares every result with what eager PyTorch says.

The reference is eager in float64 on the same values. For sums of products the bound is the textbook one, with
K terms: |error| <= eps(result) |reference| + c(K) eps(accumulator) f(|arguments|).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from kernel_draws import Case
from torch import nn

from tilewright.compiler import phases
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.importers import Imported
from tilewright.compiler.ir import ir
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import Target, resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel


class Batch(nn.Module):
    """All cases in one model; weights are parameters, so that they take the way of weights."""

    def __init__(self, cases: Sequence[Case]):
        super().__init__()
        self.cases = cases
        for number, case in enumerate(cases):
            for position, weight in enumerate(case.weights):
                self.register_buffer(f"weight_{number}_{position}", weight)

    def forward(self, *inputs):
        results, position = [], 0
        for number, case in enumerate(self.cases):
            own = inputs[position : position + len(case.inputs)]
            position += len(case.inputs)
            weights = [getattr(self, f"weight_{number}_{i}") for i in range(len(case.weights))]
            results.append(as_tuple(case.function(*own, *weights)))
        return tuple(results)


Decide = Callable[[ir.Module], None]
"""Writes schedules on some dispatches of a module that was cut into dispatches."""


def finely(module: ir.Module) -> None:
    """Cuts even tiny work into several rTasks."""
    target = resolve("cpu")
    small = replace(ConstructSchedules.for_target(target), cores=7, start_us=0.0, task_us=0.0)
    run_pipeline(module.operation, f"builtin.module({small.spec()})")


def runs(target: Target) -> bool:
    """Whether this machine has the instructions of `target`."""
    return set(target.cpu_features) <= set(resolve("cpu").cpu_features)


def compiled(
    imported: Imported, threads: Sequence[int], decide: Decide | None = None, target: Target | None = None
) -> list[CompiledModel]:
    """The model compiled once and bound per number of threads; `decide` schedules what it wants to.

    For another target that this machine does not run, it is compiled and not bound.
    """
    target = target or resolve("cpu")
    phases.run_phases(imported.module, target, "graph", "dispatch")
    if decide:
        with imported.module.context, ir.Location.unknown():
            decide(imported.module)
    phases.run_phases(imported.module, target, "schedule", "schedule")
    package = phases.package_module(imported.module, target, phases.Report())
    if not runs(target):
        return []
    return [
        CompiledModel(
            Executable(package, list(imported.weights), number),
            imported.signature,
            imported.state,
            imported.weights,
        )
        for number in threads
    ]


def check(
    cases: Sequence[Case],
    decide: Decide | None = None,
    threads: Sequence[int] = (1, 2),
    repeats: int = 2,
    target: Target | None = None,
) -> None:
    """Compiles `cases` together, runs them with every number of threads, and asserts what each promises."""
    inputs = tuple(tensor for case in cases for tensor in case.inputs)
    problems: dict[str, str] = {}
    try:
        models = compiled(import_model(Batch(cases), inputs), threads, decide, target)
    except TilewrightError as error:
        if len(cases) == 1:
            raise AssertionError(f"{cases[0].name} does not compile: {error}") from error
        for case in cases:
            try:
                check([case], decide, threads, repeats, target)
            except AssertionError as single:
                problems[case.name] = str(single)
        raise AssertionError("\n".join(problems.values()) or f"only together: {error}") from error
    for number, model in zip(threads, models):
        for repeat in range(repeats if number > 1 else 1):
            results = model(*inputs)
            for case, got in zip(cases, results):
                for text in differences(case, got):
                    # The same mistake in every run is told once, with the first run that shows it.
                    problems.setdefault(f"{case.name}: {text}", f"with {number} threads, run {repeat}")
    assert not problems, "\n".join(f"{text}, {first}" for text, first in problems.items())


def differences(case: Case, results: Sequence[torch.Tensor]) -> list[str]:
    """What is wrong with the results of one case, in words."""
    arguments = (*case.inputs, *case.weights)
    with torch.no_grad():
        eager = as_tuple(case.function(*arguments))
        exact = eager if case.terms == 0 else as_tuple(case.function(*map(widened, arguments)))
        sizes = as_tuple(case.function(*(widened(a).abs() for a in arguments))) if case.terms else exact
    found = []
    for place, (ours, theirs, reference, size) in enumerate(zip(results, eager, exact, sizes, strict=True)):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            found.append(
                f"result {place} is {ours.dtype}{[*ours.shape]}, not {theirs.dtype}{[*theirs.shape]}"
            )
            continue
        if case.terms == 0 or not theirs.dtype.is_floating_point:
            wrong = ~same_bits(ours, theirs)
            bound, error = torch.zeros(()), (ours.double() - theirs.double()).abs()
        else:
            bound = tolerance(case, ours.dtype, reference, size)
            error = (ours.double() - reference).abs()
            alike = (ours.double() == reference) | (ours.isnan() & reference.isnan())
            wrong = ~((error <= bound) | alike)
        if wrong.any():
            index = tuple(wrong.nonzero()[0].tolist())
            limit = bound[index].item() if bound.ndim else 0.0
            found.append(
                f"result {place} {ours.dtype}{[*ours.shape]}: {int(wrong.sum())} of {wrong.numel()} wrong, "
                f"at {list(index)} {ours[index].item()} instead of {reference[index].item()} "
                f"(error {error[index].item():.3g}, bound {limit:.3g})"
            )
    return found


def tolerance(case: Case, dtype: torch.dtype, reference: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """The largest error that roundings explain, element by element."""
    eps = torch.finfo(dtype).eps
    tiny = torch.finfo(dtype).smallest_normal
    if case.terms:
        summing = (4 + 2 * math.sqrt(case.terms)) * torch.finfo(_accumulator(dtype)).eps
        return eps * reference.abs() + summing * size.double() + tiny
    return case.slack * eps * (reference.abs() + 1)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Equal values, signs of zeros included; NaN equals NaN."""
    if not theirs.dtype.is_floating_point:
        return ours == theirs
    return ((ours == theirs) & (ours.signbit() == theirs.signbit())) | (ours.isnan() & theirs.isnan())


def widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def as_tuple(value) -> tuple[torch.Tensor, ...]:
    return (value,) if isinstance(value, torch.Tensor) else tuple(value)
