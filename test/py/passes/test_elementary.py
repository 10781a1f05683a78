"""Elementary functions against f64 references: dense sweeps over all exponents, special values, every type."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.bench.array_function import ArrayFunction, binary, error_ulps, unary
from tilewright.compiler.ir import context, functions, ir, parse
from tilewright.compiler.rewriting.elementary import exp2_weight
from tilewright.compiler.rewriting.expression import Number

SPECIAL = np.array(
    [
        "0",
        "-0",
        "1",
        "-1",
        "0.5",
        "-0.5",
        "2",
        "-2",
        "3",
        "-3",
        "inf",
        "-inf",
        "nan",
        "1e-45",
        "-1e-45",
        "1e-38",
        "-1e-38",
        "3.4028235e38",
        "-3.4028235e38",
        "88.72284",
        "88.7229",
        "-87.33655",
        "-103.97",
        "-104.1",
        "1e10",
        "-1e10",
        "8388608",
        "8388609",
        "16777216",
        "16777217",
        "-8388607",
        "2.5",
        "-2.5",
        "1e-8",
        "-1e-8",
        "0.99999994",
        "1.0000001",
    ],
    dtype=np.float32,
)

erf, erfc = (np.vectorize(function, otypes=[np.float64]) for function in (math.erf, math.erfc))
UNARY = {
    "exp": (np.exp, (-110, 95), 1.0), "exp2": (np.exp2, (-155, 130), 1.0), "expm1": (np.expm1, (-20, 90), 1.5),
    "log": (np.log, (0, 4), 1.0), "log2": (np.log2, (0, 4), 1.5), "log10": (np.log10, (0, 4), 1.5),
    "log1p": (np.log1p, (-1, 4), 1.6), "tanh": (np.tanh, (-10, 10), 1.4), "erf": (erf, (-5, 5), 6.5),
    "erfc": (erfc, (-5, 10.2), 0.6),
    "sin": (np.sin, (-100, 100), 1.6), "cos": (np.cos, (-100, 100), 1.6), "tan": (np.tan, (-100, 100), 3.6),
    "atan": (np.arctan, (-5, 5), 1.6), "asin": (np.arcsin, (-1, 1), 2.0), "acos": (np.arccos, (-1, 1), 1.5),
    "sinh": (np.sinh, (-91, 91), 3.0), "cosh": (np.cosh, (-91, 91), 2.5), "asinh": (np.arcsinh, (-5, 5), 2.0),
    "acosh": (np.arccosh, (1, 5), 2.5), "atanh": (np.arctanh, (-1, 1), 2.5),
}  # fmt: skip
"""name -> (reference, interval to sweep closely, largest error in ulp)."""


def every_exponent(stride: int = 20011) -> np.ndarray:
    """f32 of all signs and exponents, denormals and NaNs among them: every `stride`-th bit pattern."""
    return np.arange(0, 2**32, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_an_instruction_for_powers_of_two_gives_the_same_bits(name: str):
    x = np.concatenate([every_exponent(), np.linspace(-155, 130, 200_001, dtype=np.float32), SPECIAL])
    if _host_has("avx512f"):
        assert "vscalefps" in unary(name, scales=True).assembly
    else:
        x = x[::37]  # libm's, one by one
    found, wanted = unary(name, scales=True)(x), unary(name)(x)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", UNARY)
def test_unary_error_is_within_its_bound(name: str):
    reference, (low, high), bound = UNARY[name]
    rng = np.random.default_rng(7)
    x = np.concatenate([every_exponent(), rng.uniform(low, high, 200_000).astype(np.float32), SPECIAL])
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64 if name in ("erf", "erfc") else np.longdouble)
        exact = reference(wide).astype(np.float64)
    error = error_ulps(unary(name)(x), exact)
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{name}({x[worst]!r}): {error[worst]:.2f} ulp from {exact[worst]!r}"


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "erf", "sin", "tan", "atan", "asin"])
def test_odd_functions_keep_the_sign_of_zero_and_denormals(name: str):
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40], dtype=np.float32)
    got = unary(name)(x)
    assert np.array_equal(np.signbit(got), np.signbit(x))
    if name != "erf":
        assert np.array_equal(got, x)


def test_what_tanh_leaves_of_a_small_number_is_off_by_less_than_its_last_place():
    """`tanhshrink` cancels: an error of tanh near 0 is one of `x - tanh(x)`, which is about x³ / 3."""
    x = np.exp2(np.linspace(-24, np.log2(0.624), 100_001)).astype(np.float32)
    x = np.concatenate([x, -x])
    exact = np.tanh(x.astype(np.longdouble)).astype(np.float64)
    assert error_ulps(unary("tanh")(x), exact).max() <= 0.8


def test_trigonometry_reduces_arguments_exactly():
    """The f32 nearest to multiples of π/2, where few bits survive; references from mpmath (50 digits)."""
    x = np.array(
        [16367173 * 2.0**72, 12345678.0, 1e22, 3.4028235e38, 710.0, 11.0, 1.5707964, 3.1415927], np.float32
    )
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(80):
        for name in ("sin", "cos", "tan"):
            exact = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
            assert error_ulps(unary(name)(x), exact).max() <= 3.6, name


def test_pow_is_within_one_ulp():
    rng = np.random.default_rng(3)
    x = np.exp2(rng.uniform(-20, 20, 300_000)).astype(np.float32)
    y = rng.uniform(-7, 7, x.size).astype(np.float32)
    near_one = 1 + rng.uniform(-1e-3, 1e-3, 100_000).astype(np.float32)
    x = np.concatenate([x, near_one])
    y = np.concatenate([y, rng.uniform(-9e4, 9e4, near_one.size).astype(np.float32)])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)
    assert error_ulps(binary("powf")(x, y), exact).max() <= 1.0


def test_remainders_are_exact():
    x = np.concatenate([every_exponent(), SPECIAL, np.linspace(-50, 50, 100_001, dtype=np.float32)])
    remainder = ArrayFunction("%r = arith.remf %a, %b : f32", ["f32", "f32"], "f32")
    some = np.random.default_rng(0).permutation(x)
    with np.errstate(all="ignore"):
        nearly = np.nextafter(x, np.float32(0)), x / 7
    for y in (some, np.full_like(x, 0.7), np.full_like(x, -3), *nearly):
        with np.errstate(all="ignore"):
            exact = np.fmod(x, y)
        found = remainder(x, y)
        is_number = ~np.isnan(exact)
        assert (np.isnan(found) == ~is_number).all()
        np.testing.assert_array_equal(found[is_number].view(np.uint32), exact[is_number].view(np.uint32))
    for a in SPECIAL:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(remainder(np.full_like(SPECIAL, a), SPECIAL), np.fmod(a, SPECIAL))
    assert "call" not in remainder.assembly


@pytest.mark.parametrize("name, reference", [("powf", np.power), ("atan2", np.arctan2)])
def test_binary_special_cases_are_those_of_libm(name: str, reference):
    x, y = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64), y.astype(np.float64))
    got = binary(name)(x, y)
    error = error_ulps(got, exact)
    # f64 powers of f32 stay finite where f32 underflows to a signed zero: compare those as zeros.
    worst = int(error.argmax())
    assert error[worst] <= 3, f"{name}({x[worst]!r}, {y[worst]!r}) = {got[worst]!r}, not {exact[worst]!r}"
    zero = got == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))


def test_atan2_error_is_within_its_bound():
    rng = np.random.default_rng(5)
    y, x = (rng.normal(size=300_000) * np.exp2(rng.uniform(-30, 30, 300_000)) for _ in range(2))
    y, x = y.astype(np.float32), x.astype(np.float32)
    exact = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble)).astype(np.float64)
    assert error_ulps(binary("atan2")(y, x), exact).max() <= 3.0


@pytest.mark.parametrize("exponent", ["i32", "i64"])
def test_integer_powers_of_any_size(exponent: str):
    power = ArrayFunction(f"%r = math.fpowi %a, %b : f32, {exponent}", ["f32", exponent], "f32")
    x = np.array([-1.0, -1.0, 2.0, -2.0, 0.0, -0.0, 1.5, -1.0000001, math.nan, -math.inf, 3.0], np.float32)
    n = np.array(
        [16777217, 2147483646, -149, 127, 0, -3, 200, 16777217, 0, 3, -1],
        {"i32": np.int32, "i64": np.int64}[exponent],
    )
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), n.astype(np.float64))
    assert error_ulps(power(x, n), exact).max() <= 1.0


@given(st.floats(width=32), st.floats(width=32))
@settings(max_examples=300, deadline=None)
def test_pow_agrees_with_numpy(x: float, y: float):
    with np.errstate(all="ignore"):
        exact = np.power(np.float64(x), np.float64(y))
    got = binary("powf")(np.array([x], np.float32), np.array([y], np.float32))
    assert error_ulps(got, np.array([exact])).max() <= 1.0


@given(st.floats(width=32), st.sampled_from(sorted(UNARY)))
@settings(max_examples=500, deadline=None)
def test_unary_agrees_with_numpy(x: float, name: str):
    reference, _, bound = UNARY[name]
    array = np.array([x], np.float32)
    with np.errstate(all="ignore"):
        exact = reference(array.astype(np.float64))
    assert error_ulps(unary(name)(array), exact).max() <= bound


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin", "log1p"])
def test_half_precision_is_rounded_once(name: str):
    """All 65536 f16 values: the f32 result rounded, which is the nearest f16 but for near ties."""
    function = ArrayFunction(f"%r = math.{name} %a : f16", ["f16"], "f16")
    x = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        nearest = unary(name)(x.astype(np.float32)).astype(np.float16)
        exact = UNARY[name][0](x.astype(np.float64)).astype(np.float16)
    got = function(x)
    assert np.array_equal(got, nearest, equal_nan=True)
    same = (got == exact) | (np.isnan(got) & np.isnan(exact))
    assert same.mean() > 0.999


def test_bfloat16_is_computed_in_f32():
    function = ArrayFunction("%r = math.exp %a : bf16", ["bf16"], "bf16")
    bits = np.arange(2**16, dtype=np.uint32)
    wide = (bits << 16).view(np.float32)
    exact = unary("exp")(wide)
    got = (function(bits.astype(np.uint16)).astype(np.uint32) << 16).view(np.float32)
    number = ~np.isnan(exact)
    assert np.isnan(got[~number]).all()
    rounded = exact[number].view(np.uint32).astype(np.uint64)
    rounded = ((rounded + 0x7FFF + (rounded >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    # The CPU's own conversion to bf16 takes denormals for zeros.
    normal = np.abs(rounded) >= 2.0**-126
    assert np.array_equal(got[number][normal], rounded[normal])
    assert np.isin(got[number][~normal], np.append(rounded[~normal], 0.0)).all()


@pytest.mark.parametrize(
    "name", ["exp", "log", "expm1", "log1p", "tanh", "erf", "sin", "atan", "cbrt", "sinh"]
)
def test_double_precision_is_exact_to_1e_12(name: str):
    function = ArrayFunction(f"%r = math.{name} %a : f64", ["f64"], "f64")
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-5, 5, 2000), rng.normal(size=2000) * 1e-9, SPECIAL.astype(np.float64)])
    reference = {"erf": erf, "atan": np.arctan}.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        exact = reference(x)
    np.testing.assert_allclose(function(x), exact, rtol=1e-12)


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_cube_roots_go_to_libm(type_: str):
    function = ArrayFunction(f"%r = math.cbrt %a : {type_}", [type_], type_)
    x = np.linspace(0.05, 0.95, 50).astype({"f32": np.float32, "f16": np.float16}[type_])
    exact = np.cbrt(x.astype(np.float64))
    np.testing.assert_allclose(function(x), exact, rtol=2e-7 if type_ == "f32" else 1e-3)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "erfc", "sin", "expm1", "log1p"])
def test_loops_are_vectorised_without_calls(name: str):
    assembly = unary(name).assembly
    vector_register = "zmm" if _host_has("avx512f") else "ymm"
    assert assembly.count(vector_register) > 20
    assert "call" not in assembly


def test_pow_loop_is_vectorised_without_calls():
    assert "call" not in binary("powf").assembly


def test_vectors_and_scalars_give_the_same_bits():
    body = """
      %va = vector.broadcast %a : f32 to vector<2x3xf32>
      %vr = math.exp %va : vector<2x3xf32>
      %r = vector.extract %vr[1, 2] : f32 from vector<2x3xf32>"""
    function = ArrayFunction(body, ["f32"], "f32", lowering="convert-vector-to-llvm")
    x = np.linspace(-20, 20, 1000, dtype=np.float32)
    assert np.array_equal(function(x), unary("exp")(x))


def _host_has(feature: str) -> bool:
    import llvmlite.binding as llvm_binding

    return llvm_binding.get_host_cpu_features().get(feature, False)


@pytest.mark.parametrize("name", ["maximumf", "minimumf"])
def test_maxima_keep_nan(name: str):
    function = ArrayFunction(f"%r = arith.{name} %a, %b : f32", ["f32", "f32"], "f32")
    x, y = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    exact = {"maximumf": np.maximum, "minimumf": np.minimum}[name](x, y)
    assert np.array_equal(function(x, y), exact, equal_nan=True)


def test_weights_of_softmax_are_powers_that_end_in_zero():
    with context(), ir.Location.unknown():
        module = parse("func.func @f(%a: f32) -> f32 { return %a : f32 }")
        function = next(functions(module))
        block = function.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block):
            power = exp2_weight(Number(block.arguments[0]))
        block.operations[len(block.operations) - 1].operation.operands[0] = power.value
        *_, head = text = [line.strip() for line in str(module).splitlines()][2:-3]
    last = head.split(" = ")[0]
    body = "\n".join(text).replace("%arg0", "%a") + f"\n%r = arith.minimumf {last}, {last} : f32"
    weight = ArrayFunction(body, ["f32"], "f32")
    x = np.concatenate([np.linspace(-126.4, 0.5, 400_001), -np.logspace(-30, 0, 1001)]).astype(np.float32)
    assert error_ulps(weight(x), np.exp2(x.astype(np.float64))).max() <= 2.1
    special = np.array([0.0, -0.0, -127.5, -1e4, -math.inf, math.nan], np.float32)
    result = weight(special)
    assert result[:5].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0] and np.isnan(result[5])
