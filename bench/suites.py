"""The suites of `tilewright bench`: named lists of cases, each built when its turn comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tilewright.bench import models

SUITES = ("models", "resnet18-conv", "gemm", "roller119")


@dataclass(frozen=True)
class Case:
    """One thing to time: `build()` gives (module, inputs); `published` holds others' figures for it."""

    name: str
    build: Callable[[], tuple]
    published: dict = field(default_factory=dict)


# The twelve convolutions of ResNet-18 at batch 1: (size, in, out, kernel, stride).
# Source: Chen et al., "Learning to Optimize Tensor Programs" (AutoTVM), NeurIPS'18, Table 1.
RESNET18_CONVS = (
    (224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 64, 1, 1), (56, 64, 128, 3, 2), (56, 64, 128, 1, 2),
    (28, 128, 128, 3, 1), (28, 128, 256, 3, 2), (28, 128, 256, 1, 2), (14, 256, 256, 3, 1),
    (14, 256, 512, 3, 2), (14, 256, 512, 1, 2), (7, 512, 512, 3, 1),
)  # fmt: skip

# (m, k, n, second operand is a weight): squares, a classifier, BERT's widest layer, an LSTM step's products.
GEMMS = (
    (512, 512, 512, True), (1024, 1024, 1024, True), (1024, 1024, 1024, False), (2048, 2048, 2048, True),
    (128, 4032, 1000, True), (128, 768, 3072, True), (1, 256, 1024, True), (1, 768, 3072, True),
)  # fmt: skip

_QUICK_GEMMS = {(512, 512, 512, True), (128, 768, 3072, True), (1, 256, 1024, True)}
_QUICK_CONVS = {1, 2, 5, 12}
_QUICK_ROLLER = {"C0", "C34", "D21", "E9", "M2", "P10", "R3"}


def suite(name: str, only: Sequence[str] = (), quick: bool = False, batch: int = 1) -> list[Case]:
    """The cases of suite `name`, in order; `only` keeps the named ones, `quick` a representative few.

    `batch` scales the leading dimension of models and of Roller's operators (128 as published).
    Raises ValueError for a suite or case that does not exist.
    """
    makers = {"models": _models, "resnet18-conv": _convs, "gemm": _gemms, "roller119": _roller}
    if name not in makers:
        raise ValueError(f"unknown suite `{name}`; the suites are: {', '.join(SUITES)}")
    if name == "models":
        return _models(only, quick, batch)
    cases = makers[name](only, quick, batch)
    known = {case.name for case in cases}
    if missing := [case for case in only if case not in known]:
        raise ValueError(
            f"suite `{name}` has no case {', '.join(missing)}; it has: {', '.join(sorted(known))}"
        )
    return [case for case in cases if case.name in only] if only else cases


def _operator(name: str, *arguments) -> tuple:
    """Makes an operator; torch is imported only now, after the threads were set."""
    from tilewright.bench import operators

    return getattr(operators, name)(*arguments)


def _models(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    names = only or (models.QUICK if quick else models.DEFAULT)
    cases = []
    for name in names:
        if name not in models.REGISTRY and ":" not in name:
            raise ValueError(
                f"unknown model `{name}`; expected module:function or one of: {', '.join(models.REGISTRY)}"
            )
        # A function of the user's need not take a batch.
        options = {"batch": batch} if name in models.REGISTRY else {}
        cases.append(Case(name, partial(models.build, name, **options)))
    return cases


def _convs(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    cases = []
    for number, (size, inputs, filters, kernel, stride) in enumerate(RESNET18_CONVS, 1):
        if only or not quick or number in _QUICK_CONVS:
            shape = (batch, inputs, size, size)
            make = partial(_operator, "conv2d", shape, filters, kernel, stride, kernel // 2)
            cases.append(Case(f"C{number}", make))
    return cases


def _gemms(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    cases = []
    for row in GEMMS:
        if only or not quick or row in _QUICK_GEMMS:
            m, k, n, weight = row
            cases.append(
                Case(f"{m}x{k}x{n}{'' if weight else '-inputs'}", partial(_operator, "matmul", *row))
            )
    return cases


def roller_rows() -> list[dict]:
    """The rows of `data/roller119.json`."""
    return json.loads((Path(__file__).parent / "data" / "roller119.json").read_text())["operators"]


def _roller(only: Sequence[str], quick: bool, batch: int) -> list[Case]:
    return [
        Case(row["name"], partial(_operator, "from_row", row, batch), {"v100_ms": row["v100_ms"]})
        for row in roller_rows()
        if only or not quick or row["name"] in _QUICK_ROLLER
    ]
