"""Reads the `Workload` of a dispatch off its IR: what schedulers see of a group of operations around one sink.

    %0 = linalg.generic // matmul, (m, n, k)            axes      m: 197, n: 3072 (parallel), k: 768 (reduction)
    %1 = linalg.generic // bias and relu, (m, n)   =>   operands  x[m, k], w[n floordiv 64, k, n mod 64], b[n], result[m, n]

Parallel axes are the sink's loops; loops of its producers are followed through the tensors in between, and what
remains are the reductions. Where one loop is cut in the sink and summed over in a producer (softmax), it is one axis.
`read_workload` reads what schedulers can cut, `workload_of` any dispatch, with what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.analysis.affine_access import composed, is_dim, map_dims
from tilewright.compiler.analysis.chosen_parts import chosen_of, chosen_parts
from tilewright.compiler.analysis.computation_text import ComputationText
from tilewright.compiler.analysis.line_operations import lines_of
from tilewright.compiler.analysis.padding import Padding, slid_padding
from tilewright.compiler.analysis.placement import given_strides
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.ir import ir, static_shape, walk
from tilewright.compiler.nouns.quasi_affine import NotQuasiAffine, QuasiAffine, Term
from tilewright.compiler.nouns.workload import BITS, Axis, Operand, Workload

_SILENT = ("arith.constant", "tensor.empty", "linalg.fill", "func.return")


class NoWorkload(Exception):
    """The dispatch is nothing that axes and index maps describe; the message says why."""


@dataclass(frozen=True)
class DispatchWorkload:
    """A workload and where its axes come from.

    `loops[a]` is the loop of the sink that axis `a` is, None for a reduction of a producer; `main` is the operation
    that does the work, and `main_axes[l]` the axis of its loop `l`, None for loops of one step. `group` holds the
    structured operations in program order, the sink last where it is structured; `main` is None where there are none.
    `passes` has what each of several operations reads and writes, tensors between them included, equal where two walk
    one tensor alike; it is empty for a single operation, and where some index is not quasi-affine.
    """

    workload: Workload
    loops: tuple[int | None, ...]
    group: tuple[Structured, ...] = ()
    main: Structured | None = None
    main_axes: tuple[int | None, ...] = ()
    passes: tuple[tuple[Operand, ...], ...] = ()


def read_workload(function: ir.Operation) -> DispatchWorkload:
    """The workload of a dispatch; raises NoWorkload with the reason for one that has none."""
    ops = [view.operation for view in function.regions[0].blocks[0].operations]
    returned = list(ops[-1].operands)
    owners = {None if isinstance(v.owner, ir.Block) else v.owner.operation for v in returned}
    if len(owners) != 1 or None in owners:
        raise NoWorkload("its results do not come from one operation")
    (sink,) = owners
    assert sink is not None
    if sink.name in ("tensor.pad", "tensor.concat", "linalg.fill"):
        return _movement(sink)
    group = []
    for op in ops:
        if op.name in _SILENT or not any(isinstance(r.type, ir.ShapedType) for r in op.results):
            continue
        structured = Structured.read(op)
        if structured is None and not (op.operands and op.operands[0].owner in _silent(ops)):
            raise NoWorkload(f"{op.name} is no structured operation on static shapes")
        if structured is not None and slid_padding(op) is None and chosen_parts(op) is None:
            group.append(structured)
    if not group or group[-1].op != sink:
        raise NoWorkload(f"{sink.name} is no structured operation on static shapes")
    if any(extent < 1 for structured in group for extent in structured.extents):
        raise NoWorkload("a loop has no steps")
    return _Reader(tuple(group)).read()


def workload_of(function: ir.Operation) -> Workload:
    """The workload of any dispatch with what it computes; equal for equal work in any program.

    What cannot be cut, or followed element by element, has sequential axes: attention's scores and sums, the lines of
    sorts and scans, all of what is read by chains of reshapes. Raises NoWorkload for elements of types without a size.
    """
    try:
        dispatch = read_workload(function)
    except NoWorkload:
        return _whole(function)
    if dispatch.main is None:
        return _placed(replace(dispatch.workload, body=_program(function)), function, {})
    reader = _Reader(_needed_order(dispatch.group))
    workload = reader.read().workload
    return _placed(replace(workload, body=reader.body()), function, reader.values)


def _needed_order(group: tuple[Structured, ...]) -> tuple[Structured, ...]:
    """The operations in the order in which the sink's operands need them, the sink last."""
    producers = {result: s for s in group for result in s.op.results}
    found: dict[int, Structured] = {}

    def visit(s: Structured) -> None:
        for operand in s.op.operands:
            if operand in producers:
                visit(producers[operand])
        found.setdefault(id(s), s)

    visit(group[-1])
    return tuple(found.values())


