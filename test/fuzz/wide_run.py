"""A program's runs beside eager PyTorch's: in float64, every rounding made at random in all but one."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fuzz.oracle_functions import Dense, Wide, repeats
from fuzz.program import Program, Statement, code, namespace
from fuzz.roundings import AMPLITUDE, Roundings, in_range

_REST = re.compile(r"%|fmod|remainder")
"""What division leaves: eager PyTorch has NaN where the quotient overflows, and the number itself is as right."""
_CANCELS = re.compile(r"logaddexp|logit")
"""A sum of the larger operand and of a number up to ln 2, and a difference of logarithms, which may cancel."""
_EXTREME = re.compile(r"max|min")
"""Of zeros of both signs either is the largest: eager PyTorch's poolings keep the first."""
_CAST = re.compile(r"dtype=")
"""A reduction of integers that are rounded before they are added."""
_CASTS = re.compile(r"\.to\(|\.type_as\(|dtype=")
_PRODUCT = re.compile(r"prod\b")
_MODE = re.compile(r"\bmode\(")
_LOG_SUM = re.compile(r"log_softmax|logsumexp|logcumsumexp|cross_entropy")
"""Logarithms of sums whose largest term is 1: as far off as the sum, whatever they are."""
_ROUNDED_FIRST = re.compile(r"softmax\(.*dtype=")
"""PyTorch's exporter of ONNX computes them in the operand's type, and converts the result."""
_ZERO_OF_EITHER_SIGN = re.compile(r"softshrink")
"""Their zeros have the sign of the operand in the loop over single elements, and none in that over vectors."""
_OF_LARGEST = re.compile(r"linspace|fft\b|fft[2n]\b|stft|conv2d")
"""Steps are added to the ends, by a rounded product or none; Fourier transforms add up all elements for each result, and
Winograd's algorithm transforms tiles of an image, those that only neighbours read included."""

_OF_LARGEST_OPERAND = re.compile(r"bicubic|antialias|triplet")
"""Weights of cubic convolution are sums of terms up to 12, those of antialiasing have the rounding of a place in the image,
and losses of triplets are differences of distances."""


