"""Reductions on memrefs as the vectoriser sees them: index maps, extents, and how the body combines."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import loop_extents
from tilewright.compiler.ir import arith, ir, vector

INDEX = "linalg.index"
CONTRACT = "#arith.fastmath<contract>"
_REASSOCIATE = "#arith.fastmath<reassoc,contract>"
_FAST = {"arith.mulf", "arith.addf", "arith.subf"}

_NEUTRAL = {
    "arith.addf": -0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": float("-inf"),
    "arith.minimumf": float("inf"),
    "arith.maxnumf": float("nan"),
    "arith.minnumf": float("nan"),
    "arith.addi": 0,
    "arith.muli": 1,
    "arith.andi": -1,
    "arith.ori": 0,
    "arith.xori": 0,
    "arith.maxui": 0,
    "arith.minui": -1,
}
"""Operations that may be regrouped, and what changes nothing when combined with them; two more need the width."""


@dataclass(frozen=True)
class Structure:
    """A `linalg.generic` with one output: index maps, extents, kinds of loops, what can be vectors, where operands lie.

    `strides` are those of each operand in memory, in elements. `counted` are the loops whose number the body reads; where
    there are none, and `plain` is true, a body may be computed on vectors of any loop.
    """

    op: ir.Operation
    maps: list[ir.AffineMap]
    extents: tuple[int, ...]
    parallel: tuple[int, ...]
    reduction: tuple[int, ...]
    plain: bool
    counted: frozenset[int]
    element_bits: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, op: ir.Operation) -> Structure | None:
        """Reads a generic on static memrefs with one output; None for anything else."""
        types = [operand.type for operand in op.operands]
        if op.results or not all(
            isinstance(t, ir.MemRefType) and ir.ShapedType(t).has_static_shape for t in types
        ):
            return None
        shapes = tuple(tuple(t.shape) for t in types)
        return cls.placed(op, shapes, tuple(tuple(t.get_strides_and_offset()[0]) for t in types))

    @classmethod
    def placed(
        cls, op: ir.Operation, shapes: tuple[tuple[int, ...], ...], strides: tuple[tuple[int, ...], ...]
    ) -> Structure | None:
        """The same of a generic whose operands have, or will have, these shapes and strides in memory."""
        body = op.regions[0].blocks[0]
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        if len(list(body.operations)[-1].operands) != 1 or not maps[0].n_dims:
            return None
        kinds = [str(kind) for kind in op.attributes["iterator_types"]]
        extents = loop_extents(maps, list(shapes))
        elements = [
            t.element_type if isinstance(t, ir.ShapedType) else t for t in (o.type for o in op.operands)
        ]
        return cls(
            op=op,
            maps=maps,
            extents=extents,
            parallel=tuple(i for i, kind in enumerate(kinds) if "parallel" in kind),
            reduction=tuple(i for i, kind in enumerate(kinds) if "reduction" in kind),
            plain=min(extents) > 0 and all(map(_is_number, elements)) and _is_plain(body),
            counted=frozenset(
                loop_of(op) for view in body.operations if (op := view.operation).name == INDEX
            ),
            element_bits=tuple(element.width if _is_number(element) else 0 for element in elements),
            shapes=shapes,
            strides=strides,
        )

    @property
    def vectorizable(self) -> bool:
        """Whether the body may be computed on vectors of any loop."""
        return self.plain and not self.counted

    @property
    def unit_stride(self) -> tuple[bool, ...]:
        """Whether the last dimension of each operand is contiguous."""
        return tuple(not strides or strides[-1] == 1 for strides in self.strides)

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def accumulator_bits(self) -> int:
        """Bits of an element of the output."""
        return self.element_bits[-1]


@dataclass(frozen=True)
class Combination:
    """How a body folds one `term` into the accumulator: `op(accumulator, term)`, in any order of the terms."""

    op: ir.Operation
    term: ir.Value

    @classmethod
    def read(cls, body: ir.Block) -> Combination | None:
        """The combination that `body` yields; None when its terms cannot be regrouped."""
        *_, terminator = body.operations
        yielded = terminator.operation.operands[0]
        accumulator = list(body.arguments)[-1]
        uses = list(accumulator.uses)
        if isinstance(yielded.owner, ir.Block) or len(uses) != 1:
            return None
        op = yielded.owner.operation
        if not is_regroupable(op.name) or uses[0].owner.operation != op:
            return None
        left, right = op.operands
        return cls(op, right if left == accumulator else left)

    def combine(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """`op(left, right)` on vectors or scalars."""
        attributes = {name: self.op.attributes[name] for name in self.op.attributes}
        if self.op.name in _FAST:
            attributes["fastmath"] = ir.Attribute.parse(CONTRACT)
        return ir.Operation.create(
            self.op.name, results=[left.type], operands=[left, right], attributes=attributes
        ).results[0]

    def neutral(self, type_: ir.VectorType) -> ir.Value:
        """A vector of what changes nothing."""
        scalar = neutral_attribute(self.op.name, type_.element_type)
        return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, scalar))


def neutral_attribute(name: str, element: ir.Type) -> ir.Attribute:
    """What changes nothing when combined by an operation that may be regrouped."""
    if name in ("arith.maxsi", "arith.minsi"):
        half = 1 << (element.width - 1)
        number: float = -half if name == "arith.maxsi" else half - 1
    else:
        number = _NEUTRAL[name]
    if isinstance(element, ir.IntegerType):
        return ir.IntegerAttr.get(element, int(number) & 1 if element.width == 1 else int(number))
    return ir.FloatAttr.get(element, number)


def is_regroupable(name: str) -> bool:
    """Whether a reduction by this operation may add its terms up in any order (sums of floats: to rounding)."""
    return name in _NEUTRAL or name in ("arith.maxsi", "arith.minsi")


def take_fill(generic: ir.Operation) -> ir.Value | None:
    """Erases a `linalg.fill` just before `generic` on its output and returns the scalar, so that it starts in registers."""
    block = list(generic.block.operations)
    position = next(i for i, op in enumerate(block) if op.operation == generic)
    output = generic.operands[len(generic.operands) - 1]
    for op in reversed(block[:position]):
        if op.operation.name == "linalg.fill" and op.operation.operands[1] == output:
            scalar = op.operation.operands[0]
            op.operation.erase()
            return scalar
        if any(operand == output for operand in op.operation.operands) or op.operation.regions:
            return None
    return None


def allow_reassociation(generic: ir.Operation) -> None:
    """Lets LLVM regroup the sums of a body that stays scalar."""
    body = generic.regions[0].blocks[0]
    for op in body.operations:
        if op.operation.name in _FAST:
            op.operation.attributes["fastmath"] = ir.Attribute.parse(_REASSOCIATE)


def vectorize_body(body: ir.Block, values: dict[ir.Value, ir.Value], width: int) -> list[ir.Value]:
    """Clones the scalar ops of a linalg body on vectors of `width`; returns what it yields.

    `values` maps block arguments, and numbers of loops, to vectors; scalars defined outside the body are broadcast.
    """
    *_, terminator = body.operations
    return vectorize_values(body, values, width, list(terminator.operation.operands))


def vectorize_values(
    body: ir.Block, values: dict[ir.Value, ir.Value], width: int, wanted: list[ir.Value]
) -> list[ir.Value]:
    """Like `vectorize_body` for `wanted` values of the body, computing only what can be from `values`.

    Operations that read a block argument missing from `values` are left out; `wanted` must not need them.
    """
    arguments = list(body.arguments)

    def value(scalar: ir.Value) -> ir.Value:
        if scalar not in values:
            values[scalar] = vector.broadcast(ir.VectorType.get([width], scalar.type), scalar)
        return values[scalar]

    missing = {argument for argument in arguments if argument not in values}
    for view in body.operations:
        op = view.operation
        if op.name in ("linalg.yield", "tm_tensor.yield"):
            return [value(operand) for operand in wanted]
        if any(operand in missing for operand in op.operands):
            missing.update(op.results)
            continue
        if op.results and op.results[0] in values:
            continue
        if op.name == "arith.constant":
            type_ = ir.VectorType.get([width], op.results[0].type)
            splat = ir.DenseElementsAttr.get_splat(type_, op.attributes["value"])
            values[op.results[0]] = arith.constant(type_, splat)
            continue
        attributes = {name: op.attributes[name] for name in op.attributes}
        if op.name in _FAST:
            attributes["fastmath"] = ir.Attribute.parse(CONTRACT)
        clone = ir.Operation.create(
            op.name,
            results=[ir.VectorType.get([width], result.type) for result in op.results],
            operands=[value(operand) for operand in op.operands],
            attributes=attributes,
        )
        for old, new in zip(op.results, clone.results):
            values[old] = new
    raise AssertionError("a body ends in a yield of its dialect")


def _is_number(type_: ir.Type) -> bool:
    """Whether vectors of the type can be loaded from memory as they stand there (booleans are bytes)."""
    return isinstance(type_, ir.FloatType) or (
        isinstance(type_, ir.IntegerType) and ir.IntegerType(type_).width >= 8
    )


def _is_plain(body: ir.Block) -> bool:
    """Whether it is arithmetic on elements, and on the numbers of loops as integers."""
    operations = [view.operation for view in body.operations]
    return all(
        op.name.split(".")[0] in ("arith", "math") or op.name in ("linalg.yield", INDEX) for op in operations
    ) and not any(
        isinstance(value.type, ir.IndexType) for op in operations if op.name != INDEX for value in op.results
    )


def loop_of(index: ir.Operation) -> int:
    """The loop whose number a `linalg.index` is."""
    return ir.IntegerAttr(index.attributes["dim"]).value
