"""What compiling and measuring a dispatch's candidates takes, as plain data: no IR, so that it travels to other machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.compiler.analysis.placement import OVERWRITES, REPLACES, STRIDES, dense_strides
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.winograd_form import ATTRIBUTE, Convolution2d
from tilewright.compiler.codegen.lower_cpu import LoweredKernel, bare_text
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.record import key_of
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.package import plan
from tilewright.compiler.package.residence import name_of
from tilewright.compiler.profiler.kernel_messages import to_message
from tilewright.compiler.profiler.processes import Message
from tilewright.compiler.targets.target import Target

_TRANSFORMED = 16
"""What Winograd's transforms add to rounding errors, as a factor of summed terms: four times the error of a sum."""


@dataclass(frozen=True)
class DispatchFacts:
    """A dispatch: its IR without a schedule as `text`, its workload, and its arguments.

    `residence` says where arguments come from, as in a `Record`; weights are as far away as when `rotate_bytes` of them
    pass between two calls. `inputs` and `outputs` have dtype, shape and strides in elements; `steps` are the terms of a
    sum, for what rounding explains, and `indexes` says that integers are places in a tensor.
    """

    name: str
    text: str
    workload: str
    workload_text: str
    residence: tuple[str, ...]
    rotate_bytes: int
    inputs: tuple[Message, ...]
    outputs: tuple[Message, ...]
    steps: int
    indexes: bool

    @cached_property
    def code(self) -> str:
        """The digest of what is compiled: equal work may be written in more than one way."""
        return key_of(self.text)

    def request(self, kernels: Sequence[LoweredKernel], target: Target) -> Message:
        """What a measuring child is told of the dispatch and of some kernels of it."""
        last = max(level.capacity_bytes for level in target.memory[1:])
        return {
            "target": target.name,
            "features": [target.arch] if target.is_cuda else list(target.cpu_features),
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            # Weights come from as far away as when the whole model runs, but need not be more than twice the last cache.
            "rotate_bytes": min(self.rotate_bytes, 2 * last),
            "steps": self.steps,
            "indexes": self.indexes,
            "kernels": [to_message(kernel.kernel, kernel.tasks) for kernel in kernels],
        }


def read_facts(
    function: ir.Operation, workload: Workload, residence: tuple[str, ...], rotate_bytes: int
) -> DispatchFacts:
    """The facts of a dispatch whose workload is known."""
    types = function.attributes["function_type"].value
    planes = _transformed_filters(function)
    group = [
        s
        for view in function.regions[0].blocks[0].operations
        if (s := Structured.read(view.operation)) is not None
    ]
    steps = max((_steps(s) for s in group), default=1) * (_TRANSFORMED if planes else 1)
    inputs = tuple(
        {**tensor, "weight": bool(level), "planes": planes.get(number, [])}
        for number, (tensor, level) in enumerate(
            zip(_tensors(function, types.inputs, "arg_attrs"), residence)
        )
    )
    return DispatchFacts(
        name=name_of(function),
        text=_apart(function),
        workload=workload.key,
        workload_text=workload.to_text(),
        residence=residence,
        rotate_bytes=rotate_bytes,
        inputs=inputs,
        outputs=tuple(_tensors(function, types.results, "res_attrs")),
        steps=steps,
        indexes=any(op.name == "tensor.extract" for op in walk(function)),
    )


def _apart(function: ir.Operation) -> str:
    """The text of a dispatch as it is measured: with its result in memory of its own, where it can be compared."""
    apart = function.clone().operation
    for name in (OVERWRITES, REPLACES):
        if name in apart.attributes:
            del apart.attributes[name]
    text = bare_text(apart, schedule=False)
    apart.erase()
    return text


def _transformed_filters(function: ir.Operation) -> dict[int, list]:
    """Arguments that hold filters with their Winograd transforms behind them: the matrix that makes these of those."""
    arguments = list(function.regions[0].blocks[0].arguments)
    found: dict[int, list] = {}
    for op in walk(function, "linalg.generic"):
        convolution = Convolution2d.read(op) if ATTRIBUTE in op.attributes else None
        transforms = convolution.transforms if convolution is not None else None
        if transforms is not None and op.operands[1] in arguments:
            found[arguments.index(op.operands[1])] = [list(row) for row in transforms.planes]
    return found


def _tensors(function: ir.Operation, types: Sequence[ir.Type], attributes: str) -> list[Message]:
    """Arguments or results of a dispatch: dtype, shape, and strides in elements."""
    entries = (
        list(function.attributes[attributes]) if attributes in function.attributes else [{}] * len(types)
    )
    found = []
    for type_, entry in zip(types, entries):
        spec = plan.tensor_spec(type_, "")
        strides = list(entry[STRIDES]) if STRIDES in entry else list(dense_strides(spec.shape))
        found.append({"dtype": spec.dtype, "shape": list(spec.shape), "strides": strides})
    return found


def _steps(structured: Structured) -> int:
    return math.prod(e for e, kind in zip(structured.extents, structured.kinds) if kind == "reduction")
