"""Computes the polynomials of compiler/rewriting/elementary.py and elementary_wide.py: `python bench/fit_polynomials.py [name]`.

Fits for f32 minimise the largest weighted error over a dense grid by Lawson's iteratively reweighted least squares
(C. L. Lawson, 1961), in double precision on function values from mpmath with 50 digits. Those for f64 interpolate at
Chebyshev's nodes with 80 digits, which is within a bit or two of the best.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

mpmath.mp.dps = 50


@dataclass(frozen=True)
class Fit:
    """`degree`-polynomial for `function` on `interval`; `weight(x)` turns its error into a relative one."""

    function: Callable
    weight: Callable
    degree: int
    interval: tuple[float, float]

    def solve(self, points: int = 4001, rounds: int = 300) -> tuple[np.ndarray, float]:
        """Coefficients, highest power last, and the largest weighted error over the grid."""
        low, high = self.interval
        nodes = np.cos(np.linspace(0, np.pi, points))
        x = (low + high) / 2 + (high - low) / 2 * nodes
        x = x[np.abs(x) > 1e-9 * max(abs(low), abs(high))]
        values = np.array([float(self.function(mpmath.mpf(float(v)))) for v in x])
        weight = np.array([abs(float(self.weight(mpmath.mpf(float(v))))) for v in x])
        scale = max(abs(low), abs(high))
        basis = np.vander(x / scale, self.degree + 1, increasing=True)
        lawson = np.ones_like(x)
        best, best_error = np.zeros(self.degree + 1), np.inf
        for _ in range(rounds):
            rows = np.sqrt(lawson)[:, None] * weight[:, None]
            solution = np.linalg.lstsq(basis * rows, values * rows[:, 0], rcond=None)[0]
            error = np.abs(basis @ solution - values) * weight
            if error.max() < best_error:
                best, best_error = solution, error.max()
            lawson *= error / error.max() + 1e-12
            lawson /= lawson.sum()
        return best / scale ** np.arange(self.degree + 1), float(best_error)


@dataclass(frozen=True)
class RationalFit:
    """P(x) / Q(x) of degrees `degrees` with Q(0) = 1, by linearised least squares with Lawson's weights."""

    function: Callable
    weight: Callable
    degrees: tuple[int, int]
    interval: tuple[float, float]

    def solve(self, points: int = 4001, rounds: int = 600) -> tuple[tuple[np.ndarray, np.ndarray], float]:
        """Coefficients of P and Q, highest power last, and the largest weighted error over the grid."""
        low, high = self.interval
        # Denser where a function of x = sqrt(z) varies: the grid is one of Chebyshev nodes in sqrt(z).
        x = (
            np.sqrt(low) + (np.sqrt(high) - np.sqrt(low)) * (1 - np.cos(np.linspace(0, np.pi, points))) / 2
        ) ** 2
        x = x[x > 1e-12 * high]
        values = np.array([float(self.function(mpmath.mpf(float(v)))) for v in x])
        weight = np.array([abs(float(self.weight(mpmath.mpf(float(v))))) for v in x])
        up, down = self.degrees
        t = x / high
        top, bottom = np.vander(t, up + 1, increasing=True), np.vander(t, down + 1, increasing=True)
        lawson, denominator = np.ones_like(x), np.ones_like(x)
        best, best_error = (np.zeros(up + 1), np.zeros(down + 1)), np.inf
        for _ in range(rounds):
            rows = (np.sqrt(lawson) * weight / np.abs(denominator))[:, None]
            system = np.hstack([top, -values[:, None] * bottom[:, 1:]]) * rows
            norms = np.linalg.norm(system, axis=0)
            solution = np.linalg.lstsq(system / norms, values * rows[:, 0], rcond=None)[0] / norms
            p, q = solution[: up + 1], np.concatenate([[1.0], solution[up + 1 :]])
            denominator = bottom @ q
            error = np.abs(top @ p / denominator - values) * weight
            if error.max() < best_error:
                best, best_error = (p, q), error.max()
            lawson *= np.sqrt(error / error.max()) + 1e-9
            lawson /= lawson.sum()
        return (best[0] / high ** np.arange(up + 1), best[1] / high ** np.arange(down + 1)), float(best_error)


@dataclass(frozen=True)
class WideFit:
    """A polynomial of `terms` coefficients for `function` on `interval`, for f64."""

    function: Callable
    terms: int
    interval: tuple[float, float]

    def solve(self) -> tuple[np.ndarray, float]:
        """Coefficients, highest power last, and the largest error."""
        with mpmath.workdps(80):
            found, error = mpmath.chebyfit(self._beside_zero, self.interval, self.terms, error=True)
            return np.array([float(c) for c in reversed(found)]), float(error)

    def _beside_zero(self, x: Any) -> Any:
        """Quotients that are 0 / 0 at 0 have their limit close by."""
        return self.function(x if abs(x) > 1e-30 else mpmath.mpf("1e-30"))


