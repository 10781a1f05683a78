"""Loads every n-th element of memory into a vector: whole vectors of what lies between, and shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.ir import affine, ir, vector


def load_strided(type_: ir.VectorType, memory: ir.Value, place: Sequence[ir.Value], step: int) -> ir.Value:
    """The elements at `place`, and each `step` further along the last dimension, whose elements are neighbours.

    With a step of 2 and eight lanes, of the 15 elements from the first to the last:

        %low = vector.load X[i], %high = vector.load X[i + 7]           // nothing behind the last is read
        %every_second = vector.shuffle %low, %high [0, 2, 4, 6, 9, 11, 13, 15]
    """
    (lanes,) = type_.shape
    if step == 1 or lanes == 1:
        return vector.load(type_, memory, place)
    span = (lanes - 1) * step + 1
    starts = [min(start, span - lanes) for start in range(0, span, lanes)]
    found = _load(type_, memory, place, 0)
    mask = [lane * step for lane in range(lanes)]
    for number, start in enumerate(starts[1:], 1):
        # Lanes from here on come out of this piece; those before are in their places once the first two have met.
        first = -(-number * lanes // step)
        kept = mask[:first] if number == 1 else range(first)
        taken = [lanes + lane * step - start for lane in range(first, lanes)]
        inside = [place if place < 2 * lanes else 0 for place in taken]
        found = vector.shuffle(found, _load(type_, memory, place, start), [*kept, *inside])
    return found


def _load(type_: ir.VectorType, memory: ir.Value, place: Sequence[ir.Value], start: int) -> ir.Value:
    *outer, last = place
    if start:
        d0 = ir.AffineExpr.get_dim(0)
        last = affine.apply(ir.AffineMap.get(1, 0, [d0 + start]), [last])
    return vector.load(type_, memory, [*outer, last])
