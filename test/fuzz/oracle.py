"""What eager PyTorch computes, and how far each element may lie from it.

A program runs nine times besides: in float64, and eight times in float64 with every rounding made at random, a few
ulp of the type that eager PyTorch has there. What these runs disagree on is not determined by the program: their
spread bounds a float's error, and an integer or boolean on which they differ is compared with nothing.
"""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from fuzz.oracle_functions import Dense, Wide, repeats
from fuzz.program import Program, Statement, code, namespace

ROUNDINGS = 8
AMPLITUDE = 4.0
"""Ulp by which roundings are made wrong: the largest errors of elementary functions in docs/numerics.md."""
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
_OF_LARGEST = re.compile(r"linspace|fft\b|fft[2n]\b|stft")
"""Steps are added to the ends, by a rounded product or none; Fourier transforms add up all elements for each result."""


@dataclass
class Expected:
    """One tensor of eager PyTorch's, with the largest error allowed; NaN where nothing is compared.

    `shares` is the number of the input in whose memory it lies.
    """

    value: torch.Tensor
    bound: torch.Tensor
    shares: int | None = None


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
        self.noise = (
            None if number is None else torch.Generator().manual_seed(program.seed * ROUNDINGS + number)
        )

    def follow(self, statement: Statement, before: dict[str, torch.Tensor], after: dict[str, Any]) -> None:
        """Carries out a statement; `before` and `after` are eager's variables."""
        if statement.rounding == "once" and _CANCELS.search(statement.source):
            statement = replace(statement, rounding="inside")
        if _reads_bits(statement):
            self._read_bits(statement, before)
            return
        names, kept = self.names, {}
        order = statement.rounding in ("sum", "window") or bool(_MODE.search(statement.source))
        order = order and self.noise is not None
        open_ended = order and _depends_on_order(statement, [before[name] for name in statement.uses()])
        if self.noise is not None and statement.rounding in ("sum", "window", "inside"):
            # What is written in place is disturbed once it is.
            for name in statement.uses()[0 if statement.targets else 1 :]:
                kept[name], dtype = names[name], before[name].dtype
                if statement.targets and not dtype.is_floating_point and _CAST.search(statement.source):
                    dtype = after[statement.targets[0]].dtype
                    names[name] = names[name].double() if dtype.is_floating_point else names[name]
                if statement.rounding == "inside" and dtype.is_floating_point:
                    dtype = torch.promote_types(dtype, torch.float32)
                names[name] = self._disturbed(names[name], dtype)
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
                    self.names[name] = self._anything(self.names[name], after[name].dtype)

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
        return Wide(self.number % 2 == 1, self.noise, eps)

    def _saved_disturbed(
        self, statement: Statement, after: dict[str, Any]
    ) -> contextlib.AbstractContextManager[Any]:
        """What a statement keeps for its gradient is read off by as much as its result, each time on its own.

        A gradient whose terms cancel (of a norm, of `v / v`) is as uncertain as the terms.
        """
        made = [after[name] for name in statement.targets if isinstance(after[name], torch.Tensor)]
        kinds = [value.dtype for value in made if value.is_floating_point()]
        if self.noise is None or statement.rounding == "exact" or not kinds:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(
            lambda kept: kept, lambda kept: self._disturbed(kept, kinds[0])
        )

    def _anything(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """NaN in the first run, 0 and infinite in the last three; in pairs of the others numbers of opposite signs, whose order is reversed too.

        One of the pairs is as large as the `dtype` has numbers: what limits infinities may leave those.
        """
        if self.number == 0:
            return torch.full_like(value, math.nan)
        if self.number >= ROUNDINGS - 3:
            return torch.full_like(value, (0.0, -math.inf, math.inf)[self.number - ROUNDINGS])
        number = (self.number - 1) // 2
        pair = torch.Generator().manual_seed(number)
        made = torch.randn(value.shape, generator=pair, dtype=torch.float64).to(value.dtype)
        made = made * (torch.finfo(dtype).max / 8 if number == 1 else 1)
        return made if self.number % 2 else -made

    def _read_bits(self, statement: Statement, before: dict[str, torch.Tensor]) -> None:
        read = {name: self.names[name].to(before[name].dtype) for name in statement.uses()}
        for name in self.computed & read.keys():
            read[name] = self._of_either_sign(read[name])
        names = {**namespace(), **read}
        exec(code(str(statement)), names)
        for name in statement.targets:
            self.names[name] = _widened(names[name], {})

    def _of_either_sign(self, value: torch.Tensor) -> torch.Tensor:
        """Zeros and NaN with a sign drawn for each: `relu(-0.0)`, `softshrink(-0.1)` and `fmod(inf, 1)` have that of the loop that runs them."""
        if self.noise is None or not value.is_floating_point():
            return value
        signs = torch.randint(0, 2, value.shape, generator=self.noise) * 2 - 1
        return torch.where((value == 0) | value.isnan(), torch.copysign(value, signs), value)

    def _rounded(self, statement: Statement, name: str, eager: torch.Tensor) -> None:
        """Brings a result into the range of its type, and disturbs what was rounded."""
        value = self.names[name]
        if not value.is_floating_point():
            if "gcd" in statement.source and self.noise is not None:
                self._signed_divisors(statement, name)
            if _CASTS.search(statement.source):
                self._arbitrary_casts(statement, name)
            return
        if statement.targets and statement.rounding == "exact":
            return
        made = _in_range(value.detach() if not value.requires_grad else value, eager.dtype)
        if self.noise is not None and statement.rounding != "exact":
            made = self._disturbed(made, eager.dtype)
            if eager.dtype == torch.bfloat16:
                made = self._flushed(made)
            if _REST.search(statement.source):
                made = self._rest(made, self.names[statement.uses()[0]], eager)
            if statement.rounding == "inside":
                made = self._cancelled(made, self.names[statement.uses()[0]])
            if statement.rounding == "beside one":
                made = self._beside_one(made, eager.dtype)
            if _LOG_SUM.search(statement.source):
                made = self._beside_one(made, torch.promote_types(eager.dtype, torch.float32))
            if _OF_LARGEST.search(statement.source):
                made = self._beside_largest(made, eager.dtype)
            if "bicubic" in statement.source:
                made = self._weighed(made, self.names[statement.uses()[0]], eager.dtype)
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
            other = torch.randint(0, 100, value.shape, generator=self.noise).to(value.dtype)
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

    def _rest(self, value: torch.Tensor, operand: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
        """0 in every other run where the operand's own error is as large: there is such a number of its type.

        Anything where eager PyTorch has no number in double precision: the quotient overflows, and it takes what is left for NaN.
        """
        if eager.dtype == torch.float64:
            value = torch.where(eager.isnan(), self._anything(value, eager.dtype), value)
        if operand.shape != value.shape or not operand.is_floating_point() or self.number % 2:
            return value
        return torch.where(
            value.abs() <= AMPLITUDE * torch.finfo(eager.dtype).eps * operand.abs(), 0.0, value
        )

    def _cancelled(self, value: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
        """A sum of the operand's size, or a function of it, came before the result, in f32 at least."""
        if operand.shape != value.shape or not operand.is_floating_point():
            return value
        draw = torch.rand(value.shape, generator=self.noise, dtype=torch.float64) - 0.5
        return value + draw * AMPLITUDE * torch.finfo(torch.float32).eps * operand.nan_to_num(0, 0, 0)

    def _beside_one(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """1 was added before the result, or taken from it last."""
        draw = torch.rand(value.shape, generator=self.noise, dtype=torch.float64) - 0.5
        return value + draw * AMPLITUDE * torch.finfo(dtype).eps * (1 + value.nan_to_num(0, 0, 0).abs())

    def _beside_largest(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Every element is off by as much as the largest: the middle of -1 and 1 is 0 or eps / 4."""
        draw = torch.rand(value.shape, generator=self.noise, dtype=torch.float64) - 0.5
        largest = value.abs().amax() if value.numel() else 0.0
        return value + draw * AMPLITUDE * torch.finfo(dtype).eps * largest

    def _weighed(self, value: torch.Tensor, operand: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Weights of cubic convolution are sums of terms up to 12: eager's are off by several eps."""
        draw = torch.rand(value.shape, generator=self.noise, dtype=torch.float64) - 0.5
        largest = operand.nan_to_num(0, 0, 0).abs().amax() if operand.numel() else 0.0
        return value + draw * 24 * torch.finfo(dtype).eps * largest

    def _flushed(self, value: torch.Tensor) -> torch.Tensor:
        """Instructions that make bf16 take denormals for zero: as far off are results."""
        draw = torch.rand(value.shape, generator=self.noise, dtype=torch.float64) - 0.5
        return value + 2 * draw * torch.finfo(torch.bfloat16).smallest_normal

    def _disturbed(self, value: Any, dtype: torch.dtype) -> Any:
        """Every element off by a random error of a few ulp, from half of the amplitude on."""
        if (
            not isinstance(value, torch.Tensor)
            or not dtype.is_floating_point
            or not value.is_floating_point()
        ):
            return value
        draw = torch.rand(value.shape, generator=self.noise, dtype=torch.float64) - 0.5
        draw = (draw + torch.sign(draw) * 0.5) * AMPLITUDE
        info = torch.finfo(dtype)
        denormal = (value.abs() < info.smallest_normal) & (value != 0)
        step = info.smallest_normal * info.eps if dtype != torch.float64 else 0.0
        # Instructions take denormals of bf16 for zero: infinity times one is NaN then.
        kept = 0.0 if dtype == torch.bfloat16 and self.number % 2 else 1.0
        return torch.where(denormal, kept * (value + draw * step), value * (1 + draw * info.eps))


def _reads_bits(statement: Statement) -> bool:
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


def _in_range(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 numbers as a shorter type would have them where it overflows or has no full precision."""
    if dtype == torch.float64 or not dtype.is_floating_point:
        return value
    short = value.to(dtype).double()
    return torch.where(short.isinf() | (short.abs() < torch.finfo(dtype).smallest_normal), short, value)


def _depends_on_order(statement: Statement, operands: list[Any]) -> bool:
    """Whether sums may overflow on the way, products leave the range, windows meet padding with infinities, or a mode
    is sought among NaN, which eager sorts without an order: then any result is right."""
    tensors = [v for v in operands if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel()]
    for tensor in tensors:
        size = tensor.detach().abs()
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
            reads_bits = _reads_bits(statement)
            before = {n: eager.names[n] for n in statement.uses()}
            if reads_bits:
                before = {n: value.clone() for n, value in before.items()}
            eager.step(statement)
            runs = follow(runs, statement, before, eager.names)
        found = eager.results()
        inputs = [eager.names[tensor.name] for tensor in program.inputs]
        others = [run.results() for run in runs]
        made = []
        for i, value in enumerate(found):
            bound = bounds(value, [o[i] for o in others]) if len(runs) > ROUNDINGS else _loose(value)
            made.append(Expected(value.clone(), bound, shared(value, inputs)))
        return made


def shared(value: torch.Tensor, inputs: list[torch.Tensor]) -> int | None:
    """The first input in whose memory a tensor lies."""
    for number, tensor in enumerate(inputs):
        if value.numel() and value.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
            return number
    return None


def _loose(value: torch.Tensor) -> torch.Tensor:
    """A bound for what cannot be computed in float64."""
    if not value.is_floating_point():
        return torch.zeros(value.shape, dtype=torch.float64)
    return value.detach().abs().double() * torch.finfo(value.dtype).eps * 64 + 1e-6


def bounds(eager: torch.Tensor, runs: list[torch.Tensor]) -> torch.Tensor:
    """How far each element may lie from eager's: NaN where the runs differ in kind, infinity nowhere."""
    if any(run.shape != eager.shape for run in runs):
        return torch.full(eager.shape, math.nan, dtype=torch.float64)
    if not eager.is_floating_point():
        same = torch.stack([run == eager for run in runs]).all(0)
        return torch.where(same, 0.0, math.nan).double()
    dtype, wide = eager.dtype, eager.detach().double()
    rounded = [_in_range(run.detach().double(), dtype) for run in runs]
    info = torch.finfo(dtype)
    spread = torch.stack([(run - rounded[0]).abs() for run in rounded[1:]]).amax(0)
    size = torch.maximum(rounded[0].abs(), wide.abs())
    bound = 3 * spread + 4 * (wide - rounded[0]).abs() + AMPLITUDE * info.eps * size
    bound = bound + 4 * info.smallest_normal * info.eps
    kinds = torch.stack([_kind(value) for value in (wide, *rounded)])
    same = (kinds == kinds[0]).all(0)
    bound = torch.where(wide.isfinite(), bound, 0.0)
    return torch.where(same, bound, math.nan)


def _kind(value: torch.Tensor) -> torch.Tensor:
    """0 for numbers, 1 for NaN, 2 and 3 for the infinities."""
    kinds = torch.zeros(value.shape, dtype=torch.int8)
    kinds[value.isnan()] = 1
    kinds[value == math.inf] = 2
    kinds[value == -math.inf] = 3
    return kinds


def difference(found: torch.Tensor, wanted: Expected) -> str | None:
    """Says the first element that is wrong, or None."""
    value = wanted.value
    if found.dtype != value.dtype:
        return f"dtype {found.dtype}, eager {value.dtype}"
    if found.shape != value.shape:
        return f"shape {tuple(found.shape)}, eager {tuple(value.shape)}"
    found, value = found.detach(), value.detach()
    if not value.is_floating_point():
        wrong = (found != value) & ~wanted.bound.isnan()
    else:
        a, b = found.double(), value.double()
        equal = (a == b) | (a.isnan() & b.isnan())
        close = (a - b).abs() <= wanted.bound
        wrong = ~(equal | close | wanted.bound.isnan())
    if not wrong.any():
        return None
    at = tuple(int(i) for i in wrong.nonzero()[0])
    allowed = "" if not value.is_floating_point() else f", at most {float(wanted.bound[at]):.3g} off"
    return f"{int(wrong.sum())} of {wrong.numel()} elements; {list(at)} is {found[at].item()}, eager {value[at].item()}{allowed}"


def compared(wanted: list[Expected]) -> tuple[int, int]:
    """Elements that are compared, and all."""
    return sum(int((~w.bound.isnan()).sum()) for w in wanted), sum(w.value.numel() for w in wanted)
