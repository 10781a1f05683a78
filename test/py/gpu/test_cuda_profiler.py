"""The profiler on a GPU: measured in processes that survive what kernels do to them, here with the mock driver."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.compiler import driver
from tilewright.compiler.codegen import lower_cpu as lower
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.candidate_bench import MEASURING_ON_GPU
from tilewright.compiler.profiler.compile import compile_candidate
from tilewright.compiler.profiler.decisions import Decision
from tilewright.compiler.profiler.kernel_messages import from_message, object_digest, to_message
from tilewright.compiler.profiler.selection import ProfilerOptions, profile
from tilewright.compiler.targets.host import processor
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.runtime.program import Kernel, Launch, TensorMap

TEXT = """
func.func @main(%x: tensor<64xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<64xf32> {
  %r = call @double(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}
func.func private @double(%x: tensor<64xf32>) -> tensor<64xf32>
    attributes {tilewright.operator = "elementwise", tilewright.schedule = {tile = []}} {
  %e = tensor.empty() : tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""), *sys.path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def decide(unrolls: list[int], first: int = 0, **changed) -> Decision:
    """The decision about a first candidate and others, each of which does what its `unroll` says."""
    module = parse(
        TEXT.replace("{tile = []}", f"{{tile = [], unroll = {first}}}" if first else "{tile = []}")
    )
    candidates = [Candidate(Schedule(unroll=unroll), 1.0, "DRAM") for unroll in (first, *unrolls)]
    options = ProfilerOptions(
        **{
            "seconds": 0.05,
            "run_timeout_s": 8.0,
            "compiling": "mock_candidates:compile_candidate",
            "measuring": MEASURING_ON_GPU,
            "device": "mock",
            **changed,
        }
    )
    with module.context, ir.Location.unknown(module.context):
        decided = profile(module, resolve("cuda:sm_90a"), lambda function: candidates, options)
        used = next(
            schedule_attribute.read(f) for f in functions(module) if "double" in str(f.attributes["sym_name"])
        )
    assert used == decided["double"].schedule
    return decided["double"]


def test_the_fastest_by_the_devices_clock_is_kept(mock):
    decision = decide([1, 2])
    assert decision.chosen == 1
    assert [round(c.time_us) for c in decision.candidates] == [50, 10, 30]
    assert decide([1, 2]) == decision  # and nothing is measured twice


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        (3, "wrong result: an element is off by"),
        (4, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (5, "no answer within 4 s"),
        (6, "died of signal 6"),
        (7, "it wrote outside of its buffers"),
        (8, "too large (main step 0, kernel `candidate1`)"),
        (9, "it needs 400000 B of shared memory, this device has 232448 B"),
    ],
)
def test_a_bad_candidate_costs_nothing_but_itself(mock, deed, why):
    decision = decide([deed, 1], **({"run_timeout_s": 4.0} if deed == 5 else {}))
    first, bad, fine = decision.candidates
    assert why in bad.error
    assert bad.time_us is None
    assert (round(first.time_us), round(fine.time_us)) == (50, 10)
    assert decision.chosen == 2


def test_a_first_candidate_that_faults_is_kept_unmeasured(mock):
    decision = decide([1], first=4)
    assert decision.chosen == 0
    assert all(candidate.time_us is None for candidate in decision.candidates)


def test_decisions_belong_to_a_device(mock):
    assert decide([1]).chosen == 1
    assert (
        decide([1], device="another", compiling="nowhere").candidates[1].error == ""
    )  # its kernels are cached


def test_objects_are_told_apart_by_code_and_launch_but_not_by_name():
    """A kernel's symbol holds a hash of the compiler, and PTX beside machine code is not what runs."""
    launch = Launch("cubin", 6, 64, ptx=b"ptx of kernel_1234")
    kernel = Kernel("k", "kernel_1234", b"code of kernel_1234", 0, launch=launch)
    renamed = replace(
        kernel,
        name="another",
        symbol="kernel_5678",
        object=b"code of kernel_5678",
        launch=replace(launch, ptx=b"ptx of kernel_5678"),
    )
    assert object_digest(kernel, 6) == object_digest(renamed, 6)
    # How many rTasks its blocks do is in a kernel's code.
    counted = replace(kernel, launch=replace(launch, rtasks=9))
    assert object_digest(kernel, 6) == object_digest(counted, 9)
    plain = replace(kernel, launch=None)
    assert object_digest(plain, 6) != object_digest(plain, 7)
    others = [
        object_digest(replace(kernel, launch=replace(launch, grid=7)), 7),
        object_digest(replace(kernel, object=b"other code"), 6),
        object_digest(replace(kernel, scratch_bytes=64), 6),
        object_digest(replace(kernel, launch=replace(launch, block=128)), 6),
        object_digest(plain, 6),
    ]
    assert len({object_digest(kernel, 6), *others}) == 6


def test_an_edit_of_the_compiler_keeps_the_objects_of_gpus(monkeypatch):
    """What another version of the compiler makes of the same dispatch is called differently, and is the same."""
    target = resolve("cuda:sm_80")
    module = parse(TEXT)
    with module.context:
        text = next(str(f) for f in functions(module) if "double" in str(f.attributes["sym_name"]))
    made = compile_candidate(text, Schedule().as_dict(), target)
    monkeypatch.setattr(lower, "compiler_digest", lambda: "edited")
    again = compile_candidate(text, Schedule().as_dict(), target)
    assert made.kernel.symbol != again.kernel.symbol
    assert object_digest(made.kernel, made.tasks) == object_digest(again.kernel, again.tasks)


def test_kernels_travel_whole():
    launch = Launch(
        "cubin",
        6,
        64,
        2,
        64,
        128,
        64,
        True,
        (TensorMap(0, "f16", (72, 33), (144,), (64, 16), 128),),
        8,
        4,
        b"ptx",
        rtasks=9,
    )
    kernel = Kernel("k", "symbol", b"\x00code", 0, ("text",), launch)
    assert from_message("k", to_message(kernel, 6)) == kernel
    plain = replace(kernel, launch=None, scratch_bytes=64)
    assert from_message("k", to_message(plain, 6)) == plain


def test_candidates_for_gpus_are_compiled():
    module = parse(TEXT)
    with module.context:
        text = next(str(f) for f in functions(module) if "double" in str(f.attributes["sym_name"]))
    made = compile_candidate(text, Schedule().as_dict(), resolve("cuda:sm_80"))
    kernel = made.kernel
    assert kernel.launch is not None
    assert kernel.launch.image in ("cubin", "ptx")
    assert kernel.launch.grid == made.tasks
    assert b".target sm_80" in (kernel.launch.ptx or kernel.object)


class TestOptions:
    def test_name_the_device_that_measures(self, mock):
        mock.device(0, "NVIDIA A100", major=8)
        mock.device(1, "NVIDIA H200")
        found = driver.profiler_options(resolve("cuda:sm_90a"))
        assert found is not None
        assert (found.measuring, found.device, found.device_index) == (
            MEASURING_ON_GPU, "NVIDIA H200, driver for CUDA 12.8", 1
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("target", "why"),
        [
            ("cuda:sm_80", "no GPU here runs sm_80"),
            ("emulate:sm_90a", "the emulator's times are not a GPU's"),
        ],
    )
    def test_say_when_nothing_measures(self, mock, target, why):
        mock.device(major=7, minor=0)
        with pytest.warns(UserWarning, match=f"opt O1: {why}; the constructed schedules are kept unmeasured"):
            assert driver.profiler_options(resolve(target)) is None

    def test_of_cpus_name_the_processor(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = driver.profiler_options(resolve("cpu"))
        assert found is not None
        assert (found.device, found.measuring) == (processor(), ProfilerOptions().measuring)