@contextlib.contextmanager
def default_float64() -> Iterator[None]:
    """Integers divided by integers, and constants without a type, are float64."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


class Run:
    """A program carried out statement by statement on given tensors."""

    def __init__(self, program: Program, tensors: dict[str, torch.Tensor]):
        self.program, self.names = program, {**namespace(), **tensors}

    def finish(self) -> list[torch.Tensor]:
        """All statements, then the outputs followed by the inputs, which may have been written."""
        for statement in self.program.statements:
            self.step(statement)
        return self.results()

    def step(self, statement: Statement) -> None:
        with Dense():
            exec(code(str(statement)), self.names)

    def results(self) -> list[torch.Tensor]:
        found = [self.names[name] for name in self.program.outputs]
        return found + [self.names[tensor.name] for tensor in self.program.owned()]


class WideRun(Run):
    """The run in float64 beside eager's own, from which it takes the types; with a number, roundings are random."""

    def __init__(self, program: Program, tensors: dict[str, torch.Tensor], number: int | None):
        wide: dict[int, torch.Tensor] = {}
        super().__init__(program, {name: _widened(value, wide) for name, value in tensors.items()})
        self.number = number or 0
        self.computed: set[str] = set()
        """Variables whose zeros may have either sign: what arithmetic made, and what was taken of that."""
        self.noise = None if number is None else Roundings(number, program.seed)

    def follow(self, statement: Statement, before: dict[str, torch.Tensor], after: dict[str, Any]) -> None:
        """Carries out a statement; `before` and `after` are eager's variables."""
        if statement.rounding == "once" and _CANCELS.search(statement.source):
            statement = replace(statement, rounding="inside")
        if reads_bits(statement):
            self._read_bits(statement, before)
            return
        names, kept = self.names, {}
        order = statement.rounding in ("sum", "window") or bool(_MODE.search(statement.source))
        open_ended = (
            order
            and self.noise is not None
            and _depends_on_order(statement, [before[name] for name in statement.uses()])
        )
        if self.noise is not None and statement.rounding in ("sum", "window", "inside"):
            # What is written in place is disturbed once it is.
            for name in statement.uses()[0 if statement.targets else 1 :]:
                kept[name], dtype = names[name], before[name].dtype
                if statement.targets and not dtype.is_floating_point and _CAST.search(statement.source):
                    dtype = after[statement.targets[0]].dtype
                    names[name] = names[name].double() if dtype.is_floating_point else names[name]
                if statement.rounding == "inside":
                    dtype = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype
                    names[name] = self.noise.disturbed(names[name], dtype)
                else:
                    names[name] = self.noise.disturbed_terms(names[name], dtype)
        # Running statistics are written without a change of their version.
        disturbed = {n: (names[n], names[n].clone()) for n in kept if names[n] is not kept[n]}
        with self._wide(statement, after), self._saved_disturbed(statement, after):
            self.step(statement)
        for name, (value, before_it) in disturbed.items():
            if not torch.allclose(value, before_it, rtol=0, atol=0, equal_nan=True):
                kept[name].copy_(value)
        names.update(kept)
        changed = statement.targets or statement.uses()[:1]
        is_open = statement.rounding != "exact" or _EXTREME.search(statement.source)
        if is_open or not self.computed.isdisjoint(statement.uses()):
            self.computed.update(changed)
        for name in changed:
            if isinstance(names[name], torch.Tensor) and isinstance(after[name], torch.Tensor):
                self._rounded(statement, name, self._by_exporters(statement, before, after[name]))
                if open_ended and after[name].is_floating_point() and not repeats(self.names[name]):
                    self.names[name] = self.noise.anything(self.names[name], after[name].dtype)

    def _by_exporters(
        self, statement: Statement, before: dict[str, torch.Tensor], result: torch.Tensor
    ) -> torch.Tensor:
        """A result in the type that PyTorch's exporter has it computed in, on that path."""
        if self.program.path != "onnx" or not _ROUNDED_FIRST.search(statement.source):
            return result
        operand = before[statement.uses()[0]].dtype
        return result.to(operand) if operand.is_floating_point else result

    def _wide(self, statement: Statement, after: dict[str, Any]) -> Wide:
        made = [after[name] for name in statement.targets if isinstance(after[name], torch.Tensor)]
        kinds = [value.dtype for value in made if value.is_floating_point()]
        if self.noise is None or not kinds:
            return Wide(self.number % 2 == 1)
        eps = AMPLITUDE * torch.finfo(torch.promote_types(kinds[0], torch.float32)).eps
        return Wide(self.number % 2 == 1, self.noise.generator, eps)

    def _saved_disturbed(
        self, statement: Statement, after: dict[str, Any]
    ) -> contextlib.AbstractContextManager[Any]:
        """What a statement keeps for its gradient is read off by as much as its result, each time on its own.

        A gradient whose terms cancel (of a norm, of `v / v`) is as uncertain as the terms.
        """
        made = [after[name] for name in statement.targets if isinstance(after[name], torch.Tensor)]
        kinds = [value.dtype for value in made if value.is_floating_point()]
        noise = self.noise
        if noise is None or statement.rounding == "exact" or not kinds:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(
            lambda kept: kept, lambda kept: noise.disturbed(kept, kinds[0])
        )

    def _read_bits(self, statement: Statement, before: dict[str, torch.Tensor]) -> None:
        read = {name: self.names[name].to(before[name].dtype) for name in statement.uses()}
        for name in self.computed & read.keys() if self.noise is not None else ():
            if read[name].is_floating_point():
                # Eager's own NaN may be a number in the runs of which everything is open.
                eager = before[name].isnan()
                read[name] = self.noise.of_either_sign(torch.where(eager, before[name], read[name]))
        names = {**namespace(), **read}
        exec(code(str(statement)), names)
        for name in statement.targets:
            self.names[name] = _widened(names[name], {})

    def _rounded(self, statement: Statement, name: str, eager: torch.Tensor) -> None:
        """Brings a result into the range of its type, and disturbs what was rounded."""
        value = self.names[name]
        if not value.is_floating_point():
            if "gcd" in statement.source and self.noise is not None:
                self._signed_divisors(statement, name)
            if _CASTS.search(statement.source):
                self._arbitrary_casts(statement, name)
            return
        if statement.targets and "nan_to_num" in statement.source:
            largest = torch.finfo(eager.dtype).max
            value = self.names[name] = torch.where(value.isinf(), value, value.clamp(-largest, largest))
        if statement.targets and statement.rounding == "exact":
            return
        made = in_range(value.detach() if not value.requires_grad else value, eager.dtype)
        if self.noise is not None and statement.rounding != "exact":
            made = self.noise.disturbed(made, eager.dtype)
            if eager.dtype == torch.bfloat16:
                made = self.noise.flushed(made)
            if _REST.search(statement.source):
                made = self.noise.rest(made, self.names[statement.uses()[0]], eager)
            if statement.rounding == "inside":
                made = self.noise.cancelled(made, self.names[statement.uses()[0]])
            if statement.rounding == "beside one":
                made = self.noise.beside_one(made, eager.dtype)
            if _LOG_SUM.search(statement.source):
                made = self.noise.beside_one(made, torch.promote_types(eager.dtype, torch.float32))
            if _OF_LARGEST.search(statement.source):
                made = self.noise.beside_largest(made, made, eager.dtype)
            if _OF_LARGEST_OPERAND.search(statement.source):
                operand = self.names[statement.uses()[0]]
                made = self.noise.beside_largest(made, operand, eager.dtype, ulp=24)
            if _ZERO_OF_EITHER_SIGN.search(statement.source):
                made = self.noise.of_either_sign(made)
        if statement.targets:
            self.names[name] = made
        elif made is not value and not repeats(value):
            value.copy_(made)

    def _arbitrary_casts(self, statement: Statement, name: str) -> None:
        """What a float outside of an integer's range is cast to is not defined: any number is as good."""
        source = self.names.get(next(iter(statement.uses()), ""))
        value = self.names[name]
        if source is None or not source.is_floating_point() or self.noise is None:
            return
        if value.dtype == torch.bool:
            return
        info = torch.iinfo(value.dtype)
        low, high = float(info.min), float(info.max)
        undefined = ~((source > low - 1) & (source < high + (1 if info.bits < 64 else 0)))
        if source.shape != value.shape:  # of a reduction, which casts first
            undefined = undefined.any()
        if undefined.any():
            other = torch.randint(0, 100, value.shape, generator=self.noise.generator).to(value.dtype)
            self.names[name] = torch.where(undefined, other, value)

    def _signed_divisors(self, statement: Statement, name: str) -> None:
        """Of either sign where an operand is the smallest number of its type, whose magnitude that type has not."""
        value = self.names[name]
        if value.dtype in (torch.bool, torch.uint8):
            return
        smallest = torch.iinfo(value.dtype).min
        operands = [self.names[n] for n in statement.uses() if isinstance(self.names.get(n), torch.Tensor)]
        if any(bool((operand == smallest).any()) for operand in operands) and self.number % 2:
            self.names[name] = -value