def _program(function: ir.Operation) -> str:
    """The operations of a dispatch in their order, arguments by number."""
    block = function.regions[0].blocks[0]
    numbers = {argument: f"in{number}" for number, argument in enumerate(block.arguments)}
    text = ComputationText(lambda value: numbers[value])
    for view in block.operations:
        if view.operation.name not in _SILENT:
            text.add(view.operation)
    return "\n".join(text.lines)


def _whole(function: ir.Operation) -> Workload:
    """A dispatch that is not read as structured operations: its first result by its axes, what no axis cuts whole.

    Scans, sorts, scatters and transforms are cut along parallel axes; of all else everything but the result is read and written whole.
    """
    block = function.regions[0].blocks[0]
    *ops, end = (view.operation for view in block.operations)
    result, *others = end.operands
    label = next(
        (op.name.rpartition(".")[2] for op in reversed(ops) if op.name.startswith(_LABELLED)), "program"
    )
    lines = lines_of(function)
    shape = static_shape(result.type)
    extents = shape if lines is None else lines.extents
    kinds = ("parallel",) * len(shape) if lines is None else lines.kinds
    axes = [Axis(f"d{i}", extent, kind) for i, (extent, kind) in enumerate(zip(extents, kinds))]
    through = lines.gone_through() if lines is not None else {}

    def place(value: ir.Value) -> tuple[QuasiAffine, ...]:
        found = []
        own = static_shape(value.type)
        for elements, loops in zip(own, through.get(value, ((),) * len(own))):
            index: QuasiAffine = QuasiAffine()
            for loop in loops:
                elements //= max(1, extents[loop])
                index += QuasiAffine.of(loop).scaled(max(1, elements))
            if elements > 1 or not loops:
                index += QuasiAffine.of(len(axes))
                axes.append(Axis(f"s{len(axes)}", elements, "sequential"))
            found.append(index)
        return tuple(found)

    operands = [
        Operand(f"in{number}", static_shape(value.type), _dtype(value.type), place(value))
        for number, value in enumerate((*block.arguments, *others))
    ]
    own = tuple(map(QuasiAffine.of, range(len(shape)))) if len(extents) == len(shape) else place(result)
    operands.append(Operand("out0", shape, _dtype(result.type), own, output=True))
    flops = sum(Attention.read(op).flops for op in walk(function, ATTENTION))
    flops += lines.operations if lines is not None else 0.0
    elements = math.prod(axis.extent for axis in axes if axis.kind == "parallel")
    workload = Workload(
        label, tuple(axes), tuple(operands), 0.0, flops / max(1, elements), _program(function)
    )
    return _placed(workload, function, dict(enumerate(block.arguments)))


_LABELLED = ("tilewright.attention", "tilewright.fourier", "tm_tensor.")
"""Operations that a dispatch which is not cut is named for."""


def _placed(workload: Workload, function: ir.Operation, values: Mapping[int, ir.Value]) -> Workload:
    """The workload with the strides of what lies inside of larger tensors; `values` are those of operands by number."""
    block = function.regions[0].blocks[0]
    *_, end = block.operations
    strides = dict(zip((*block.arguments, *end.operation.operands), given_strides(function)))
    outputs = iter(end.operation.operands)
    found = []
    for number, o in enumerate(workload.operands):
        own = strides.get(next(outputs, None) if o.output else values.get(number)) or ()
        # Parts that several loops choose have more dimensions than what they are chosen of.
        found.append(replace(o, strides=own if len(own) == len(o.shape) else ()))
    return replace(workload, operands=tuple(found))


def _silent(ops: Sequence[ir.Operation]) -> list[ir.Operation]:
    return [op for op in ops if op.name in _SILENT]


