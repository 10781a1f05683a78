"""One small model for every kind of CPU dispatch, and the dispatch of each whose space is sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import prod

import numpy as np
import torch
from torch.nn import functional as F

from tilewright.compiler import phases
from tilewright.compiler.analysis.fusion_groups import Grouping
from tilewright.compiler.codegen import lower_cpu
from tilewright.compiler.dialects import choice_attribute, schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.families.cpu.dispatch_space import dispatch_space
from tilewright.compiler.importers import Imported
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT, Space
from tilewright.compiler.passes.dispatch.outline_dispatches import OutlineDispatches
from tilewright.compiler.targets.target import Target, resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel


def waves(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, prod(shape)).mul(37).reshape(shape).sin()


@dataclass(frozen=True)
class Case:
    """A function of an input and weights, and how many reductions its dispatch has."""

    function: Callable
    arguments: tuple[torch.Tensor, ...]
    reductions: int
    tolerance: float = 2e-5
    joins: bool = False
    """Whether windows join the product behind them, whatever their size."""


CASES: dict[str, Case] = {
    "product": Case(torch.matmul, (waves(13, 40), waves(40, 72)), 1),
    "two inputs": Case(lambda x: x[:, :24] @ x[:24], (waves(29, 52),), 1),
    "packed product": Case(
        lambda x, w, b: torch.relu(F.linear(x, w, b)),
        (waves(21, 48), waves(192, 48), waves(192)),
        1,
    ),
    "weights of bytes": Case(
        lambda x, w: F.linear(x, w.to(x.dtype)), (waves(3, 40), (waves(96, 40) * 127).to(torch.int8)), 1
    ),
    "weights of four bits": Case(
        lambda x, w: F.linear(x, torch.stack((w & 15, w >> 4), -1).flatten(1).to(x.dtype)),
        (waves(3, 40), (waves(96, 20).abs() * 255).to(torch.uint8)),
        1,
    ),
    "chosen matrices": Case(
        lambda x, w: torch.relu(x @ w[(x[:, 0, 0].abs() * 4).long()]), (waves(6, 9, 40), waves(4, 40, 96)), 1
    ),
    "chosen arguments": Case(lambda x: x[:4] @ x[(x[:4, 0, 0].abs() * 7).long()], (waves(7, 28, 28),), 1),
    "dots": Case(F.linear, (waves(19, 36).bfloat16(), waves(96, 36).bfloat16()), 1, 2e-2),
    "interleaved dots": Case(lambda x: x[:, :32] @ x[:32, 8:], (waves(35, 72).bfloat16(),), 1, 2e-2),
    "depthwise": Case(
        lambda x, w: torch.relu(F.conv2d(x, w, groups=40)),
        (waves(1, 40, 11, 13), waves(40, 1, 3, 3)),
        1,
    ),
    "strided depthwise": Case(
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=24),
        (waves(1, 24, 17, 9), waves(24, 1, 3, 3)),
        1,
    ),
    "depthwise and pointwise": Case(
        lambda x, w, b, v: torch.relu(F.conv2d(F.relu6(F.conv2d(x, w, b, padding=1, groups=24)), v)),
        (waves(2, 24, 11, 13), waves(24, 1, 3, 3), waves(24), waves(40, 24, 1, 1)),
        2,
        joins=True,
    ),
    "pooling and pointwise": Case(
        lambda x, v: F.conv2d(F.avg_pool2d(x, 3, 2), v),
        (waves(1, 16, 19, 15), waves(48, 16, 1, 1)),
        2,
        joins=True,
    ),
    "pooling": Case(
        lambda x, w: F.max_pool2d(F.conv2d(x, w), 3, 2),
        (waves(2, 3, 15, 17), waves(20, 3, 1, 1)),
        1,
    ),
    "groups": Case(lambda x, w: F.conv2d(x, w, groups=16), (waves(1, 64, 9, 9), waves(64, 4, 3, 3)), 1),
    "convolution": Case(
        lambda x, w: torch.relu(F.conv2d(x, w, stride=2)),
        (waves(2, 5, 15, 17), waves(48, 5, 3, 3)),
        1,
    ),
    "filter gradient": Case(
        lambda x, g: F.conv2d(x.transpose(0, 1), g.transpose(0, 1)).transpose(0, 1).contiguous(),
        (waves(4, 20, 5, 6), waves(4, 48, 3, 3)),
        1,
    ),
    "winograd": Case(
        lambda x, w: torch.relu(F.conv2d(x, w, padding=1)),
        (waves(1, 64, 12, 14), waves(64, 64, 3, 3)),
        1,
        1e-3,
    ),
    "softmax": Case(lambda x: torch.softmax(x, -1), (waves(7, 11, 60),), 2),
    "layer norm": Case(
        lambda x, w, b: F.layer_norm(x, (70,), w, b),
        (waves(23, 70), waves(70), waves(70)),
        2,
    ),
    "attention": Case(
        lambda x: F.scaled_dot_product_attention(x[0], x[1], x[2]), (waves(3, 1, 2, 45, 16),), 1
    ),
    "causal attention": Case(
        lambda x: F.scaled_dot_product_attention(x[0], x[1], x[2], is_causal=True),
        (waves(3, 1, 2, 37, 16),),
        1,
    ),
    "element-wise": Case(lambda x, y: torch.relu(x * y + 1), (waves(31, 44), waves(31, 44)), 0),
    "long rows": Case(lambda x, y: torch.relu(x * y + 1), (waves(5, 3, 310), waves(3, 310)), 0),
    "broadcast": Case(lambda x, y: (x + y).tanh(), (waves(6, 31, 18), waves(31, 1)), 0),
    "transposition": Case(lambda x: x.transpose(0, 1) * 2, (waves(70, 83),), 0),
    "permutation": Case(lambda x: x.permute(0, 2, 3, 1).contiguous(), (waves(2, 40, 9, 7),), 0),
    "row sums": Case(lambda x: x.sum(-1), (waves(9, 70),), 1),
    "row products": Case(lambda x: x[:5] @ x[5:].t(), (waves(12, 64),), 1),
    "column sums": Case(lambda x: x.sum(0), (waves(9, 70),), 1),
    "middle maxima": Case(lambda x: x.amax(1), (waves(5, 9, 26),), 1),
    "variances": Case(lambda x: x.var(1), (waves(17, 40),), 2),
    "log softmax of columns": Case(lambda x: torch.log_softmax(x, 1), (waves(4, 17, 30),), 2),
    "truths": Case(lambda x: (x > 0.9).any(1), (waves(12, 30),), 1),
    "beside its input": Case(lambda x: torch.cat([x.sum(1, keepdim=True), x], 1), (waves(13, 24),), 1),
    "windows along memory": Case(lambda x: F.avg_pool2d(x, 3, 1), (waves(2, 3, 14, 20),), 1),
    "running sums": Case(lambda x: x.cumsum(-1), (waves(23, 40),), 0),
    "running products of columns": Case(lambda x: x.cumprod(0), (waves(9, 70),), 0),
    "sorted columns": Case(lambda x: x.sort(0)[0], (waves(19, 44),), 0),
    "greatest of rows": Case(lambda x: x.topk(3, -1)[0], (waves(22, 50),), 0),
    "added to rows": Case(
        lambda x, y: x.index_add(0, torch.tensor([4, 1, 4]), y), (waves(6, 70), waves(3, 70)), 0
    ),
    "added to elements of rows": Case(
        lambda x, y: x.scatter_add(1, (y * 3 + 4).long(), y), (waves(22, 9), waves(22, 14)), 0
    ),
    "put in rows of planes": Case(
        lambda x, y: x.scatter(1, torch.tensor([4, 1, 4]).reshape(1, 3, 1).expand(7, 3, 40), y),
        (waves(7, 6, 40), waves(7, 3, 40)),
        0,
    ),
    "spectra of rows": Case(lambda x: torch.fft.rfft(x).real, (waves(37, 24),), 0),
    "spectra of columns": Case(lambda x: torch.fft.rfft(x, dim=1).imag, (waves(3, 12, 41),), 0),
    "places of maxima": Case(lambda x: x.argmax(0), (waves(40, 17),), 1),
}


class Function(torch.nn.Module):
    """A function as a module, its arguments after the first as weights."""

    def __init__(self, function: Callable, *weights: torch.Tensor):
        super().__init__()
        self.function = function
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(w, requires_grad=False) for w in weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.weights)


@dataclass(frozen=True)
class Dispatch:
    """A model that was cut into dispatches and scheduled, and the one of its dispatches that has the space."""

    imported: Imported
    function: ir.Operation
    target: Target
    space: Space
    argument: torch.Tensor

    @classmethod
    def of(
        cls,
        function: Callable,
        target: str,
        arguments: tuple[torch.Tensor, ...],
        reductions: int | None = 0,
        joins: bool = False,
    ) -> Dispatch:
        """The last dispatch that the function calls with so many reductions, None for any number."""
        machine, (argument, *weights) = resolve(target), arguments
        with torch.no_grad():
            imported = import_model(Function(function, *weights).eval(), (argument,))
        phases.run_phases(imported.module, machine, last="packing")
        if joins:
            join_products(imported.module, machine)
        phases.run_phases(imported.module, machine, "dispatch")
        main = str(next(f for f in functions(imported.module) if _name(f) == "main"))
        for dispatch in reversed(list(functions(imported.module))):
            schedule = schedule_attribute.read(dispatch)
            if schedule is None or f"@{_name(dispatch)}(" not in main:
                continue
            if reductions is None or len(schedule.reductions) == reductions:
                space = dispatch_space(dispatch, machine, schedule)
                return cls(imported, dispatch, machine, space, argument)
        raise AssertionError(f"there is no dispatch with {reductions} reductions")

    def lowered(self, schedule: Schedule) -> str:
        """LLVM IR of the dispatch under a schedule; raises ScheduleError."""
        other = self.function.clone().operation
        try:
            schedule_attribute.write(other, schedule)
            return lower_cpu.lower(other, self.target)[0]
        finally:
            other.erase()

    def run(self, schedule: Schedule) -> tuple[np.ndarray, str]:
        """What the model computes with the dispatch under a schedule, and the digest of the dispatch's machine code."""
        constructed = schedule_attribute.read(self.function)
        assert constructed is not None
        schedule_attribute.write(self.function, schedule)
        try:
            package = phases.package_module(self.imported.module, self.target, phases.Report())
        finally:
            schedule_attribute.write(self.function, constructed)
        note = next(n for n in package.notes["dispatches"] if n["name"] == _name(self.function))
        i = self.imported
        model = CompiledModel(Executable(package, list(i.weights), 1), i.signature, i.state, i.weights)
        kernel = package.kernels[note["kernel"]]
        return model(self.argument).float().numpy(), f"{sha256(kernel.object).hexdigest()} x {note['tasks']}"