HALF_LN2 = float(mpmath.log(2) / 2)
ROOT2 = float(mpmath.sqrt(2))
SMALL = float((mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)) ** 2


def of_square(f: Callable) -> Callable:
    """`f(sqrt(z))`: turns an even function into one of z = x²."""
    return lambda z: f(mpmath.sqrt(z))


def _scaled_erfc(x: Any) -> Any:
    """(1 + 2 x) e^(x²) erfc(x), which lies between 1 and 1.28."""
    return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)


FITS = {
    "EXP": Fit(lambda r: (mpmath.expm1(r) - r) / r**2, lambda r: r**2, 4, (-HALF_LN2, HALF_LN2)),
    "EXPM1": Fit(lambda r: (mpmath.expm1(r) - r) / r**2, lambda r: r, 5, (-HALF_LN2, HALF_LN2)),
    "LOG": Fit(
        lambda f: (mpmath.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f**3 / mpmath.log1p(f),
        8,
        (ROOT2 / 2 - 1, ROOT2 - 1),
    ),
    "SIN": Fit(
        of_square(lambda r: (mpmath.sin(r) - r) / r**3),
        of_square(lambda r: r**3 / mpmath.sin(r)),
        2,
        (0, 0.617),
    ),
    "COS": Fit(of_square(lambda r: (mpmath.cos(r) - 1 + r**2 / 2) / r**4), lambda z: z**2, 2, (0, 0.617)),
    "EXP2": Fit(lambda f: (mpmath.power(2, f) - 1) / f, lambda f: f / mpmath.power(2, f), 4, (-0.5, 0.5)),
    "EXP2_WIDE": Fit(lambda f: (mpmath.power(2, f) - 1) / f, lambda f: f, 6, (-0.5, 0.5)),
    "LOG2_WIDE": Fit(
        of_square(lambda s: 2 * mpmath.atanh(s) / mpmath.log(2) / s), lambda z: 1, 4, (0, SMALL)
    ),
    "ATAN": Fit(
        of_square(lambda x: (mpmath.atan(x) - x) / x**3),
        of_square(lambda x: x**3 / mpmath.atan(x)),
        8,
        (0, 1),
    ),
    "ASIN": Fit(
        of_square(lambda x: (mpmath.asin(x) - x) / x**3),
        of_square(lambda x: x**3 / mpmath.asin(x)),
        5,
        (0, 0.25),
    ),
    "ERF": RationalFit(
        of_square(lambda x: mpmath.erf(x) / x), of_square(lambda x: x / mpmath.erf(x)), (5, 6), (0, 3.925**2)
    ),
    "ERFC": Fit(
        lambda q: _scaled_erfc(2 * (1 + q) / (1 - q)),
        lambda q: 1 / _scaled_erfc(2 * (1 + q) / (1 - q)),
        12,
        (-1, 8.25 / 12.25),
    ),
    "TANH": Fit(
        of_square(lambda x: (mpmath.tanh(x) - x) / x**3),
        of_square(lambda x: x**3 / mpmath.tanh(x)),
        4,
        (0, 0.625**2),
    ),
    "WIDE_EXP": WideFit(lambda r: (mpmath.expm1(r) - r) / r**2, 10, (-HALF_LN2, HALF_LN2)),
    "WIDE_LOG": WideFit(of_square(lambda s: (2 * mpmath.atanh(s) - 2 * s) / s**3), 7, (0, SMALL)),
    "WIDE_TANH": WideFit(of_square(lambda x: (mpmath.tanh(x) - x) / x**3), 12, (0, 0.625**2)),
    "WIDE_ERF": WideFit(of_square(lambda x: (mpmath.erf(x) - x) / x), 12, (0, 1)),
    "WIDE_ERFC": WideFit(lambda q: _scaled_erfc(2 * (1 + q) / (1 - q)), 27, (-1, 25.5 / 29.5)),
    "WIDE_ERFC_NEAR": WideFit(lambda q: _scaled_erfc(2 * (1 + q) / (1 - q)), 16, (-1 / 3, 0.5)),
    "WIDE_ATAN": WideFit(of_square(lambda x: (mpmath.atan(x) - x) / x**3), 22, (0, 1)),
    "WIDE_ASIN": WideFit(of_square(lambda x: (mpmath.asin(x) - x) / x**3), 13, (0, 0.25)),
}


def main(names: list[str]) -> None:
    for name in names or list(FITS):
        coefficients, error = FITS[name].solve()
        print(f"{name}: largest error {error:.2e} = 2^{np.log2(error):.1f}")
        for row in coefficients if isinstance(coefficients, tuple) else (coefficients,):
            print("   ", ", ".join(repr(float(c)) for c in row))


if __name__ == "__main__":
    main(sys.argv[1:])