class _Reader:
    """Names the loops of a group and reads its operands."""

    def __init__(self, group: tuple[Structured, ...]):
        self.group = group
        self.extents: list[int] = []
        self.kinds: list[str] = []
        self.loops: list[int | None] = []
        self.names: list[dict[int, int | None]] = [{} for _ in group]
        self.found: dict[tuple, Operand] = {}

    def read(self) -> DispatchWorkload:
        self.name_loops()
        # Axis i is loop i of the sink, which is what `tile[i]` of a schedule cuts; reductions of producers come behind.
        axes = tuple(
            Axis(_name(loop, position), extent, kind)  # type: ignore[arg-type]
            for position, (loop, extent, kind) in enumerate(zip(self.loops, self.extents, self.kinds))
        )
        main = self.main()
        workload = Workload(self.label(main), axes, self.operands(), *self.flops(axes))
        names = self.names[self.group.index(main)]
        return DispatchWorkload(
            workload,
            tuple(self.loops),
            self.group,
            main,
            tuple(names.get(loop) for loop in range(len(main.extents))),
            self.passes(),
        )

    def main(self) -> Structured:
        """The contraction, else the reduction or the sink with the most work."""
        found = [s for s in self.group if s.is_contraction]
        if found:
            return max(reversed(found), key=lambda s: s.points)
        return max(reversed(self.group), key=lambda s: (not s.is_elementwise, s.points))

    @staticmethod
    def label(main: Structured) -> str:
        if main.is_contraction:
            if not map_dims(main.maps[1]) & map_dims(main.result_map) - map_dims(main.maps[0]):
                return "depthwise"
            return "matmul" if main.maps[0].is_projected_permutation else "conv"
        if main.is_elementwise:
            return "elementwise"
        if all(m.is_projected_permutation for m in main.maps):
            return "reduction"
        names = {op.operation.name for op in main.body.operations}
        return "depthwise" if names & {"arith.mulf", "arith.muli"} else "pooling"

    def axis(self, extent: int, kind: str, loop: int | None) -> int:
        self.extents.append(extent)
        self.kinds.append(kind)
        self.loops.append(loop)
        return len(self.extents) - 1

    def name_loops(self) -> None:
        """Gives every loop of every operation its axis, consumers before producers."""
        sink = self.group[-1]
        for loop, (extent, kind) in enumerate(zip(sink.extents, sink.kinds)):
            self.names[-1][loop] = self.axis(extent, kind, loop)
        producers = {r: number for number, s in enumerate(self.group) for r in s.op.results}
        for number in range(len(self.group) - 1, -1, -1):
            structured, names = self.group[number], self.names[number]
            self.name_remaining(number)
            for operand, map_ in zip(structured.op.operands, structured.maps):
                producer = producers.get(operand)
                if producer is None:
                    continue
                for expr, own in zip(map_.results, self.group[producer].result_map.results):
                    if is_dim(expr) and is_dim(own):
                        self.names[producer].setdefault(own.position, names[expr.position])

    def name_remaining(self, number: int) -> None:
        structured, names = self.group[number], self.names[number]
        for loop, (extent, kind) in enumerate(zip(structured.extents, structured.kinds)):
            if loop in names:
                continue
            if extent == 1:
                names[loop] = None
                continue
            known = self.shared(number, loop)
            if known is None and kind == "parallel":
                raise NoWorkload(f"a loop of {extent} of a producer is no loop of the sink")
            names[loop] = self.axis(extent, "reduction", None) if known is None else known

    def shared(self, number: int, loop: int) -> int | None:
        """The axis along which another operation of the group runs through the tensor that `loop` runs through."""
        structured = self.group[number]
        for operand, map_ in zip(structured.op.operands, structured.maps):
            for dimension, expr in enumerate(map_.results):
                if not is_dim(expr, loop):
                    continue
                for other in range(len(self.group) - 1, number, -1):
                    reader = self.group[other]
                    for value, read in zip(reader.op.operands, reader.maps):
                        if value != operand or not is_dim(read.results[dimension]):
                            continue
                        axis = self.names[other].get(read.results[dimension].position)
                        taken = axis in self.names[number].values()
                        if axis is not None and not taken and self.extents[axis] == structured.extents[loop]:
                            return axis
        return None

    def operands(self) -> tuple[Operand, ...]:
        """What is read from memory and the result; tensors that only pass between operations are neither."""
        inside = {result for s in self.group for result in s.op.results}
        found = self.found
        for s, names in zip(self.group, self.names):
            for operand, map_ in zip(s.op.operands, s.maps[: s.num_inputs]):
                if operand in inside or not isinstance(operand.type, ir.ShapedType):
                    continue
                if _is_silent(operand):
                    continue
                read = _operand(f"in{len(found)}", operand, map_, names)
                padding = _padding(operand)
                if padding is not None:
                    operand, read = padding.source, _as_given(read, padding)
                chosen = chosen_of(operand)
                if chosen is not None:
                    operand = chosen.table
                found.setdefault((operand, read.index_map), read)
            for gathered in _gathered(s):
                # One element per point, anywhere: as much as a tensor of the operation's own shape.
                kept = [loop for loop in range(len(s.extents)) if names[loop] is not None]
                index = tuple(QuasiAffine.of(names[loop]) for loop in kept)  # type: ignore[arg-type]
                shape = tuple(s.extents[loop] for loop in kept)
                found[(gathered, s.op)] = Operand(f"in{len(found)}", shape, _dtype(gathered.type), index)
        sink, names = self.group[-1], self.names[-1]
        results = [
            _operand(f"out{i}", result, map_, names, output=i == 0)
            for i, (result, map_) in enumerate(zip(sink.op.results, sink.maps[sink.num_inputs :]))
        ]
        return (*found.values(), *results)

    @property
    def values(self) -> dict[int, ir.Value]:
        """The tensor that every operand which is read is."""
        return {number: value for number, (value, _) in enumerate(self.found)}

    def body(self) -> str:
        """What the group computes, once it is read."""
        numbers = {key: f"in{number}" for number, key in enumerate(self.found)}
        by_value = {value: number for (value, _), number in reversed(numbers.items())}
        text = ComputationText(lambda value: by_value.get(value, "given"))
        for value in self.read_values():
            if _padding(value) is not None or chosen_of(value) is not None:
                text.add(value.owner.operation)
        for s, names in zip(self.group, self.names):
            read = []
            for value, map_ in zip(s.op.operands, s.maps):
                index = _index_map(map_, names)
                name = numbers.get((value, index)) or text.name(value)
                read.append(f"{name}[{_written(index)}]" if name.startswith("%") else name)
            results = dict.fromkeys(_written(_index_map(map_, names)) for map_ in s.maps[s.num_inputs :])
            summed = {names[loop] for loop, kind in enumerate(s.kinds) if kind == "reduction"}
            axes = sorted(axis for axis in summed if axis is not None)
            where = "; ".join(results) + "".join(f", +a{axis}" for axis in axes)
            where += (
                ", +0" if summed and not axes else ""
            )  # over one element: a reduction to a schedule still
            text.add(s.op, where, read)
        return "\n".join(text.lines)

    def passes(self) -> tuple[tuple[Operand, ...], ...]:
        """What every operation walks, by the tensors' numbers."""
        if len(self.group) == 1 and not self.padded():
            return ()
        numbers: dict[ir.Value, int] = {}
        found = []
        for s, names in zip(self.group, self.names):
            values = [*list(s.op.operands)[: s.num_inputs], *s.op.results]
            walked = [
                (value, map_)
                for value, map_ in zip(values, s.maps)
                if isinstance(value.type, ir.ShapedType) and not _is_silent(value)
            ]
            try:
                returned = set(self.group[-1].op.results)
                operands = [
                    _operand(
                        f"t{numbers.setdefault(value, len(numbers))}", value, map_, names, value in returned
                    )
                    for value, map_ in walked
                ]
            except NoWorkload:
                return ()
            for (value, _), read in zip(walked, list(operands)):
                padding = _padding(value)
                if padding is not None:  # a walk of its own: what is given is read, and the padding written
                    given = replace(_as_given(read, padding), name=f"{read.name}.given")
                    found.append((given, read))
            found.append(tuple(operands))
        return tuple(found)

    def padded(self) -> list[ir.Value]:
        """What windows slide over that is padding of something else."""
        return [v for v in self.read_values() if _padding(v)]

    def read_values(self) -> list[ir.Value]:
        """What any operation reads."""
        return list(dict.fromkeys(v for s in self.group for v in s.op.operands))

    def flops(self, axes: tuple[Axis, ...]) -> tuple[float, float]:
        """Arithmetic per point and per element of the result, so that the group's total is met."""
        reductions = {a for a, axis in enumerate(axes) if axis.kind == "reduction"}
        points = math.prod(axis.extent for axis in axes)
        elements = math.prod(axis.extent for axis in axes if axis.kind == "parallel")
        inner, outer = 0.0, 0.0
        for s, names in zip(self.group, self.names):
            if reductions <= set(names.values()):
                inner += s.body_ops * s.points
            else:
                outer += s.body_ops * s.points
        return inner / max(1, points), outer / max(1, elements)


