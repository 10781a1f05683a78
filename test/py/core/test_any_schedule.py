"""Every legal schedule computes the same: random dispatches under random tiles and register tiles, against numpy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler import phases
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.executable import Executable

TARGETS = tuple(
    target
    for target in (resolve("x86-64-v3"), resolve("x86-64-v4"))
    if set(target.cpu_features) <= set(resolve("cpu").cpu_features)
)


@dataclass
class Dispatch:
    """The body of a dispatch on f32 tensors; inputs are %a0, %a1, ... and the sink is %r.

    The sink's parallel loops are its output's dimensions, in order; `block`: weights are packed in blocks of so many
    columns.
    """

    body: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    reference: Callable[..., np.ndarray]
    block: int = 0

    def module(self, schedule: Schedule) -> str:
        arguments = [f"%a{i}: {tensor(shape)}" for i, shape in enumerate(self.inputs)]
        names = ", ".join(f"%a{i}" for i in range(len(self.inputs)))
        types = ", ".join(map(tensor, self.inputs))
        marked = ", ".join(
            f'{argument} {{tilewright.role = "input", tilewright.name = "a{i}"}}'
            for i, argument in enumerate(arguments)
        )
        result = tensor(self.output)
        tile = f"{{tile = {list(schedule.tile)}, unroll = {schedule.unroll}, vector = {schedule.vector}}}"
        return f"""
          func.func @main({marked}) -> {result} {{
            %r = call @d({names}) : ({types}) -> {result}
            return %r : {result}
          }}
          func.func private @d({", ".join(arguments)}) -> {result}
              attributes {{tilewright.operator = "test", tilewright.schedule = {tile}}} {{
            %zero = arith.constant 0.0 : f32
            %low = arith.constant -1.0e30 : f32
            {self.body}
            return %r : {result}
          }}"""


def tensor(shape: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}f32>"


def generic(name: str, loops: str, maps: list[str], inputs: str, output: str, body: str) -> str:
    """A generic op; `loops` is a letter per loop, `output` the value it writes with its type, `body` gives %v."""
    places = ", ".join(f"d{i}" for i in range(len(loops)))
    kinds = ", ".join('"reduction"' if kind == "r" else '"parallel"' for kind in loops)
    all_maps = ", ".join(f"affine_map<({places}) -> ({m})>" for m in maps)
    values, _, types = inputs.partition(" : ")
    block = ", ".join(f"%x{i}: f32" for i in range(len(maps) - 1))
    return (
        f"{name} = linalg.generic {{indexing_maps = [{all_maps}], iterator_types = [{kinds}]}} "
        f"ins({values} : {types}) outs({output}) {{\n^bb0({block}, %y: f32):\n{body}\nlinalg.yield %v : f32\n}}"
        f" -> {output.partition(' : ')[2]}"
    )


def filled(name: str, value: str, shape: tuple[int, ...]) -> str:
    type_ = tensor(shape)
    return (
        f"{name}e = tensor.empty() : {type_}\n"
        f"{name} = linalg.fill ins({value} : f32) outs({name}e : {type_}) -> {type_}"
    )


MULTIPLY_ADD = "%m = arith.mulf %x0, %x1 : f32\n%v = arith.addf %y, %m : f32"


@st.composite
def transposes(draw) -> Dispatch:
    m, n = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    body = f"%e = tensor.empty() : {tensor((m, n))}\n" + generic(
        "%r",
        "pp",
        ["d1, d0", "d1", "d0, d1"],
        f"%a0, %a1 : {tensor((n, m))}, {tensor((n,))}",
        f"%e : {tensor((m, n))}",
        "%v = arith.addf %x0, %x1 : f32",
    )
    return Dispatch(body, ((n, m), (n,)), (m, n), lambda x, b: x.T + b)


@st.composite
def softmaxes(draw) -> Dispatch:
    m, n = draw(st.integers(1, 30)), draw(st.integers(1, 50))
    rows, whole = tensor((m,)), tensor((m, n))
    lines = [
        filled("%least", "%low", (m,)),
        generic(
            "%top",
            "pr",
            ["d0, d1", "d0"],
            f"%a0 : {whole}",
            f"%least : {rows}",
            "%v = arith.maximumf %x0, %y : f32",
        ),
        f"%e = tensor.empty() : {whole}",
        generic(
            "%exp",
            "pp",
            ["d0, d1", "d0", "d0, d1"],
            f"%a0, %top : {whole}, {rows}",
            f"%e : {whole}",
            "%m = arith.subf %x0, %x1 : f32\n%v = math.exp %m : f32",
        ),
        filled("%none", "%zero", (m,)),
        generic(
            "%sum",
            "pr",
            ["d0, d1", "d0"],
            f"%exp : {whole}",
            f"%none : {rows}",
            "%v = arith.addf %x0, %y : f32",
        ),
        generic(
            "%r",
            "pp",
            ["d0, d1", "d0", "d0, d1"],
            f"%exp, %sum : {whole}, {rows}",
            f"%e : {whole}",
            "%v = arith.divf %x0, %x1 : f32",
        ),
    ]

    def reference(x):
        exp = np.exp(x - x.max(1, keepdims=True))
        return exp / exp.sum(1, keepdims=True)

    return Dispatch("\n".join(lines), ((m, n),), (m, n), reference)


@st.composite
def matmuls(draw) -> Dispatch:
    """With plain or packed weights, alone or with an epilogue."""
    m, k = draw(st.integers(1, 40)), draw(st.integers(1, 20))
    block, blocks = draw(st.integers(2, 48)), draw(st.integers(1, 4))
    n, packed, epilogue = block * blocks, draw(st.booleans()), draw(st.booleans())
    weight = (blocks, k, block) if packed else (k, n)
    access = f"d1 floordiv {block}, d2, d1 mod {block}" if packed else "d2, d1"
    out = tensor((m, n))
    lines = [
        filled("%none", "%zero", (m, n)),
        generic(
            "%c" if epilogue else "%r",
            "ppr",
            ["d0, d2", access, "d0, d1"],
            f"%a0, %a1 : {tensor((m, k))}, {tensor(weight)}",
            f"%none : {out}",
            MULTIPLY_ADD,
        ),
    ]
    inputs: list[tuple[int, ...]] = [(m, k), weight]
    if epilogue:
        inputs.append((n,))
        lines.append(
            f"%e = tensor.empty() : {out}\n"
            + generic(
                "%r",
                "pp",
                ["d0, d1", "d1", "d0, d1"],
                f"%c, %a2 : {out}, {tensor((n,))}",
                f"%e : {out}",
                "%m = arith.addf %x0, %x1 : f32\n%v = arith.maximumf %m, %zero : f32",
            )
        )

    def reference(a, w, bias=None):
        if packed:
            w = w.transpose(1, 0, 2).reshape(k, n)
        return a @ w if bias is None else np.maximum(a @ w + bias, 0)

    return Dispatch("\n".join(lines), tuple(inputs), (m, n), reference, block=block if packed else 0)


@st.composite
def convolutions(draw) -> Dispatch:
    """One-dimensional, channels last, strided, with packed filters and an element-wise epilogue."""
    size, channels, filters = (
        draw(st.integers(1, 20)),
        draw(st.integers(1, 5)),
        draw(st.sampled_from([8, 24, 33])),
    )
    window, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    read = (size - 1) * stride + window
    out, shape = tensor((size, filters)), (1, window, channels, filters)
    lines = [
        filled("%none", "%zero", (size, filters)),
        generic(
            "%c",
            "pprr",
            [f"d0 * {stride} + d2, d3", f"d1 floordiv {filters}, d2, d3, d1 mod {filters}", "d0, d1"],
            f"%a0, %a1 : {tensor((read, channels))}, {tensor(shape)}",
            f"%none : {out}",
            MULTIPLY_ADD,
        ),
        f"%e = tensor.empty() : {out}",
        generic(
            "%r",
            "pp",
            ["d0, d1", "d0, d1"],
            f"%c : {out}",
            f"%e : {out}",
            "%v = arith.maximumf %x0, %zero : f32",
        ),
    ]

    def reference(x, w):
        windows = np.stack([x[i * stride : i * stride + window] for i in range(size)])
        return np.maximum(np.einsum("skc,kcf->sf", windows, w[0]), 0)

    return Dispatch("\n".join(lines), ((read, channels), shape), (size, filters), reference, block=filters)


@st.composite
def poolings(draw) -> Dispatch:
    size, channels, window = draw(st.integers(1, 20)), draw(st.integers(1, 40)), draw(st.integers(1, 4))
    read = size + window - 1
    lines = [
        f"%w = tensor.empty() : {tensor((window,))}",
        filled("%least", "%low", (size, channels)),
        generic(
            "%r",
            "ppr",
            ["d0 + d2, d1", "d2", "d0, d1"],
            f"%a0, %w : {tensor((read, channels))}, {tensor((window,))}",
            f"%least : {tensor((size, channels))}",
            "%v = arith.maximumf %x0, %y : f32",
        ),
    ]

    def reference(x):
        return np.stack([x[i : i + window].max(0) for i in range(size)])

    return Dispatch("\n".join(lines), ((read, channels),), (size, channels), reference)


@st.composite
def column_sums(draw) -> Dispatch:
    m, n = draw(st.integers(1, 30)), draw(st.integers(1, 70))
    lines = [
        filled("%none", "%zero", (n,)),
        generic(
            "%r",
            "pr",
            ["d1, d0", "d0"],
            f"%a0 : {tensor((m, n))}",
            f"%none : {tensor((n,))}",
            "%v = arith.addf %x0, %y : f32",
        ),
    ]
    return Dispatch("\n".join(lines), ((m, n),), (n,), lambda x: x.sum(0))


@st.composite
def schedules(draw, dispatch: Dispatch) -> Schedule:
    """Any legal one: tiles do not cross the blocks of packed weights."""
    block, columns = dispatch.block, len(dispatch.output) - 1
    tile = []
    for loop, extent in enumerate(dispatch.output):
        sizes = list(range(1, extent + 1))
        if block and loop == columns:
            sizes = [d for d in sizes if block % d == 0 or d % block == 0]
        tile.append(draw(st.sampled_from([0, *sizes])))
    lanes = [d for d in range(1, 33) if not block or block % d == 0]
    return Schedule(tuple(tile), draw(st.integers(0, 6)), draw(st.sampled_from([0, *lanes])))


KINDS = {
    "transpose": transposes(),
    "softmax": softmaxes(),
    "matmul": matmuls(),
    "convolution": convolutions(),
    "pooling": poolings(),
    "column_sum": column_sums(),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_schedule_computes_the_same(kind, data, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    dispatch = data.draw(KINDS[kind], label="dispatch")
    schedule = data.draw(schedules(dispatch), label="schedule")
    target = data.draw(st.sampled_from(TARGETS))
    try:
        package = phases.package_module(parse(dispatch.module(schedule)), target, phases.Report())
    except ScheduleError as refusal:
        assert re.search("its loop has|crosses the blocks|accumulators|nothing in it has a", str(refusal))
        schedule = Schedule(schedule.tile)
        package = phases.package_module(parse(dispatch.module(schedule)), target, phases.Report())
    (step,) = package.main.steps
    assert step.tasks == schedule.num_tasks(dispatch.output)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in dispatch.inputs]
    (found,) = Executable(package, num_threads=2)(*inputs)
    expected = dispatch.reference(*(x.astype(np.float64) for x in inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
