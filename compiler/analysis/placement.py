"""Where tensors lie: each at an offset and with strides inside of the memory of another one, or in memory of its own.

A reshape or a slice is another reading of the same memory. So is an insertion marked `tilewright.in_place`: its
result is its destination's memory, and its source was written into a box of that in the first place.

    %e = tensor.empty() : tensor<8x5xf32>
    %1 = tensor.insert_slice %a into %e[0, 0] [8, 2] [1, 1] {tilewright.in_place}     // %a at 0 of %2, strides [5, 1]
    %2 = tensor.insert_slice %b into %1[0, 2] [8, 3] [1, 1] {tilewright.in_place}     // %b at 2 of %2, strides [5, 1]

The result of a call marked `tilewright.overwrites` lies where the operand of that number does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir

IN_PLACE = "tilewright.in_place"
"""On a `tensor.insert_slice` of @main that moves nothing: its source is computed in its destination."""

STRIDES = "tilewright.strides"
"""On an argument or result of a dispatch: its strides in elements, where its memory is not dense."""

OVERWRITES = "tilewright.overwrites"
"""On a call of @main and on its dispatch: the operand in whose memory the result is written, the rest of it being kept."""

REPLACES = "tilewright.replaces"
"""On a dispatch with `tilewright.overwrites` that computes every element of its result from that element of the operand, and
writes it once: rTasks that overlap would compute what they share twice."""

UPDATED_BY = "tilewright.updated_by"
"""On an argument of @main: the number of the result that is its value after the call."""

_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")


@dataclass(frozen=True)
class Place:
    """A tensor's memory: `root`'s, from element `offset` on, with `strides` in elements, one per dimension."""

    root: ir.Value
    offset: int
    strides: tuple[int, ...]


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The static shape of a tensor value."""
    return tuple(ir.RankedTensorType(value.type).shape)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides: (2, 3, 4) gives (12, 4, 1)."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these strides are row-major without gaps; those of dimensions of one element do not matter."""
    return all(n == 1 or s == d for n, s, d in zip(shape, strides, dense_strides(shape)))


