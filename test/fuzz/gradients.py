"""Programs under torch.compile with gradients: results and the gradients of every floating-point input."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

from fuzz.bounds import Expected, bounds, compared, difference
from fuzz.outcome import Outcome
from fuzz.paths import COMPILERS
from fuzz.program import Program
from fuzz.roundings import ROUNDINGS
from fuzz.wide_run import Run, WideRun, follow
from tilewright.compiler.torch import fallback


def run(program: Program) -> Outcome:
    """The outcome of a program that is differentiated with respect to its inputs."""
    from fuzz.execution import fallen_back, raised

    try:
        wanted = _expected(program)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return Outcome("invalid", str(error))
    if wanted is None:
        return Outcome("invalid", "nothing to differentiate")
    fallback._reported.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compiled = COMPILERS[program.path](program.function(), ())
            tensors = leaves(program, program.build(program.seed))
            given = program.given(tensors)
            results = program.returned(compiled(**given) if isinstance(given, dict) else compiled(*given))
            if results is None:
                return Outcome("wrong", "other containers or constants than eager's")
            found = [*results, *_gradients(results, [tensors[t.name] for t in program.inputs])]
        except Exception as error:
            return raised(program, error)
        labels = [*program.outputs, *(f"the gradient of {t.name}" for t in program.inputs)]
        for label, tensor, want in zip(labels, found, wanted):
            if (tensor is None) != (want is None):
                return Outcome("wrong", f"{label}: {'no' if tensor is None else 'a'} gradient")
            wrong = difference(tensor, want) if want is not None else None
            if wrong and _is_upstream(program, wanted):
                return Outcome("invalid", f"PyTorch's own traced gradient differs: {label}: {wrong}")
            if wrong:
                return Outcome("wrong", f"{label}: {wrong}")
    count, elements = compared([want for want in wanted if want is not None])
    return fallen_back(caught) or Outcome("ok", compared=count, elements=elements)


def _is_upstream(program: Program, wanted: list[Expected | None]) -> bool:
    """Whether PyTorch's tracer alone, with nothing compiled behind it, differs from its eager gradients."""
    torch._dynamo.reset()
    traced = torch.compile(program.function(), backend="aot_eager")
    tensors = leaves(program, program.build(program.seed))
    given = program.given(tensors)
    results = program.returned(traced(**given) if isinstance(given, dict) else traced(*given))
    gradients = _gradients(results or [], [tensors[t.name] for t in program.inputs])
    pairs = zip(gradients, wanted[len(program.outputs) :])
    return any(g is not None and want is not None and difference(g, want) for g, want in pairs)


def leaves(program: Program, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Floating-point inputs ask for gradients."""
    inputs = {tensor.name for tensor in program.inputs}
    return {
        name: value.detach().requires_grad_() if name in inputs and value.is_floating_point() else value
        for name, value in tensors.items()
    }


def _gradients(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Of results weighted by a fixed pattern, with respect to inputs that ask for it."""
    asked = [tensor for tensor in inputs if tensor.requires_grad]
    ends = [result for result in results if result.requires_grad]
    made = iter(torch.autograd.grad(ends, asked, [_pattern(end) for end in ends], allow_unused=True))
    return [next(made) if tensor.requires_grad else None for tensor in inputs]


def _pattern(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.arange(tensor.numel(), dtype=torch.float64)
    return (torch.cos(flat) + 0.25).reshape(tensor.shape).to(tensor.dtype)


def _open(gradient: torch.Tensor | None, eager: torch.Tensor | None) -> torch.Tensor | None:
    """NaN for a gradient that only eager has: what may be anything is a constant in the other runs."""
    return torch.full_like(eager, math.nan) if gradient is None and eager is not None else gradient


def _expected(program: Program) -> list[Expected | None] | None:
    tensors = program.build(program.seed)
    eager = Run(program, leaves(program, tensors))
    runs = [WideRun(program, tensors, None)]
    runs += [WideRun(program, tensors, number) for number in range(ROUNDINGS)]
    for run in runs:
        run.names.update(leaves(program, {name: run.names[name] for name in tensors}))
    for statement in program.statements:
        eager.step(statement)
        runs = follow(runs, statement, eager.names, eager.names)
    if len(runs) <= ROUNDINGS:
        raise RuntimeError("float64 does not have every operator")
    inputs = [t.name for t in program.inputs]
    results = [eager.names[name] for name in program.outputs]
    if not any(result.requires_grad for result in results):
        return None
    found = [*results, *_gradients(results, [eager.names[name] for name in inputs])]
    others: list[list[Any]] = []
    for run in runs:
        made = [run.names[name] for name in program.outputs]
        slopes = _gradients(made, [run.names[name] for name in inputs])
        others.append([*made, *(_open(s, value) for s, value in zip(slopes, found[len(results) :]))])
    wanted: list[Expected | None] = []
    for i, value in enumerate(found):
        if value is None:
            wanted.append(None)
            continue
        bound = bounds(value, [other[i] for other in others])
        if i >= len(results):
            # The backward pass rounds too, which these runs do not disturb: by the size of the whole gradient.
            largest = float(value.detach().abs().double().amax()) if value.numel() else 0.0
            bound = bound * 4 + 16 * torch.finfo(value.dtype).eps * largest
        wanted.append(Expected(value.detach().clone(), bound))
    return wanted
