"""Targets: presets hold together, the host is read from any machine's files, features are what both sources say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.targets import host as target_host
from tilewright.compiler.targets.target import PRESETS, MemoryLevel, Target, UnknownTargetError, resolve


@pytest.mark.parametrize("name", PRESETS)
class TestEveryPreset:
    def test_goes_through_json(self, name: str) -> None:
        target = resolve(name)
        assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target

    def test_can_be_a_key(self, name: str) -> None:
        assert {resolve(name): 1}[resolve(name)] == 1

    def test_multiplies_as_fast_as_its_lanes_and_clock_say(self, name: str) -> None:
        target = resolve(name)
        if target.measured:
            pytest.skip("measured peaks come from the clock as it was")
        lanes = target.num_cores * target.lanes_per_core * 2 * target.clock_ghz
        assert target.peak_gflops["f32"] == pytest.approx(lanes, rel=0.01)

    def test_shares_its_slowest_memory_and_no_registers(self, name: str) -> None:
        target = resolve(name)
        assert target.memory[0].shared_by == target.num_cores
        assert target.memory[-1].shared_by == 1

    def test_has_a_peak_for_every_matrix_unit(self, name: str) -> None:
        target = resolve(name)
        assert {unit.dtype for unit in target.matrix_units} <= set(target.peak_gflops)

    def test_orders_memory_from_slow_and_large_to_fast(self, name: str) -> None:
        bandwidths = [level.bandwidth_gbps for level in resolve(name).memory]
        assert bandwidths == sorted(bandwidths)
        assert resolve(name).memory[-1].name == "registers"

    def test_has_a_peak_for_f32_that_f64_does_not_exceed(self, name: str) -> None:
        peak = resolve(name).peak_gflops
        assert peak["f32"] >= peak.get("f64", 0) > 0 or name == "graphcore-ipu"


def test_names_are_found_in_any_case() -> None:
    assert resolve("V100") == resolve("v100")


def test_an_unknown_name_lists_the_presets() -> None:
    with pytest.raises(UnknownTargetError, match=r"unknown target `z80`.*cpu.*v100.*mi50"):
        resolve("z80")


def test_a_missing_level_lists_those_there_are() -> None:
    with pytest.raises(KeyError, match="v100 has no memory level `L3`; it has DRAM, L2, shared, registers"):
        resolve("v100").level("L3")


def test_published_figures_of_the_v100() -> None:
    v100 = resolve("v100")
    assert (v100.num_cores, v100.warp_size, v100.level("DRAM").bandwidth_gbps) == (80, 32, 900.0)
    # The PCIe board: 80 SMs of 64 FMA lanes at 1.38 GHz.
    assert v100.peak_gflops["f32"] == pytest.approx(80 * 64 * 2 * 1.38, rel=0.01)


def test_published_figures_of_sapphire_rapids() -> None:
    target = resolve("sapphire-rapids")
    # 1,024 operations of bf16 per core and cycle: 56 cores at 2.0 GHz.
    assert target.peak_gflops["bf16"] == pytest.approx(56 * 2.0 * 1024)
    assert [unit.name for unit in target.matrix_units if unit.dtype == "bf16"] == ["vdpbf16ps", "tdpbf16ps"]
    assert "+amx-bf16" in target.llvm_features and "-amx-fp16" in target.llvm_features


def test_arm_is_described_but_no_code_is_generated_for_it() -> None:
    import torch

    import tilewright

    target = resolve("neoverse-v1")
    assert (target.kind, target.is_x86, target.vector_bits) == ("cpu", False, 128)
    assert target.llvm_features == "+neon,+sve,+fullfp16,+dotprod,+bf16,+i8mm,+lse"
    with pytest.raises(TilewrightError, match=r"target `neoverse-v1` is a cpu \(armv8.4-a\)"):
        tilewright.compile(torch.nn.ReLU(), (torch.ones(2),), target="neoverse-v1")


def test_one_core_takes_more_than_its_share_of_what_all_use() -> None:
    level = MemoryLevel("DRAM", 1 << 30, 100.0, 64, shared_by=8, core_gbps=30.0)
    assert [level.bandwidth_of(cores, 8) for cores in (1, 2, 4, 8, 16)] == [30.0, 60.0, 100.0, 100.0, 100.0]
    private = MemoryLevel("L1", 1 << 15, 800.0, 64)
    assert private.bandwidth_of(2, 8) == 200.0


CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu pni ssse3 avx avx2 fma avx512f avx512_vnni

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu pni ssse3 avx avx2 fma avx512f avx512_vnni

processor\t: 2
vendor_id\t: GenuineIntel
cpu family\t: 6
physical id\t: 0
core id\t\t: 1
flags\t\t: fpu pni ssse3 avx avx2 fma avx512f avx512_vnni
"""


