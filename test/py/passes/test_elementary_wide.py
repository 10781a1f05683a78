"""Elementary functions of f64 against wider references: sweeps over all exponents, special values, and that they are vectorised."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tilewright.bench.array_function import binary, error_ulps, unary

SPECIAL = np.array(
    [
        "0", "-0", "1", "-1", "0.5", "-0.5", "2", "-2", "3", "-3", "inf", "-inf", "nan", "5e-324", "-5e-324",
        "2.3e-308", "-1e-310", "1.7976931348623157e308", "-1.7976931348623157e308", "709.782712893384",
        "709.7827128933841", "-708.4", "-745.13", "-745.14", "-746", "1024", "1023.9999999999999", "-1074",
        "-1075", "-1074.5", "1e10", "-1e10", "4503599627370496", "9007199254740994", "1e-16", "-1e-16",
        "0.9999999999999999", "1.0000000000000002", "-0.9999999999999999", "26.5", "27.2", "6", "0.625", "22",
    ],
    dtype=np.float64,
)  # fmt: skip


def _by_mpmath(name: str):
    """The function with 50 digits, element by element, as an 80-bit float."""

    def reference(x: np.ndarray) -> np.ndarray:
        found = np.empty(x.shape, np.longdouble)
        with mpmath.workdps(50):
            for number, value in enumerate(x):
                exact = getattr(mpmath, name)(mpmath.mpf(float(value)))
                high = float(exact)
                finite = np.isfinite(high)
                found[number] = np.longdouble(high) + np.longdouble(float(exact - high) if finite else 0.0)
        return found

    return reference


UNARY = {
    "exp": (np.exp, (-750, 715), 1.1), "exp2": (np.exp2, (-1080, 1030), 1.1), "expm1": (np.expm1, (-40, 40), 2.4),
    "log": (np.log, (0, 4), 1.0), "log2": (np.log2, (0, 4), 1.5), "log10": (np.log10, (0, 4), 1.5),
    "log1p": (np.log1p, (-1, 4), 1.6), "tanh": (np.tanh, (-22, 22), 1.5), "atan": (np.arctan, (-5, 5), 1.6),
    "asin": (np.arcsin, (-1, 1), 2.1), "acos": (np.arccos, (-1, 1), 1.5),
    "sinh": (np.sinh, (-715, 715), 3.5), "cosh": (np.cosh, (-715, 715), 2.5), "asinh": (np.arcsinh, (-5, 5), 2.0),
    "acosh": (np.arccosh, (1, 5), 2.5), "atanh": (np.arctanh, (-1, 1), 2.5),
}  # fmt: skip
"""name -> (reference, interval to sweep closely, largest error in ulp)."""
BY_MPMATH = {"erf": ((-6.5, 6.5), 1.5), "erfc": ((-6.5, 27.5), 4.0)}


def every_exponent(count: int) -> np.ndarray:
    """f64 of all signs and exponents, denormals and NaNs among them."""
    return np.arange(0, 2**64, 2**64 // count, dtype=np.uint64).view(np.float64)


def _holds(name: str, x: np.ndarray, exact: np.ndarray, bound: float) -> None:
    error = error_ulps(unary(name, "f64")(x), exact)
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{name}({x[worst]!r}): {error[worst]:.2f} ulp from {exact[worst]!r}"


@pytest.mark.parametrize("name", UNARY)
def test_unary_error_is_within_its_bound(name: str):
    reference, (low, high), bound = UNARY[name]
    rng = np.random.default_rng(7)
    small = rng.uniform(-1, 1, 100_000) * np.exp2(rng.uniform(-60, 0, 100_000))
    x = np.concatenate([every_exponent(200_003), rng.uniform(low, high, 300_000), small, 1 + small, SPECIAL])
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.longdouble))
    _holds(name, x, exact, bound)


@pytest.mark.parametrize("name", BY_MPMATH)
def test_error_functions_are_within_their_bounds(name: str):
    (low, high), bound = BY_MPMATH[name]
    rng = np.random.default_rng(7)
    x = np.concatenate([every_exponent(2_003), rng.uniform(low, high, 6_000), SPECIAL])
    x = np.clip(x[~np.isnan(x)], -1e4, 1e4)
    _holds(name, x, _by_mpmath(name)(x), bound)
    assert np.isnan(unary(name, "f64")(np.array([np.nan]))).all()


def test_atan2_is_within_its_bound_and_has_all_special_cases():
    rng = np.random.default_rng(5)
    y, x = (rng.standard_normal(300_000) * np.exp2(rng.uniform(-30, 30, 300_000)) for _ in range(2))
    sides = [array.ravel() for array in np.meshgrid(SPECIAL, SPECIAL)]
    y, x = np.concatenate([y, sides[0]]), np.concatenate([x, sides[1]])
    exact = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    found = binary("atan2", "f64")(y, x)
    normal = np.isnan(exact) | (np.abs(exact) > 1e-300)
    assert error_ulps(found, exact)[normal].max() <= 3.0
    assert np.array_equal(np.signbit(found)[~np.isnan(exact)], np.signbit(exact)[~np.isnan(exact)])


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "erf", "atan", "asin", "sinh", "asinh", "atanh"])
def test_odd_functions_keep_the_sign_of_zero_and_denormals(name: str):
    x = np.array([0.0, -0.0, 5e-324, -5e-324, 1e-310])
    got = unary(name, "f64")(x)
    assert np.array_equal(np.signbit(got), np.signbit(x))
    if name != "erf":
        assert np.array_equal(got, x)


@pytest.mark.parametrize("name", [*UNARY, *BY_MPMATH])
def test_nothing_is_called(name: str):
    assert "call" not in unary(name, "f64").assembly
