"""Kernels that are told extents and strides: random element-wise dispatches against numpy, one kernel for all shapes of a body."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler import phases
from tilewright.compiler.analysis.strided_form import OUTER, StridedForm, strided_form
from tilewright.compiler.codegen.lower_cpu import kernel_key, shape_free
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Package

TYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i64": np.int64,
}  # fmt: skip


def tensor(shape: list[int], dtype: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


def dispatch(
    extents: list[int], reads: list[list[str]], dtype: str, attributes: str = "tilewright.once"
) -> str:
    """A module whose @main calls a dispatch that adds up its inputs; each is indexed by expressions of loops d0, d1, ..."""
    shapes = [[reach(text, extents) for text in read] for read in reads]
    loops = ", ".join(f"d{i}" for i in range(len(extents)))
    maps = [
        f"affine_map<({loops}) -> ({', '.join(read).replace('//', 'floordiv')})>"
        for read in (*reads, [*filter(None, loops.split(", "))])
    ]
    kinds = ", ".join(['"parallel"'] * len(extents))
    inputs, result = [tensor(shape, dtype) for shape in shapes], tensor(extents, dtype)
    names = [f"%a{i}" for i in range(len(reads))]
    given_ = ", ".join(f"{name}: {type_}" for name, type_ in zip(names, inputs))
    marked = ", ".join(
        f'{name}: {type_} {{tilewright.role = "input", tilewright.name = "{name[1:]}"}}'
        for name, type_ in zip(names, inputs)
    )
    add = "arith.addi" if dtype.startswith("i") else "arith.addf"
    sums = "".join(f"%s{i} = {add} %s{i - 1}, %x{i} : {dtype}\n" for i in range(1, len(reads)))
    block = "".join(f"%x{i}: {dtype}, " for i in range(len(reads)))
    first = f"%one = arith.constant {'1' if add.endswith('i') else '1.0'} : {dtype}"
    return f"""
      func.func @main({marked}) -> {result} {{
        %r = call @d({", ".join(names)}) : ({", ".join(inputs)}) -> {result}
        return %r : {result}
      }}
      func.func private @d({given_}) -> {result} attributes {{tilewright.operator = "elementwise", {attributes}}} {{
        {first}
        %e = tensor.empty() : {result}
        %r = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{kinds}]}}
          ins({", ".join(names)} : {", ".join(inputs)}) outs(%e : {result}) {{
        ^bb0({block}%o: {dtype}):
          %s0 = {add} %x0, %one : {dtype}
          {sums}linalg.yield %s{len(reads) - 1} : {dtype}
        }} -> {result}
        return %r : {result}
      }}"""


def reach(text: str, extents: list[int]) -> int:
    """How many elements an index expression needs."""
    return int(eval(text, {f"d{i}": extent - 1 for i, extent in enumerate(extents)})) + 1


def expected(extents: list[int], reads: list[list[str]], values: list[np.ndarray]) -> np.ndarray:
    """The same by numpy, in double precision for floats."""
    grids = np.indices(extents, sparse=True) if extents else []
    names = {f"d{i}": grid for i, grid in enumerate(grids)}
    wide = np.int64 if values[0].dtype.kind == "i" else np.float64
    total = np.ones(extents, wide)
    for read, value in zip(reads, values):
        total = total + value.astype(wide)[tuple(eval(text, names) for text in read)]
    return total


def form_of(text: str) -> tuple[ir.Module, StridedForm | None]:
    module = parse(text)
    (function,) = (f for f in functions(module) if "tilewright.operator" in f.attributes)
    return module, strided_form(function)


def packaged(text: str) -> Package:
    return phases.compile_module(parse(text), resolve("cpu"), phases.Report(), first="schedule")


@st.composite
def dispatches(draw) -> tuple[list[int], list[list[str]], str]:
    """Extents, what is read, and a type: permuted, broadcast, strided and shifted operands."""
    extents = draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 17, 33, 70]), max_size=5))
    while np.prod(extents, dtype=float) > 60_000:
        extents.pop()
    reads = []
    for _ in range(draw(st.integers(1, 3))):
        loops = draw(st.permutations(range(len(extents))))[: draw(st.integers(0, len(extents)))]
        forms = ["d{}", "d{}", "d{}", "d{} * 2", "d{} + 3", "d{} * 3 + 1"]
        read = [draw(st.sampled_from(forms)).format(loop) for loop in loops]
        if len(loops) > 1 and draw(st.booleans()):
            read = [*read[:-2], f"{read[-2]} + {read[-1]}"]
        reads.append(read)
    return extents, reads, draw(st.sampled_from(sorted(TYPES)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dispatches(), st.integers(0, 2**32 - 1))
def test_kernels_compute_what_numpy_does(drawn, seed):
    extents, reads, dtype = drawn
    package = packaged(dispatch(extents, reads, dtype))
    step = package.main.steps[0]
    assert step.buffers[-2].space == "constant", "the kernel reads no table"
    random = np.random.default_rng(seed)
    shapes = [[reach(text, extents) for text in read] for read in reads]
    values = [random.integers(-20, 20, shape).astype(TYPES[dtype]) for shape in shapes]
    result = np.full(extents, 77, TYPES[dtype])
    Executable(package).run([v.ctypes.data for v in values], [result.ctypes.data])
    total = expected(extents, reads, values)
    # Sums of small integers are exact in every type but for their last rounding.
    np.testing.assert_array_equal(result, total.astype(TYPES[dtype]))


def test_one_kernel_serves_all_shapes_of_a_body():
    keys = set()
    for extents in ([64, 128], [33, 70], [256, 64]):
        module, form = form_of(dispatch(extents, [["d1", "d0"], ["d1"]], "f32"))
        assert form is not None
        with module.context:
            (function,) = (f for f in functions(module) if "tilewright.operator" in f.attributes)
            keys.add(kernel_key(function, resolve("x86-64-v3")))
    assert len(keys) == 1


@pytest.mark.parametrize(
    "other",
    [
        dispatch([64, 128], [["d1", "d0"], ["d1"]], "f64"),
        dispatch([64, 128], [["d1", "d0"], ["d0"]], "f32"),
        dispatch([64, 128], [["d0", "d1"], ["d1"]], "f32"),
        dispatch([64, 128], [["d1", "d0"]], "f32"),
        dispatch([64, 128], [["d1", "d0"], ["d1"]], "f32").replace("arith.addf %x0", "arith.mulf %x0"),
        dispatch([64, 128], [["d1", "d0"], ["d1"]], "f32").replace("constant 1.0", "constant 2.0"),
    ],
)
def test_what_code_depends_on_is_told_apart(other):
    _one, form = form_of(dispatch([64, 128], [["d1", "d0"], ["d1"]], "f32"))
    _two, different = form_of(other)
    assert form is not None and different is not None
    assert form.text() != different.text()


@pytest.mark.parametrize(
    "text, why",
    [
        (dispatch([8], [["d0 // 2"]], "f32"), "a quotient"),
        (dispatch([2] * (OUTER + 2), [[f"d{i}" for i in reversed(range(OUTER + 2))]], "f32"), "too many loops"),
        (dispatch([8], [["d0"]], "f32").replace("%s0 = arith.addf %x0, %one", "%s0 = arith.addf %x0, %o"), "its own result"),
    ],
)  # fmt: skip
def test_other_dispatches_have_kernels_of_their_own(text, why):
    _module, form = form_of(text)
    assert form is None, why


def test_a_schedule_that_is_written_by_hand_is_obeyed():
    text = dispatch(
        [64, 128], [["d1", "d0"]], "f32", "tilewright.once, tilewright.schedule = {tile = [8, 0]}"
    )
    module = parse(text)
    (function,) = (f for f in functions(module) if "tilewright.operator" in f.attributes)
    assert strided_form(function) is not None
    assert shape_free(function) is None
    assert packaged(text).main.steps[0].tasks == 8


def test_lines_are_written_whole_and_tasks_cover_all_of_them():
    _module, form = form_of(dispatch([512, 700], [["d1", "d0"]], "f32"))
    assert form is not None
    assert form.line * 4 == 64, "what is read is reused from line to line"
    chunk, turns = form.table()[:2]
    assert (form.tasks - 1) * chunk < turns <= form.tasks * chunk
    assert form.tasks > 1
