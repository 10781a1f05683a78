"""From a module of dispatch calls to programs: every tensor gets a place, arena memory is reused by lifetime."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.compiler.analysis.call_accesses import read_calls
from tilewright.compiler.analysis.dense_constants import dense_bytes
from tilewright.compiler.analysis.placement import is_dense, is_inserted, shape_of
from tilewright.compiler.analysis.views import is_view
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.accesses import Accesses, Memory
from tilewright.runtime.program import (
    ALIGNMENT_BYTES,
    ITEM_BYTES,
    BufferRef,
    Constant,
    Program,
    Step,
    TensorSpec,
    Update,
)


def dtype_name(type_: ir.Type) -> str:
    """The runtime's name of an element type; raises PassError for one it has none for."""
    text = {"complex<f32>": "c64", "complex<f64>": "c128", "index": "i64"}.get(str(type_), str(type_))
    text = text.replace("ui", "u").replace("si", "i")
    if text not in ITEM_BYTES:
        raise PassError(f"tensors of `{type_}` have no place in a compiled program")
    return text


def tensor_spec(type_: ir.Type, name: str) -> TensorSpec:
    shaped = ir.RankedTensorType(type_)
    if not shaped.has_static_shape:
        raise PassError(f"`{name}`: expected a static shape, found {type_}")
    return TensorSpec(name, dtype_name(shaped.element_type), tuple(shaped.shape))


