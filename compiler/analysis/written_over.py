"""Which argument of a dispatch its result is but for a part, so that both may lie in one memory."""

from __future__ import annotations

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
