"""Contractions assembled for every architecture: registers without spills, wide accesses, asynchronous copies, no divisions."""

from __future__ import annotations

import re
from functools import cache

import pytest
from gemm_dispatches import Case, convolution, matmul

from tilewright.compiler.codegen import ptxas
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.families.contraction.choice import complete
from tilewright.compiler.families.contraction.family import emit
from tilewright.compiler.families.contraction.problem import read_contraction
from tilewright.compiler.families.contraction.simt_gemm import SimtTile
from tilewright.compiler.ir import context, functions, ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve

_CASES = {
    "matmul": matmul(4096, 4096, 4096, epilogue="bias_relu"),
    "transposed": matmul(4096, 4096, 4096, "mk", "nk"),
    "convolution": convolution(32, (56, 56), 64, 64, epilogue="bias_relu"),
    "stem": convolution(32, (112, 112), 3, 64, window=7, stride=2),
    "half": matmul(4096, 4096, 4096, dtype="f16", result="f16", epilogue="bias_relu"),
    "half transposed": matmul(4096, 4096, 4096, "km", "nk", dtype="f16", result="f16"),
    "bytes": matmul(4096, 4096, 4096, "mk", "nk", dtype="i8"),
    "double": matmul(4096, 4096, 4096, dtype="f64"),
    "few rows": matmul(4, 4096, 4096, dtype="f16"),
    "deep": matmul(128, 128, 8192),
}
_LOCAL = re.compile(r"\.local|\bst\.local|\bld\.local")


@cache
def code(name: str, target: str) -> str:
    """The PTX of the kernel that is chosen for a case."""
    case: Case = _CASES[name]
    (function,) = functions(module := case.module())
    assert module
    with context(), ir.Location.unknown():
        contraction = read_contraction(function)
        described = resolve(target)
        kernel = emit(contraction, complete(contraction, Schedule(), described), described)
        run_pipeline(kernel.operation, "builtin.module(gpu.module(canonicalize,cse,gpu.func(place-shared)))")
    return compile_ptx(kernel, resolve(target).arch).text


def count(name: str, target: str, instruction: str) -> int:
    return len(re.findall(rf"\b{re.escape(instruction)}\b", code(name, target)))


def main_loop(name: str, target: str) -> str:
    """The loop over K: what lies between the longest backward branch and its label."""
    text = code(name, target)
    labels = {found[1]: found.start() for found in re.finditer(r"^(\$\S+):", text, re.M)}
    loops = [
        text[labels[found[1]] : found.start()]
        for found in re.finditer(r"bra(?:\.uni)?\s+(\$\S+);", text)
        if labels.get(found[1], len(text)) < found.start()
    ]
    return max(loops, key=len)


@pytest.mark.parametrize("target", ["v100", "a100", "h100"])
@pytest.mark.parametrize("name", ["matmul", "convolution", "half", "few rows"])
def test_nothing_spills_and_the_assembler_has_nothing_to_say(name: str, target: str) -> None:
    text = code(name, target)
    assembled = ptxas.assemble(text, resolve(target).arch)
    if assembled is None:
        pytest.skip(f"no assembler here knows {resolve(target).arch}")
    assert assembled.resources.spill_bytes == 0
    assert assembled.resources.stack_bytes == 0
    assert assembled.resources.warnings == ()
    assert not _LOCAL.search(text)


@pytest.mark.parametrize("name", ["transposed", "stem", "half transposed", "bytes", "double", "deep"])
def test_other_layouts_and_types_do_not_spill_either(name: str) -> None:
    assembled = ptxas.assemble(code(name, "a100"), "sm_80")
    if assembled is None:
        pytest.skip("no assembler here knows sm_80")
    assert (assembled.resources.spill_bytes, assembled.resources.warnings) == (0, ())


@pytest.mark.parametrize(
    ("case", "tile"),
    [
        # Eight parts of K: their sums are added in a loop, not all at once.
        (matmul(49, 320, 960), SimtTile(32, 64, 16, 4, 4, split_k=8)),
        # One step of K: nothing is fetched ahead.
        (matmul(12544, 16, 32), SimtTile(64, 32, 32, 4, 4)),
        # Few sums and many loads: left alone, the assembler spills for the sake of a seventh block.
        (matmul(197, 3072, 768), SimtTile(16, 256, 16, 4, 8)),
    ],
    ids=["divided", "one step", "wide"],
)
def test_shapes_that_used_to_spill_do_not(case: Case, tile: SimtTile) -> None:
    (function,) = functions(module := case.module())
    assert module
    with context(), ir.Location.unknown():
        contraction, described = read_contraction(function), resolve("v100")
        kernel = emit(contraction, complete(contraction, Schedule(gpu=tile.gpu), described), described)
        run_pipeline(kernel.operation, "builtin.module(gpu.module(canonicalize,cse,gpu.func(place-shared)))")
    assembled = ptxas.assemble(compile_ptx(kernel, "sm_70").text, "sm_70")
    if assembled is None:
        pytest.skip("no assembler here knows sm_70")
    assert assembled.resources.spill_bytes == 0


def test_two_blocks_of_the_large_tile_share_a_multiprocessor() -> None:
    for target in ("v100", "a100"):
        assembled = ptxas.assemble(code("matmul", target), resolve(target).arch)
        if assembled is None:
            pytest.skip(f"no assembler here knows {resolve(target).arch}")
        assert assembled.resources.registers <= 128


@pytest.mark.parametrize("target", ["v100", "a100"])
def test_threads_read_shared_memory_in_16_byte_words(target: str) -> None:
    loop = main_loop("matmul", target)
    products = len(re.findall(r"\bfma\.rn\.f32\b", loop))
    assert products >= 512
    assert len(re.findall(r"\bld\.shared\.v4\b", loop)) * 16 == products
    assert not re.search(r"\bld\.shared\.(b32|v2)\b", loop)


def test_copies_are_asynchronous_where_the_architecture_has_them() -> None:
    assert count("matmul", "a100", "cp.async.cg.shared.global") > 0
    assert count("matmul", "v100", "cp.async.cg.shared.global") == 0
    assert "ld.global.nc.v4" in main_loop("matmul", "v100")
    assert "cp.async.wait_group" in main_loop("matmul", "a100")


def test_a_convolution_copies_16_bytes_and_divides_by_multiplying() -> None:
    loop = main_loop("convolution", "a100")
    assert len(re.findall(r"\bcp\.async\.cg\.shared\.global\b", loop)) == 3
    assert "cp.async.ca" not in loop
    for target in ("v100", "a100"):
        assert not re.search(r"\b(div|rem)\.", main_loop("convolution", target))


def test_three_channels_are_copied_four_bytes_at_a_time() -> None:
    assert len(re.findall(r"\bcp\.async\.ca\.shared\.global\b", main_loop("stem", "a100"))) == 8


def test_halves_go_through_ldmatrix_and_the_matrix_instruction() -> None:
    loop = main_loop("half", "a100")
    products = len(re.findall(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32", loop))
    loads = len(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x4", loop))
    assert products == 4 * loads
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in loop
    assert "ld.shared" not in loop
    transposed = main_loop("half transposed", "a100")
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in transposed
    assert "ld.shared" not in transposed


def test_results_of_halves_are_stored_16_bytes_at_a_time() -> None:
    assert count("half", "a100", "st.global.v4.b32") > 0
    assert not re.search(r"\bst\.global(\.b32|\.b16|\.v2)\b", code("half", "a100"))


def test_volta_multiplies_halves_on_its_own_instruction() -> None:
    assert "mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f32" in main_loop("half", "v100")


def test_bytes_are_multiplied_32_at_a_time() -> None:
    assert re.search(
        r"mma\.sync\.aligned\.m16n8k32\.row\.col\S*\.s32\.s8\.s8\.s32", main_loop("bytes", "a100")
    )


def test_few_rows_stream_b_in_16_byte_loads() -> None:
    loop = main_loop("few rows", "a100")
    assert len(re.findall(r"\bld\.global\.nc\.v4\b", loop)) >= 4
    assert "bar.sync" not in loop


def test_code_is_the_same_every_time() -> None:
    first = code("convolution", "a100")
    code.cache_clear()
    assert code("convolution", "a100") == first


def test_sums_of_bytes_wrap_as_on_cpus() -> None:
    assert count("bytes", "a100", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32") > 0
    assert "satfinite" not in code("bytes", "a100")


def test_fewer_blocks_are_asked_for_where_room_for_more_would_make_it_spill() -> None:
    text = code("matmul", "a100")
    assert ".minnctapersm 2" in text
    assembled = ptxas.assemble(text.replace(".minnctapersm 2", ".minnctapersm 8"), "sm_80")
    if assembled is None:
        pytest.skip("no assembler here knows sm_80")
    assert assembled.resources.spill_bytes == 0
    assert assembled.ptx == text
