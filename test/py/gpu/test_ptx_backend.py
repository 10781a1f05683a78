"""The PTX backend around code generation: primitives, assemblers, libdevice, reports, limits of indices."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tilewright.compiler.codegen import libdevice, nvvm, ptx, ptxas
from tilewright.compiler.codegen.amdgpu import compile_amdgpu
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.codegen.ptxas import assemble, read_report
from tilewright.compiler.codegen.translate import main
from tilewright.compiler.errors import PassError
from tilewright.compiler.gpu import primitive_ptx
from tilewright.compiler.gpu.builder import (
    Value,
    constant,
    f32_type,
    i32,
    kernel,
    shared,
    store,
    vector_type,
)
from tilewright.compiler.gpu.primitives import Shared, Tile, mbarrier_wait, wgmma, wgmma_register, wgmma_wait
from tilewright.compiler.gpu.tensor_maps import tensor_map
from tilewright.compiler.ir import context, ir, llvm, parse
from tilewright.compiler.nouns.primitive_table import PRIMITIVES, Operand, Primitive
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.settings import SettingError

SCALE = """
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @scale(%a: memref<7xf32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %i = gpu.thread_id x
    %x = memref.load %a[%i] : memref<7xf32>
    %y = FUNCTION %x : f32
    memref.store %y, %a[%i] : memref<7xf32>
    gpu.return
  }
} }
"""
WGMMA = {
    "n": 64, "k_steps": 2, "type": "f16", "a_major": "k", "a_swizzle_bytes": 128, "a_leading_bytes": 0,
    "a_stride_bytes": 1024, "a_step_bytes": 32, "b_major": "n", "b_swizzle_bytes": 64, "b_leading_bytes": 4096,
    "b_stride_bytes": 512, "b_step_bytes": 1024,
}  # fmt: skip


def scale(function: str) -> ir.Module:
    return parse(SCALE.replace("FUNCTION", function))


# Values of attributes that every primitive takes.
VALUES = {
    "threads": 128, "count": 64, "increase": True, "ns": 40, "order": "acq_rel", "groups": 1, "read": True,
    "transpose": False, "a_layout": "row", "b_layout": "col", **WGMMA,
}  # fmt: skip


def operands_of(
    operand: Operand, primitive: Primitive, space: Shared, arguments: dict[str, ir.Value]
) -> list[ir.Value]:
    """Values for one operand of a primitive."""
    if operand.base == "shared":
        return space.operands()
    if operand.base == "global":
        return [arguments["counters"], constant(ir.IndexType.get(), 3).value]
    if operand.base == "map":
        return [arguments["map"]]
    if operand.name == "accumulators":
        return [constant(f32_type(), 1.5).value] * (WGMMA["n"] // 2)
    if operand.base == "any":
        return [constant(vector_type(4 * WGMMA["k_steps"], i32(0).type), 7).value]
    type_ = {"v4f16": "vector<4xf16>", "v8f32": "vector<8xf32>"}.get(operand.base, operand.base)
    value = constant(ir.Type.parse(type_), 1).value
    return [value] * (3 if operand.is_variadic else 1)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_assembles_where_the_table_says_it_exists(name: str) -> None:
    primitive = PRIMITIVES[name]
    # The assembler advises to multicast on sm_90a only.
    arch = f"sm_{primitive.arch}{'a' if primitive.specific or 'multicast' in name else ''}"
    with context(), ir.Location.unknown():
        buffers = [ir.Type.parse(t) for t in ("memref<64xi32>", "memref<256xf32>")]
        maps = [tensor_map(1, "f32", [8, 8, 4], [32, 256], [8, 8, 1], 0)] if primitive.arch >= 90 else []
        with kernel("k", buffers, rtasks=1, block=128, tensor_maps=maps, blocks_per_core=1) as k:
            space = Shared(shared([65536 // 4], ir.IntegerType.get_signless(8), 1024), 16)
            known = {"counters": k.buffers[0], "map": k.maps[0] if maps else k.buffers[0]}
            given = [v for o in primitive.operands for v in operands_of(o, primitive, space, known)]
            attributes = {
                key: ir.BoolAttr.get(VALUES[key])
                if kind == "bool"
                else ir.IntegerAttr.get(ir.IntegerType.get_signless(64), VALUES[key])
                if kind == "i64"
                else ir.StringAttr.get(VALUES[key])
                for key, kind in primitive.attributes
            }
            results = []
            for result in primitive.results:
                count = WGMMA["n"] // 2 if result.is_variadic else 1
                kind = {"any": "f32", "v8f32": "vector<8xf32>"}.get(result.base, result.base)
                results += [ir.Type.parse(kind)] * count
            made = ir.Operation.create(name, results=results, operands=given, attributes=attributes)
            given_back = [Value(result) for result in made.results]
            if name in ("tilewright.wgmma", "tilewright.wgmma_register"):
                given_back = wgmma_wait(given_back, 0)
            for number, result in enumerate(given_back):
                if result.type == i32(0).type:
                    store(result, k.buffers[0], number)
                elif result.type == f32_type():
                    store(result, k.buffers[1], number)
        run_pipeline(k.module.operation, "builtin.module(gpu.module(gpu.func(place-shared)))")
        code = compile_ptx(k.module, arch)
        assembled = assemble(code.text, arch)
        assert assembled is not None
        assert assembled.resources.warnings == ()
        if not primitive.pure:
            older = "sm_80" if primitive.arch > 80 else "sm_70"
            if primitive.arch > 70:
                with pytest.raises(PassError, match=f"`{name}` needs sm_{primitive.arch}"):
                    compile_ptx(k.module, older)
            if name == "tilewright.atomic_add":
                assert "global_atomic_add" in compile_amdgpu(k.module).text
            else:
                with pytest.raises(PassError, match="is an instruction of NVIDIA's"):
                    compile_amdgpu(k.module)


class TestProducts:
    def test_descriptors_hold_what_the_isa_says(self) -> None:
        """PTX ISA, "Matrix Descriptor Format": bits 16-29 leading, 32-45 stride, both / 16; 62-63 the swizzle."""
        assert primitive_ptx.descriptor(WGMMA, "a") == 1 << 62 | 64 << 32
        assert primitive_ptx.descriptor(WGMMA, "b") == 2 << 62 | 32 << 32 | 256 << 16

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"n": 260}, "expected n to be a multiple of 8"),
            ({"n": 40, "type": "i8", "b_major": "k"}, "of 16 for i8"),
            ({"type": "tf32"}, "tf32 takes k-major operands only, found b n-major"),
            ({"a_swizzle_bytes": 256}, "expected a_swizzle_bytes 0, 32, 64 or 128, found 256"),
            ({"b_step_bytes": 8}, "expected b_step_bytes to be a multiple of 16 under 256 KiB, found 8"),
        ],
    )
    def test_impossible_ones_are_refused(self, change: dict, message: str) -> None:
        with pytest.raises(PassError, match=message):
            primitive_ptx.wgmma({**WGMMA, **change}, "f", 0)

    def test_every_step_but_the_first_accumulates(self) -> None:
        text = primitive_ptx.wgmma(WGMMA, "f", 0).text
        first, second = [line for line in text.splitlines() if line.startswith("wgmma.mma_async")]
        assert ", scaled, 1, 1, 0, 1;" in first
        assert ", 1, 1, 1, 0, 1;" in second
        assert "add.s64 a, $64, 2;" in text
        assert "add.s64 b, $65, 64;" in text

    def test_builders_count_registers(self) -> None:
        with context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                place = Shared(llvm.mlir_undef(ir.Type.parse("!llvm.ptr")))
                tile = Tile(place, "k", 128, 0, 1024, 32)
                few = [constant(f32_type(), 0.0)] * 3
                with pytest.raises(PassError, match="n = 8 takes 4 accumulators, found 3"):
                    wgmma(few, tile, tile, 0, 8, 1, "f16")
                packed = constant(vector_type(4, i32(0).type), 0)
                with pytest.raises(PassError, match="expected a vector of 8 i32 as a, found vector<4xi32>"):
                    wgmma_register(few + few[:1], packed, tile, 0, 8, 2, "f16")
                with pytest.raises(PassError, match="expected `type` to be f16 or bf16"):
                    wgmma(few + few[:1], tile, tile, 0, 8, 1, "f64")


class TestAssemblers:
    REPORT = """ptxas info    : 11 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    24 bytes stack frame, 20 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 96 registers, used 2 barriers, 24 bytes cumulative stack size, 4096 bytes smem, 380 bytes cmem[0]
