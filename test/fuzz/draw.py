"""Draws whole programs: a seed and a way through the compiler give the same program in every process."""

from __future__ import annotations

import contextlib
import random
import re
from dataclasses import replace
from functools import cache

import torch

from fuzz.catalogue import operators
from fuzz.generator import Growth, NoFit
from fuzz.graph import PATH, Graph
from fuzz.graph_draw import draw_graph
from fuzz.operators_indexing import faulty
from fuzz.program import CONTAINERS, Program, Statement

PATHS = {
    "compile": 42,
    "caches": 8,
    "avx2": 5,
    "torch.compile": 22,
    "grad": 8,
    "threads": 6,
    "saved": 6,
    "emulate": 5,
    "onnx": 3,
}
"""Ways through the compiler and how often each is drawn."""


def draw(seed: int, paths: dict[str, int] | None = None) -> Program | Graph:
    """The program of a seed; an ONNX graph for the path `graph`."""
    choose = random.Random(seed * 7919 + 1)
    weights = paths or PATHS
    path = choose.choices(list(weights), list(weights.values()))[0]
    if path == PATH:
        return draw_graph(seed)
    plain = path in ("grad", "onnx") or choose.random() < 0.25
    growth = Growth(seed, plain)
    with torch.no_grad():
        _grow(growth, choose.choice((1, 2, 2, 3, 3, 4, 5, 6, 8, 12)))
        if not plain and choose.random() < 0.03:
            with contextlib.suppress(NoFit):
                faulty(growth)
    # PyTorch's exporter of ONNX adds exponentials in the type of the operand, in which a short one's are zero.
    if path == "onnx" and any("logcumsumexp" in statement.source for statement in growth.statements):
        path = "compile"
    program = growth.program(path)
    if choose.random() < 0.15 and not plain and len(program.inputs) > 1:
        program = _aliased(program, choose)
    if path == "onnx":
        return replace(program, statements=tuple(map(_by_exporters, program.statements)))
    if choose.random() < 0.7:
        return program
    return replace(program, container=choose.choice(CONTAINERS), keywords=choose.random() < 0.4)


def _by_exporters(statement: Statement) -> Statement:
    """ONNX has no log1p and no expm1, also in elu and its kin: exporters write log(1 + x) and exp(x) - 1, and round
    quotients before they cut."""
    if statement.rounding == "once" and re.search(r"\b(log1p|expm1|[cs]?elu)\b", statement.source):
        return replace(statement, rounding="beside one")
    if statement.rounding == "once" and "log1p" in statement.source:
        return replace(statement, rounding="inside")
    return replace(statement, rounding="sum") if "rounding_mode" in statement.source else statement


@cache
def _drawn(plain: bool) -> tuple[list, list[float]]:
    found = [operator for operator in operators() if operator.plain or not plain]
    return found, [operator.weight for operator in found]


def _grow(growth: Growth, wanted: int) -> None:
    found, weights = _drawn(growth.plain)
    tries = 0
    while (len(growth.statements) < wanted or not growth.statements) and tries < 60:
        tries += 1
        operator = growth.choose.choices(found, weights)[0]
        with contextlib.suppress(NoFit):
            operator.grow(growth)


def _aliased(program: Program, choose: random.Random) -> Program:
    """The same program with one input that is another one, or a view of it."""
    for second in choose.sample(range(1, len(program.inputs)), len(program.inputs) - 1):
        tensor = program.inputs[second]
        for first in program.inputs[:second]:
            same = (
                first.shape == tensor.shape
                and first.dtype == tensor.dtype
                and ":" not in first.fill + tensor.fill
            )
            if same and first.alias is None:
                made = list(program.inputs)
                made[second] = replace(tensor, alias=first.name, layout="dense")
                return replace(program, inputs=tuple(made))
    return program
