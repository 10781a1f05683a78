"""The dispatches of a module that have candidates to choose from, each with what is known of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tilewright.compiler.analysis.placement import STRIDES, dense_strides
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.winograd_form import ATTRIBUTE, Convolution2d
from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.codegen.lower_cpu import LoweredKernel, bare_text
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import functions, ir, walk
from tilewright.compiler.nouns.record import Record, key_of
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.package import plan
from tilewright.compiler.profiler.kernel_messages import to_message
from tilewright.compiler.profiler.processes import Message
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate

_TRANSFORMED = 16
"""What Winograd's transforms add to rounding errors, as a factor of summed terms: four times the error of a sum."""

CandidatesOf = Callable[[ir.Operation], Sequence[Candidate]]
"""The candidates of a dispatch, first the one that is there already."""


@dataclass
class MeasurementTask:
    """A dispatch that is to be decided: its workload, which records are looked up by, and its IR as `text`.

    By number of the candidate: `objects` digests of their code, `errors` why there is none or it failed, `kernels` what
    was compiled in this process. `residence` says where arguments come from, as in a `Record`.
    """

    name: str
    function: ir.Operation
    workload: Workload
    text: str
    candidates: Sequence[Candidate]
    residence: tuple[str, ...]
    rotate_bytes: int
    records: list[Record] = field(default_factory=list)
    objects: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    kernels: dict[int, LoweredKernel] = field(default_factory=dict)

    @cached_property
    def code(self) -> str:
        """The digest of what is compiled: equal work may be written in more than one way."""
        return key_of(self.text)

    def unknown(self) -> list[int]:
        """The candidates whose objects nobody knows yet."""
        return [n for n in range(len(self.candidates)) if n not in self.objects and n not in self.errors]

    def distinct(self) -> dict[str, int]:
        """The objects that have not failed, each with its first candidate."""
        found = {d: n for n, d in sorted(self.objects.items(), reverse=True) if n not in self.errors}
        return dict(sorted(found.items(), key=lambda entry: entry[1]))

    def unmeasured(self) -> list[int]:
        """A candidate for each object that is to be measured; none where there is nothing to choose or to trust."""
        distinct = self.distinct()
        if 0 not in distinct.values() or len(distinct) < 2:
            return []
        measured = {record.object for record in self.records}
        return [number for digest, number in distinct.items() if digest not in measured]

    def known_us(self) -> dict[str, float]:
        """The best round of every object that is on record and has not failed."""
        distinct = self.distinct()
        found: dict[str, float] = {}
        for record in self.records:
            if record.object in distinct:
                found[record.object] = min(record.us, found.get(record.object, math.inf))
        return found

    def medians_us(self) -> dict[str, float]:
        """The middle round of every object that has any on record."""
        rounds: dict[str, list[float]] = {}
        for record in self.records:
            if record.rounds_us:
                rounds.setdefault(record.object, []).extend(record.rounds_us)
        return {digest: statistics.median(found) for digest, found in rounds.items()}

    def to_run(self) -> list[int]:
        """The candidates that measuring needs: the first, to compare with, what has no record, and the rival.

        The rival has the best record; it runs where it and the first one never took turns.
        """
        wanted = {0, *self.unmeasured()}
        known = self.known_us()
        if known:
            best = min(known, key=lambda digest: (known[digest], digest))
            first = {(r.at, r.host) for r in self.records if r.object == self.objects[0]}
            if not any((r.at, r.host) in first for r in self.records if r.object == best):
                wanted.add(self.distinct()[best])
        return sorted(wanted)

    def missing(self) -> list[int]:
        """The candidates that measuring needs, and whose kernels are not here."""
        return [number for number in self.to_run() if number not in self.kernels]

    def learn(self, records: Sequence[Record] = ()) -> None:
        """Takes in records of the workload: objects that failed are failures of every candidate that has them."""
        self.records.extend(records)
        failed = {record.object: record.error for record in self.records if record.error and record.object}
        for number, digest in self.objects.items():
            if digest in failed:
                self.errors[number] = failed[digest]


