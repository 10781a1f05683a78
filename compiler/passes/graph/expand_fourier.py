"""expand-fourier: Fourier transforms as products with matrices of roots of unity, for targets that have no kernel of them.

    n <= 64:    X = W_n x                                       W_n[k, j] = exp(-2 pi i j k / n)
    n = a b:    X[k1 + a k2] = sum_j2 exp(-2 pi i j2 k1 / n) (sum_j1 x[b j1 + j2] W_a[k1, j1]) W_b[k2, j2]

On GPUs products are what matrix instructions do. Of what is real, only the half that is read is multiplied; what becomes real is
the transform of its conjugate, whose elements but those at the ends count twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.dialects.fourier import COMPLEX, FOURIER, OF_REAL, Fourier, roots_of_unity
from tilewright.compiler.ir import arith, ir, linalg, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise
from tilewright.compiler.rewriting.reshaping import reshaped

_WHOLE = 64
"""Lengths up to this are one product."""

Parts = tuple[ir.Value, ir.Value | None]
"""Real and imaginary part [lines, n, columns]; an imaginary part of None is zero."""


@dataclass(frozen=True)
class ExpandFourier(Pass):
    """Replaces `tilewright.fourier` on tensors; raises PassError where its operands do not fit together."""

    def run(self, op: ir.Operation) -> None:
        for transform in walk(op, FOURIER):
            if all(isinstance(value.type, ir.RankedTensorType) for value in transform.operands):
                with ir.InsertionPoint(transform), transform.location:
                    found = _expanded(Fourier.read(transform))
                for result, own in zip(transform.results, found):
                    result.replace_all_uses_with(own)
                transform.erase()


def _expanded(f: Fourier) -> list[ir.Value]:
    shape = static_shape(f.op.operands[0].type)
    lines, columns = math.prod(shape[: f.dimension]), math.prod(shape[f.dimension + 1 :])
    re, *rest = (_reshaped(value, lines, shape[f.dimension], columns) for value in f.sources)
    im = rest[0] if rest else None
    kept = f.extent // 2 + 1 if f.kind == OF_REAL else f.extent
    if f.kind not in (COMPLEX, OF_REAL):
        counted = np.full(shape[f.dimension], 2.0)
        counted[0] = 1.0
        if f.extent % 2 == 0:
            counted[-1] = 1.0
        assert im is not None
        re, im = _scaled(re, counted), _scaled(im, np.where(counted > 1, -counted, 0.0))
    found = _transformed((re, im), f.extent, kept, f.kind in (COMPLEX, OF_REAL))
    results = [part for part in found if part is not None][: len(f.places)]
    return [reshaped(part, static_shape(place.type), f.op.location) for part, place in zip(results, f.places)]


def _transformed(parts: Parts, extent: int, kept: int, is_complex: bool) -> Parts:
    """The first `kept` elements of the transform; of what is not given up to `extent`, all is zero. The real part alone
    unless it `is_complex`."""
    given = static_shape(parts[0].type)[1]
    outer = _factor(extent)
    if outer == 1:
        return _multiplied(parts, extent, kept, is_complex)
    inner = extent // outer
    rows_given, rows = -(-given // inner), -(-kept // outer)
    lines, _, columns = static_shape(parts[0].type)
    taken = _each(
        parts, lambda x: _reshaped(_padded(x, rows_given * inner), lines, rows_given, inner * columns)
    )
    found = _multiplied(taken, outer, outer, True)
    found = _each(found, lambda x: _reshaped(x, lines, outer * inner, columns))
    powers = np.outer(np.arange(outer), np.arange(inner)).reshape(-1)
    found = _turned(found, powers, extent)
    found = _each(found, lambda x: _reshaped(x, lines * outer, inner, columns))
    found = _transformed(found, inner, rows, is_complex)

    def in_order(x: ir.Value) -> ir.Value:
        apart = reshaped(x, [lines, outer, rows, columns], _location())
        place = tensor.empty([lines, rows, outer, columns], ir.RankedTensorType(x.type).element_type)
        together = linalg.transpose(apart, outs=[place], permutation=[0, 2, 1, 3]).result[0]
        return _cut(_reshaped(together, lines, rows * outer, columns), kept)

    return _each(found, in_order)


def _factor(extent: int) -> int:
    """The factor that is taken out of a length: the largest up to its root that makes one product, 1 where it is one itself."""
    if extent <= _WHOLE:
        return 1
    return max(d for d in range(1, min(_WHOLE, math.isqrt(extent)) + 1) if extent % d == 0)


def _each(parts: Parts, change: Callable[[ir.Value], ir.Value]) -> Parts:
    re, im = parts
    return change(re), None if im is None else change(im)


def _location() -> ir.Location:
    return ir.Location.current


def _reshaped(x: ir.Value, *shape: int) -> ir.Value:
    return reshaped(x, shape, _location())


def _multiplied(parts: Parts, extent: int, kept: int, is_complex: bool) -> Parts:
    """Products with the roots of unity: (re + i im)(c + i s)."""
    re, im = parts
    powers = np.outer(np.arange(kept), np.arange(static_shape(re.type)[1]))
    cosines, sines = roots_of_unity(powers, extent)
    real = _product(cosines, re)
    if im is not None:
        real = _product(-sines, im, real)
    if not is_complex:
        return real, None
    imaginary = _product(sines, re)
    return real, imaginary if im is None else _product(cosines, im, imaginary)


def _product(matrix: np.ndarray, x: ir.Value, onto: ir.Value | None = None) -> ir.Value:
    """`onto`, zeros where there is none, and the product of a matrix and every [n, columns] of a tensor."""
    type_ = ir.RankedTensorType(x.type)
    lines, given, columns = type_.shape
    kept, element = matrix.shape[0], type_.element_type
    result = ir.RankedTensorType.get([lines, kept, columns], element)
    start = onto
    if start is None:
        start = linalg.fill(
            arith.constant(element, 0.0), outs=[tensor.empty([lines, kept, columns], element)]
        )
    d = ir.AffineExpr.get_dim
    wide = columns > 1
    line, row, step, column = d(0), d(1), d(3 if wide else 2), d(2)
    exprs = ([row, step], [line, step, column], [line, row, column])
    if not wide:
        x, start = reshaped(x, [lines, given], _location()), reshaped(start, [lines, kept], _location())
        exprs = ([row, step], [line, step], [line, row])
    loops = 4 if wide else 3
    kinds = [
        ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")
        for kind in (*["parallel"] * (loops - 1), "reduction")
    ]
    generic = ir.Operation.create(
        "linalg.generic",
        results=[start.type],
        operands=[_constant(matrix, element), x, start],
        attributes={
            "indexing_maps": ir.ArrayAttr.get(
                [ir.AffineMapAttr.get(ir.AffineMap.get(loops, 0, own)) for own in exprs]
            ),
            "iterator_types": ir.ArrayAttr.get(kinds),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
        },
        regions=1,
    )
    block = ir.Block.create_at_start(generic.regions[0], [element] * 3)
    with ir.InsertionPoint(block):
        factor, value, total = block.arguments
        linalg.YieldOp([arith.addf(total, arith.mulf(factor, value))])
    return reshaped(generic.results[0], result.shape, _location())


def _turned(parts: Parts, powers: np.ndarray, extent: int) -> Parts:
    """Every row times its root of unity."""
    re, im = parts
    assert im is not None
    type_ = ir.RankedTensorType(re.type)
    factors = [_constant(part, type_.element_type) for part in roots_of_unity(powers, extent)]
    same, row = ir.AffineMap.get_identity(3), ir.AffineMap.get(3, 0, [ir.AffineExpr.get_dim(1)])

    def combined(body: Callable[..., ir.Value]) -> ir.Value:
        return elementwise(type_, [re, im, *factors], [same, same, row, row], body).results[0]

    return (
        combined(lambda a, b, c, s: arith.subf(arith.mulf(a, c), arith.mulf(b, s))),
        combined(lambda a, b, c, s: arith.addf(arith.mulf(a, s), arith.mulf(b, c))),
    )


def _scaled(x: ir.Value, factors: np.ndarray) -> ir.Value:
    """Every row times its factor."""
    type_ = ir.RankedTensorType(x.type)
    maps = [ir.AffineMap.get_identity(3), ir.AffineMap.get(3, 0, [ir.AffineExpr.get_dim(1)])]
    operands = [x, _constant(factors, type_.element_type)]
    return elementwise(type_, operands, maps, arith.mulf).results[0]


def _padded(x: ir.Value, rows: int) -> ir.Value:
    """Zeros behind the rows of a tensor."""
    type_ = ir.RankedTensorType(x.type)
    lines, given, columns = type_.shape
    if given == rows:
        return x
    zeros = linalg.fill(
        arith.constant(type_.element_type, 0.0),
        outs=[tensor.empty([lines, rows - given, columns], type_.element_type)],
    )
    result = ir.RankedTensorType.get([lines, rows, columns], type_.element_type)
    return tensor.ConcatOp(result, 1, [x, zeros]).result


def _cut(x: ir.Value, rows: int) -> ir.Value:
    """The first rows of a tensor."""
    type_ = ir.RankedTensorType(x.type)
    lines, given, columns = type_.shape
    if given == rows:
        return x
    result = ir.RankedTensorType.get([lines, rows, columns], type_.element_type)
    return tensor.extract_slice(result, x, [], [], [], [0, 0, 0], [lines, rows, columns], [1, 1, 1])


def _constant(values: np.ndarray, element: ir.Type) -> ir.Value:
    type_ = ir.RankedTensorType.get(values.shape, element)
    dtype = np.float32 if isinstance(element, ir.F32Type) else np.float64
    return arith.constant(type_, ir.DenseElementsAttr.get(np.ascontiguousarray(values, dtype), type=type_))