def _padding(value: ir.Value) -> Padding | None:
    """The padding that `value` is where windows alone slide over it."""
    op = producer(value)
    return None if op is None else slid_padding(op)


def _as_given(read: Operand, padding: Padding) -> Operand:
    """What windows read of padding, as what is padded lies in memory: its dimensions, as long as the padding's."""
    loops = [a.loop for a in padding.along]
    shape = tuple(1 if loop is None else read.shape[loop] for loop in loops)
    index = tuple(QuasiAffine() if loop is None else read.index_map[loop] for loop in loops)
    return replace(read, shape=shape, index_map=index)


def _written(index: Sequence[QuasiAffine[int]]) -> str:
    return ", ".join(i.text() for i in index)


def _name(loop: int | None, position: int) -> str:
    return f"d{loop}" if loop is not None else f"r{position}"


def _is_silent(value: ir.Value) -> bool:
    """Whether the value is a fill, an empty tensor or a splat, and takes no memory of its own."""
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name in _SILENT


def _gathered(structured: Structured) -> list[ir.Value]:
    """Tensors that the body reads at computed places."""
    return [
        op.operation.operands[0] for op in structured.body.operations if op.operation.name == "tensor.extract"
    ]


def _dtype(type_: ir.Type) -> str:
    element = ir.ShapedType(type_).element_type
    name = "i64" if isinstance(element, ir.IndexType) else str(element)
    name = "f8" if name.startswith("f8") else name.removeprefix("u").removeprefix("s")
    name = {"complex<f32>": "c64", "complex<f64>": "c128"}.get(name, name)
    if name not in BITS:
        raise NoWorkload(f"elements of {element} have no size that schedules know")
    return name


