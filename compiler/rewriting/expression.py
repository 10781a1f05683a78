"""Numbers that emit arith and math ops when they are added, compared or shifted, so that a function reads like
its formula.

A `Number` wraps a scalar or vector value; Python numbers beside it become constants of its type. Everything is
emitted at the current insertion point and location, without fast-math flags: the formulas rely on their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.ir import arith, ir, llvm
from tilewright.compiler.ir import math as math_dialect

_ORDERED = {"<": 4, "<=": 5, ">": 2, ">=": 3, "==": 1}
_SIGNED = {"<": 2, "<=": 3, ">": 4, ">=": 5, "==": 0}
"""Codes of arith.cmpf's ordered and arith.cmpi's signed predicates."""


class Number:
    """A scalar or vector value of floats or integers; operators emit ops, comparisons give `i1` numbers."""

    __slots__ = ("value",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, value: ir.Value):
        self.value = value

    @property
    def type(self) -> ir.Type:
        return self.value.type

    @property
    def element(self) -> ir.Type:
        """The type of one lane."""
        return element_of(self.type)

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, ir.FloatType)

    def lift(self, other: Number | float | int) -> ir.Value:
        """`other` as a value of this number's type: a constant, one per lane, when it is a Python number."""
        if isinstance(other, Number):
            return other.value
        element = self.element
        attribute: ir.Attribute
        if self.is_float:
            attribute = ir.FloatAttr.get(element, float(other))
        else:
            attribute = ir.IntegerAttr.get(element, int(other))
        if isinstance(self.type, ir.VectorType):
            attribute = ir.DenseElementsAttr.get_splat(self.type, attribute)
        return arith.constant(self.type, attribute)

    def constant(self, number: float | int) -> Number:
        return Number(self.lift(number))

    def _binary(self, other, on_floats, on_integers) -> Number:
        emit = on_floats if self.is_float else on_integers
        return Number(emit(self.value, self.lift(other)))

    def __add__(self, other) -> Number:
        return self._binary(other, arith.addf, arith.addi)

    def __radd__(self, other) -> Number:
        return self.constant(other) + self

    def __sub__(self, other) -> Number:
        return self._binary(other, arith.subf, arith.subi)

    def __rsub__(self, other) -> Number:
        return self.constant(other) - self

    def __mul__(self, other) -> Number:
        return self._binary(other, arith.mulf, arith.muli)

    def __rmul__(self, other) -> Number:
        return self.constant(other) * self

    def __truediv__(self, other) -> Number:
        return Number(arith.divf(self.value, self.lift(other)))

    def __rtruediv__(self, other) -> Number:
        return self.constant(other) / self

    def __neg__(self) -> Number:
        return Number(arith.negf(self.value))

    def __and__(self, other) -> Number:
        return Number(arith.andi(self.value, self.lift(other)))

    def __or__(self, other) -> Number:
        return Number(arith.ori(self.value, self.lift(other)))

    def __invert__(self) -> Number:
        return Number(arith.xori(self.value, self.lift(-1)))

    def __lshift__(self, other) -> Number:
        return Number(arith.shli(self.value, self.lift(other)))

    def __rshift__(self, other) -> Number:
        """An arithmetic shift: the sign is kept."""
        return Number(arith.shrsi(self.value, self.lift(other)))

    def _compare(self, sign: str, other) -> Number:
        if self.is_float:
            return Number(arith.cmpf(_ORDERED[sign], self.value, self.lift(other)))
        return Number(arith.cmpi(_SIGNED[sign], self.value, self.lift(other)))

    def __lt__(self, other) -> Number:
        return self._compare("<", other)

    def __le__(self, other) -> Number:
        return self._compare("<=", other)

    def __gt__(self, other) -> Number:
        return self._compare(">", other)

    def __ge__(self, other) -> Number:
        return self._compare(">=", other)

    def equals(self, other) -> Number:
        """Lane by lane equality; NaN equals nothing."""
        return self._compare("==", other)

    def bits(self) -> Number:
        """The same bits as a signed integer."""
        width = self.element.width
        return Number(arith.bitcast(with_element(self.type, ir.IntegerType.get_signless(width)), self.value))

    def float_of_bits(self) -> Number:
        """The float whose bits are this 32- or 64-bit integer."""
        element = ir.F32Type.get() if self.element.width == 32 else ir.F64Type.get()
        return Number(arith.bitcast(with_element(self.type, element), self.value))

    def to(self, element: ir.Type) -> Number:
        """This float in another precision, rounded to nearest."""
        if self.element == element:
            return self
        cast = arith.extf if element.width > self.element.width else arith.truncf
        return Number(cast(with_element(self.type, element), self.value))

    def to_float(self, element: ir.Type) -> Number:
        """This signed integer as a float."""
        return Number(arith.sitofp(with_element(self.type, element), self.value))

    def narrow(self, width: int) -> Number:
        """The low `width` bits of this integer."""
        return Number(arith.trunci(with_element(self.type, ir.IntegerType.get_signless(width)), self.value))


def element_of(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def with_element(type_: ir.Type, element: ir.Type) -> ir.Type:
    """`type_`, scalar or vector, with another element type."""
    if not isinstance(type_, ir.VectorType):
        return element
    return ir.VectorType.get(type_.shape, element, scalable=type_.scalable_dims)


def fma(a: Number, b: Number | float, c: Number | float) -> Number:
    """`a * b + c`, rounded once."""
    return Number(math_dialect.fma(a.value, a.lift(b), a.lift(c)))


_SCALED_LANES = 16
"""Lanes of AVX-512's `vscalefps`. Its exponents are floats, which LLVM converts the integers of `ldexp` to."""


def scaled(x: Number, n: Number, integer: Number) -> Number:
    """x 2^n in f32 by `vscalefps`, for targets that have it: others call libm for every lane. n in both types."""
    if x.type != ir.VectorType.get([_SCALED_LANES], ir.F32Type.get()):
        return Number(llvm.call_intrinsic(x.type, "llvm.ldexp", [x.value, integer.value], [], []))
    every = arith.constant(ir.IntegerType.get_signless(_SCALED_LANES), -1)
    as_set = arith.constant(ir.IntegerType.get_signless(32), 4)
    operands = [x.value, n.value, x.value, every, as_set]
    return Number(llvm.call_intrinsic(x.type, "llvm.x86.avx512.mask.scalef.ps.512", operands, [], []))


def select(condition: Number, yes: Number | float, no: Number | float) -> Number:
    """`yes` where the condition holds, else `no`; at least one of them is a Number."""
    like = yes if isinstance(yes, Number) else no
    assert isinstance(like, Number)
    return Number(arith.select(condition.value, like.lift(yes), like.lift(no)))


def at_most(x: Number, limit: float) -> Number:
    """`min(x, limit)`; NaN stays NaN."""
    return select(x > limit, limit, x)


def at_least(x: Number, limit: float) -> Number:
    """`max(x, limit)`; NaN stays NaN."""
    return select(x < limit, limit, x)


def absolute(x: Number) -> Number:
    return Number(math_dialect.absf(x.value))


def copysign(magnitude: Number, sign: Number) -> Number:
    return Number(math_dialect.copysign(magnitude.value, magnitude.lift(sign)))


def sqrt(x: Number) -> Number:
    return Number(math_dialect.sqrt(x.value))


def floor(x: Number) -> Number:
    return Number(math_dialect.floor(x.value))


def roundeven(x: Number) -> Number:
    return Number(math_dialect.roundeven(x.value))


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """`c0 + c1 x + c2 x² + …` by Horner's rule with fused multiply-adds."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result
