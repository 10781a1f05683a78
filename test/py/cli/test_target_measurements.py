"""Measuring this machine: probes do what they say, figures are plausible, kept, applied, and part of every cache key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from click.testing import CliRunner

from tilewright.compiler.cli.main import main
from tilewright.compiler.targets import host as target_host
from tilewright.compiler.targets import measure as measure_target
from tilewright.compiler.targets import measurements as target_measurements
from tilewright.compiler.targets import probes
from tilewright.compiler.targets.measurements import LevelRates, Measurements, PeakRates
from tilewright.compiler.targets.probes import Compiled
from tilewright.compiler.targets.target import Target, resolve

HOST = target_host.host()
RATES = LevelRates(100.0, 190.0, 90.0, 170.0, 5.0)
FOUND = Measurements(
    "a processor",
    {"DRAM": LevelRates(20.0, 30.0, 40.0, 60.0, 100.0), "L1": RATES},
    {"f32": PeakRates("multiply-add", 100.0, 200.0)},
    0.5,
)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def aligned(count: int) -> np.ndarray:
    """`count` int64 at an address that vectors of 512 bits may be stored to."""
    block = np.zeros(count + 8, np.int64)
    return block[(-block.ctypes.data % 64) // 8 :][:count]


WIDTHS = [bits for bits in (128, 256, 512) if bits <= HOST.vector_bits]


class TestProbes:
    @pytest.mark.parametrize("bits", WIDTHS)
    def test_reading_visits_all_of_the_buffer_in_every_round(self, bits: int) -> None:
        compiled = Compiled(probes.read(bits), HOST)
        groups, words = 3, 3 * compiled.per_turn // 8
        data, out = aligned(words), aligned(words)
        data[:] = 1 << (np.arange(words) % 63)
        compiled(data.ctypes.data, out.ctypes.data, groups, 2)
        expected = np.bitwise_or.reduce(data.reshape(groups, -1), axis=0)
        np.testing.assert_array_equal(out[: words // groups], expected)

    @pytest.mark.parametrize("bits", WIDTHS)
    @pytest.mark.parametrize("streaming", [False, True])
    def test_copying_copies_exactly_the_buffer(self, streaming: bool, bits: int) -> None:
        compiled = Compiled(probes.copy(bits, streaming), HOST)
        groups, words = 5, 5 * compiled.per_turn // 16
        source, copied = aligned(words), aligned(words + 8)
        source[:], copied[words:] = np.arange(words), -1
        compiled(source.ctypes.data, copied.ctypes.data, groups, 3)
        np.testing.assert_array_equal(copied[:words], source)
        assert (copied[words:] == -1).all()

    def test_chasing_follows_addresses(self) -> None:
        compiled, out = Compiled(probes.chase(), HOST), aligned(8)
        ring = aligned(7)
        ring[:] = ring.ctypes.data + 8 * ((np.arange(7) + 3) % 7)
        compiled(ring.ctypes.data, out.ctypes.data, 0, 2)
        assert out[0] == ring.ctypes.data + 8 * (3 * 2 * probes.CHASE_LOADS % 7)

    def test_sums_are_what_the_arithmetic_gives(self) -> None:
        lanes = HOST.vector_bits // 32
        compiled = Compiled(probes.multiply_add("f32", HOST.vector_bits), HOST)
        out = np.zeros(probes.ACCUMULATORS * lanes, np.float32)
        compiled(out.ctypes.data, out.ctypes.data, 0, 3)
        # x -> x / 2 + i, three times from zero.
        expected = np.repeat(np.arange(probes.ACCUMULATORS) * 1.75, lanes)
        np.testing.assert_array_equal(out, expected)
        assert compiled.per_turn == 2 * probes.ACCUMULATORS * lanes

    @pytest.mark.skipif("avx512vnni" not in HOST.cpu_features, reason="needs AVX512-VNNI")
    def test_dot_products_of_bytes_count(self) -> None:
        out = np.zeros(probes.ACCUMULATORS * 16, np.int32)
        Compiled(probes.dot_product("i8"), HOST)(out.ctypes.data, out.ctypes.data, 0, 5)
        assert (out == 4 * 5).all()

    @pytest.mark.skipif("avx512bf16" not in HOST.cpu_features, reason="needs AVX512-BF16")
    def test_dot_products_of_bf16_count(self) -> None:
        out = np.zeros(probes.ACCUMULATORS * 16, np.float32)
        Compiled(probes.dot_product("bf16"), HOST)(out.ctypes.data, out.ctypes.data, 0, 5)
        assert (out == 2 * 5).all()

    def test_a_machine_with_tiles_multiplies_them(self) -> None:
        target = resolve("sapphire-rapids")
        found = probes.arithmetic(target)
        assert {instruction for _, instruction in found} == {
            "multiply-add", "vdpbf16ps", "vpdpbusd", "tdpbf16ps", "tdpbssd",
        }  # fmt: skip
        machine = probes.machine_of(target)
        text = machine.emit_assembly(llvm.parse_assembly(found["bf16", "tdpbf16ps"].text))
        assert text.count("tdpbf16ps") == 4 and text.count("tilezero") == 8
        assert found["bf16", "tdpbf16ps"].per_turn == 4 * 2 * 16 * 16 * 32
        assert len(probes.TILE_CONFIGURATION) == 64
        # Every tile has 64 bytes a row (16-bit fields from byte 16) and 16 rows (bytes from 48).
        assert probes.TILE_CONFIGURATION[16:32] == b"\x40\x00" * 8
        assert probes.TILE_CONFIGURATION[48:56] == b"\x10" * 8

    def test_only_what_the_machine_has_is_probed(self) -> None:
        assert {dtype for dtype, _ in probes.arithmetic(resolve("x86-64-v3"))} == {"f32", "f64"}


def test_a_quick_measurement_is_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_target, "RUN_S", 0.001)
    monkeypatch.setattr(measure_target, "_dram_bytes", lambda target: 32 << 20)
    said: list[str] = []
    # The best of several: one run of a millisecond may be spent waiting on a busy machine.
    found = measure_target.measure(HOST, said.append, rounds=5)
    assert set(found.levels) == {level.name for level in HOST.memory[:-1]}
    assert {"f32", "f64"} <= set(found.peaks)
    for rates in found.levels.values():
        assert rates.read_core_gbps > 0.1 and rates.copy_core_gbps > 0.1 and rates.latency_ns > 0.1
    assert found.peaks["f32"].core_gflops > found.peaks["f64"].core_gflops
    assert any("DRAM" in text for text in said) and said[-1] == "cost of a parallel step"
    assert Measurements.from_json(json.loads(json.dumps(found.to_json()))) == found


class TestApplying:
    def test_takes_measured_rates_and_leaves_the_rest(self) -> None:
        target = target_measurements.apply(HOST, FOUND)
        dram, l1 = target.level("DRAM"), target.level("L1")
        assert (dram.bandwidth_gbps, dram.core_gbps, dram.copy_gbps, dram.latency_ns) == (
            30.0,
            20.0,
            60.0,
            100.0,
        )
        assert l1.capacity_bytes == HOST.level("L1").capacity_bytes
        assert target.peak_gflops["f32"] == 200.0
        assert target.peak_gflops["f64"] == HOST.peak_gflops["f64"]
        assert (target.start_us, target.measured) == (0.5, FOUND.digest)
        assert target.clock_ghz == pytest.approx(100.0 / (2 * HOST.lanes_per_core), abs=1e-3)
        assert target.level("registers").bandwidth_gbps == 1200.0

    def test_keeps_memory_in_order_whatever_noise_says(self) -> None:
        slow = replace(FOUND, levels={**FOUND.levels, "L1": replace(RATES, read_gbps=1.0)})
        memory = target_measurements.apply(HOST, slow).memory
        assert [m.bandwidth_gbps for m in memory] == sorted(m.bandwidth_gbps for m in memory)

    def test_gives_a_target_that_reads_back(self) -> None:
        target = target_measurements.apply(HOST, FOUND)
        assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target


class TestKeeping:
    def test_cpu_is_nominal_until_it_was_measured_and_after_forgetting(self) -> None:
        assert resolve("cpu") == HOST and not resolve("cpu").measured
        target_measurements.store(HOST, FOUND)
        assert resolve("cpu") == target_measurements.apply(HOST, FOUND)
        assert target_measurements.forget(HOST)
        assert resolve("cpu") == HOST
        assert not target_measurements.forget(HOST)

    @pytest.mark.parametrize(
        "damage",
        [
            "",
            "[]",
            '{"version": 0}',
            json.dumps({**FOUND.to_json(), "start_us": -1}),
            json.dumps({**FOUND.to_json(), "levels": {"L1": {"read": 1}}}),
            json.dumps(
                {**FOUND.to_json(), "peaks": {"f32": {"instruction": "x", "core_gflops": "1", "gflops": 1}}}
            ),
        ],
    )
    def test_a_damaged_file_counts_as_none(self, damage: str) -> None:
        file = target_measurements.store(HOST, FOUND)
        file.write_text(damage)
        assert target_measurements.find(HOST) is None
        assert resolve("cpu") == HOST

    def test_another_machine_s_measurements_are_not_taken(self) -> None:
        target_measurements.store(HOST, FOUND)
        assert target_measurements.find(replace(HOST, num_cores=HOST.num_cores + 1)) is None
        assert target_measurements.find(replace(HOST, cpu_features=HOST.cpu_features[1:])) is None

    def test_every_number_counts_in_the_digest(self) -> None:
        assert FOUND.digest == replace(FOUND).digest
        assert FOUND.digest != replace(FOUND, start_us=0.6).digest

    def test_packages_of_a_measured_machine_are_others(self) -> None:
        from tilewright.compiler.cache import packages as package_cache
        from tilewright.compiler.ir import parse

        module = parse("func.func @main() { return }")
        before = package_cache.package_key(module, resolve("cpu"), {})
        target_measurements.store(HOST, FOUND)
        after = package_cache.package_key(module, resolve("cpu"), {})
        assert (before.model, before.options) == (after.model, after.options)
        assert before.target != after.target


class TestTheTool:
    def run(self, *arguments: str):
        return CliRunner().invoke(main, ["targets", *arguments])

    def test_measures_keeps_shows_and_forgets(self, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
        monkeypatch.setattr(measure_target, "measure", lambda target, say: say("DRAM") or FOUND)
        result = self.run("--measure")
        assert result.exit_code == 0, result.output
        assert list((own_cache / "targets").glob("*.json"))
        assert "60 GB/s" in result.output and FOUND.digest in result.output
        assert json.loads(self.run("cpu", "--json").output)["cpu"]["measured"] == FOUND.digest
        assert "measured" in self.run("cpu").output
        assert "dropped" in self.run("--forget").output
        assert "no measurements" in self.run("--forget").output
        assert "as measured" not in self.run("cpu").output

    @pytest.mark.parametrize("arguments", [("--measure", "--forget"), ("--measure", "v100")])
    def test_what_makes_no_sense_is_refused(self, arguments: tuple[str, ...]) -> None:
        assert self.run(*arguments).exit_code == 2

    def test_an_interrupted_measurement_leaves_nothing(
        self, monkeypatch: pytest.MonkeyPatch, own_cache: Path
    ) -> None:
        def stopped(target, say):
            raise KeyboardInterrupt

        monkeypatch.setattr(measure_target, "measure", stopped)
        assert self.run("--measure").exit_code == 1
        assert not list(own_cache.rglob("*.json"))

    def test_a_folder_that_cannot_be_written_is_named(
        self, monkeypatch: pytest.MonkeyPatch, own_cache: Path
    ) -> None:
        own_cache.mkdir()
        (own_cache / "targets").write_text("in the way")
        monkeypatch.setattr(measure_target, "measure", lambda target, say: FOUND)
        result = self.run("--measure")
        assert result.exit_code == 1 and "TILEWRIGHT_CACHE_DIR" in result.output
