"""The kernel profiler drops candidates that crash, hang or are wrong, and keeps the best."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiled_dispatch import MODEL, UNROLL, decide, options, schedule_of

from tilewright.compiler import driver, phases
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.options import check_options
from tilewright.compiler.profiler.comparison import difference, tolerance
from tilewright.compiler.profiler.processes import Child, ChildLost, MeasuringChild
from tilewright.compiler.profiler.selection import (
    COMPILING,
    profile,
)
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


@pytest.mark.parametrize(
    "deed, why",
    [
        ("crash", "died of signal 11"),
        ("hang", "no answer within 3 s"),
        ("wrong", "wrong result: an element is off by"),
        ("part", "wrong result: other elements are infinite or not a number"),
        ("nan", "wrong result: other elements are infinite or not a number"),
        ("outside", "it wrote outside of its buffers"),
        ("changes its operand", "it changed what it reads"),
        ("compiler dies", "died of signal 6"),
        ("compiler refuses", "no such tile"),
    ],
)
def test_a_bad_candidate_is_dropped_and_the_rest_measured(deed, why):
    decision, _, _ = decide([deed, "fine"])
    first, bad, fine = decision.candidates
    assert why in bad.error
    assert bad.time_us is None
    assert first.time_us is not None and fine.time_us is not None
    assert decision.chosen in (0, 2)


def test_a_compiler_that_hangs_is_given_up():
    started = time.monotonic()
    decision, _, _ = decide(["compiler hangs", "fine"], compile_timeout_s=5)
    assert "took longer than 5 s" in decision.candidates[1].error
    assert decision.candidates[2].time_us is not None
    assert time.monotonic() - started < 60


def test_several_bad_candidates_leave_the_first():
    decision, _, module = decide(["crash", "wrong", "crash"])
    assert decision.chosen == 0
    assert all(candidate.error for candidate in decision.candidates[1:])
    assert schedule_of(module) == Schedule()


def test_a_first_candidate_that_fails_leaves_nothing_to_trust():
    module = parse(MODEL.replace("{tile = []}", f"{{tile = [], unroll = {UNROLL['crash']}}}"))
    bad = Candidate(Schedule(unroll=UNROLL["crash"]), 1.0, "compute")
    fine = Candidate(Schedule(), 1.0, "compute")
    with module.context, ir.Location.unknown(module.context):
        decisions = profile(module, resolve("cpu"), lambda f: [bad, fine], options())
    assert decisions["double"].chosen == 0
    assert all(candidate.time_us is None for candidate in decisions["double"].candidates)


def test_the_fastest_is_kept():
    slow = parse(MODEL.replace("{tile = []}", f"{{tile = [], unroll = {UNROLL['slow']}}}"))
    candidates = [
        Candidate(Schedule(unroll=UNROLL["slow"]), 9.0, "L1"),
        Candidate(Schedule(), 1.0, "compute"),
    ]
    with slow.context, ir.Location.unknown(slow.context):
        decisions = profile(slow, resolve("cpu"), lambda f: candidates, options())
    decision = decisions["double"]
    assert decision.chosen == 1
    times = [candidate.time_us for candidate in decision.candidates]
    assert times[0] > times[1]
    assert schedule_of(slow) == Schedule()
    function = next(f for f in functions(slow) if "tilewright.operator" in f.attributes)
    assert schedule_attribute.read_prediction(function) == (1.0, "compute")


def test_a_schedule_written_by_hand_is_left_alone():
    module = parse(MODEL.replace("{tile = []}", "{tile = [8]}"))
    with module.context, ir.Location.unknown(module.context):
        found = profile(
            module,
            resolve("cpu"),
            lambda f: [Candidate(Schedule(), 1.0, ""), Candidate(Schedule(unroll=1000), 1.0, "")],
            options(),
        )
    assert found == {}
    assert schedule_of(module) == Schedule((8,))


def test_a_child_that_ends_is_told_apart():
    child = Child("tilewright.no_such_module")
    with pytest.raises(ChildLost, match=r"ended with status 1: .*no_such_module"):
        child.receive(20.0)
    child.stop()
    bench = MeasuringChild("tilewright.compiler.profiler.measure")
    assert bench.get() is bench.get()
    bench.stop()


@settings(deadline=None)
@given(
    st.integers(1, 2000), st.sampled_from(["f32", "f16", "bf16", "f64"]), st.randoms(use_true_random=False)
)
def test_orders_of_summation_agree_and_other_results_do_not(steps, dtype, random):
    """Sums forwards and backwards, in the precision itself, are the same result; one more term is another."""
    kept = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.float32}[dtype]
    rng = np.random.default_rng(random.randint(0, 2**32))
    terms = rng.uniform(-1, 1, (64, steps)).astype(kept)
    forwards, backwards = (np.add.accumulate(t, axis=1)[:, -1] for t in (terms, terms[:, ::-1]))
    assert difference(backwards, forwards, dtype, steps) is None
    if tolerance(dtype, steps) < 0.01:
        other = forwards + kept(1.0 + np.sqrt(steps))
        assert difference(other, forwards, dtype, steps) is not None


def test_integers_and_infinities_are_compared_exactly():
    assert difference(np.array([1, 2]), np.array([1, 3]), "i32", 1) == "1 of 2 elements differ"
    assert difference(np.array([1, 3]), np.array([1, 3]), "i32", 1) is None
    infinite = np.array([np.inf, 1.0], np.float32)
    assert difference(infinite, infinite, "f32", 1) is None
    assert difference(-infinite, infinite, "f32", 1) == "infinite elements differ"
    nan = np.array([np.nan, 1.0], np.float32)
    assert difference(nan, nan, "f32", 1) is None


class TestOptions:
    def test_o1_is_taken(self, recwarn):
        assert check_options({"opt": "O1"})["opt"] == "O1"
        assert not recwarn.list

    def test_an_unknown_level_is_refused(self):
        with pytest.raises(TilewrightError, match="opt: expected one of O0, O1, O2, O3, found `O4`"):
            check_options({"opt": "O4"})


def test_filters_with_their_transforms_are_made_consistent():
    """Whole blocks of filters go through Winograd's transforms, half ones do not: random filters must suit both."""
    torch = pytest.importorskip("torch")
    target = resolve("cpu")
    torch.manual_seed(0)
    model = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).eval()
    module = driver.import_model(model, (torch.randn(1, 64, 28, 28),)).module
    phases.run_phases(module, target, "graph", "dispatch")
    tiles = [(0, 0, 0, 0), (0, 32, 0, 0), (0, 16, 0, 0), (0, 16, 7, 0)]
    candidates = [Candidate(Schedule(tile), 1.0, "compute") for tile in tiles]
    with module.context, ir.Location.unknown(module.context):
        for function in functions(module):
            if "tilewright.operator" in function.attributes:
                schedule_attribute.write(function, Schedule(tiles[0]))

        def candidates_of(function: ir.Operation) -> list[Candidate]:
            return candidates if "conv" in str(function.attributes["tilewright.operator"]) else []

        (decision,) = profile(module, target, candidates_of, options(compiling=COMPILING)).values()
    assert [candidate.error for candidate in decision.candidates] == [""] * len(tiles)