ptxas info    : Compile time = 4.829 ms
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored
"""

    def test_reports_are_read(self) -> None:
        warning = "info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored"
        found = read_report(self.REPORT)
        assert found == ptxas.Resources(96, 2, 4096, 380, 24, 20, 12, (warning,))
        assert found.spill_bytes == 32

    def test_one_that_does_not_know_the_architecture_is_passed_over(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        old = tmp_path / "ptxas"
        old.write_text("#!/bin/sh\necho \"allowed values: 'sm_35'\"\n")
        old.chmod(old.stat().st_mode | stat.S_IEXEC)
        real = ptxas.find("sm_80")
        assert real is not None
        broken = tmp_path / "broken"
        broken.write_text("no program")
        broken.chmod(old.stat().st_mode)
        monkeypatch.setattr(ptxas, "candidates", lambda: [broken, old, real])
        assert ptxas.find("sm_80") == real
        assert ptxas.find("sm_35") == old
        assert ptxas.find("sm_999") is None
        assert assemble("", "sm_999") is None

    def test_the_setting_comes_first(self, monkeypatch) -> None:
        real = ptxas.find("sm_80")
        monkeypatch.setenv("TILEWRIGHT_PTXAS", os.fspath(real))
        assert ptxas.candidates() == [real]
        monkeypatch.setenv("TILEWRIGHT_PTXAS", "/nowhere/ptxas")
        with pytest.raises(
            SettingError, match="TILEWRIGHT_PTXAS: expected a program, found no file `/nowhere/ptxas`"
        ):
            ptxas.candidates()

    def test_refused_text_is_an_error_with_the_assemblers_words(self) -> None:
        text = compile_ptx(scale("math.absf"), "sm_80").text.replace("abs.f32", "abs.f31")
        with pytest.raises(PassError, match=r"refuses the PTX for sm_80: (.|\n)*abs"):
            assemble(text, "sm_80")

    def test_one_that_takes_too_long_is_stopped(self, tmp_path: Path, monkeypatch) -> None:
        slow = tmp_path / "ptxas"
        slow.write_text("#!/bin/sh\n[ $1 = --help ] && echo \"'sm_80'\" || exec sleep 60\n")
        slow.chmod(slow.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setattr(ptxas, "candidates", lambda: [slow])
        monkeypatch.setattr(ptxas, "_TIMEOUT_S", 0.5)
        with pytest.raises(PassError, match=r"takes more than 0.5 s; write a smaller kernel"):
            assemble(compile_ptx(scale("math.absf"), "sm_80").text, "sm_80")

    def test_many_are_assembled_at_once_in_order(self) -> None:
        codes = [compile_ptx(scale(f), a) for f in ("math.absf", "math.erf") for a in ("sm_70", "sm_90a")]
        assembled = ptxas.assemble_all([(code.text, code.arch) for code in codes], 2)
        alone = [assemble(code.text, code.arch) for code in codes]
        assert [a.cubin for a in assembled if a] == [a.cubin for a in alone if a]
        assert len({a.cubin for a in assembled if a}) == 4


class TestLibdevice:
    def test_it_is_needed_only_by_functions(self, monkeypatch) -> None:
        def missing() -> Path:
            raise libdevice.LibdeviceError("none")

        monkeypatch.setattr(libdevice, "find", missing)
        ptx._subset.cache_clear()
        compile_ptx(scale("math.absf"), "sm_80")
        with pytest.raises(libdevice.LibdeviceError):
            compile_ptx(scale("math.tanh"), "sm_80")

    def test_its_absence_names_the_extra(self, monkeypatch) -> None:
        monkeypatch.setattr(libdevice, "_candidates", lambda: [Path("/nowhere/libdevice.10.bc")])
        libdevice.find.cache_clear()
        with pytest.raises(libdevice.LibdeviceError, match=r"pip install 'tilewright\[cuda\]'"):
            libdevice.find()
        libdevice.find.cache_clear()

    def test_denormals_are_kept(self) -> None:
        """The reflected choice between flushing and keeping them is made, and no call remains."""
        text = compile_ptx(scale("math.exp"), "sm_80").text
        assert "reflect" not in text
        assert "mul.ftz" not in text


class TestCompile:
    @pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90a", "sm_100a", "sm_103", "sm_120", "sm_121a"])
    def test_twice_gives_the_same_text_and_leaves_the_module(self, arch: str) -> None:
        module = scale("math.exp")
        before = str(module)
        first = compile_ptx(module, arch)
        assert compile_ptx(module, arch) == first
        assert str(module) == before
        assert f".target {arch}" in first.text
        assert assemble(first.text, arch) is not None

    def test_a_module_has_one_kernel(self) -> None:
        with pytest.raises(PassError, match="expected one kernel in the module, found 0"):
            compile_ptx(parse("module { gpu.module @kernels { } }"), "sm_80")

    def test_shared_memory_is_placed_before(self) -> None:
        with context(), ir.Location.unknown():
            with kernel("k", [], rtasks=1, block=32) as k:
                mbarrier_wait(Shared(shared([8], ir.IntegerType.get_signless(8))), 0)
            with pytest.raises(PassError, match="run `place-shared` first"):
                compile_ptx(k.module, "sm_90a")

    @pytest.mark.parametrize(
        ("type_", "bits"),
        [
            ("memref<1000x1000xf32>", 32),
            ("memref<1073741824xi8>", 32),
            ("memref<1073741824xf16>", 64),
            ("memref<2x4xf32, strided<[1073741824, 1], offset: 5>>", 64),
            ("memref<0x1073741824xf32>", 32),
            ("memref<1073741824xi1>", 32),
        ],
    )
    def test_small_buffers_are_indexed_in_32_bits(self, type_: str, bits: int) -> None:
        text = SCALE.replace("memref<7xf32>) kernel", f"memref<7xf32>, %b: {type_}) kernel")
        module = parse(text.replace("FUNCTION", "math.absf"))
        assert nvvm.index_bits(nvvm.kernel_of(module), frozenset()) == bits

    @pytest.mark.parametrize(("count", "bits"), [((1 << 31) - 1, 32), (1 << 31, 64), (1 << 32, 64)])
    def test_more_points_than_elements_are_counted_in_64_bits(self, count: int, bits: int) -> None:
        """A loop over [65536, 65536] points that are computed from two small buffers."""
        bound = f"%i = gpu.thread_id x\n    %n = arith.constant {count} : index"
        module = parse(SCALE.replace("%i = gpu.thread_id x", bound).replace("FUNCTION", "math.absf"))
        assert nvvm.index_bits(nvvm.kernel_of(module), frozenset()) == bits

    def test_the_tool_prints_reports(self, tmp_path: Path, capsys) -> None:
        file = tmp_path / "scale.mlir"
        file.write_text(SCALE.replace("FUNCTION", "math.sqrt"))
        assert main([str(file), "--arch", "sm_90a", "--emit", "resources"]) == 0
        assert "spill_load_bytes: 0" in capsys.readouterr().out
        assert main([str(file), "--arch", "volta"]) == 1
        assert "error: " in capsys.readouterr().err
