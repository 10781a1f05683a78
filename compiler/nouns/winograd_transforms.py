"""Winograd's transforms F(m, r): m outputs of an r-tap filter from m + r - 1 products, as exact rational matrices.

    y = A^T [(G g) * (B^T d)]          d: m + r - 1 inputs, g: r taps, y: m outputs, *: element by element

In two dimensions each matrix is applied from both sides, and (m + r - 1)^2 products replace m^2 r^2.

Source: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR'16, §4; the construction from
interpolation points is Toom and Cook's (Blahut, "Fast Algorithms for Signal Processing", 2010, §5.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Matrix = tuple[tuple[Fraction, ...], ...]

_POINTS = {
    4: (Fraction(1),),
    6: (Fraction(5, 8), Fraction(3, 2)),
}
"""Interpolation points besides 0 and infinity, each with both signs, by the number of inputs.

Points as powers of two (1, 2) make the rounding errors of F(4, 3) twice as large; 5/8 and 3/2 have squares that
are exact in f32 too.
"""


@dataclass(frozen=True)
class Transforms:
    """The three matrices of F(outputs, taps): `data` is B^T, `filter` is G, `output` is A^T."""

    outputs: int
    taps: int
    data: Matrix
    filter: Matrix
    output: Matrix

    @property
    def points(self) -> int:
        """Inputs and products per dimension."""
        return self.outputs + self.taps - 1

    @property
    def planes(self) -> tuple[tuple[float, ...], ...]:
        """G applied from both sides as one matrix: rows are products, columns are taps, both row by row."""
        rows = range(self.points)
        taps = range(self.taps)
        return tuple(
            tuple(float(self.filter[a][r] * self.filter[b][s]) for r in taps for s in taps)
            for a in rows
            for b in rows
        )


def supported(outputs: int, taps: int) -> bool:
    """Whether there are interpolation points for F(outputs, taps)."""
    return outputs >= 2 and taps >= 2 and outputs + taps - 1 in _POINTS


@cache
def transforms(outputs: int, taps: int) -> Transforms:
    """The matrices of F(outputs, taps); raises ValueError where `supported` is false."""
    if not supported(outputs, taps):
        raise ValueError(f"F({outputs}, {taps}): points are known for {sorted(_POINTS)} inputs")
    count = outputs + taps - 1
    finite = [Fraction(0), *(sign * p for p in _POINTS[count] for sign in (1, -1))]
    data, filters = [], []
    for number, point in enumerate(finite):
        others = finite[:number] + finite[number + 1 :]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        data.append((*_polynomial(others), Fraction(0)))
        filters.append(tuple(point**k / scale for k in range(taps)))
    data.append(_polynomial(finite))
    filters.append((*[Fraction(0)] * (taps - 1), Fraction(1)))
    output = tuple((*(point**i for point in finite), Fraction(int(i == outputs - 1))) for i in range(outputs))
    return Transforms(outputs, taps, tuple(data), tuple(filters), output)


def _polynomial(roots: list[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients, constant first, of the monic polynomial with these roots."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        for power, value in enumerate(coefficients):
            shifted[power] -= root * value
        coefficients = shifted
    return tuple(coefficients)


@dataclass(frozen=True)
class Step:
    """One operation on values numbered in order of their making, inputs first.

    `left + factor * right`, or `factor * right` where `left` is None.
    """

    left: int | None
    factor: Fraction
    right: int


@dataclass(frozen=True)
class StraightLine:
    """A matrix times a vector without loops: `steps` to carry out, and which value each row is (None: zero)."""

    inputs: int
    steps: tuple[Step, ...]
    results: tuple[int | None, ...]


@cache
def straight_line(matrix: Matrix) -> StraightLine:
    """Multiplies by `matrix` in few multiply-adds.

    Columns that differ in signs only are added and subtracted once (points p and -p in A^T); rows that differ in
    signs only share their even and odd parts (the same points in B^T).
    """
    program = _Program(len(matrix[0]))
    columns = list(zip(*matrix))
    terms = dict(enumerate(columns))
    for i in range(len(columns)):
        for k in range(i + 1, len(columns)):
            if i in terms and k in terms and _differ_in_signs(columns[i], columns[k]):
                same = program.add(i, Fraction(1), k)
                opposite = program.add(i, Fraction(-1), k)
                terms[same] = tuple(x if x == y else Fraction(0) for x, y in zip(columns[i], columns[k]))
                terms[opposite] = tuple(x if x != y else Fraction(0) for x, y in zip(columns[i], columns[k]))
                del terms[i], terms[k]
    rows = [{v: column[row] for v, column in terms.items() if column[row]} for row in range(len(matrix))]
    results: list[int | None] = [None] * len(rows)
    done: set[int] = set()
    for i, row in enumerate(rows):
        partner = next(
            (
                k
                for k in range(i + 1, len(rows))
                if k not in done and row.keys() == rows[k].keys() and _differ_in_signs(row, rows[k])
            ),
            None,
        )
        if i in done:
            continue
        if partner is None:
            results[i] = program.combination(row)
            continue
        even = {v: x for v, x in row.items() if x == rows[partner][v]}
        odd = {v: x for v, x in row.items() if x != rows[partner][v]}
        factor = list(odd.values())[-1]
        base = program.combination(even)
        half = program.combination({v: x / factor for v, x in odd.items()})
        assert base is not None and half is not None
        results[i] = program.add(base, factor, half)
        results[partner] = program.add(base, -factor, half)
        done.add(partner)
    return StraightLine(len(matrix[0]), tuple(program.steps), tuple(results))


class _Program:
    def __init__(self, inputs: int):
        self.inputs = inputs
        self.steps: list[Step] = []

    def add(self, left: int | None, factor: Fraction, right: int) -> int:
        self.steps.append(Step(left, factor, right))
        return self.inputs + len(self.steps) - 1

    def combination(self, terms: dict[int, Fraction]) -> int | None:
        """The sum of factor times value; None for none."""
        pending = sorted(terms.items(), key=lambda term: term[1] != 1)
        total = None
        for value, factor in pending:
            total = value if total is None and factor == 1 else self.add(total, factor, value)
        return total


def _differ_in_signs(left, right) -> bool:
    """Whether entries agree up to their signs, with some equal and some opposite."""
    if isinstance(left, dict):
        pairs = [(x, right[key]) for key, x in left.items()]
    else:
        pairs = [(x, y) for x, y in zip(left, right) if x or y]
    equal = sum(x == y for x, y in pairs)
    opposite = sum(x == -y for x, y in pairs)
    return bool(equal) and bool(opposite) and equal + opposite == len(pairs)
