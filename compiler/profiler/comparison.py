"""When two results of one dispatch are the same, but for the order in which they were summed."""

from __future__ import annotations

import math

import numpy as np

OTHER_BITS = "it rounds otherwise than the first schedule, and its results are to be the same bits"
EPSILON = {
    "f64": 2.0**-52,
    "f32": 2.0**-23,
    "f16": 2.0**-10,
    "bf16": 2.0**-7,
    "c64": 2.0**-23,
    "c128": 2.0**-52,
}
"""The distance from 1 to the next number, of types whose sums are rounded."""


def tolerance(dtype: str, steps: int) -> float:
    """What two orders of summing `steps` products may differ by, relative to the element or to the root mean square.

    Rounding errors of a sum add up like a random walk. Source: Higham, "Accuracy and Stability of Numerical
    Algorithms", §2.8 and §4.2.
    """
    epsilon = EPSILON[dtype]
    bound = 16 * epsilon + 4 * epsilon * math.sqrt(steps)
    return min(bound, 0.25)


def difference(found: np.ndarray, expected: np.ndarray, dtype: str, steps: int) -> str | None:
    """Why `found` is another result than `expected`; None when rounding explains all of it."""
    if dtype not in EPSILON:
        wrong = int((found != expected).sum())
        return f"{wrong} of {expected.size} elements differ" if wrong else None
    wide = np.complex128 if dtype in ("c64", "c128") else np.float64
    found, expected = found.astype(wide), expected.astype(wide)
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(found), finite):
        return "other elements are infinite or not a number"
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return "infinite elements differ"
    found, expected = np.abs(found[finite] - expected[finite]), np.abs(expected[finite])
    if not expected.size:
        return None
    scale = expected + math.sqrt(float(np.mean(expected**2)))
    allowed = tolerance(dtype, steps)
    worst = float((found / np.where(scale, scale, 1.0)).max())
    return None if worst <= allowed else f"an element is off by {worst:.2g}, rounding explains {allowed:.2g}"