def join_products(module: ir.Module, target: Target) -> None:
    """Asks that all windows are computed in the dispatch of the product that reads them."""
    with module.context, ir.Location.unknown(module.context):
        main = next(f for f in functions(module) if _name(f) == "main")
        grouping = Grouping(module, main, OutlineDispatches.for_target(target))
        for number in grouping.product_after:
            choice_attribute.write(grouping.ops[number], joins=True)


def _name(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


@cache
def dispatch_of(name: str, target: str) -> Dispatch:
    """The dispatch of a case, scheduled for a target."""
    case = CASES[name]
    return Dispatch.of(case.function, target, case.arguments, case.reductions, case.joins)


def spread(space: Space, count: int, seed: int) -> list[Schedule]:
    """Legal schedules, at least one for each kind of each reduction that it has many of, the default first."""
    points = space.sample(40 * count, np.random.default_rng(seed))
    columns = space.columns(points)
    words = [columns[knob.name] for knob in space.knobs if not knob.is_ordered]
    seen, chosen = set(), []
    for number in range(len(points)):
        new = {(place, column[number]) for place, column in enumerate(words)} - seen
        if new:
            seen |= new
            chosen.append(number)
    chosen += [number for number in range(len(points)) if number not in chosen]
    found = [space.default(), *(space.schedule(points[number]) for number in chosen)]
    return list({schedule.text(): schedule for schedule in found}.values())[:count]


def one_for_each_rule(space: Space, seed: int) -> dict[int, Schedule]:
    """An illegal schedule for every rule that some point of thousands breaks, by the rule's number.

    It is the one most like the constructed schedule, since a schedule may break several rules, and compiling refuses it
    by the one that it comes to first.
    """
    points = space.draw(4000, np.random.default_rng(seed))
    moved = (points != space.point(space.default())).sum(axis=1)
    points = points[np.argsort(moved, kind="stable")]
    broken = space.legal(points)
    rules, first = np.unique(broken, return_index=True)
    return {int(rule): space.schedule(points[place]) for rule, place in zip(rules, first) if rule != KEPT}
