"""Bodies of operations on single elements: cloned with their operands, in f32 where the GPU computes in no shorter type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.compiler.families.rows.problem import RowProblem, Step
from tilewright.compiler.gpu.builder import Kernel, Operand, Value, constant, raw
from tilewright.compiler.ir import arith, ir, memref, scf, walk

_EXACT = ("arith.extf", "arith.truncf", "arith.bitcast", "arith.select", "arith.constant", "arith.cmpf")
"""Operations on short floats that round nothing."""


def checks(function: ir.Operation) -> list[str]:
    """Messages of the run-time checks in a dispatch, each once."""
    found = [ir.StringAttr(op.attributes["msg"]).value for op in walk(function, "cf.assert")]
    return list(dict.fromkeys(found))


class Bodies:
    """Writes the bodies of a problem's steps for one kernel; scalars from outside of them are written once."""

    def __init__(self, problem: RowProblem, arguments: Mapping[ir.Value, ir.Value], made: Kernel):
        self.arguments, self.made = arguments, made
        self.messages = checks(problem.function)
        self.scalars: dict[ir.Value, ir.Value] = {}
        for view in problem.function.regions[0].blocks[0].operations:
            op = view.operation
            if op.name.startswith(("arith.", "math.")) and not any(
                isinstance(result.type, ir.ShapedType) for result in op.results
            ):
                results = compute(op, [self.scalars[operand] for operand in op.operands])
                self.scalars.update(zip(op.results, results))

    def outside(self, scalar: ir.Value) -> Value:
        """A scalar that the dispatch computes outside of all bodies."""
        return Value(self.scalars[scalar])

    def splat(self, value: ir.Value) -> Value | None:
        """The one value of a fill; 0 for a tensor that nothing was written to; None for others."""
        if isinstance(value.owner, ir.Block):
            return None
        op = value.owner.operation
        if op.name == "linalg.fill":
            return self.outside(op.operands[0])
        if op.name == "tensor.empty":
            return constant(ir.RankedTensorType(value.type).element_type, 0)
        return None

    def apply(self, step: Step, values: Sequence[Value | None], at: Mapping[int, Operand]) -> list[Value]:
        """What the body of a step yields for its arguments; those that it does not read may be None."""
        body = step.generic.body
        known = {a: v.value for a, v in zip(body.arguments, values) if v is not None}
        *ops, terminator = (view.operation for view in body.operations)
        for op in ops:
            if op.name == "linalg.index":
                axis = step.axes[ir.IntegerAttr(op.attributes["dim"]).value]
                known[op.results[0]] = raw(0 if axis < 0 else at[axis])
                continue
            operands = [known.get(v, self.scalars.get(v, v)) for v in op.operands]
            if op.name == "cf.assert":
                self.check(op, operands[0])
            elif op.name == "tensor.extract":
                known[op.results[0]] = self.extract(op, operands[1:])
            else:
                known.update(zip(op.results, compute(op, operands)))
        return [Value(known.get(v, self.scalars.get(v, v))) for v in terminator.operands]

    def extract(self, op: ir.Operation, place: list[ir.Value]) -> ir.Value:
        """An element of an argument at a computed place, kept inside of it where a check may fail."""
        buffer = self.arguments[op.operands[0]]
        if self.messages:
            zero = constant(ir.IndexType.get(), 0).value
            place = [
                arith.maxsi(zero, arith.minsi(v, constant(ir.IndexType.get(), extent - 1).value))
                for v, extent in zip(place, ir.MemRefType(buffer.type).shape)
            ]
        return memref.load(buffer, place)

    def check(self, op: ir.Operation, holds: ir.Value) -> None:
        """Writes the number of the check's message to the status word where the check fails."""
        number = 1 + self.messages.index(ir.StringAttr(op.attributes["msg"]).value)
        failed = arith.xori(holds, constant(holds.type, 1).value)
        branch = scf.IfOp(failed)
        with ir.InsertionPoint(branch.then_block):
            code = constant(ir.IntegerType.get_signless(32), number).value
            memref.store(code, self.made.status, [constant(ir.IndexType.get(), 0).value])
            scf.yield_([])


def compute(op: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """A scalar operation on other operands; bf16, and functions of f16, go through f32 and are rounded once."""
    attributes = {name: op.attributes[name] for name in op.attributes}
    types = [result.type for result in op.results]
    wide = _is_widened(op)
    if wide:
        f32 = ir.F32Type.get()
        operands = [arith.extf(f32, v) if _is_short(v.type) else v for v in operands]
        types = [f32 if _is_short(type_) else type_ for type_ in types]
    results = list(ir.Operation.create(op.name, types, list(operands), attributes).results)
    if wide:
        results = [
            arith.truncf(old.type, new) if _is_short(old.type) else new
            for old, new in zip(op.results, results)
        ]
    return results


def _is_short(type_: ir.Type) -> bool:
    return isinstance(type_, (ir.F16Type, ir.BF16Type))


def _is_widened(op: ir.Operation) -> bool:
    short = [v.type for v in (*op.operands, *op.results) if _is_short(v.type)]
    if not short or op.name in _EXACT:
        return False
    return op.name.startswith("math.") or any(isinstance(type_, ir.BF16Type) for type_ in short)