@dataclass
class Arena:
    """First-fit memory with coalescing; `peak` is how many bytes it ever took."""

    peak: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)

    def take(self, nbytes: int) -> int:
        """The offset of `nbytes` bytes, aligned."""
        size = max(1, -(-nbytes // ALIGNMENT_BYTES)) * ALIGNMENT_BYTES
        fitting = [(length, start) for start, length in self.free if length >= size]
        if fitting:
            length, start = min(fitting)
            self.free.remove((start, length))
            if length > size:
                self.free.append((start + size, length - size))
            return start
        last = max(self.free, default=(0, 0))
        if last[1] and last[0] + last[1] == self.peak:
            self.free.remove(last)
            self.peak = last[0] + size
            return last[0]
        start, self.peak = self.peak, self.peak + size
        return start

    def give(self, start: int, nbytes: int) -> None:
        size = max(1, -(-nbytes // ALIGNMENT_BYTES)) * ALIGNMENT_BYTES
        for other in list(self.free):
            if other[0] + other[1] == start:
                self.free.remove(other)
                start, size = other[0], other[1] + size
            elif start + size == other[0]:
                self.free.remove(other)
                size += other[1]
        self.free.append((start, size))


@dataclass
class Constants:
    """Constants of a package, each stored once."""

    entries: list[Constant] = field(default_factory=list)
    index: dict[tuple[str, tuple[int, ...], bytes], int] = field(default_factory=dict)

    def place_operation(self, op: ir.Operation) -> BufferRef:
        """Where the value of an `arith.constant` lies."""
        spec = tensor_spec(op.results[0].type, f"constant.{len(self.entries)}")
        return self._place(spec, dense_bytes(op, spec))

    def place_numbers(self, numbers: np.ndarray) -> BufferRef:
        """Where an array of i64 lies."""
        spec = TensorSpec(f"constant.{len(self.entries)}", "i64", numbers.shape)
        return self._place(spec, numbers.astype("<i8").tobytes())

    def _place(self, spec: TensorSpec, data: bytes) -> BufferRef:
        key = (spec.dtype, spec.shape, data)
        if key not in self.index:
            self.index[key] = len(self.entries)
            self.entries.append(Constant(spec, data))
        return BufferRef("constant", self.index[key])


@dataclass(frozen=True)
class CallStep:
    """A dispatch call with the buffers of its operands and results."""

    dispatch: str
    buffers: tuple[BufferRef, ...]
    inputs: tuple[int | str, ...]
    location: str


def plan_arena(steps: Sequence[Accesses], memories: Sequence[Memory]) -> tuple[dict[int, int], int]:
    """Offsets of the temporary memories, and the bytes of arena they take; a place is free after its last access."""
    last = {
        region.memory: number for number, step in enumerate(steps) for region in (*step.reads, *step.writes)
    }
    arena, offsets = Arena(), {}
    for number, step in enumerate(steps):
        for region in step.writes:
            if memories[region.memory].is_temporary and region.memory not in offsets:
                offsets[region.memory] = arena.take(memories[region.memory].nbytes)
        for memory in dict.fromkeys(region.memory for region in (*step.reads, *step.writes)):
            if memory in offsets and last[memory] == number:
                arena.give(offsets[memory], memories[memory].nbytes)
    return offsets, arena.peak


def plan_function(
    function: ir.Operation, constants: Constants, outputs: Mapping[int, BufferRef] | None = None
):
    """Places every tensor of `function`; returns its calls in order and the bytes of arena.

    `outputs[i]` is where result `i` goes, by default the output of that number.
    """
    block = function.regions[0].blocks[0]
    *ops, terminator = (view.operation for view in block.operations)
    calls = read_calls(function)
    offsets, arena_bytes = plan_arena(calls.steps, calls.memories)
    memory = {calls.roots[number]: BufferRef("arena", 0, offset) for number, offset in offsets.items()}
    producer: dict[ir.Value, int | str] = {}
    counters = {"weight": 0, "input": 0, "packed": 0}
    for position, argument in enumerate(block.arguments):
        attributes = function.attributes["arg_attrs"][position]
        role = ir.StringAttr(attributes["tilewright.role"]).value
        producer[argument] = ir.StringAttr(attributes["tilewright.name"]).value
        if role == "packed":
            memory[argument] = BufferRef("packed", 0, ir.IntegerAttr(attributes["tilewright.offset"]).value)
        else:
            memory[argument] = BufferRef(role, counters[role])
            counters[role] += 1
    for i, value in enumerate(terminator.operands):
        place = calls.place(value)
        if place.offset or not is_dense(shape_of(value), place.strides):
            raise PassError(f"{terminator.location}: result {i} lies inside of another tensor; return a copy")
        memory[place.root] = (outputs or {}).get(i, BufferRef("output", i))

    def buffer(value: ir.Value) -> BufferRef:
        place = calls.place(value)
        base = memory[place.root]
        item = ITEM_BYTES[dtype_name(ir.RankedTensorType(value.type).element_type)]
        return BufferRef(base.space, base.index, base.offset + place.offset * item)

    steps: list[CallStep] = []
    for op in ops:
        if op.name == "arith.constant":
            memory[op.results[0]] = constants.place_operation(op)
            producer[op.results[0]] = "constant"
        elif op.name == "func.call":
            sources = tuple(producer.get(calls.place(value).root, "") for value in op.operands)
            producer.update((calls.place(result).root, len(steps)) for result in op.results)
            buffers = tuple(buffer(value) for value in (*op.operands, *op.results))
            callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            steps.append(CallStep(callee, buffers, sources, location_text(op.location)))
        elif not (is_view(op) or is_inserted(op) or op.name == "tensor.empty"):
            raise PassError(f"{op.location}: `{op.name}` is left outside of all dispatches")
    return steps, arena_bytes


_FOLDERS = 3
"""Of a file that is not installed so many last parts of its path are kept."""


def location_text(location: ir.Location) -> str:
    """`file:line` of the innermost source position outside PyTorch's own code, or what MLIR prints.

    Of the file it is what another machine would say as well, so that artifacts are the same there.
    """
    text = str(location)
    places = re.findall(r'"([^"]+)":(\d+)', text)
    own = [place for place in places if "/torch/" not in place[0]]
    if not places:
        return text
    file, line = (own or places)[0]
    installed = re.split(r"/(?:site|dist)-packages/", file)[-1]
    return f"{installed if installed != file else '/'.join(file.split('/')[-_FOLDERS:])}:{line}"


def updates(function: ir.Operation) -> tuple[Update, ...]:
    """The results of @main that are written where an input lies."""
    block = function.regions[0].blocks[0]
    *_, terminator = (view.operation for view in block.operations)
    calls = read_calls(function)
    roles = [ir.StringAttr(entry["tilewright.role"]).value for entry in function.attributes["arg_attrs"]]
    inputs = {
        block.arguments[number]: i for i, number in enumerate(n for n, r in enumerate(roles) if r == "input")
    }
    roots = [calls.place(value).root for value in terminator.operands]
    return tuple(Update(i, inputs[root]) for i, root in enumerate(roots) if root in inputs)


def program(steps: list[CallStep], arena_bytes: int, kernels: Mapping[str, tuple[int, int]]) -> Program:
    """The runtime's table for `steps`; `kernels[dispatch]` is (kernel index, tasks)."""
    table = []
    for step in steps:
        kernel, tasks = kernels[step.dispatch]
        table.append(Step(kernel, step.buffers, tasks, step.dispatch))
    return Program(tuple(table), arena_bytes)


def aligned(nbytes: int) -> int:
    return math.ceil(max(1, nbytes) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES
