"""AMX tiles: the same IR run on any CPU by emulation, and machine code for Sapphire Rapids looked at."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from amx_emulation import emulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_checks import Batch, Decide, as_tuple, differences, finely
from kernel_draws import Draw
from kernel_targets import image_product, product
from test_dot_products import Product, assert_sums, bf16
from torch import nn

from tilewright.bench.models.reduced import REDUCED
from tilewright.compiler import phases
from tilewright.compiler.codegen.lower_cpu import cpu_code, lower
from tilewright.compiler.codegen.machine_code import assembly, emit_object
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import Reduction, Schedule
from tilewright.compiler.passes.graph.lower_precision import ask_precision
from tilewright.compiler.passes.lower_cpu.tile_dots import Registers, chunks, column_passes, row_passes
from tilewright.compiler.targets.target import Target, resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel

AMX = ("amx-tile", "amx-int8", "amx-bf16")
DOTS = ("avx512bf16", "avx512vnni")
HOST = set(resolve("cpu").cpu_features)
needs_dots = pytest.mark.skipif(
    not {*DOTS} <= HOST, reason=f"what does not fit tiles becomes dot products, and this CPU lacks {DOTS}"
)
LENIENT = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def with_tiles() -> Target:
    """This machine on one core, as if it had AMX."""
    machine = resolve("cpu")
    features = tuple(f for f in machine.cpu_features if not f.startswith("amx")) + AMX
    return replace(machine, cpu_features=features, num_cores=1)


@pytest.fixture
def emulating(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CompiledModel]]:
    """Compiles a model for tiles, and emulates them where it runs."""
    written: list[str] = []
    with emulator() as tiles:

        def compile_kernels(dispatches: dict[str, ir.Operation], target: Target):
            found = {}
            for name, function in dispatches.items():
                text, lowered = lower(function, target)
                written.append(text)
                code, _ = emit_object(tiles.rewritten(text), cpu_code(resolve("cpu")))
                found[name] = replace(lowered, kernel=replace(lowered.kernel, object=code))
            return found, len(found)

        monkeypatch.setattr(phases, "compile_kernels", compile_kernels)

        def compiled(
            model, inputs: tuple, tiled: bool = True, decide: Decide | None = None, precision: str = "f32"
        ) -> CompiledModel:
            written.clear()
            imported = import_model(model, inputs)
            ask_precision(imported.module, precision)
            phases.run_phases(imported.module, with_tiles(), "graph", "schedule")
            if decide is not None:
                with imported.module.context, ir.Location.unknown():
                    decide(imported.module)
            package = phases.package_module(imported.module, with_tiles(), phases.Report())
            assert any("llvm.x86.ldtilecfg" in text for text in written) == tiled
            package = replace(package, features=resolve("cpu").cpu_features)
            executable = Executable(package, list(imported.weights), num_threads=1)
            return CompiledModel(executable, imported.signature, imported.state, imported.weights)

        yield compiled


def test_no_block_needs_more_than_eight_registers() -> None:
    for rows, columns, height, groups in itertools.product((1, 2), (1, 2), range(1, 17), range(1, 100)):
        chunk, tail = chunks(groups)
        assert 0 < chunk <= 16 and tail < chunk and (groups - tail) % chunk == 0
        assert groups // chunk + (tail > 0) == -(-groups // 16)
        registers = Registers(rows, columns, height, chunk, tail)
        shapes = registers.shapes()
        assert len(shapes) <= 8 and len(registers.configuration()) == 64
        sums = [registers.sum(i, j) for i in range(rows) for j in range(columns)]
        assert len({*sums}) == len(sums)
        for i, j, last in itertools.product(range(rows), range(columns), (False, True) if tail else (False,)):
            a, b = registers.row(i, last), registers.column(j, last)
            assert a != b and not {a, b} & {*sums}
            assert shapes[a] == (height, 4 * (tail if last else chunk))
            assert shapes[b] == (tail if last else chunk, 64)
            assert shapes[registers.sum(i, j)] == (height, 64)


@pytest.mark.parametrize("extent", range(4, 101))
def test_row_passes_cover_every_row(extent: int) -> None:
    met = [0] * extent
    for rows in row_passes(extent):
        assert rows.height <= 16 and (rows.end - rows.first) % rows.step == 0
        for block in range(rows.first, rows.end, rows.step):
            for start in rows.starts:
                for row in range(block + start, block + start + rows.height):
                    met[row] += 1
    assert min(met) == 1 and sum(met) - extent <= 1


@pytest.mark.parametrize("unit", range(4, 129))
def test_column_passes_cover_every_column(unit: int) -> None:
    met = [0] * (2 * unit)
    for columns in column_passes(unit):
        assert columns.width <= 16 and unit % columns.step == 0 and len(columns.starts) <= 2
        for block in range(0, 2 * unit, columns.step):
            for start in columns.starts:
                for column in range(block + start, block + start + columns.width):
                    met[column] += 1
    assert min(met) == 1 and sum(met) - 2 * unit <= 2


@needs_dots
@LENIENT
@given(
    st.integers(4, 70),
    st.sampled_from([16, 24, 32, 40, 48, 72, 80, 128]),
    st.integers(1, 90),
    st.booleans(),
    st.integers(0, 3),
)
def test_matmul(emulating, m: int, n: int, half: int, weight: bool, seed: int) -> None:
    a, b = bf16(m, 2 * half, seed=seed), bf16(2 * half, n, seed=seed + 9)
    tiled = weight or (m >= 16 and n * 2 * half > 1 << 16)
    result = emulating(Product(b), (a,))(a) if weight else emulating(Product(), (a, b), tiled)(a, b)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), 2 * half)


@needs_dots
@pytest.mark.parametrize(("m", "n", "k"), [(300, 64, 1030), (33, 1000, 66), (40, 256, 300)])
def test_large_inputs_are_packed_at_every_call(emulating, m: int, n: int, k: int) -> None:
    a, b = bf16(m, k, seed=1), bf16(k, n, seed=2)
    result = emulating(Product(), (a, b))(a, b)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), k)


@needs_dots
@pytest.mark.parametrize(("m", "n", "k"), [(2, 32, 64), (33, 32, 7), (33, 3, 64)])
def test_what_does_not_fit_tiles_becomes_dot_products(emulating, m: int, n: int, k: int) -> None:
    a, b = bf16(m, k, seed=1), bf16(k, n, seed=2)
    result = emulating(Product(b), (a,), tiled=False)(a)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), k)


@needs_dots
@pytest.mark.parametrize("tile", [(0, 16), (16, 0), (7, 48), (48, 96), (20, 24), (1, 48)])
@pytest.mark.parametrize("k", [64, 70])
def test_rtasks_compute_what_the_whole_does(emulating, tile: tuple[int, int], k: int) -> None:
    a, b = bf16(55, k, seed=1), bf16(k, 96, seed=2)

    def decide(module: ir.Module) -> None:
        for function in functions(module):
            if '"matmul"' in str(function.attributes.get("tilewright.operator")):
                schedule_attribute.write(function, Schedule(tile))

    result = emulating(Product(b), (a,), tile[0] != 1, decide)(a)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), k)


@needs_dots
@pytest.mark.parametrize("depth", [32, 64, 96])
@pytest.mark.parametrize(("m", "n"), [(55, 96), (33, 48)])
def test_blocks_of_steps_sum_to_the_same_bits(emulating, depth: int, m: int, n: int) -> None:
    """On whole tiles and on those that overlap, which load their sums before either stores them."""
    a, b = bf16(m, 192, seed=1), bf16(192, n, seed=2)

    def blocks(depth: int) -> torch.Tensor:
        def decide(module: ir.Module) -> None:
            for function in functions(module):
                if '"matmul"' in str(function.attributes.get("tilewright.operator")):
                    schedule_attribute.write(
                        function, Schedule((0, 0), reductions=(Reduction("tiles", (), depth),))
                    )

        return emulating(Product(b), (a,), decide=decide)(a)

    whole = blocks(0)
    assert_sums(whole, a.double() @ b.double(), a.double().abs() @ b.double().abs(), 192)
    assert torch.equal(blocks(depth), whole)


@needs_dots
def test_blocks_of_taps_sum_to_the_same(emulating) -> None:
    torch.manual_seed(5)
    conv = nn.Conv2d(32, 32, 3, bias=False).bfloat16().eval()
    x = bf16(1, 32, 9, 9, seed=6)

    def decide(module: ir.Module) -> None:
        for function in functions(module):
            if '"conv"' in str(function.attributes.get("tilewright.operator")):
                found = schedule_attribute.read(function)
                (said,) = found.reductions
                schedule_attribute.write(function, replace(found, reductions=(replace(said, depth=96),)))

    assert torch.equal(emulating(conv, (x,), decide=decide)(x), emulating(conv, (x,))(x))


@needs_dots
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "stride", "padding", "size"),
    [
        (16, 32, 3, 1, 1, 9),
        (64, 16, 1, 1, 0, 7),
        (34, 64, 3, 2, 1, 20),
        (8, 48, 5, 3, 2, 40),
        (70, 64, 3, 1, 1, 28),
    ],
)
def test_convolution(emulating, inputs, outputs, kernel, stride, padding, size) -> None:
    torch.manual_seed(5)
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False).bfloat16().eval()
    x = bf16(2, inputs, size, size, seed=6)
    result = emulating(conv, (x,))(x)
    weight = conv.weight.detach().double()
    exact = nn.functional.conv2d(x.double(), weight, stride=stride, padding=padding)
    magnitude = nn.functional.conv2d(x.double().abs(), weight.abs(), stride=stride, padding=padding)
    assert_sums(result.detach(), exact, magnitude, inputs * kernel * kernel)


@needs_dots
@pytest.mark.parametrize("kind", [product, image_product])
@pytest.mark.parametrize("decide", [None, finely], ids=["as constructed", "finely cut"])
def test_random_kernels(emulating, kind, decide: Decide | None) -> None:
    cases = [kind(Draw.seeded(f"tiles {kind.__name__} {i}")) for i in range(6)]
    inputs = tuple(tensor for case in cases for tensor in case.inputs)
    results = emulating(Batch(cases), inputs, decide=decide)(*inputs)
    assert not [f"{c.name}: {text}" for c, got in zip(cases, results) for text in differences(c, got)]


@needs_dots
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "bert_tiny"])
def test_reduced_models(emulating, name: str) -> None:
    """As near to f64 as bf16 rounding of every contraction's operands is."""
    module, inputs = REDUCED[name]()
    exact = as_tuple(module.double()(*(x.double() if x.is_floating_point() else x for x in inputs)))
    results = as_tuple(emulating(module.float(), inputs, precision="bf16")(*inputs))
    for result, wanted in zip(results, exact, strict=True):
        assert (result.double() - wanted).norm() < 2e-2 * wanted.norm()


class Bytes(nn.Module):
    """Signed bytes by signed bytes, which are moved to be unsigned by signed."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return x.to(torch.int32) @ self.weight.to(torch.int32)


@needs_dots
@pytest.mark.parametrize(("m", "n", "k"), [(37, 64, 200), (16, 16, 64), (50, 48, 68), (20, 32, 132)])
def test_bytes_are_exact(emulating, m: int, n: int, k: int) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8, generator=generator)
    w = torch.randint(-128, 128, (k, n), dtype=torch.int8, generator=generator)
    result = emulating(Bytes(w), (x,))(x)
    assert torch.equal(result.long(), x.long() @ w.long())


def sapphire_rapids_code(m: int, n: int, k: int, llvm_cpu: str = "sapphirerapids") -> str:
    """The assembly of a product with weights on one core."""
    target = replace(resolve("sapphire-rapids"), num_cores=1, llvm_cpu=llvm_cpu)
    layer = nn.Linear(k, n, bias=False).bfloat16().eval()
    imported = import_model(layer, (bf16(m, k, seed=1),))
    phases.run_phases(imported.module, target, "graph", "schedule")
    with imported.module.context:
        (matmul,) = [
            f
            for f in functions(imported.module)
            if '"matmul"' in str(f.attributes.get("tilewright.operator"))
        ]
    text, _ = lower(matmul, target)
    _, optimised = emit_object(text, cpu_code(target))
    return assembly(optimised, cpu_code(target))


def loops_of_products(code: str) -> list[str]:
    loops = re.findall(r"^(\.LBB\d+_\d+):\n((?:\t.*\n|.*#.*\n)*?\tj\w+\t\1\n)", code, re.MULTILINE)
    return [body for _, body in loops if "tdpbf16ps" in body]


@pytest.mark.parametrize(("k", "loads"), [(1024, 4), (1030, 5)])
def test_the_inner_loop_loads_tiles_for_products_and_spills_none(k: int, loads: int) -> None:
    code = sapphire_rapids_code(256, 512, k)
    (inner,) = loops_of_products(code)
    products = inner.count("tdpbf16ps")  # LLVM may have unrolled the loop.
    assert products % 4 == 0
    assert 4 * inner.count("tileload") == loads * products
    assert not re.search("tilestored|tilezero|tilecfg|rsp", inner)
    assert code.count("ldtilecfg") == code.count("tilerelease") == 1


def test_each_height_of_tiles_is_configured_once() -> None:
    code = sapphire_rapids_code(300, 64, 1030)
    assert code.count("ldtilecfg") == 2 and code.count("tilerelease") == 1


@pytest.mark.parametrize("llvm_cpu", ["sapphirerapids", "znver4", "x86-64-v4"])
def test_no_cpu_model_renames_tile_registers(llvm_cpu: str) -> None:
    """AMD's models schedule after register allocation, and would rename them to break anti-dependences."""
    code = sapphire_rapids_code(256, 512, 1030, llvm_cpu)
    products = set(re.findall(r"tdpbf16ps\s+%tmm(\d), %tmm(\d), %tmm(\d)", code))
    assert products == {(b, a, c) for a, b in (("4", "5"), ("6", "7")) for c in "0123"}
    assert {*re.findall(r"tileloadd.*%tmm(\d)", code)} == {"4", "5", "6", "7"}
    assert {*re.findall(r"tilestored\s+%tmm(\d)", code)} == {"0", "1", "2", "3"}
