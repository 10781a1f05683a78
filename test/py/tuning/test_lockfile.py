"""Lockfiles: what is read back, what is refused, and that a file is whole or not there."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from fuzz.damaged_json import damaged

from tilewright.compiler.errors import LockError
from tilewright.compiler.nouns.schedule import Reduction, Schedule
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.lockfile import Lock, Locked, LockedProgram

KEY = "0123456789abcdef" * 4
LOCK = Lock(
    resolve("x86-64-v3"),
    "0.1.0+abc",
    {
        KEY: Locked("matmul", Schedule((4, 0), reductions=(Reduction("products", (4, 16)),)), 8.5, 10.25),
        KEY[::-1]: Locked("softmax", Schedule((0, 16), stream=True)),
    },
    {"conv2d_3.algorithm": "winograd4", "matmul_2.block": 32},
    LockedProgram("3 of 8 changes", 1.042),
)


def test_a_lock_is_read_back_from_its_text() -> None:
    assert Lock.from_text(LOCK.to_text()) == LOCK
    assert Lock.from_text(LOCK.to_text()).to_text() == LOCK.to_text()


def test_equal_locks_have_the_same_text_in_whatever_order_they_were_made() -> None:
    turned = Lock(
        LOCK.target,
        LOCK.compiler,
        dict(reversed(LOCK.dispatches.items())),
        dict(reversed(LOCK.choices.items())),
        LOCK.program,
    )
    assert turned.to_text() == LOCK.to_text()


def changed(path: tuple[str, ...], value: object) -> str:
    """The lock's text with another value at a path, or without that field where the value is `...`."""
    values = json.loads(LOCK.to_text())
    place = values
    for name in path[:-1]:
        place = place[name]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(values)


def test_locks_that_mean_something_else_are_refused_or_read() -> None:
    """What is read is written and read again; all else is a LockError that names its source."""
    values, read, refused = json.loads(LOCK.to_text()), 0, 0
    for seed in range(2000):
        text = json.dumps(damaged(values, random.Random(seed)))
        try:
            lock = Lock.from_text(text, "here")
        except LockError as error:
            assert str(error).startswith("here: ")
            refused += 1
            continue
        assert Lock.from_text(lock.to_text()).to_text() == lock.to_text()
        read += 1
    assert read > 50 and refused > 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected JSON"),
        ("[]", "expected a JSON object"),
        ('{"kind": "tilewright-lock", "kind": 1}', "given twice"),
        (changed(("kind",), "other"), "expected a tilewright-lock of version 3"),
        (changed(("version",), 1), "expected a tilewright-lock of version 3"),
        (changed(("choices",), ...), "`choices` is missing"),
        (changed(("choices",), "/etc/passwd"), "choices: expected a dictionary"),
        (changed(("choices",), {"block": 16}), "expected operation.field"),
        (changed(("choices",), {"matmul_0.block": 1.5}), "matmul_0.block: expected a number or a word"),
        (changed(("program",), ...), "`program` is missing"),
        (changed(("program",), "searched"), "program: expected a dictionary"),
        (changed(("program", "why"), ...), "program: `why` is missing"),
        (changed(("program", "used"), None), "program.used: expected a string"),
        (changed(("program", "gain"), 0), "program.gain: expected a number > 0 or null"),
        (changed(("program", "gain"), True), "program.gain: expected a number > 0 or null"),
        (changed(("compiler",), 3), "compiler: expected a string"),
        (changed(("compiler",), ...), "`compiler` is missing"),
        (changed(("more",), 1), "`more` is no field of it"),
        (changed(("target", "num_cores"), 0), "num_cores"),
        (changed(("dispatches",), []), "dispatches: expected a dictionary"),
        (changed(("dispatches", "abc"), {}), "expected the key of a workload"),
        (changed(("dispatches", KEY), 7), "expected a dictionary with a name"),
        (changed(("dispatches", KEY, "us"), -1), "us: expected microseconds > 0 or null"),
        (changed(("dispatches", KEY, "us"), True), "us: expected microseconds > 0 or null"),
        (changed(("dispatches", KEY, "constructed_us"), ...), "`constructed_us` is missing"),
        (changed(("dispatches", KEY, "schedule"), []), "schedule: expected a dictionary"),
        (changed(("dispatches", KEY, "schedule", "tile"), [-1]), "tile is a list of integers >= 0"),
    ],
)
def test_what_is_no_lock_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(LockError, match="somewhere: ") as refusal:
        Lock.from_text(text, "somewhere")
    assert said in str(refusal.value)


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "model.tune.lock"
    LOCK.write(path)
    assert Lock.read(path) == LOCK
    assert [file.name for file in tmp_path.iterdir()] == ["model.tune.lock"]
    with pytest.raises(LockError, match="cannot write the lockfile"):
        LOCK.write(tmp_path / "nowhere" / "model.tune.lock")
    with pytest.raises(LockError, match="cannot read the lockfile"):
        Lock.read(tmp_path / "absent")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(LockError, match="cannot read the lockfile"):
        Lock.read(tmp_path / "bytes")
