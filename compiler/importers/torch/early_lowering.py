"""Operators of PyTorch's dialect that torch-mlir has no lowering of, as loops before it sees them."""

from __future__ import annotations

import re
from collections.abc import Callable

from tilewright.compiler.analysis.line_operations import LINES, SCAN, SCATTER
from tilewright.compiler.dialects.fourier import COMPLEX, OF_REAL, TO_REAL, fourier
from tilewright.compiler.ir import arith, cf, ir, linalg, math, scf, static_shape, tensor, walk
from tilewright.compiler.ir import complex as complex_
from tilewright.compiler.rewriting.generics import elementwise
from tilewright.compiler.rewriting.reshaping import reshaped


def lower_early(module: ir.Module) -> None:
    """Views as another type of equal size become `arith.bitcast`, `erfc` that of libm, `relu` keeps -0, checks of values become `cf.assert`, sums of products f32."""
    for op in list(walk(module.operation)):
        with module.context, op.location, ir.InsertionPoint(op):
            lowering = _LOWERINGS.get(_operator(op))
            lowered = lowering(op) if lowering is not None else None
            if lowered is None:
                continue
            found = [
                ir.Operation.create("torch_c.from_builtin_tensor", [result.type], [own]).result
                for result, own in zip(op.results, lowered.results)
            ]
        for result, own in zip(op.results, found):
            result.replace_all_uses_with(own)
        op.operation.erase()


def _operator(op: ir.Operation) -> str:
    """The name of an operation, or of the operator that one without a form of its own stands for."""
    return ir.StringAttr(op.attributes["name"]).value if op.name == "torch.operator" else op.name


def _bits(op: ir.Operation) -> ir.Operation | None:
    before, after = (_builtin_type(value.type) for value in (op.operands[0], op.results[0]))
    if before.element_type.width != after.element_type.width:
        return None
    same = [ir.AffineMap.get_identity(after.rank)]
    return elementwise(
        after, [_dense(op.operands[0])], same, lambda e, to=after.element_type: arith.bitcast(to, e)
    )


def _check(op: ir.Operation) -> ir.Operation:
    """A copy of the first operand that asserts the second, one boolean, with the message that is the third."""
    source, holds, message = op.operands
    text = ir.StringAttr(message.owner.attributes["value"]).value
    type_ = _builtin_type(source.type)

    def body(element: ir.Value, ok: ir.Value) -> ir.Value:
        cf.assert_(ok, text)
        return element

    maps = [ir.AffineMap.get_identity(type_.rank), ir.AffineMap.get(type_.rank, 0, [])]
    return elementwise(type_, [_dense(source), _dense(holds)], maps, body)


def _erfc(op: ir.Operation) -> ir.Operation:
    type_ = _builtin_type(op.results[0].type)
    return elementwise(type_, [_dense(op.operands[0])], [ir.AffineMap.get_identity(type_.rank)], math.erfc)


def _relu(op: ir.Operation) -> ir.Operation | None:
    """Floats with what is below zero as zero; -0 and NaN stay, as in eager PyTorch and in x86's `max(0, x)`.

    torch-mlir's keeps what is above zero, which makes -0 positive and takes a comparison and a select.
    """
    type_ = _builtin_type(op.results[0].type)
    if not isinstance(type_.element_type, ir.FloatType):
        return None

    def body(element: ir.Value) -> ir.Value:
        zero = arith.constant(type_.element_type, 0.0)
        return arith.select(arith.cmpf(arith.CmpFPredicate.OLT, element, zero), zero, element)

    return elementwise(type_, [_dense(op.operands[0])], [ir.AffineMap.get_identity(type_.rank)], body)


