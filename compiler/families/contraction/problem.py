"""Reads a workload as one matrix product with an epilogue, every address of which is linear in its loops.

    out[n, h, w, o] = relu(sum over i, j, c of x[n, 2h + i, 2w + j, c] * f[i, j, c, o] + b[o])

becomes a product [M, K] x [K, N] with M = (n, h, w), N = (o), K = (i, j*c), where x has strides along M and K loops,
f along K and N, and the result and b along M and N. Loops of all three are a batch. Loops that index maps cut
(`d3 floordiv 32`) are split; neighbours that every access runs through as one are merged (j and c above).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.compiler.analysis.affine_access import composed
from tilewright.compiler.analysis.placement import STRIDES, dense_strides
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.workload_of import DispatchWorkload, NoWorkload, read_workload
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.families.contraction.element_values import (
    Applied,
    Element,
    Loaded,
    Place,
    Summed,
    Unreadable,
    Values,
    applied,
    is_number,
    reads_sum,
    scalar,
)
from tilewright.compiler.gpu.alignment import buffer_alignments
from tilewright.compiler.ir import ir, static_shape
from tilewright.compiler.nouns.product_loops import (
    Access,
    Loop,
    NoProduct,
    aligned_lanes,
    flat,
    product_loops,
)
from tilewright.compiler.nouns.quasi_affine import NotQuasiAffine, QuasiAffine
from tilewright.compiler.nouns.workload import BITS


def element_bytes(dtype: str) -> int:
    """Bytes of an element in memory; booleans take one."""
    return BITS.get(dtype, 8) // 8


def vector_limit(dtype: str) -> int:
    """The most elements that one thread moves in one access: 16 bytes of them; booleans go one by one."""
    return 16 // element_bytes(dtype) if dtype in BITS and dtype != "i1" else 1


class NotContraction(Declined):
    """The dispatch is no matrix product that kernels here compute; the message says why."""


@dataclass(frozen=True)
class Buffer:
    """An argument or a result of the dispatch, in the order of the kernel's buffers; strides in elements.

    It starts at a multiple of `alignment` bytes.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    alignment: int = 16

    @property
    def span(self) -> int:
        """Elements from the first to the last, both included."""
        return (
            1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))
            if min(self.shape, default=1)
            else 0
        )

    @property
    def type(self) -> ir.MemRefType:
        """The memref that the kernel takes; needs a context."""
        element = ir.Type.parse(self.dtype)
        if self.strides == dense_strides(self.shape):
            return ir.MemRefType.get(list(self.shape), element)
        return ir.MemRefType.get(
            list(self.shape), element, layout=ir.StridedLayoutAttr.get(0, list(self.strides))
        )


@dataclass(frozen=True)
class Store:
    """A result: where every element goes, and what it is."""

    access: int
    element: Element


