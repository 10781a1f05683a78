"""The operation `tilewright.fourier`: the discrete Fourier transform of lines along one dimension of tensors.

    "tilewright.fourier"(%x, %y, %roots, %a, %b) {kind = "complex", dimension = 1}    X[k] = sum_j (x[j] + i y[j]) w^(j k)
    "tilewright.fourier"(%x, %roots, %a, %b)     {kind = "of_real", ..}              the same of y = 0, for k <= n / 2
    "tilewright.fourier"(%x, %y, %roots, %a)     {kind = "to_real", ..}              x[j] = sum_k X[k] w^(-j k)

w is exp(-2 pi i / n), and `roots`, n x 2, holds the real and imaginary parts of its powers 0 to n - 1. What becomes real is
given for k <= n / 2 only: X[n - k] is the conjugate of X[k], and imaginary parts of what is its own conjugate are not read.
Real and imaginary parts are tensors of their own; the last operands say where results go, as in linalg. Nothing is scaled.

The op is defined in compiler/ir.py, as IRDL. Lengths are those of `nouns/fourier_factors.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir, static_shape
from tilewright.compiler.nouns.fourier_factors import factors, multiplied

FOURIER = "tilewright.fourier"
COMPLEX, OF_REAL, TO_REAL = "complex", "of_real", "to_real"
_SOURCES = {COMPLEX: 2, OF_REAL: 1, TO_REAL: 2}
_PLACES = {COMPLEX: 2, OF_REAL: 2, TO_REAL: 1}
RESULTS = "resultSegmentSizes"
"""How many results there are of each that there may be; none on buffers."""


_CYCLES = 0.5
"""Of an element of f32 in each of log2 n steps. Measured on Zen 4, beside other load, 32 to 1024 elements, what is moved included."""


@dataclass(frozen=True)
class Fourier:
    """Such an operation on tensors or buffers, read once. `extent` is n, along `dimension` of sources and places."""

    op: ir.Operation
    kind: str
    dimension: int
    extent: int

    @classmethod
    def read(cls, op: ir.Operation) -> Fourier:
        """Reads a `tilewright.fourier`; raises PassError naming what is malformed."""
        kind, dimension = op.attributes.get("kind"), op.attributes.get("dimension")
        if not isinstance(kind, ir.StringAttr) or ir.StringAttr(kind).value not in _SOURCES:
            raise _refusal(op, f"expected `kind`, one of {', '.join(_SOURCES)}, found {kind}")
        if not isinstance(dimension, ir.IntegerAttr):
            raise _refusal(op, f"expected an integer `dimension`, found {dimension}")
        name = ir.StringAttr(kind).value
        if len(op.operands) != _SOURCES[name] + 1 + _PLACES[name]:
            raise _refusal(
                op,
                f"expected {_SOURCES[name] + 1 + _PLACES[name]} operands of {name}, found {len(op.operands)}",
            )
        roots = static_shape(op.operands[_SOURCES[name]].type)
        found = cls(op, name, ir.IntegerAttr(dimension).value, roots[0] if roots else 0)
        found.check()
        return found

    @property
    def sources(self) -> list[ir.Value]:
        """The real part, and the imaginary one where there is one."""
        return list(self.op.operands)[: _SOURCES[self.kind]]

    @property
    def roots(self) -> ir.Value:
        return self.op.operands[_SOURCES[self.kind]]

    @property
    def places(self) -> list[ir.Value]:
        """Where results go."""
        return list(self.op.operands)[_SOURCES[self.kind] + 1 :]

    @property
    def element(self) -> ir.Type:
        return ir.ShapedType(self.op.operands[0].type).element_type

    @property
    def inner(self) -> int:
        """The length of the complex transform that is computed."""
        return multiplied(self.extent, self.kind != COMPLEX)

    @property
    def cycles(self) -> float:
        """What all lines take of one core."""
        shape = static_shape(self.places[0].type)
        lines = math.prod(extent for d, extent in enumerate(shape) if d != self.dimension)
        return lines * self.inner * math.log2(max(2, self.inner)) * _CYCLES * self.element.width / 32

    def check(self) -> None:
        """Raises PassError unless shapes, types and the length fit together."""
        shape = static_shape(self.op.operands[0].type)
        kept = self.extent // 2 + 1
        before, after = (
            kept if self.kind == TO_REAL else self.extent,
            kept if self.kind == OF_REAL else self.extent,
        )
        if factors(self.inner) is None:
            raise _refusal(self.op, f"a transform of length {self.extent} is none of those that are computed")
        if not 0 <= self.dimension < len(shape):
            raise _refusal(self.op, f"dimension {self.dimension} of operands of shape {list(shape)}")
        rest = [extent for d, extent in enumerate(shape) if d != self.dimension]
        for extent, values in ((before, self.sources), (after, self.places)):
            wanted = [*rest[: self.dimension], extent, *rest[self.dimension :]]
            for value in values:
                if list(static_shape(value.type)) != wanted:
                    raise _refusal(self.op, f"expected operands of shape {wanted}, found {value.type}")
        elements = {str(ir.ShapedType(value.type).element_type) for value in self.op.operands}
        if static_shape(self.roots.type) != (self.extent, 2) or elements not in ({"f32"}, {"f64"}):
            raise _refusal(
                self.op,
                f"expected roots of shape {[self.extent, 2]}, all of f32 or f64, found {self.roots.type}, {sorted(elements)}",
            )


def fourier(kind: str, dimension: int, operands: Sequence[ir.Value], on_buffers: bool = False) -> Any:
    """Creates the operation on sources, roots and places, at the insertion point."""
    places = [] if on_buffers else list(operands)[len(operands) - _PLACES[kind] :]
    attributes = {
        "kind": ir.StringAttr.get(kind),
        "dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dimension),
        RESULTS: ir.DenseI32ArrayAttr.get([int(n < len(places)) for n in range(2)]),
    }
    return ir.Operation.create(FOURIER, [place.type for place in places], list(operands), attributes)


def roots_of_unity(powers: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """The real and imaginary parts of exp(-2 pi i p / extent) of whole numbers p.

    What is a whole number of quarter turns has zeros and ones exactly.
    """
    quarters, rest = np.divmod(4 * (powers % extent), extent)
    angles = 0.5 * np.pi * rest / extent
    cosines, sines = np.cos(angles), np.sin(angles)
    real = np.choose(quarters, (cosines, -sines, -cosines, sines))
    return real, -np.choose(quarters, (sines, cosines, -sines, -cosines))


def _refusal(op: ir.Operation, message: str) -> PassError:
    return PassError(f"`{FOURIER}`: {message}", op.location)