def _gcd(op: ir.Operation) -> ir.Operation:
    """The greatest common divisor of two tensors of one shape without negative numbers, by Euclid's steps."""
    type_ = _builtin_type(op.results[0].type)

    def body(x: ir.Value, y: ir.Value) -> ir.Value:
        number = type_.element_type
        loop = scf.WhileOp([number, number], [x, y])
        before = loop.regions[0].blocks.append(number, number)
        with ir.InsertionPoint(before):
            rest = before.arguments[1]
            goes_on = arith.cmpi(arith.CmpIPredicate.ne, rest, arith.constant(number, 0))
            scf.ConditionOp(goes_on, list(before.arguments))
        after = loop.regions[1].blocks.append(number, number)
        with ir.InsertionPoint(after):
            left, right = after.arguments
            scf.YieldOp([right, arith.remui(left, right)])
        return loop.results[0]

    same = [ir.AffineMap.get_identity(type_.rank)] * 2
    return elementwise(type_, [_dense(operand) for operand in op.operands], same, body)


def _part(op: ir.Operation) -> ir.Operation:
    """The real (0) or the imaginary (1) part of complex numbers."""
    source, number = op.operands
    read = complex_.im if ir.IntegerAttr(number.owner.attributes["value"]).value else complex_.re
    type_ = _builtin_type(op.results[0].type)
    return elementwise(type_, [_dense(source)], [ir.AffineMap.get_identity(type_.rank)], read)


def _product(op: ir.Operation) -> ir.Operation:
    """A matrix product, or one of each batch, of 16-bit floats, whose sums stay in single precision."""
    type_ = _builtin_type(op.results[0].type)
    zero = arith.constant(type_.element_type, 0.0)
    start = linalg.fill(zero, outs=[tensor.empty(static_shape(type_), type_.element_type)])
    multiply = linalg.matmul if type_.rank == 2 else linalg.batch_matmul
    return multiply(*(_dense(operand) for operand in op.operands), outs=[start]).owner


def _scatter(op: ir.Operation) -> ir.Operation:
    """Slices combined with those of their line that numbers say, one after the other."""
    x, index, source, how = op.operands
    type_ = _builtin_type(x.type)
    combine = _COMBINED[ir.StringAttr(how.owner.attributes["value"]).value]
    is_unsigned = ",ui" in str(x.type)
    (count, slices, width), numbered = type_.shape, _builtin_type(index.type).shape[1]
    element = type_.element_type
    flat = [count * slices, *([] if width == 1 else [width])]
    updates = reshaped(_dense(source), [count * numbered, *([] if width == 1 else [1, width])], op.location)
    numbers = reshaped(_dense(index), [count * numbered, 1], op.location)
    target = reshaped(_dense(x), flat, op.location)
    attributes = {
        "dimension_map": ir.DenseI64ArrayAttr.get([0]),
        "unique_indices": ir.BoolAttr.get(False),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
    }
    if count > 1:
        attributes[LINES] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    scatter = ir.Operation.create(SCATTER, [target.type], [updates, numbers, target], attributes, regions=1)
    body = scatter.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(body):
        new, old = body.arguments
        ir.Operation.create("tm_tensor.yield", [], [combine(new, old, is_unsigned)])
    return reshaped(scatter.result, list(type_.shape), op.location).owner


def _running(op: ir.Operation) -> ir.Operation:
    """An inclusive scan along a dimension."""
    type_ = _builtin_type(op.results[0].type)
    dim, how = (value.owner.attributes["value"] for value in list(op.operands)[1:])
    along = ir.IntegerAttr(dim).value
    combine = _RUNNING[ir.StringAttr(how).value]
    ends = [extent for d, extent in enumerate(type_.shape) if d != along]
    places = [tensor.empty(shape, type_.element_type) for shape in (list(type_.shape), ends)]
    attributes = {
        "dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), along),
        "inclusive": ir.BoolAttr.get(True),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 2]),
    }
    operands = [_dense(op.operands[0]), *places]
    scan = ir.Operation.create(SCAN, [place.type for place in places], operands, attributes, regions=1)
    body = scan.regions[0].blocks.append(type_.element_type, type_.element_type)
    with ir.InsertionPoint(body):
        before, new = body.arguments
        combined = combine(new, before, ",ui" in str(op.results[0].type))
        ir.Operation.create("tm_tensor.yield", [], [combined])
    return scan


