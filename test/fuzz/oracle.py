"""What eager PyTorch computes, and how far each element may lie from it.

A program runs nine times besides: in float64, and eight times in float64 with every rounding made at random, a few
ulp of the type that eager PyTorch has there. What these runs disagree on is not determined by the program: their
spread bounds a float's error, and an integer or boolean on which they differ is compared with nothing.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from fuzz.bounds import Expected, bounds, loose
from fuzz.program import Program
from fuzz.roundings import ROUNDINGS
from fuzz.wide_run import Run, WideRun, follow, reads_bits


def expected(program: Program, build: Any) -> list[Expected]:
    """Outputs, then inputs and weights after the call, of a program on the tensors that `build()` makes anew.

    Raises what eager PyTorch raises.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = build()
        eager = Run(program, tensors)
        runs = [WideRun(program, tensors, None)]
        runs += [WideRun(program, tensors, number) for number in range(ROUNDINGS)]
        for statement in program.statements:
            before = {n: eager.names[n] for n in statement.uses()}
            if reads_bits(statement):
                before = {n: value.clone() for n, value in before.items()}
            eager.step(statement)
            runs = follow(runs, statement, before, eager.names)
        found = eager.results()
        inputs = [eager.names[tensor.name] for tensor in program.inputs]
        others = [run.results() for run in runs]
        made = []
        for i, value in enumerate(found):
            bound = bounds(value, [o[i] for o in others]) if len(runs) > ROUNDINGS else loose(value)
            made.append(Expected(value.clone(), bound, shared(value, inputs)))
        return made


def shared(value: torch.Tensor, inputs: list[torch.Tensor]) -> int | None:
    """The first input in whose memory a tensor lies."""
    for number, tensor in enumerate(inputs):
        if value.numel() and value.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
            return number
    return None