def dense_run(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Consecutive elements that lie side by side in memory, counted from the innermost dimension."""
    run = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != run:
            break
        run *= extent
    return run


def split_strides(strides: Sequence[int], groups: Sequence[Sequence[int]], shape: Sequence[int]):
    """Strides of a tensor of `shape` whose dimensions `groups[i]` are what dimension i with `strides[i]` is split into."""
    found = [1] * len(shape)
    for stride, group in zip(strides, groups):
        for d in reversed(group):
            found[d] = stride
            stride *= shape[d]
    return tuple(found)


def merged_strides(
    strides: Sequence[int], groups: Sequence[Sequence[int]], shape: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides once the dimensions `groups[i]` of a tensor of `shape` become dimension i; None where they cannot."""
    found = []
    for group in groups:
        real = [d for d in group if shape[d] != 1]
        if any(strides[a] != strides[b] * shape[b] for a, b in pairwise(real)):
            return None
        found.append(strides[(real or group)[-1]] if group else 1)
    return tuple(found)


def is_reshape(op: ir.Operation) -> bool:
    return op.name in _RESHAPES


def is_inserted(op: ir.Operation) -> bool:
    """Whether `op` is an insertion that moves nothing."""
    return op.name == "tensor.insert_slice" and IN_PLACE in op.attributes


def is_static_box(op: ir.Operation) -> bool:
    """Whether a `tensor.insert_slice` or `tensor.extract_slice` is static and takes every element of its box."""
    dynamic = ir.ShapedType.get_dynamic_size()
    fields = [list(op.attributes[name]) for name in ("static_offsets", "static_sizes", "static_strides")]
    return not any(dynamic in values for values in fields[:2]) and all(s == 1 for s in fields[2])


def groups_of(reshape: ir.Operation) -> list[list[int]]:
    """The reassociation of a `tensor.expand_shape` or `tensor.collapse_shape`."""
    return [[ir.IntegerAttr(i).value for i in group] for group in reshape.attributes["reassociation"]]


def reshaped(op: ir.Operation, place: Place) -> Place | None:
    """The place of a reshape's result, its operand lying at `place`; None where that takes a copy."""
    if op.name == "tensor.cast":
        return place
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    groups = groups_of(op)
    if op.name == "tensor.expand_shape":
        return replace(place, strides=split_strides(place.strides, groups, result))
    strides = merged_strides(place.strides, groups, source)
    return None if strides is None else replace(place, strides=strides)


def unreshaped(op: ir.Operation, place: Place) -> Place | None:
    """The place of a reshape's operand such that its result lies at `place`; None where there is none."""
    if op.name == "tensor.cast":
        return place
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    groups = groups_of(op)
    if op.name == "tensor.collapse_shape":
        return replace(place, strides=split_strides(place.strides, groups, source))
    strides = merged_strides(place.strides, groups, result)
    return None if strides is None else replace(place, strides=strides)


def boxed(op: ir.Operation, place: Place) -> Place:
    """The place of the small tensor of a static insertion or extraction whose large one lies at `place`."""
    offsets, sizes = (list(op.attributes[name]) for name in ("static_offsets", "static_sizes"))
    small = shape_of(op.operands[0] if op.name == "tensor.insert_slice" else op.results[0])
    offset = place.offset + sum(o * s for o, s in zip(offsets, place.strides))
    strides: list[int] = []
    for size, stride in zip(sizes, place.strides):
        # A dimension that the small tensor does not have is one of one element.
        if len(strides) < len(small) and size == small[len(strides)]:
            strides.append(stride)
    return Place(place.root, offset, tuple(strides))


def own(value: ir.Value) -> Place:
    """The place of a tensor in memory of its own."""
    return Place(value, 0, dense_strides(shape_of(value)))


def chain_of(op: ir.Operation) -> list[ir.Operation]:
    """The insertions that fill one tensor, last first: `op` and those that its destination comes from."""
    chain = [op]
    while not isinstance(chain[-1].operands[1].owner, ir.Block) and is_inserted(
        chain[-1].operands[1].owner.operation
    ):
        chain.append(chain[-1].operands[1].owner.operation)
    return chain


def bases_of_chains(ops: Sequence[ir.Operation]) -> dict[ir.Value, ir.Value]:
    """What the chain of insertions behind each insertion's result begins with, for operations in order."""
    bases: dict[ir.Value, ir.Value] = {}
    for op in ops:
        if is_inserted(op):
            destination = op.operands[1]
            bases[op.results[0]] = bases.get(destination, destination)
    return bases


def root_of_chain(op: ir.Operation) -> ir.Value:
    """The memory that a chain of insertions, of which `op` is the last, fills: an argument, or its own result's."""
    base = chain_of(op)[-1].operands[1]
    return base if isinstance(base.owner, ir.Block) else op.results[0]


def places(ops: Sequence[ir.Operation], is_view) -> dict[ir.Value, Place]:
    """Where the tensors of @main lie, given its operations in order; `is_view(op)` tells views.

    Raises PassError where a tensor would have to lie in two places, or a view of it cannot be read in place.
    """
    known: dict[ir.Value, Place] = {}

    def claim(value: ir.Value, place: Place, op: ir.Operation) -> None:
        if known.setdefault(value, place) != place:
            raise PassError(f"{op.location}: a tensor is inserted in two places; insert a copy of it")

    for op in reversed(ops):
        if is_inserted(op):
            result, destination = op.results[0], op.operands[1]
            if result not in known:
                known[result] = Place(root_of_chain(op), 0, dense_strides(shape_of(result)))
            here = known[result]
            if isinstance(destination.owner, ir.Block) or is_inserted(destination.owner.operation):
                claim(destination, here, op)
            claim(op.operands[0], boxed(op, here), op)
        elif is_reshape(op) and op.results[0] in known:
            before = unreshaped(op, known[op.results[0]])
            if before is None:
                raise PassError(f"{op.location}: a reshape of dense memory is inserted; insert a copy of it")
            claim(op.operands[0], before, op)
    for op in ops:
        for result in op.results:
            if result in known or not isinstance(result.type, ir.RankedTensorType):
                continue
            if is_view(op):
                base = known.setdefault(op.operands[0], own(op.operands[0]))
                place = boxed(op, base) if op.name == "tensor.extract_slice" else reshaped(op, base)
                if place is None:
                    raise PassError(f"{op.location}: a reshape reads memory that is not dense; copy it first")
                known[result] = place
            elif OVERWRITES in op.attributes:
                written = op.operands[overwritten(op)]
                known[result] = known.setdefault(written, own(written))
            else:
                known[result] = own(result)
    return known


def overwritten(op: ir.Operation) -> int:
    """The operand that a call, or a dispatch, marked `tilewright.overwrites` writes over."""
    return ir.IntegerAttr(op.attributes[OVERWRITES]).value


def buffer_types(function: ir.Operation) -> list[ir.MemRefType]:
    """The memrefs that a dispatch's kernel is given: arguments, then results, strided where they lie in larger tensors."""
    type_ = function.attributes["function_type"].value
    inputs = zip(type_.inputs, _attributes(function, "arg_attrs", len(type_.inputs)))
    outputs = zip(type_.results, _attributes(function, "res_attrs", len(type_.results)))
    return [_memref(tensor, attributes) for tensor, attributes in (*inputs, *outputs)]


def _attributes(function: ir.Operation, name: str, count: int) -> list[ir.DictAttr]:
    if name not in function.attributes:
        return [ir.DictAttr.get({}, context=function.context)] * count
    return [ir.DictAttr(entry) for entry in function.attributes[name]]


def given_strides(function: ir.Operation) -> list[tuple[int, ...] | None]:
    """The strides of a dispatch's arguments, then results, None for those that are dense."""
    type_ = function.attributes["function_type"].value
    found = (
        *_attributes(function, "arg_attrs", len(type_.inputs)),
        *_attributes(function, "res_attrs", len(type_.results)),
    )
    return [tuple(ir.DenseI64ArrayAttr(a[STRIDES])) if STRIDES in a else None for a in found]


def _memref(type_: ir.Type, attributes: ir.DictAttr) -> ir.MemRefType:
    shaped = ir.RankedTensorType(type_)
    layout = None
    if STRIDES in attributes:
        layout = ir.StridedLayoutAttr.get(0, list(ir.DenseI64ArrayAttr(attributes[STRIDES])))
    return ir.MemRefType.get(shaped.shape, shaped.element_type, layout)