@pytest.mark.parametrize(("usable", "cores"), [({0, 1, 2}, 2), ({0, 1}, 1), ({1, 2}, 2), ({2}, 1)])
def test_hyperthreads_are_not_cores_and_only_usable_ones_count(usable: set[int], cores: int) -> None:
    info, flags, found = target_host.read_cpuinfo(CPUINFO, usable)
    assert (info["vendor_id"], found) == ("GenuineIntel", cores)
    assert "avx512_vnni" in flags


def test_an_empty_cpuinfo_still_gives_a_core() -> None:
    assert target_host.read_cpuinfo("", {0})[1:] == (set(), 1)


def test_a_feature_needs_both_cpuid_and_the_kernel() -> None:
    llvm = {"avx2": True, "avx512f": True, "avx512vnni": True, "amx-tile": True, "fma": False}
    found = target_host.usable_features(llvm, {"avx2", "fma", "avx512_vnni", "avx512f"})
    assert found == ("avx2", "avx512f", "avx512vnni")


def test_tiles_are_used_where_the_system_grants_them() -> None:
    features = ("avx2", "avx512vnni", "amx-tile", "amx-bf16")
    assert target_host.granted_features(features, lambda: True) == features
    assert target_host.granted_features(features, lambda: False) == ("avx2", "avx512vnni")


def test_nobody_is_asked_for_tiles_that_the_processor_lacks() -> None:
    assert target_host.granted_features(("avx2",), lambda: pytest.fail("asked")) == ("avx2",)


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    rows = [
        ("Data", "1", "48K"),
        ("Instruction", "1", "32K"),
        ("Unified", "2", "2M"),
        ("Unified", "3", "105M"),
    ]
    for index, row in enumerate(rows):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, value in zip(("type", "level", "size"), row):
            (folder / name).write_text(value + "\n")
    assert target_host.read_caches(tmp_path) == {"L1": 48 << 10, "L2": 2 << 20, "L3": 105 << 20}


def test_who_shares_a_cache_is_read_from_sysfs(tmp_path: Path) -> None:
    for index, (level, shared) in enumerate([("1", "4"), ("3", "0-2,4-5,9")]):
        folder = tmp_path / "cpu4" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "level").write_text(level + "\n")
        (folder / "shared_cpu_list").write_text(shared + "\n")
    assert target_host.read_sharing(tmp_path, 4, "L3") == {0, 1, 2, 4, 5, 9}
    assert target_host.read_sharing(tmp_path, 4, "L1") == {4}
    assert target_host.read_sharing(tmp_path, 4, "L2") == {4}


def test_one_cpu_stands_for_each_core() -> None:
    cores = target_host.read_cores(CPUINFO, {0, 1, 2})
    assert cores == {("0", "0"): 0, ("0", "1"): 2}
    assert len(target_host.core_cpus()) == target_host.host().num_cores


def test_the_feature_string_switches_off_what_a_cpu_name_would_imply() -> None:
    v3 = resolve("x86-64-v3").llvm_features.split(",")
    assert "+avx2" in v3 and "-avx512f" in v3 and "-amx-tile" in v3
    assert "-sse4a" in v3, "its streamed stores of single numbers end a process on an Intel CPU"
    assert resolve("v100").llvm_features == ""


def test_the_host_has_a_vector_width_its_features_allow() -> None:
    host = resolve("cpu")
    assert host.vector_bits == (512 if "avx512f" in host.cpu_features else 256)
    assert host.num_cores >= 1 and host.kind == "cpu"


def test_wide_registers_halve_when_the_multiplier_is_narrow() -> None:
    features = resolve("x86-64-v4").cpu_features
    zen4 = target_host.fma_bits({"vendor_id": "AuthenticAMD", "cpu family": "25"}, features)
    zen5 = target_host.fma_bits({"vendor_id": "AuthenticAMD", "cpu family": "26"}, features)
    intel = target_host.fma_bits({"vendor_id": "GenuineIntel", "cpu family": "6"}, features)
    assert (zen4, zen5, intel) == (512, 1024, 1024)
