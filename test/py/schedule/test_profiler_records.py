"""The profiler measures what is not on record and nothing else, and a store that fails costs a compilation nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from profiled_dispatch import MODEL, UNROLL, decide, recorded, sittings

from tilewright.compiler.codegen import lower_cpu as lower
from tilewright.compiler.errors import RecordError
from tilewright.compiler.ir import functions
from tilewright.compiler.profiler import recording, selection
from tilewright.compiler.profiler.recording import record_path
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.record_store import RecordStore


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


def test_nothing_is_measured_or_compiled_twice():
    first, said, _ = decide(["slow", "wrong", "crash", "compiler refuses"])
    assert any("measuring" in text for text in said)
    kept = recorded()
    again, said, _ = decide(
        ["slow", "wrong", "crash", "compiler refuses"],
        measuring="no.such.module",
        compiling="no.such:function",
    )
    assert again == first
    assert said == []
    assert recorded() == kept


def test_a_new_candidate_is_measured_alone():
    decide(["slow"])
    before = recorded()
    decision, said, _ = decide(["slow", "wrong", "fine"])
    assert any("measuring" in text for text in said)
    assert [bool(candidate.error) for candidate in decision.candidates] == [False, False, True, False]
    added = [record for record in recorded() if record not in before]
    assert {record.read_schedule().unroll for record in added if record.error} == {UNROLL["wrong"]}
    assert UNROLL["slow"] not in {record.read_schedule().unroll for record in added}


def test_records_go_to_the_store_that_is_given():
    """A benchmark measures everything anew, and leaves what is kept alone."""
    decide(["fine"])
    kept = recorded()
    with RecordStore(None) as store:
        _, said, _ = decide(["fine"], store=store)
        assert any("measuring" in text for text in said)
        assert {record.object for record in store.find()} == {record.object for record in kept}
        _, said, _ = decide(["fine"], store=store)
        assert said == []
    assert recorded() == kept


def test_records_count_whose_schedules_are_no_longer_known():
    """Another version of the compiler may have other fields; the object is what was measured."""
    first, _, _ = decide(["fine", "wrong", "compiler refuses"])
    with RecordStore(None) as store:
        store.append([replace(record, schedule='{"colour": "red"}') for record in recorded()])
        again, _, _ = decide(["fine", "wrong", "compiler refuses"], store=store, measuring="no.such.module")
    assert again == first


def test_equal_objects_are_measured_once():
    """What `DEEDS` does not name gives the first candidate's kernel."""
    decision, _, _ = decide(["as the first", "fine", "fine"])
    race, *duel = sittings(recorded())
    assert race == {0, UNROLL["fine"]}
    assert duel in ([], [race])
    assert len(recorded()) == 2 * (1 + len(duel))
    times = [candidate.time_us for candidate in decision.candidates]
    assert times[0] == times[1] and times[2] == times[3]


def test_failures_are_records():
    deeds = ["crash", "wrong", "compiler refuses", "compiler dies"]
    decide(deeds)
    errors = {record.read_schedule().unroll: record for record in recorded() if record.error}
    assert set(errors) == {UNROLL[deed] for deed in deeds}
    assert "signal 11" in errors[UNROLL["crash"]].error
    assert "wrong result" in errors[UNROLL["wrong"]].error
    assert all(bool(errors[UNROLL[deed]].object) == ("compiler" not in deed) for deed in deeds)


@pytest.fixture
def edit(monkeypatch):
    """Makes the profiler believe that the compiler's sources have changed."""

    def edited(name: str = "edited") -> None:
        monkeypatch.setattr(selection, "code_key", lambda target: name)
        for module in (selection, recording):
            monkeypatch.setattr(module, "compiler_version", lambda: name)
        plain = lower.kernel_key
        monkeypatch.setattr(selection, "kernel_key", lambda function, target: name + plain(function, target))

    return edited


def test_an_edit_of_the_compiler_keeps_what_it_does_not_change(edit):
    first, _, _ = decide(["slow", "wrong", "fine"])
    kept = recorded()
    edit()
    again, said, _ = decide(["slow", "wrong", "fine"], measuring="no.such.module")
    assert again == first
    assert set(said) == {"compiling candidates"}
    assert recorded() == kept


def test_an_edit_of_the_compiler_measures_what_it_changes(edit):
    """`slow` is a fine kernel now: it alone is measured, and what its old object took no longer counts."""
    before, _, _ = decide(["slow", "wrong"])
    kept = recorded()
    edit()
    after, _, _ = decide(["slow", "wrong"], compiling="failing_candidates:compile_better_candidate")
    assert after.candidates[1].time_us < before.candidates[1].time_us / 4
    assert after.candidates[2].error == before.candidates[2].error
    added = [record for record in recorded() if record not in kept]
    assert UNROLL["slow"] in {record.read_schedule().unroll for record in added}
    assert not any(record.error for record in added)
    assert {record.compiler for record in added} == {"edited"}