def measurement_tasks(
    module: ir.Module, target: Target, candidates_of: CandidatesOf
) -> Iterator[MeasurementTask]:
    """The dispatches that @main calls and that have a choice; one with another schedule was written by hand."""
    rotate_bytes = weight_bytes(module)
    level = weight_level(target, rotate_bytes)
    calls = calls_of_main(module)
    for function in functions(module):
        name = name_of(function)
        if name not in calls:
            continue
        candidates = list(
            {candidate.schedule: candidate for candidate in reversed(candidates_of(function))}.values()
        )
        candidates.reverse()
        if len(candidates) < 2 or schedule_attribute.read(function) != candidates[0].schedule:
            continue
        residence = tuple(level if is_weight else "" for is_weight in calls[name])
        text = bare_text(function, schedule=False)
        yield MeasurementTask(
            name, function, workload_of(function), text, candidates, residence, rotate_bytes
        )


def name_of(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def calls_of_main(module: ir.Module) -> dict[str, list[bool]]:
    """The dispatches that @main calls, with what is a weight of their arguments."""
    found: dict[str, list[bool]] = {}
    for function in functions(module):
        if name_of(function) != "main":
            continue
        attributes = list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes else []
        roles = {
            argument: "tilewright.role" in entry and entry["tilewright.role"].value != "input"
            for argument, entry in zip(function.regions[0].blocks[0].arguments, attributes)
        }
        for call in walk(function, "func.call"):
            name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            found.setdefault(name, [roles.get(_source(operand), False) for operand in call.operands])
    return found


def _source(value: ir.Value) -> ir.Value:
    """What a chain of reshapes and slices is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name.startswith("tensor."):
        if not value.owner.operation.operands:
            break
        value = value.owner.operation.operands[0]
    return value


def weight_bytes(module: ir.Module) -> int:
    """Bytes of all that @main reads and no call changes: they pass through the caches once per call."""
    total = 0
    for function in functions(module):
        if name_of(function) == "main" and "arg_attrs" in function.attributes:
            types = function.attributes["function_type"].value.inputs
            for type_, entry in zip(types, function.attributes["arg_attrs"]):
                if "tilewright.role" in entry and entry["tilewright.role"].value != "input":
                    total += plan.tensor_spec(type_, "").nbytes
    return total


def weight_level(target: Target, nbytes: int) -> str:
    """The fastest memory that keeps so many bytes of weights from one call of the model to the next."""
    lasting = target.memory[:2] if target.kind == "gpu" else target.memory[:-1]
    return [level.name for level in lasting if level.capacity_bytes >= nbytes or level is lasting[0]][-1]


def describe(task: MeasurementTask, alive: Sequence[int], target: Target) -> Message:
    """What the measuring child is told of a dispatch and of the kernels of the candidates `alive`."""
    types = task.function.attributes["function_type"].value
    inputs = _tensors(task.function, types.inputs, "arg_attrs")
    planes = _transformed_filters(task.function)
    group = [
        s
        for view in task.function.regions[0].blocks[0].operations
        if (s := Structured.read(view.operation)) is not None
    ]
    return {
        "target": target.name,
        "features": [target.arch] if target.is_cuda else list(target.cpu_features),
        "inputs": [
            {**tensor, "weight": bool(level), "planes": planes.get(number, [])}
            for number, (tensor, level) in enumerate(zip(inputs, task.residence))
        ],
        "outputs": _tensors(task.function, types.results, "res_attrs"),
        # Weights come from as far away as when the whole model runs, but need not be more than twice the last cache.
        "rotate_bytes": min(task.rotate_bytes, 2 * max(level.capacity_bytes for level in target.memory[1:])),
        "steps": max((_steps(s) for s in group), default=1) * (_TRANSFORMED if planes else 1),
        "indexes": any(op.name == "tensor.extract" for op in walk(task.function)),
        "kernels": [to_message(task.kernels[n].kernel, task.kernels[n].tasks) for n in alive],
    }


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
