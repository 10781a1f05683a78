"""What the vectorisers write computes what loops do, on any extents, element types and widths of vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memref_function import MemrefFunction

TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "i8": np.int8}
extents = st.integers(1, 70)
vector_bits = st.sampled_from([128, 256, 512])
few = settings(max_examples=40, deadline=None)


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Small integers, so that sums are exact in every type."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(TYPES[dtype])


def generic(maps: list[str], kinds: str, operands: list[tuple[str, str]], body: str, element: str) -> str:
    """A function @f with one `linalg.generic`, whose last operand is written; `body` yields %r."""
    arguments = ", ".join(f"{name}: {type_}" for name, type_ in operands)
    names, types = (", ".join(part[i] for part in operands[:-1]) for i in range(2))
    iterators = ", ".join(f'"{"parallel" if kind == "p" else "reduction"}"' for kind in kinds)
    inputs = ", ".join(f"%x{i}: {element}" for i in range(len(operands) - 1))
    return f"""
    func.func @f({arguments}) {{
      linalg.generic {{indexing_maps = [{", ".join(f"affine_map<{m}>" for m in maps)}], iterator_types = [{iterators}]}}
          ins({names} : {types}) outs({operands[-1][0]} : {operands[-1][1]}) {{
      ^bb0({inputs}, %o: {element}):
        {body}
        linalg.yield %r : {element}
      }}
      return
    }}"""


def memref(*shape: int, dtype: str) -> str:
    return f"memref<{''.join(f'{extent}x' for extent in shape)}{dtype}>"


@few
@given(extents, extents, st.integers(1, 3), st.sampled_from(["f32", "f64", "i32", "i8"]), vector_bits)
def test_transposes(rows, columns, batch, dtype, bits):
    add = "arith.addf" if dtype.startswith("f") else "arith.addi"
    text = generic(
        ["(b, i, j) -> (b, j, i)", "(b, i, j) -> (i)", "(b, i, j) -> (j)", "(b, i, j) -> (b, i, j)"],
        "ppp",
        [
            ("%x", memref(batch, columns, rows, dtype=dtype)),
            ("%row", memref(rows, dtype=dtype)),
            ("%column", memref(columns, dtype=dtype)),
            ("%y", memref(batch, rows, columns, dtype=dtype)),
        ],
        f"%s = {add} %x0, %x1 : {dtype}\n %r = {add} %s, %x2 : {dtype}",
        dtype,
    )
    compiled = MemrefFunction(text, f"vectorize-transposes{{vector-bits={bits}}}")
    lanes = bits // (64 if dtype == "f64" else 32)
    assert compiled.left == ([] if min(rows, columns, lanes) >= 4 else ["linalg.generic"])
    x = values((batch, columns, rows), dtype, 0)
    row, column = values((rows,), dtype, 1), values((columns,), dtype, 2)
    y = np.zeros((batch, rows, columns), TYPES[dtype])
    compiled(x, row, column, y)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1) + row[:, None] + column)


@few
@given(
    extents,
    extents,
    st.integers(1, 150),
    st.sampled_from(["f32", "f64", "i32", "i64"]),
    vector_bits,
    st.sampled_from(["(m, n, k) -> (n, k)", "(m, n, k) -> (k, n)"]),
)
def test_products_of_matrices(rows, columns, depth, dtype, bits, right):
    kind = dtype[0]
    text = generic(
        ["(m, n, k) -> (m, k)", right, "(m, n, k) -> (m, n)"],
        "ppr",
        [
            ("%x", memref(rows, depth, dtype=dtype)),
            ("%w", memref(*((columns, depth) if "(n, k)" in right else (depth, columns)), dtype=dtype)),
            ("%y", memref(rows, columns, dtype=dtype)),
        ],
        f"%p = arith.mul{kind} %x0, %x1 : {dtype}\n %r = arith.add{kind} %o, %p : {dtype}",
        dtype,
    )
    compiled = MemrefFunction(text, f"vectorize-reductions{{vector-bits={bits}}}", bits)
    x, w, y = (
        values(shape, dtype, i) for i, shape in enumerate([(rows, depth), (depth, columns), (rows, columns)])
    )
    expected = y + x @ w
    compiled(x, np.ascontiguousarray(w.T) if "(n, k)" in right else w, y)
    np.testing.assert_array_equal(y, expected)


EXTREMA = {
    "arith.maximumf": np.max,
    "arith.minimumf": np.min,
    "arith.maxnumf": np.nanmax,
    "arith.minnumf": np.nanmin,
    "arith.addf": np.sum,
    "arith.maxsi": np.max,
    "arith.minsi": np.min,
    "arith.addi": np.sum,
    "arith.xori": np.bitwise_xor.reduce,
    "arith.ori": np.bitwise_or.reduce,
    "arith.andi": np.bitwise_and.reduce,
}


@few
@given(extents, st.integers(4, 150), st.sampled_from(sorted(EXTREMA)), vector_bits, st.booleans())
def test_rows(rows, depth, operation, bits, special):
    dtype = "f32" if operation.endswith("f") else "i32"
    text = generic(
        ["(m, k) -> (m, k)", "(m, k) -> (m)"],
        "pr",
        [("%x", memref(rows, depth, dtype=dtype)), ("%y", memref(rows, dtype=dtype))],
        f"%r = {operation} %x0, %o : {dtype}",
        dtype,
    )
    compiled = MemrefFunction(text, f"vectorize-reductions{{vector-bits={bits}}}", bits)
    assert compiled.left == []
    x, y = values((rows, depth), dtype, 0), values((rows,), dtype, 1)
    if dtype == "f32" and special:
        x[0, 0], x[rows // 2, depth // 2] = np.nan, np.inf
    expected = EXTREMA[operation](np.concatenate([x, y[:, None]], axis=1), axis=1)
    compiled(x, y)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("depth", [65, 80, 101])
def test_windows_that_slide_along_the_reduction(stride: int, depth: int) -> None:
    """A convolution of one channel: its long window is contiguous, whatever the step of the output."""
    steps = 9
    text = generic(
        [f"(i, k) -> (i * {stride} + k)", "(i, k) -> (k)", "(i, k) -> (i)"],
        "pr",
        [
            ("%x", memref((steps - 1) * stride + depth, dtype="f32")),
            ("%w", memref(depth, dtype="f32")),
            ("%y", memref(steps, dtype="f32")),
        ],
        "%p = arith.mulf %x0, %x1 : f32\n %r = arith.addf %o, %p : f32",
        "f32",
    )
    compiled = MemrefFunction(text, "vectorize-reductions")
    x, w = values(((steps - 1) * stride + depth,), "f32", 0), values((depth,), "f32", 1)
    y = np.zeros(steps, np.float32)
    compiled(x, w, y)
    np.testing.assert_array_equal(y, [x[i * stride : i * stride + depth] @ w for i in range(steps)])
    assert compiled.left == []


@few
@given(
    st.integers(1, 9),
    st.integers(4, 40),
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(["arith.maximumf", "arith.minnumf", "arith.addf", "arith.maxsi", "weights"]),
    vector_bits,
)
def test_windows_that_slide_along_memory(rows, columns, taps, stride, dilation, operation, bits):
    if taps == (1, 1):
        return
    weighted = operation == "weights"
    dtype = "i32" if operation.endswith("i") else "f32"
    height, width = ((n - 1) * stride + (t - 1) * dilation + 1 for n, t in zip((rows, columns), taps))
    body = f"%r = {operation} %o, %x0 : {dtype}"
    if weighted:
        body = "%p = arith.mulf %x0, %x1 : f32\n %r = arith.addf %o, %p : f32"
    loops = "(c, h, w, i, j)"
    text = generic(
        [
            f"{loops} -> (c, h * {stride} + i * {dilation}, w * {stride} + j * {dilation})",
            f"{loops} -> (c, i, j)" if weighted else f"{loops} -> (i, j)",
            f"{loops} -> (c, h, w)",
        ],
        "ppprr",
        [
            ("%x", memref(2, height, width, dtype=dtype)),
            ("%w", memref(*((2,) if weighted else ()), *taps, dtype=dtype)),
            ("%y", memref(2, rows, columns, dtype=dtype)),
        ],
        body,
        dtype,
    )
    compiled = MemrefFunction(text, f"vectorize-windows{{vector-bits={bits}}}", bits)
    assert compiled.left == []
    x, w, y = (
        values((2, height, width), dtype, 0),
        values((*((2,) if weighted else ()), *taps), dtype, 1),
        values((2, rows, columns), dtype, 2),
    )
    if operation == "arith.maximumf":
        x[0, height // 2, width // 2], x[1, 0, 0] = np.nan, np.inf
    seen = np.lib.stride_tricks.sliding_window_view(x, [(t - 1) * dilation + 1 for t in taps], axis=(1, 2))[
        :, ::stride, ::stride, ::dilation, ::dilation
    ]
    if weighted:
        expected = y + np.einsum("chwij,cij->chw", seen, w)
    else:
        terms = np.concatenate([y[..., None], seen.reshape(*y.shape, -1)], axis=-1)
        expected = EXTREMA[operation](terms, axis=-1)
    compiled(x, w, y)
    np.testing.assert_array_equal(y, expected)


@few
@given(
    st.integers(1, 40),
    st.integers(1, 2),
    st.sampled_from([(4, 4), (2, 4), (8, 8), (4, 2), (3, 8), (8, 4)]),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([256, 512]),
)
def test_convolutions_of_few_channels_per_group(steps, rows, channels, blocks, taps, stride, dilation, bits):
    inputs, results = channels
    block = bits // 32 // results
    if block < 2:
        return
    groups, width = blocks * block, (steps - 1) * stride + (taps - 1) * dilation + 1
    text = generic(
        [
            f"(h, w, g, o, k, c) -> (h, w * {stride} + k * {dilation}, g, c)",
            f"(h, w, g, o, k, c) -> (g floordiv {block}, k, c, g mod {block}, o)",
            "(h, w, g, o, k, c) -> (h, w, g, o)",
        ],
        "pppprr",
        [
            ("%x", memref(rows, width, groups, inputs, dtype="f32")),
            ("%w", memref(blocks, taps, inputs, block, results, dtype="f32")),
            ("%y", memref(rows, steps, groups, results, dtype="f32")),
        ],
        "%p = arith.mulf %x0, %x1 : f32\n %r = arith.addf %o, %p : f32",
        "f32",
    )
    compiled = MemrefFunction(text, f"vectorize-reductions{{vector-bits={bits}}}", bits)
    assert compiled.left == []
    x = values((rows, width, groups, inputs), "f32", 0)
    w = values((blocks, taps, inputs, block, results), "f32", 1)
    y = values((rows, steps, groups, results), "f32", 2)
    expected = y.copy()
    by_group = w.transpose(0, 3, 1, 2, 4).reshape(groups, taps, inputs, results)
    for k in range(taps):
        part = x[:, k * dilation : k * dilation + (steps - 1) * stride + 1 : stride]
        expected += np.einsum("hwgc,gco->hwgo", part, by_group[:, k])
    compiled(x, w, y)
    np.testing.assert_array_equal(y, expected)