@dataclass(frozen=True)
class Contraction:
    """`sum over k of a' * b'` with `a'`, `b'` elements of two buffers, and the results computed from the sum.

    `accesses[0]` and `accesses[1]` are those of a [M, K] and b [K, N]; the others belong to the epilogue. Loops are
    ordered by group, outermost first. `convert_a` and `convert_b`, where given, say what is multiplied in place of
    the loaded element, a `Summed` standing for that; else it is the element itself, widened exactly.
    """

    name: str
    buffers: tuple[Buffer, ...]
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    stores: tuple[Store, ...]
    sum_dtype: str
    convert_a: Element | None = None
    convert_b: Element | None = None

    def group(self, name: str) -> tuple[int, ...]:
        """Numbers of the loops of a group, outermost first."""
        return tuple(i for i, loop in enumerate(self.loops) if loop.group == name)

    def extent(self, name: str) -> int:
        """The number of steps that the loops of a group take together."""
        return math.prod(self.loops[i].extent for i in self.group(name))

    @property
    def a_dtype(self) -> str:
        return self.buffers[self.accesses[0].buffer].dtype

    @property
    def b_dtype(self) -> str:
        return self.buffers[self.accesses[1].buffer].dtype

    @property
    def compute_dtype(self) -> str:
        """What is summed in: f32 for the narrower floats, else the sum's own type."""
        return "f32" if self.sum_dtype in ("f16", "bf16") else self.sum_dtype

    @property
    def flops(self) -> int:
        return 2 * math.prod(loop.extent for loop in self.loops)

    def vector(self, access: int, loop: int | None, limit: int = 16) -> int:
        """The most elements, a power of two up to `limit`, that lie side by side and aligned along `loop`.

        Groups of so many steps of the loop, which is the innermost of its group and of a multiple of that length,
        start at a multiple of the length from the buffer's start.
        """
        found = self.accesses[access]
        if found.buffer < 0:
            return 1
        buffer = self.buffers[found.buffer]
        most = min(limit, vector_limit(buffer.dtype), buffer.alignment // element_bytes(buffer.dtype))
        return aligned_lanes(found, self.loops, loop, most)


def read_contraction(function: ir.Operation) -> Contraction:
    """The product that a dispatch on tensors is; raises NotContraction with the reason for one that is none."""
    try:
        return _Reader(function, read_workload(function)).read()
    except (NoWorkload, NotQuasiAffine, Unreadable) as error:
        raise NotContraction(str(error)) from None


class _Reader:
    """Reads one dispatch off its workload. Positions are quasi-affine indices of the workload's axes."""

    def __init__(self, function: ir.Operation, dispatch: DispatchWorkload):
        found = [s for s in dispatch.group if s.is_contraction]
        if len(found) != 1:
            raise NotContraction(f"{len(found)} contractions")
        if any(s is not found[0] and not s.is_elementwise for s in dispatch.group):
            raise NotContraction("a second reduction")
        self.function, self.main, self.sink = function, found[0], dispatch.group[-1]
        self.axes = dispatch.workload.axes
        self.main_loops = self.loops_of_main(dispatch.main_axes)
        self.sum_at = tuple(composed(expr, self.main_loops) for expr in self.main.result_map.results)
        # The two factors come first among the accesses.
        self.reads: list[tuple[int, tuple[QuasiAffine[int], ...]]] = [(-1, ()), (-1, ())]
        self.buffers = _buffers(function)
        self.numbers = {value: i for i, value in enumerate(function.regions[0].blocks[0].arguments)}
        self.values = Values(self.source, self.place)

    def loops_of_main(self, axes: Sequence[int | None]) -> list[QuasiAffine[int]]:
        """The contraction's loops as axes: every element of its sum belongs to one point of the results."""
        if not self.main.result_map.is_projected_permutation:
            raise NotContraction("a result that is not indexed by plain loops")
        if any(a is not None and n != self.axes[a].extent for a, n in zip(axes, self.main.extents)):
            raise NotContraction("the sum is read in part")
        if any(axis.extent > 1 and i not in axes for i, axis in enumerate(self.axes)):
            raise NotContraction("the sum is broadcast")
        return [QuasiAffine() if axis is None else QuasiAffine.of(axis) for axis in axes]

    def read(self) -> Contraction:
        conversions = _conversions(self.main)
        *_, terminator = self.function.regions[0].blocks[0].operations
        loops = [QuasiAffine.of(loop) for loop in range(len(self.sink.extents))]
        stores = []
        for number, value in enumerate(terminator.operation.operands):
            written = self.sink.maps[self.sink.num_inputs + list(self.sink.op.results).index(value)]
            index = tuple(composed(expr, loops) for expr in written.results)
            element = self.values.of(value, index)
            self.reads.append((len(self.numbers) + number, index))
            stores.append(Store(len(self.reads) - 1, element))
        if not any(reads_sum(store.element) for store in stores):
            raise NotContraction("the results do not depend on the contraction")
        for factor, value in enumerate(list(self.main.op.operands)[:2]):
            if value not in self.numbers:
                raise NotContraction("a factor that is computed in the dispatch")
            index = tuple(composed(expr, self.main_loops) for expr in self.main.maps[factor].results)
            self.reads[factor] = (self.numbers[value], index)
        dtype = str(ir.RankedTensorType(self.main.op.results[0].type).element_type)
        return self.finish(tuple(stores), dtype, *conversions)

    def source(self, value: ir.Value, index: tuple[QuasiAffine[int], ...]) -> Element | None:
        """A load of an argument, or the sum; other reductions are refused by the tree."""
        if value in self.numbers:
            self.reads.append((self.numbers[value], index))
            return Loaded(len(self.reads) - 1)
        if value != self.main.op.results[0]:
            return None
        if index != self.sum_at:
            raise Unreadable("the sum is not read element by element")
        return self.sum

    @cached_property
    def sum(self) -> Element:
        """The sum with what the contraction starts from added, where that is not zero."""
        first = self.values.of(self.main.op.operands[2], self.sum_at)
        total = Summed()
        if is_number(first, 0):
            return total
        (adder,) = [
            use.owner.operation for use in list(self.main.body.arguments)[2].uses
        ]  # the body's own addition, of the type of the result
        return Applied(adder, (first, total))

    def place(self, position: QuasiAffine[int]) -> Element:
        self.reads.append((-1, (position,)))
        return Place(len(self.reads) - 1)

    def finish(
        self, stores: tuple[Store, ...], dtype: str, convert_a: Element | None, convert_b: Element | None
    ) -> Contraction:
        strides = [self.buffers[buffer].strides if buffer >= 0 else (1,) for buffer, _ in self.reads]
        totals = [flat(index, own) for (_, index), own in zip(self.reads, strides)]
        try:
            found = product_loops(
                totals,
                [buffer for buffer, _ in self.reads],
                [axis.extent for axis in self.axes],
                [axis.kind == "reduction" for axis in self.axes],
                stores[0].access,
            )
        except NoProduct as reason:
            raise NotContraction(str(reason)) from None
        if found.swapped:
            convert_a, convert_b = convert_b, convert_a
        name = ir.StringAttr(self.function.attributes["sym_name"]).value
        return Contraction(
            name, self.buffers, found.loops, found.accesses, stores, dtype, convert_a, convert_b
        )


def _buffers(function: ir.Operation) -> tuple[Buffer, ...]:
    found = []
    alignments = buffer_alignments(function)
    type_ = function.attributes["function_type"].value
    for types, attributes in ((type_.inputs, "arg_attrs"), (type_.results, "res_attrs")):
        entries = (
            list(function.attributes[attributes]) if attributes in function.attributes else [{}] * len(types)
        )
        for own, entry in zip(types, entries):
            if not isinstance(own, ir.RankedTensorType) or not own.has_static_shape:
                raise NotContraction(f"a buffer of type {own}")
            shape = static_shape(own)
            strides = (
                tuple(ir.DenseI64ArrayAttr(entry[STRIDES])) if STRIDES in entry else dense_strides(shape)
            )
            found.append(Buffer(shape, strides, str(own.element_type), alignments[len(found)]))
    return tuple(found)


def _conversions(main: Structured) -> tuple[Element | None, Element | None]:
    """What replaces each factor; raises NotContraction for a body that is no sum of products of the two operands."""
    arguments = list(main.body.arguments)
    *_, terminator = main.body.operations
    total = producer(terminator.operation.operands[0])
    if total is not None and total.name in ("arith.addf", "arith.addi") and arguments[2] in total.operands:
        first, second = total.operands
        term = producer(second if first == arguments[2] else first)
        if term is not None and term.name in ("arith.mulf", "arith.muli") and len([*arguments[2].uses]) == 1:
            found = dict(_converted(value, arguments) for value in term.operands)
            if found.keys() == {0, 1}:
                return found[0], found[1]
    raise NotContraction("the body is no sum of products of the two operands")


def _converted(value: ir.Value, arguments: list[ir.Value]) -> tuple[int, Element | None]:
    """Which argument of the body a factor is computed from, and how: None where it is only widened exactly."""
    used: set[int] = set()
    exact = True
    known: dict[ir.Value, Element] = {}

    def tree(value: ir.Value) -> Element:
        if value not in known:
            known[value] = computed(value)
        return known[value]

    def computed(value: ir.Value) -> Element:
        nonlocal exact
        if value in arguments:
            used.add(arguments.index(value))
            return Summed()
        op = producer(value)
        if op is None or op.name == "arith.constant":
            return scalar(value)
        exact = exact and op.name in ("arith.extf", "arith.extsi")
        return applied(op, [tree(operand) for operand in op.operands])

    found = tree(value)
    return (used.pop() if len(used) == 1 else -1), None if exact else found