def _fourier(op: ir.Operation) -> ir.Operation:
    """A Fourier transform along a dimension."""
    *given, dim = op.operands
    types = [_builtin_type(result.type) for result in op.results]
    kind = COMPLEX if len(types) == len(given) - 1 else OF_REAL if len(types) == 2 else TO_REAL
    dimension = ir.IntegerAttr(dim.owner.attributes["value"]).value
    places = [tensor.empty(static_shape(type_), type_.element_type) for type_ in types]
    return fourier(kind, dimension, [*(_dense(value) for value in given), *places])


def _log_of_sum(new: ir.Value, old: ir.Value, _: bool) -> ir.Value:
    """log(exp(new) + exp(old)); equal infinite ones are the result."""
    high, low = arith.maximumf(old, new), arith.minimumf(old, new)
    infinity = arith.constant(high.type, float("inf"))
    is_sum = arith.ori(
        arith.cmpf(arith.CmpFPredicate.UNE, low, high),
        arith.cmpf(arith.CmpFPredicate.OLT, math.absf(low), infinity),
    )
    return arith.select(is_sum, arith.addf(high, math.log1p(math.exp(arith.subf(low, high)))), high)


def _of_types(of_floats: Callable, of_signed: Callable, of_unsigned: Callable) -> Callable:
    def combine(new: ir.Value, old: ir.Value, is_unsigned: bool) -> ir.Value:
        if isinstance(new.type, ir.FloatType):
            return of_floats(old, new)
        return (of_unsigned if is_unsigned else of_signed)(old, new)

    return combine


_COMBINED: dict[str, Callable[[ir.Value, ir.Value, bool], ir.Value]] = {
    "set": lambda new, old, is_unsigned: new,
    "sum": _of_types(arith.addf, arith.addi, arith.addi),
    "prod": _of_types(arith.mulf, arith.muli, arith.muli),
    "amax": _of_types(arith.maximumf, arith.maxsi, arith.maxui),
    "amin": _of_types(arith.minimumf, arith.minsi, arith.minui),
}
"""What a scatter makes of an update and the element that it is meant for; whether integers have no sign is the third."""
_RUNNING = {how: _COMBINED[how] for how in ("amax", "amin")} | {"logaddexp": _log_of_sum}
"""What a scan makes of an element and what it has of those before."""


def _dense(value: ir.Value) -> ir.Value:
    type_ = _builtin_type(value.type)
    return ir.Operation.create("torch_c.to_builtin_tensor", [type_], [value]).result


def _builtin_type(type_: ir.Type) -> ir.RankedTensorType:
    """`tensor<2x4xi32>` for `!torch.vtensor<[2,4],si32>`."""
    match = re.fullmatch(r"!torch\.vtensor<\[([\d,]*)\],[su]?(\w+(?:<\w+>)?)>", str(type_))
    assert match is not None, type_
    shape = [int(extent) for extent in match[1].split(",") if extent]
    return ir.RankedTensorType.get(shape, ir.Type.parse(match[2]))


_LOWERINGS: dict[str, Callable[[ir.Operation], ir.Operation | None]] = {
    "torch.aten.view.dtype": _bits,
    "torch.aten.erfc": _erfc,
    "torch.aten.relu": _relu,
    "torch.tilewright.checked": _check,
    "torch.tilewright.fourier": _fourier,
    "torch.tilewright.fourier_of_real": _fourier,
    "torch.tilewright.fourier_to_real": _fourier,
    "torch.tilewright.gcd": _gcd,
    "torch.tilewright.part": _part,
    "torch.tilewright.product": _product,
    "torch.tilewright.running": _running,
    "torch.tilewright.scatter": _scatter,
}
"""Operator -> what lowers it, None where torch-mlir may."""