def test_another_compiler_may_compile_what_this_one_could_not(edit):
    before, _, _ = decide(["compiler refuses", "fine"])
    assert "no such tile" in before.candidates[1].error
    edit()
    after, _, _ = decide(
        ["compiler refuses", "fine"], compiling="failing_candidates:compile_better_candidate"
    )
    assert after.candidates[1].error == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"threads": 2},
        {"device": "another"},
        {"target": replace(resolve("cpu"), num_cores=9)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_records_belong_to_a_target_a_device_and_threads(changed):
    decide(["fine"])
    before = recorded()
    _, said, _ = decide(["fine"], **changed)
    assert any("measuring" in text for text in said)
    added = [record for record in recorded() if record not in before]
    keys = {(record.target, record.device, record.threads) for record in added}
    assert len(keys) == 1
    assert not keys & {(record.target, record.device, record.threads) for record in before}


def test_a_machine_that_was_measured_is_the_same_machine():
    decide(["fine"])
    cpu = resolve("cpu")
    measured = replace(
        cpu,
        name="mine",
        measured="abc",
        start_us=3.0,
        peak_gflops={**cpu.peak_gflops, "f32": 1.0},
        clock_ghz=9.0,
    )
    _, said, _ = decide(["fine"], target=measured)
    assert said == []


def test_weights_that_come_from_afar_are_another_measurement():
    """In a model whose weights are no longer in any cache, the same dispatch reads its own from memory."""
    weighty = MODEL.replace('"input", tilewright.name = "x"', '"weight", tilewright.name = "x"')
    beyond = max(level.capacity_bytes for level in resolve("cpu").memory[1:])
    other = weighty.replace(
        "@main(", f'@main(%w: tensor<{beyond}xf32> {{tilewright.role = "weight", tilewright.name = "w"}}, '
    )
    levels = []
    for text in (MODEL, weighty, other):
        before = recorded()
        _, said, _ = decide(["fine"], text=text)
        assert any("measuring" in text for text in said)
        levels.append({record.residence for record in recorded() if record not in before})
    assert levels == [{("",)}, {("L1",)}, {("DRAM",)}]


def test_a_measuring_process_that_does_not_start_is_no_kernels_failure():
    decision, _, _ = decide(["fine"], measuring="no.such.module")
    assert decision.chosen == 0
    assert "No module named" in decision.candidates[0].error
    assert recorded() == []
    decision, _, _ = decide(["fine"])
    assert all(candidate.time_us for candidate in decision.candidates)


@pytest.mark.parametrize("damage", [b"", b"no database" * 999, None], ids=["emptied", "overwritten", "torn"])
def test_a_damaged_store_does_not_stop_a_compilation(damage):
    first, _, _ = decide(["fine", "wrong"])
    path = record_path()
    data = path.read_bytes()
    damaged = data[: len(data) // 2 - 99] + b"\xa5" * 99 if damage is None else damage
    path.write_bytes(damaged)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again, said, _ = decide(["fine", "wrong"])
    assert said
    assert [c.schedule for c in again.candidates] == [c.schedule for c in first.candidates]
    assert "wrong result" in again.candidates[2].error
    if damage != b"":  # an empty file is a database without tables
        (told,) = {str(warning.message) for warning in caught}
        assert str(path) in told and "move the file away" in told and "is not kept" in told
        assert path.read_bytes() == damaged


def test_malformed_rows_are_told_of_and_kept():
    decide(["fine"])
    with closing(sqlite3.connect(record_path())) as connection, connection:
        connection.execute(
            "INSERT INTO records SELECT 'strange', workload, target, device, threads, object, '{}' FROM records LIMIT 1"
        )
    with pytest.warns(UserWarning, match="row `strange` is malformed"):
        _, said, _ = decide(["fine"])
    assert said == []
    with closing(sqlite3.connect(record_path())) as connection:
        assert connection.execute("SELECT record FROM records WHERE id = 'strange'").fetchone() == ("{}",)


def test_a_store_that_cannot_be_written_costs_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(recording, "record_path", lambda: tmp_path / "file" / "records.sqlite")
    with pytest.warns(UserWarning, match="TILEWRIGHT_CACHE_DIR.*is not kept"):
        decision, _, _ = decide(["fine"])
    assert all(candidate.time_us for candidate in decision.candidates)


@pytest.mark.parametrize(
    "end", ["raise KeyboardInterrupt", "os.kill(os.getpid(), 9)"], ids=["Ctrl-C", "killed"]
)
def test_interrupting_keeps_what_was_measured(end):
    """Ended while the second dispatch is measured: the next run goes on there."""
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import profiled_dispatch as t
from tilewright.compiler.ir import ir, parse
from tilewright.compiler.profiler.selection import profile
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.nouns.schedule import Schedule
two = t.MODEL.replace("  return %r : tensor<64xf32>", "  %s = call @again(%r) : (tensor<64xf32>) -> tensor<64xf32>\\n  return %s : tensor<64xf32>", 1)
private = two[two.index("func.func private"):].replace("@double", "@again").replace("arith.addf", "arith.mulf")
module = parse(two + private)
def say(done, total, text):
    print(text, flush=True)
    if text == "measuring again" and len(sys.argv) > 1:
        {end}
with module.context, ir.Location.unknown(module.context):
    candidates_of = lambda f: [Candidate(Schedule(), 1.0, ""), Candidate(Schedule(unroll=908), 1.0, "")]
    profile(module, t.resolve("cpu"), candidates_of, t.options(), say)
"""
    run = [sys.executable, "-c", script]
    first = subprocess.run([*run, "interrupt"], capture_output=True, text=True, timeout=120)
    assert first.returncode in (-2, -9)
    assert "measuring double" in first.stdout
    assert len({record.workload for record in recorded()}) == 1
    second = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stderr
    assert "measuring double" not in second.stdout
    assert "measuring again" in second.stdout


def test_equal_dispatches_of_a_model_are_measured_once():
    """The same work under two names, as where results lie at other strides that do not matter."""
    call = "%r = call @double(%x) : (tensor<64xf32>) -> tensor<64xf32>"
    again = call.replace("%r", "%s").replace("@double(%x)", "@again(%r)")
    other = MODEL[MODEL.index("func.func private") :].replace("@double", "@again")
    _, said, module = decide(
        ["fine"], text=MODEL.replace(call, f"{call}\n  {again}").replace("return %r", "return %s", 1) + other
    )
    assert [text for text in said if "measuring" in text] == ["measuring double", "measuring again"]
    race, *duel = sittings(recorded())
    assert race == {0, UNROLL["fine"]}
    assert duel in ([], [race])
    assert len({str(f.attributes["tilewright.schedule"]) for f in list(functions(module))[1:]}) == 1


def test_a_new_first_candidate_takes_turns_with_the_best_on_record(edit):
    """An edit makes the first candidate slow: the best of before is not timed alone, but in a duel with it."""
    decide(["fine"])
    kept = recorded()
    edit()
    decision, _, _ = decide(["fine"], compiling="failing_candidates:compile_slow_first_candidate")
    assert decision.chosen == 1
    added = [record for record in recorded() if record not in kept]
    assert sittings(added) == [{0}, {0, UNROLL["fine"]}]


def test_candidates_behind_the_best_on_record_are_given_up():
    """They beat the slow first one, but only the best of all is put to the test against that."""
    slow_first = {"compiling": "failing_candidates:compile_slow_first_candidate"}
    decide(["fine"], **slow_first)
    before = recorded()
    decision, _, _ = decide(["fine", "slowish", "as slow"], **slow_first)
    assert decision.chosen == 1
    added = [record for record in recorded() if record not in before]
    assert {record.read_schedule().unroll for record in added} == {UNROLL["slowish"], UNROLL["as slow"]}
    assert [len(record.rounds_us) for record in added] == [2, 2]


def test_a_store_that_fails_in_the_middle_costs_nothing_else(monkeypatch):
    """A disk that fills up while failures are recorded: told once, and the rest is decided from memory."""
    written = RecordStore.append
    calls = []

    def append(store, records, texts=()):
        calls.append(store.path)
        if store.path is not None and len(calls) > 1:
            raise RecordError("records in `here`: database or disk is full; make room")
        return written(store, records, texts)

    monkeypatch.setattr(RecordStore, "append", append)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decision, _, _ = decide(["compiler refuses", "wrong", "fine"])
    (told,) = {str(warning.message) for warning in caught}
    assert "disk is full; make room; what this compilation measures is not kept" in told
    assert [bool(candidate.time_us) for candidate in decision.candidates] == [True, False, False, True]


def test_a_model_at_o1_computes_the_same_and_is_measured_once():
    torch = pytest.importorskip("torch")
    import tilewright

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.ReLU(), torch.nn.Linear(160, 48)).eval()
    x = torch.randn(64, 96)
    compiled = tilewright.compile(model, (x,), opt="O1")
    assert torch.allclose(compiled(x), model(x), atol=1e-5)
    notes = compiled.executable.package.notes
    measured = [note for note in notes["dispatches"] if note["candidates"]]
    assert measured
    for note in measured:
        assert sum(choice["used"] for choice in note["candidates"]) == 1
    decided = tilewright.compile(torch.nn.Sequential(*model), (x.clone(),), opt="O1")
    assert torch.allclose(decided(x), model(x), atol=1e-5)
    kept = recorded()
    larger = torch.nn.Sequential(model, torch.nn.Flatten(0)).eval()
    compiled = tilewright.compile(larger, (x,), opt="O1")
    assert torch.allclose(compiled(x), larger(x), atol=1e-5)
    assert recorded() == kept
    plain = tilewright.compile(model, (x,), opt="O0")
    assert not any(note["candidates"] for note in plain.executable.package.notes["dispatches"])