def reads_bits(statement: Statement) -> bool:
    """Whether the sign of a zero decides."""
    return statement.rounding == "bits" or "signbit" in statement.source


def follow(
    runs: list[WideRun], statement: Statement, before: dict[str, torch.Tensor], after: dict[str, Any]
) -> list[WideRun]:
    """Carries out a statement in all runs; gives those that can: float64 does not have every operator."""
    alive = []
    for run in runs:
        try:
            with default_float64():
                run.follow(statement, before, after)
            alive.append(run)
        except (RuntimeError, IndexError, TypeError, ValueError):
            continue
    if statement.rounding != "exact" and len(alive) > 1:
        for name in statement.targets:
            _meet_zero(alive, name)
    return alive


def _meet_zero(runs: list[WideRun], name: str) -> None:
    """Where the runs have numbers of both signs, the last has zero: what cancels in them may cancel wholly."""
    found = [run.names[name] for run in runs]
    value = found[-1]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return
    if any(other.shape != value.shape for other in found):
        return
    every = torch.stack([other.detach() for other in found])
    both = (every > 0).any(0) & (every < 0).any(0) & value.detach().isfinite()
    if both.any():
        runs[-1].names[name] = value - torch.where(both, value.detach(), 0.0)


def _widened(value: torch.Tensor, made: dict[int, torch.Tensor]) -> torch.Tensor:
    """The tensor in float64, with the same views of the same memory."""
    storage = value.untyped_storage()
    if storage.data_ptr() not in made or value.numel() == 0:
        flat = torch.empty(0, dtype=value.dtype).set_(storage)
        made[storage.data_ptr()] = (
            flat.to(torch.float64, copy=True) if value.is_floating_point() else flat.clone()
        )
    base = made[storage.data_ptr()]
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def _depends_on_order(statement: Statement, operands: list[Any]) -> bool:
    """Whether sums may overflow on the way, products leave the range, windows meet padding with infinities, or a mode
    is sought among NaN, which eager sorts without an order: then any result is right."""
    tensors = [v for v in operands if isinstance(v, torch.Tensor) and v.numel()]
    of_integers = _PRODUCT.search(statement.source) is not None and "dtype=torch." in statement.source
    for tensor in tensors:
        if not tensor.is_floating_point() and not of_integers:
            continue
        size = tensor.detach().abs() if tensor.is_floating_point() else tensor.double().abs()
        if _MODE.search(statement.source):
            return bool(size.isnan().any())
        if statement.rounding == "window" and not bool(size.isfinite().all()):
            return True
        if _PRODUCT.search(statement.source):
            range_ = torch.finfo(torch.promote_types(tensor.dtype, torch.float32))
            powers = torch.log2(size[size.isfinite() & (size > 0)].double())
            over, under = float(powers.clamp(min=0).sum()), float(powers.clamp(max=0).sum())
            if over > math.log2(range_.max) or under < math.log2(range_.tiny):
                return True
        largest = float(size[size.isfinite()].amax()) if bool(size.isfinite().any()) else 0.0
        if largest > math.sqrt(torch.finfo(torch.promote_types(tensor.dtype, torch.float32)).max) / 10:
            return True
    return False
