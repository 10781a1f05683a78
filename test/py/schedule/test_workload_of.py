"""Workloads read off dispatches touch what the dispatches touch: index maps against brute force, axes, arithmetic."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.workload_of import DispatchWorkload, NoWorkload, read_workload, workload_of
from tilewright.compiler.families.cpu.complete_schedule import complete
from tilewright.compiler.ir import parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.model.statements import read_statements

_ALIVE: list = []


def tensor(shape, dtype: str = "f32") -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


def dispatch(body: str, arguments: list[tuple[int, ...]], result: tuple[int, ...], dtype: str = "f32"):
    """A dispatch with arguments %a0, %a1, ...; its body defines %r, and may use %zero."""
    inputs = ", ".join(f"%a{i}: {tensor(shape, dtype)}" for i, shape in enumerate(arguments))
    zero = "0.0" if dtype.startswith(("f", "b")) else "0"
    text = f"""func.func private @d({inputs}) -> {tensor(result, dtype)} attributes {{tilewright.operator = "test"}} {{
        %zero = arith.constant {zero} : {dtype}
        {body}
        return %r : {tensor(result, dtype)}
    }}"""
    module = parse(text)
    _ALIVE.append(module)
    return next(iter(module.body.operations)).operation


def generic(
    name: str, loops: str, maps: list[str], ins: list[tuple[str, tuple]], out: tuple[int, ...], ops: str
) -> str:
    """A generic op; `loops` is a letter per loop, `ins` are (value, shape), `ops` compute %v from %x0, ... and %y."""
    places = ", ".join(f"d{i}" for i in range(len(loops)))
    kinds = ", ".join('"reduction"' if kind == "r" else '"parallel"' for kind in loops)
    all_maps = ", ".join(f"affine_map<({places}) -> ({m})>" for m in maps)
    values, types = ", ".join(v for v, _ in ins), ", ".join(tensor(s) for _, s in ins)
    block = "".join(f"%x{i}: f32, " for i in range(len(ins)))
    empty = f"{name}e = tensor.empty() : {tensor(out)}\n{name}f = linalg.fill ins(%zero : f32) outs({name}e : {tensor(out)}) -> {tensor(out)}"
    return (
        f"{empty}\n{name} = linalg.generic {{indexing_maps = [{all_maps}], iterator_types = [{kinds}]}} "
        f"ins({values} : {types}) outs({name}f : {tensor(out)}) {{\n^bb0({block}%y: f32):\n{ops}\nlinalg.yield %v : f32\n}}"
        f" -> {tensor(out)}"
    )


MULTIPLY_ADD = "%m = arith.mulf %x0, %x1 : f32\n%v = arith.addf %y, %m : f32"
ADD = "%v = arith.addf %y, %x0 : f32"
EXP = "%v = math.exp %x0 : f32"


def touched(structured: Structured, operand: int, starts: list[int], tile: list[int]) -> set[tuple[int, ...]]:
    """The elements of an operand that the points of a tile index, one by one."""
    map_ = structured.maps[operand]
    spans = [range(s, min(s + t, e)) for s, t, e in zip(starts, tile, structured.extents)]
    from tilewright.compiler.analysis.affine_access import evaluate

    return {tuple(evaluate(e, list(point)) for e in map_.results) for point in itertools.product(*spans)}


@st.composite
def convolutions(draw):
    """(text, arguments, result, tile): strided, dilated, with weights in blocks or not."""
    height, width, filters = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    kernel, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    channels, block = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
    outputs = filters * block
    size = [(n - 1) * stride + (kernel - 1) * dilation + 1 for n in (height, width)]
    image = (*size, channels)
    packed = (filters, kernel, kernel, channels, block)
    loops = "ppprrr"
    maps = [
        f"d0 * {stride} + d3 * {dilation}, d1 * {stride} + d4 * {dilation}, d5",
        f"d2 floordiv {block}, d3, d4, d5, d2 mod {block}" if block > 1 else "d2, d3, d4, d5, 0",
        "d0, d1, d2",
    ]
    result = (height, width, outputs)
    text = generic("%r", loops, maps, [("%a0", image), ("%a1", packed)], result, MULTIPLY_ADD)
    extents = (height, width, outputs, kernel, kernel, channels)
    tile = [draw(st.integers(1, e)) for e in extents]
    blocks = [t for t in range(1, outputs + 1) if t % block == 0 or block % t == 0]
    tile[2] = draw(st.sampled_from(blocks))
    return text, [image, packed], result, tile


@settings(max_examples=40, deadline=None)
@given(convolutions(), st.data())
def test_data_tiles_are_what_the_points_touch(drawn, data):
    """For tiles that start at multiples of themselves, up to what lies between the steps of a stride."""
    text, arguments, result, tile = drawn
    function = dispatch(text, arguments, result)
    found = read_workload(function)
    (structured,) = found.group
    sizes = [1] * len(found.workload.axes)
    for loop, axis in enumerate(found.main_axes):
        if axis is not None:
            sizes[axis] = tile[loop]
    starts = [
        data.draw(st.integers(0, max(0, e // t - 1))) * t if e >= t else 0
        for e, t in zip(structured.extents, tile)
    ]
    for number, operand in enumerate(found.workload.operands):
        elements = touched(structured, number, starts, tile)
        box = [
            max(p[d] for p in elements) - min(p[d] for p in elements) + 1 for d in range(len(operand.shape))
        ]
        assert operand.tile_shape(np.asarray([sizes]))[0].tolist() == box


def test_a_whole_tile_is_the_whole_tensor():
    text = generic(
        "%r",
        "ppr",
        ["d0, d2", "d2, d1", "d0, d1"],
        [("%a0", (6, 8)), ("%a1", (8, 10))],
        (6, 10),
        MULTIPLY_ADD,
    )
    found = read_workload(dispatch(text, [(6, 8), (8, 10)], (6, 10)))
    workload = found.workload
    assert workload.op == "matmul"
    assert [(a.name, a.extent, a.kind) for a in workload.axes] == [
        ("d0", 6, "parallel"),
        ("d1", 10, "parallel"),
        ("d2", 8, "reduction"),
    ]
    assert found.loops == (0, 1, 2)
    assert workload.flops == 2 * 6 * 8 * 10
    whole = np.asarray([workload.extents])
    assert all(o.tile_bytes(whole)[0] == o.nbytes for o in workload.operands)


def softmax() -> DispatchWorkload:
    rows, whole = (6,), (6, 9)
    text = "\n".join(
        (
            generic(
                "%top", "pr", ["d0, d1", "d0"], [("%a0", whole)], rows, "%v = arith.maximumf %x0, %y : f32"
            ),
            generic(
                "%exp",
                "pp",
                ["d0, d1", "d0", "d0, d1"],
                [("%a0", whole), ("%top", rows)],
                whole,
                "%s = arith.subf %x0, %x1 : f32\n%v = math.exp %s : f32",
            ),
            generic("%sum", "pr", ["d0, d1", "d0"], [("%exp", whole)], rows, ADD),
            generic(
                "%r",
                "pp",
                ["d0, d1", "d0", "d0, d1"],
                [("%exp", whole), ("%sum", rows)],
                whole,
                "%v = arith.divf %x0, %x1 : f32",
            ),
        )
    )
    return read_workload(dispatch(text, [whole], whole))


def test_a_loop_that_is_summed_over_and_written_along_is_one_axis():
    found = softmax()
    assert [axis.extent for axis in found.workload.axes] == [6, 9]
    assert len(found.workload.inputs) == 1
    assert found.workload.flops == 6 * 9 * 5
    assert found.workload.op == "reduction"


def test_an_epilogue_counts_per_element_of_the_result():
    text = "\n".join(
        (
            generic(
                "%c",
                "ppr",
                ["d0, d2", "d2, d1", "d0, d1"],
                [("%a0", (4, 8)), ("%a1", (8, 6))],
                (4, 6),
                MULTIPLY_ADD,
            ),
            generic(
                "%r",
                "pp",
                ["d0, d1", "d1", "d0, d1"],
                [("%c", (4, 6)), ("%a2", (6,))],
                (4, 6),
                "%s = arith.addf %x0, %x1 : f32\n%v = arith.maximumf %s, %zero : f32",
            ),
        )
    )
    found = read_workload(dispatch(text, [(4, 8), (8, 6), (6,)], (4, 6)))
    workload = found.workload
    assert (workload.flops_per_point, workload.epilogue_flops) == (2.0, 2.0)
    assert [axis.kind for axis in workload.axes] == ["parallel", "parallel", "reduction"]
    assert found.loops == (0, 1, None)
    assert [o.shape for o in workload.operands] == [(4, 8), (8, 6), (6,), (4, 6)]


def test_transposed_consumers_name_the_producers_loops():
    """The sink writes [n, m] of what the product computed as [m, n]."""
    text = "\n".join(
        (
            generic(
                "%c",
                "ppr",
                ["d0, d2", "d2, d1", "d0, d1"],
                [("%a0", (4, 8)), ("%a1", (8, 6))],
                (4, 6),
                MULTIPLY_ADD,
            ),
            generic("%r", "pp", ["d1, d0", "d0, d1"], [("%c", (4, 6))], (6, 4), EXP),
        )
    )
    found = read_workload(dispatch(text, [(4, 8), (8, 6)], (6, 4)))
    assert [axis.extent for axis in found.workload.axes] == [6, 4, 8]
    assert found.main_axes == (1, 0, 2)


def test_kinds_of_operations_are_told_apart():
    pooling = generic(
        "%r", "pprr", ["d0 + d2, d1", "d2, d3", "d0, d1"], [("%a0", (8, 4)), ("%a1", (3, 2))], (6, 4), ADD
    )
    assert read_workload(dispatch(pooling, [(8, 4), (3, 2)], (6, 4))).workload.op == "pooling"
    depthwise = generic(
        "%r",
        "ppr",
        ["d0 + d2, d1", "d2, d1", "d0, d1"],
        [("%a0", (8, 4)), ("%a1", (3, 4))],
        (6, 4),
        MULTIPLY_ADD,
    )
    assert read_workload(dispatch(depthwise, [(8, 4), (3, 4)], (6, 4))).workload.op == "depthwise"
    plain = generic("%r", "pp", ["d0, d1", "d0, d1"], [("%a0", (8, 4))], (8, 4), EXP)
    assert read_workload(dispatch(plain, [(8, 4)], (8, 4))).workload.op == "elementwise"


def test_pads_and_concatenations_read_at_a_distance():
    pad = """%r = tensor.pad %a0 low[1, 2] high[0, 1] {
        ^bb0(%i: index, %j: index):
          tensor.yield %zero : f32
        } : tensor<3x4xf32> to tensor<4x7xf32>"""
    workload = read_workload(dispatch(pad, [(3, 4)], (4, 7))).workload
    assert workload.op == "pad"
    assert [index.offset for index in workload.inputs[0].index_map] == [-1, -2]
    assert workload.inputs[0].tile_shape(np.asarray([[4, 7]]))[0].tolist() == [3, 4]
    concat = "%r = tensor.concat dim(1) %a0, %a1 : (tensor<3x4xf32>, tensor<3x5xf32>) -> tensor<3x9xf32>"
    workload = read_workload(dispatch(concat, [(3, 4), (3, 5)], (3, 9))).workload
    assert [o.index_map[1].offset for o in workload.inputs] == [0, -4]
    assert workload.nbytes == 4 * (12 + 15 + 27)


def test_reading_is_deterministic():
    assert softmax().workload == softmax().workload
    assert softmax().workload.key == softmax().workload.key


@pytest.mark.parametrize(
    "body, arguments, result, why",
    [
        ("%r = tensor.empty() : tensor<4xf32>", [(4,)], (4,), "tensor.empty is no structured operation"),
        (
            generic("%r", "p", ["(d0 + 1) floordiv 2", "d0"], [("%a0", (5,))], (8,), EXP),
            [(5,)],
            (8,),
            "is no sum of loops, their quotients and remainders",
        ),
        (generic("%r", "p", ["d0", "d0"], [("%a0", (0,))], (0,), EXP), [(0,)], (0,), "a loop has no steps"),
    ],
)
def test_what_has_no_workload_says_why(body, arguments, result, why):
    with pytest.raises(NoWorkload, match=why):
        read_workload(dispatch(body, arguments, result))


def test_an_argument_that_is_returned_has_none():
    module = parse("func.func private @d(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    function = next(iter(module.body.operations)).operation
    with pytest.raises(NoWorkload, match="its results do not come from one operation"):
        read_workload(function)


@pytest.mark.parametrize(
    "dtype, size", [("f64", 8), ("f16", 2), ("bf16", 2), ("i8", 1), ("i1", 1), ("i64", 8)]
)
def test_elements_have_their_size(dtype, size):
    type_ = tensor((4,), dtype)
    body = f"""%e = tensor.empty() : {type_}
      %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
        ins(%a0 : {type_}) outs(%e : {type_}) {{
      ^bb0(%x: {dtype}, %y: {dtype}):
        linalg.yield %x : {dtype}
      }} -> {type_}"""
    workload = read_workload(dispatch(body, [(4,)], (4,), dtype)).workload
    assert [o.element_bytes for o in workload.operands] == [size, size]
    assert math.isclose(workload.flops, 0)


@pytest.mark.parametrize("loops", ["pp", "pr", "rp", "rpr", "prp", "ppr"])
def test_axes_of_a_sink_are_its_loops_in_order(loops: str) -> None:
    """`tile[i]` of a schedule cuts loop i: two programs whose schedules mean other cuts are no equal work."""
    shape = tuple(3 + 2 * loop for loop in range(len(loops)))
    kept = [loop for loop, kind in enumerate(loops) if kind == "p"]
    maps = [", ".join(f"d{i}" for i in range(len(loops))), ", ".join(f"d{i}" for i in kept)]
    out = tuple(shape[loop] for loop in kept)
    body = generic("%r", loops, maps, [("%a0", shape)], out, "%v = arith.addf %x0, %y : f32")
    found = read_workload(dispatch(body, [shape], out))
    assert found.loops == tuple(range(len(loops)))
    assert found.workload.extents == shape
    assert [axis.kind[0] for axis in found.workload.axes] == list(loops)


def test_reductions_of_one_step_are_reductions_to_a_schedule() -> None:
    """They have an entry of `reductions`, though the workload has no axis for them."""
    largest = generic(
        "%p",
        "ppr",
        ["d0, d1, d2", "d0, d1"],
        [("%a0", (5, 1, 4))],
        (5, 1),
        "%v = arith.maximumf %y, %x0 : f32",
    )
    once = generic("%r", "pr", ["d0, d1", "d0"], [("%p", (5, 1))], (5,), ADD)
    function = dispatch(f"{largest}\n{once}", [(5, 1, 4)], (5,))
    statements = [statement for statement in read_statements(workload_of(function)) if statement.reduces]
    assert len(complete(function, Schedule(), resolve("x86-64-v4")).reductions) == len(statements) == 2
