"""The sink of a dispatch, the operation whose result is returned: its loops, and what a cut of it leaves outside."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import loop_extents, packing
from tilewright.compiler.analysis.structure import Structured, loop_lines
from tilewright.compiler.ir import ir, walk


@dataclass(frozen=True)
class Loops:
    """Extents and kinds of a sink's loops, and whether it reads the result that it writes."""

    extents: tuple[int, ...]
    kinds: tuple[str, ...]
    accumulates: bool

    @classmethod
    def of(cls, op: ir.Operation) -> Loops:
        if op.name == "linalg.generic":
            maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
            shapes = [
                tuple(ir.ShapedType(operand.type).shape) if isinstance(operand.type, ir.ShapedType) else ()
                for operand in op.operands
            ]
            kinds = tuple(
                "reduction" if "reduction" in str(k) else "parallel" for k in op.attributes["iterator_types"]
            )
            body = op.regions[0].blocks[0]
            outputs = len(op.results)
            arguments = list(body.arguments)[len(body.arguments) - outputs :]
            accumulates = "reduction" in kinds or any(len(list(argument.uses)) for argument in arguments)
            return cls(loop_extents(maps, shapes), kinds, accumulates)
        shape = tuple(ir.ShapedType(op.results[0].type).shape)
        return cls(shape, ("parallel",) * len(shape), False)


def sink_of(function: ir.Operation) -> ir.Operation | None:
    """The tileable operation whose results the dispatch returns, None when there is no single one."""
    block = function.regions[0].blocks[0]
    *_, terminator = block.operations
    owners = {
        operand.owner if isinstance(operand.owner, ir.Block) else operand.owner.operation
        for operand in terminator.operation.operands
    }
    if len(owners) != 1:
        return None
    (owner,) = owners
    if isinstance(owner, ir.Block) or owner.name not in ("linalg.generic", "tensor.pad", "linalg.fill"):
        return None
    return owner


_VIEWS = ("tensor.extract_slice", "tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")


_SILENT = ("tensor.empty", "func.return", "arith.", "math.", "complex.", "ub.", "index.", "affine.")


def outside(function: ir.Operation) -> ir.Operation | None:
    """The first operation that a cut of the dispatch's sink would leave outside of the grid of rTasks, None for none.

    Producers are cut along with the sink through the operands of structured operations; what is behind a reshape, read
    element by element from within a body, or has no result at all stays outside, where every rTask would repeat it.
    """
    sink = sink_of(function)
    inside: set[ir.Operation] = set()
    open_ = [sink] if sink is not None else []
    while open_:
        op = open_.pop()
        if op in inside:
            continue
        inside.add(op)
        owners = [None if isinstance(v.owner, ir.Block) else v.owner.operation for v in op.operands]
        open_ += [owner for owner in owners if owner is not None and owner.name in _FUSED]
    captured = {value.owner.operation for op in inside for value in _captured(op)}
    for view in function.regions[0].blocks[0].operations:
        op = view.operation
        if op.name in _VIEWS and _is_given(op.operands[0]):
            continue
        if op.name.startswith(_SILENT) or (op in inside and op not in captured):
            continue
        return op
    return None


_FUSED = ("linalg.generic", "linalg.fill")


def _is_given(value: ir.Value) -> bool:
    return isinstance(value.owner, ir.Block) or value.owner.operation.name == "tensor.empty"


def _captured(op: ir.Operation) -> list[ir.Value]:
    """Tensors of the dispatch that the body of `op` reads element by element."""
    return [
        inner.operands[0]
        for inner in walk(op, "tensor.extract")
        if not isinstance(inner.operands[0].owner, ir.Block)
    ]


def packed_blocks(function: ir.Operation, sink: ir.Operation) -> list[tuple[int, int]]:
    """(loop, block) for every loop of the sink along which an operand of the dispatch is packed."""
    group = [s for view in function.regions[0].blocks[0].operations if (s := Structured.read(view.operation))]
    if not group or group[-1].op != sink:
        return []
    found = {
        (loop, block)
        for structured, line in zip(group, loop_lines(group[-1], group))
        for loop, own in (line or {}).items()
        for map_ in structured.maps
        if own is not None and (block := packing(map_, own)) is not None
    }
    return sorted(found)