def _operand(
    name: str, value: ir.Value, map_: ir.AffineMap, names: dict[int, int | None], output: bool = False
) -> Operand:
    shape = tuple(ir.ShapedType(value.type).shape)
    index = _index_map(map_, names)
    return Operand(name, shape, _dtype(value.type), index, output)


def _index_map(map_: ir.AffineMap, names: dict[int, int | None]) -> tuple[QuasiAffine[int], ...]:
    """An index map over axes; raises NoWorkload for what is not quasi-affine."""
    loops = {loop: QuasiAffine() if axis is None else QuasiAffine.of(axis) for loop, axis in names.items()}
    try:
        return tuple(composed(expr, loops) for expr in map_.results)
    except NotQuasiAffine as error:
        raise NoWorkload(str(error)) from None


def _movement(sink: ir.Operation) -> DispatchWorkload:
    """Padding, concatenation and filling: every source element is read at a fixed distance from where it is written."""
    type_ = ir.ShapedType(sink.results[0].type)
    if not all(ir.ShapedType(v.type).has_static_shape for v in (*_sources(sink), sink.results[0])):
        raise NoWorkload(f"{sink.name} is no structured operation on static shapes")
    shape = tuple(type_.shape)
    axes = tuple(Axis(f"d{i}", extent) for i, extent in enumerate(shape))
    operands = []
    start = [0] * len(shape)
    low = [int(v) for v in sink.attributes["static_low"]] if sink.name == "tensor.pad" else [0] * len(shape)
    dimension = ir.IntegerAttr(sink.attributes["dim"]).value if sink.name == "tensor.concat" else None
    for number, source in enumerate(_sources(sink)):
        own = tuple(ir.ShapedType(source.type).shape)
        index = tuple(QuasiAffine((Term(i),), -low[i] - start[i]) for i in range(len(shape)))
        operands.append(Operand(f"in{number}", own, _dtype(source.type), index))
        if dimension is not None:
            start[dimension] += own[dimension]
    index = tuple(QuasiAffine.of(i) for i in range(len(shape)))
    operands.append(Operand("out0", shape, _dtype(sink.results[0].type), index, output=True))
    workload = Workload(sink.name.split(".")[1], axes, tuple(operands), flops_per_point=0.0)
    return DispatchWorkload(workload, tuple(range(len(shape))))


def _sources(sink: ir.Operation) -> list[ir.Value]:
    if sink.name == "linalg.fill":
        return []
    return [v for v in sink.operands if isinstance(v.type, ir.RankedTensorType)]
