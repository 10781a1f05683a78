"""Grows a random program statement by statement, running each in eager PyTorch to see what it gives."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from fuzz.program import Program, Statement, code, namespace
from fuzz.tensors import FLOATS, INTEGERS, LAYOUTS, Tensor

MAX_ELEMENTS = 6000
_SIZES = (1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 9, 11, 16, 17, 32, 33)
_DTYPES = (
    ("float32",) * 9
    + ("float64", "float16", "float16", "bfloat16", "bfloat16")
    + (*("int64", "int64", "int32", "int16", "int8", "uint8", "uint8", "bool", "bool"),)
)
_FILLS = ("normal",) * 8 + ("special", "special", "finite", "integers", "wide", "unit")


class NoFit(Exception):
    """An operator found no operands, or eager PyTorch refuses the ones it chose."""


class Growth:
    """A program that is being made: its statements, and what every variable holds in eager PyTorch."""

    def __init__(self, seed: int, plain: bool = False):
        self.seed = seed
        self.choose = random.Random(seed)
        self.plain = plain
        """Only floating-point inputs without special values, and nothing in place: what gradients need."""
        self.inputs: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.statements: list[Statement] = []
        self.values: dict[str, torch.Tensor] = {}
        self.unused: dict[str, None] = {}
        self.fails = False
        self._names = namespace()
        self._count = 0

    # What is at hand.

    def names(self, accepts: Callable[[torch.Tensor], bool] | None = None) -> list[str]:
        return [name for name, value in self.values.items() if accepts is None or accepts(value)]

    def pick(self, accepts: Callable[[torch.Tensor], bool] | None = None) -> str:
        """A variable that is accepted; those that nothing has read, and late ones, are likelier."""
        found = self.names(accepts)
        if not found:
            raise NoFit
        fresh = [name for name in found if name in self.unused]
        if fresh and self.choose.random() < 0.6:
            return self.choose.choice(fresh)
        return found[max(self.choose.randrange(len(found)), self.choose.randrange(len(found)))]

    def floating(self, least: int = 0, most: int = 6) -> str:
        """A floating-point variable with a rank from `least` to `most`; a new input when there is none."""
        return self.any_of(FLOATS, least, most)

    def any_of(self, dtypes: Sequence[str], least: int = 0, most: int = 6) -> str:
        """A variable of one of these dtypes and a rank between bounds; a new input when there is none."""
        with contextlib.suppress(NoFit):
            if self.choose.random() < 0.92:
                return self.pick(lambda v: dtype_of(v) in dtypes and least <= v.dim() <= most)
        kinds = [d for d in _DTYPES if d in dtypes] or list(dtypes)
        rank = self.choose.randint(least, min(most, max(least, 4)))
        return self.new(self.shape(rank), self.choose.choice(kinds))

    def like(self, name: str, dtype: str | None = None, fill: str | None = None) -> str:
        """Something that broadcasts with a variable: another one, a fresh input, a 0-d tensor, or itself."""
        value = self.values[name]
        dtype = dtype or dtype_of(value)
        draw = self.choose.random()
        if fill is None and draw < 0.6:
            with contextlib.suppress(NoFit):
                return self.pick(lambda v: dtype_of(v) == dtype and broadcasts(v.shape, value.shape))
        if fill is None and draw < 0.65 and dtype == dtype_of(value):
            return name
        shape = [n if self.choose.random() < 0.75 else 1 for n in value.shape]
        return self.new(tuple(shape[self.choose.choice((0, 0, 0, 0, 1, len(shape))) :]), dtype, fill)

    # Sizes and inputs.

    def size(self) -> int:
        if self.choose.random() < 0.02 and not self.plain:
            return 0
        return self.choose.choice(_SIZES)

    def shape(self, rank: int) -> tuple[int, ...]:
        while True:
            shape = tuple(self.size() for _ in range(rank))
            if elements(shape) <= MAX_ELEMENTS // 4:
                return shape

    def new(
        self, shape: Iterable[int], dtype: str, fill: str | None = None, layout: str | None = None
    ) -> str:
        """A new input, now and then a weight or a literal instead."""
        shape = tuple(shape)
        if fill is None:
            fill = "normal" if self.plain else self.choose.choice(_FILLS)
        if layout is None:
            layout = "dense" if self.choose.random() < 0.72 else self.choose.choice(LAYOUTS)
        draw = self.choose.random()
        if draw < 0.08 and self.inputs:
            return self._add_tensor("w", shape, dtype, fill, layout, "parameter")
        if draw < 0.13 and self.inputs and elements(shape) <= 12:
            return self._add_tensor("c", shape, dtype, fill, "dense", "literal")
        return self._add_tensor("x", shape, dtype, fill, layout, "input")

    def buffer(self, shape: tuple[int, ...], dtype: str, fill: str = "normal") -> str:
        """A new buffer of the model, or an input where gradients are not asked for."""
        if self.plain or self.choose.random() < 0.7:
            return self._add_tensor("w", shape, dtype, fill, "dense", "parameter")
        return self._add_tensor("x", shape, dtype, fill, "dense", "input")

    def _add_tensor(
        self, letter: str, shape: tuple[int, ...], dtype: str, fill: str, layout: str, role: str
    ) -> str:
        name = f"{letter}{len(self.inputs) + len(self.weights)}"
        made = Tensor(name, shape, dtype, fill, layout, role)
        (self.inputs if role == "input" else self.weights).append(made)
        # A literal does not change with the seed of a call.
        self.values[name] = made.build(0 if role == "literal" else self.seed)
        self.unused[name] = None
        return name

    # Statements.

    def emit(self, source: str, rounding: str = "exact", results: int | None = 1) -> str:
        """Adds `v = source`, or a tuple of results, by default for None; the first one's name.

        Raises NoFit when eager PyTorch refuses.
        """
        if results is None:
            results = self._results(source)
            source = source if results else f"({source})[0]"
        targets = tuple(f"v{self._count + i}" for i in range(results or 1))
        statement = Statement(targets, source, rounding)
        made = self._run(statement)
        self._count += len(targets)
        for name, value in zip(targets, made):
            self.values[name] = value
            self.unused[name] = None
        self._add(statement)
        return targets[0]

    def mutate(self, source: str, rounding: str = "exact") -> None:
        """Adds a statement that writes into variables."""
        before = {name: value.clone() for name, value in self.values.items()}
        statement = Statement((), source, rounding)
        try:
            self._run(statement)
        except NoFit:
            for name, value in before.items():
                with contextlib.suppress(RuntimeError):
                    self.values[name].copy_(value)
            raise
        self._add(statement)

    def expect_failure(self, source: str) -> None:
        """Ends the program by a statement on which eager PyTorch raises for the first set of inputs."""
        statement = Statement((f"v{self._count}",), source)
        self.fails = True
        self._add(statement)
        self.unused[statement.targets[0]] = None
        self.values[statement.targets[0]] = torch.zeros(())

    def _add(self, statement: Statement) -> None:
        self.statements.append(statement)
        for name in statement.uses():
            self.unused.pop(name, None)

    def _results(self, source: str) -> int:
        """How many tensors an expression makes, 0 for a tuple of one."""
        made = self._carried_out(f"made = {source}")["made"]
        if isinstance(made, torch.Tensor):
            return 1
        if not isinstance(made, (tuple, list)) or len(made) > 8:
            raise NoFit("no tensors, or too many")
        return len(made) if len(made) > 1 else 0

    def _carried_out(self, line: str) -> dict[str, Any]:
        names = {**self._names, **self.values}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(code(line), names)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            raise NoFit(str(error)) from error
        return names

    def _run(self, statement: Statement) -> list[torch.Tensor]:
        names = self._carried_out(str(statement))
        made = [names[name] for name in statement.targets]
        for value in made:
            if not isinstance(value, torch.Tensor) or value.numel() > MAX_ELEMENTS:
                raise NoFit("no tensor, or too large a one")
            if dtype_of(value) not in (*FLOATS, *INTEGERS, "bool"):
                raise NoFit("a dtype that is not compiled")
        return made

    def program(self, path: str) -> Program:
        """What has grown, returning everything that nothing read and a few variables besides, or an input of it."""
        made = [name for name in self.values if name.startswith("v")]
        outputs = [name for name in self.unused if name in made]
        outputs += [name for name in made if name not in outputs and self.choose.random() < 0.12]
        given = [tensor.name for tensor in (*self.inputs, *self.weights)]
        outputs = outputs[-8:] or made[-1:] or given[:1]
        if self.choose.random() < 0.03 and self.inputs:
            outputs.append(self.choose.choice(self.inputs).name)
        if self.choose.random() < 0.03:
            outputs.append(self.choose.choice([*outputs, *(t.name for t in self.weights)]))
        self.choose.shuffle(outputs)
        return Program(
            self.seed,
            tuple(self.inputs),
            tuple(self.weights),
            tuple(self.statements),
            tuple(outputs),
            path,
            self.fails,
        )


def dtype_of(value: torch.Tensor) -> str:
    """`float32`, ..."""
    return str(value.dtype)[6:]


def elements(shape: Iterable[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def broadcasts(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two shapes broadcast against each other."""
    return all(a == b or a == 1 or b == 1 for a, b in zip(reversed(first), reversed(second)))
