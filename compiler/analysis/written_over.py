"""Which arguments of a dispatch its result may be written over, so that both lie in one memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir

_WHOLE = {"tm_tensor.scatter": 2, "tensor.insert_slice": 1}
"""Operations that write a part of a tensor -> the operand that is the tensor before."""


def kept_argument(function: ir.Operation) -> int | None:
    """The argument of which a scatter or an insertion makes the only result; None where there is none such."""
    *_, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
    value = terminator.operands[0] if len(terminator.operands) == 1 else None
    if value is None or isinstance(value.owner, ir.Block) or value.owner.name not in _WHOLE:
        return None
    writing = value.owner.operation
    before = writing.operands[_WHOLE[writing.name]]
    if not isinstance(before.owner, ir.Block) or len(list(before.uses)) != 1 or before.type != value.type:
        return None
    return ir.BlockArgument(before).arg_number


def replaced_arguments(function: ir.Operation) -> list[int]:
    """Arguments that element-wise operations make the only result of, each element of the same one of theirs; and those
    that nothing reads any more, as `x < x` does not.

    Each operation goes through the elements of the result and reads what another computes at its own place: an rTask
    reads no element of such an argument that another one writes, or that it has written itself.
    """
    *ops, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
    if len(terminator.operands) != 1:
        return []
    result = terminator.operands[0]
    apart, read = _read_elsewhere(ops, result), set(ops)
    found = []
    for number, argument in enumerate(function.regions[0].blocks[0].arguments):
        # What a body reads by number, as gathers do, is used inside of it.
        users = [use.owner.operation for use in argument.uses]
        at_its_place = apart is not None and argument not in apart and read.issuperset(users)
        if argument.type == result.type and (at_its_place or not users):
            found.append(number)
    return found


def _read_elsewhere(ops: Sequence[ir.Operation], result: ir.Value) -> set[ir.Value] | None:
    """What element-wise operations read at other places than they write; None where others make the result."""
    group = [Structured.read(op) for op in ops if op.name not in ("arith.constant", "tensor.empty")]
    if not group or group[-1] is None or result not in group[-1].op.results:
        return None
    identity = ir.AffineMap.get_identity(len(group[-1].extents))
    apart: set[ir.Value] = set()
    for structured in group:
        if structured is None or not structured.is_elementwise or structured.accumulates or structured.checks:
            return None
        inputs = list(zip(structured.op.operands, structured.maps))[: structured.num_inputs]
        apart |= {value for value, map_ in inputs if map_ != identity}
        if structured.result_map != identity or structured.extents != group[-1].extents:
            return None
    return apart if all(isinstance(value.owner, ir.Block) for value in apart) else None
