"""What a random program is: inputs, weights and statements of Python, all of it plain data."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fuzz.tensors import Tensor

NAME = re.compile(r"(?<![.\w])[vxwc]\d+\b")
CONTAINERS = ("tuple", "list", "dict", "nested", "bare")


@dataclass(frozen=True)
class Statement:
    """One line of a program; `rounding` says how an implementation may differ from eager's bits.

    - `exact`: not at all (views, copies, selections, integers).
    - `once`: every element is rounded on its own (element-wise arithmetic and functions).
    - `inside`: like `once`, by way of differences that cancel, taken in f32 at least.
    - `beside one`: like `once`, but 1 is added to the operand, or taken from what the result is computed as.
    - `sum`: elements are added up, in any order.
    - `window`: sums, of windows that may reach into padding or be cut in tiles.
    - `bits`: reads the bits of its operands.
    """

    targets: tuple[str, ...]
    source: str
    rounding: str = "exact"

    def __str__(self) -> str:
        return f"{', '.join(self.targets)} = {self.source}" if self.targets else self.source

    def uses(self) -> list[str]:
        """Names of variables that the statement reads or writes, without those it makes."""
        return list(dict.fromkeys(NAME.findall(self.source)))

    def renamed(self, names: dict[str, str]) -> Statement:
        """The statement with variables replaced, targets excepted."""
        return replace(self, source=NAME.sub(lambda m: names.get(m[0], m[0]), self.source))


@dataclass(frozen=True)
class Program:
    """A function of `inputs`, which also owns `weights`; `path` is how it is compiled and run."""

    seed: int
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    path: str = "compile"
    fails: bool = False
    """Eager PyTorch raises an error on the first set of inputs."""
    container: str = "tuple"
    """What the outputs are returned in."""
    keywords: bool = False
    """Whether arguments are given by name."""

    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs and weights."""
        return (*self.inputs, *self.weights)

    def owned(self) -> tuple[Tensor, ...]:
        """Inputs and buffers: what a program may write into."""
        return tuple(tensor for tensor in self.tensors() if tensor.role != "literal")

    def build(self, seed: int) -> dict[str, torch.Tensor]:
        """All tensors by name; inputs and buffers for a seed, literals always the same."""
        made: dict[str, torch.Tensor] = {}
        for tensor in self.inputs:
            made[tensor.name] = tensor.build(seed, made)
        for tensor in self.weights:
            made[tensor.name] = tensor.build(0 if tensor.role == "literal" else self.seed)
        return made

    def source(self) -> str:
        """The function as Python: `f`, or a module's `forward` when there are weights."""
        arguments = ", ".join(tensor.name for tensor in self.inputs)
        body = [str(statement) for statement in self.statements]
        parameters = [tensor for tensor in self.weights if tensor.role == "parameter"]
        literals = [f"{t.name} = {t.literal()}" for t in self.weights if t.role == "literal"]
        body = [*literals, *body, f"return {self.result()}"]
        if not parameters:
            return f"def f({arguments}):\n" + "".join(f"    {line}\n" for line in body)
        reads = [f"{tensor.name} = self.{tensor.name}" for tensor in parameters]
        return f"class Model(torch.nn.Module):\n    def forward(self, {arguments}):\n" + "".join(
            f"        {line}\n" for line in (*reads, *body)
        )

    def result(self) -> str:
        """The outputs in their container, as Python."""
        listed = ", ".join(self.outputs)
        named = ", ".join(f"'{number}': {name}" for number, name in enumerate(self.outputs))
        return {
            "tuple": f"({listed},)",
            "list": f"[{listed}]",
            "dict": f"{{{named}}}",
            "nested": f"[({self.outputs[0]}, None), {{'count': 3, 'rest': [{', '.join(self.outputs[1:])}]}}]",
            "bare": self.outputs[0] if len(self.outputs) == 1 else f"({listed})",
        }[self.container]

    def returned(self, result: Any) -> list[Any] | None:
        """The tensors of a result, or None where its containers and constants are not the program's."""
        wanted, form = pytree.tree_flatten(eval(self.result(), dict.fromkeys(self.outputs, torch.Tensor)))
        found, found_form = pytree.tree_flatten(result)
        if found_form != form or any(f != w for f, w in zip(found, wanted) if w is not torch.Tensor):
            return None
        return [f for f, w in zip(found, wanted) if w is torch.Tensor]

    def given(self, tensors: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...] | dict[str, torch.Tensor]:
        """The arguments among tensors, by position or by name."""
        named = {tensor.name: tensors[tensor.name] for tensor in self.inputs}
        return named if self.keywords else tuple(named.values())

    def function(self) -> Any:
        """The function, or the module with its parameters in place."""
        import linecache

        source = self.source()
        file = f"<program {self.seed}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        names = namespace()
        exec(compile(source, file, "exec"), names)
        if "f" in names:
            return names["f"]
        model = names["Model"]()
        for tensor in self.weights:
            if tensor.role == "parameter":
                model.register_buffer(tensor.name, tensor.build(self.seed))
        return model.eval()

    def codes(self) -> list[CodeType]:
        """Every statement compiled on its own."""
        return [code(str(statement)) for statement in self.statements]

    def script(self, **calls: Any) -> str:
        """A few lines of Python that repeat the program: imports, inputs, the function, one call per path."""
        lines = [
            "import torch",
            "import torch.nn.functional as F",
            "from math import inf, nan",
            "import tilewright",
        ]
        lines += ["", self.source()]
        made = self.seed
        lines += [f"{tensor.name} = {tensor.expression(made)}" for tensor in self.inputs]
        arguments = ", ".join(tensor.name for tensor in self.inputs)
        name = "f"
        if any(tensor.role == "parameter" for tensor in self.weights):
            lines += ["f = Model()"]
            lines += [
                f'f.register_buffer("{t.name}", {t.expression(made)})'
                for t in self.weights
                if t.role == "parameter"
            ]
        one = "," if len(self.inputs) == 1 else ""
        given = (
            ", ".join(f"{tensor.name}={tensor.name}" for tensor in self.inputs)
            if self.keywords
            else arguments
        )
        example = f"dict({given})" if self.keywords else f"({arguments}{one})"
        call = {
            "torch.compile": f'torch.compile({name}, backend="tilewright")',
            "grad": f'torch.compile({name}, backend="tilewright")',
            "onnx": f"tilewright.compile(torch.onnx.export({name}, ({arguments}{one}), dynamo=True).model_proto)",
            "emulate": f'tilewright.compile({name}, {example}, target="emulate:sm_90a")',
        }.get(self.path, f"tilewright.compile({name}, {example})")
        lines += [f"g = {call}  # path: {self.path}", f"print({name}({given}))", f"print(g({given}))"]
        return "\n".join(lines) + "\n"


def namespace() -> dict[str, Any]:
    """What the statements of programs may name."""
    from math import inf, nan

    return {"torch": torch, "F": torch.nn.functional, "inf": inf, "nan": nan}


_codes: dict[str, CodeType] = {}


def code(line: str) -> CodeType:
    """A line of Python, compiled once."""
    if line not in _codes:
        if len(_codes) > 4096:
            _codes.clear()
        _codes[line] = compile(line, "<statement>", "exec")
    return _codes[line]
