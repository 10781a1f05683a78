"""The fuzzer's processes: those that die or hang are replaced, and what ends a compile worker is a failure."""

from __future__ import annotations

import itertools
import time
import warnings

import pytest
from fuzz import execution, pool
from fuzz.outcome import Outcome
from fuzz.pool import Worker
from fuzz.program import Program, Statement
from fuzz.tensors import Tensor

from tilewright.compiler.errors import CompilerCrashError, UnsupportedError, UnsupportedOperator
from tilewright.compiler.torch import fallback


def program(line: str, *others: str) -> Program:
    """A program of one tensor and of lines `v0 = ...`, returning what the last one makes."""
    parts = [text.partition(" = ") for text in (line, *others)]
    statements = tuple(Statement((target,), source, "once") for target, _, source in parts)
    return Program(1, (Tensor("x0", (3, 4), "float32", "normal"),), (), statements, (parts[-1][0],))


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


class TestProcesses:
    def test_run_programs(self, worker: Worker) -> None:
        assert worker.run(program("v0 = x0.exp()")).kind == "ok"

    def test_that_die_are_replaced(self, worker: Worker) -> None:
        made = program("v0 = x0.exp()", "v1 = __import__('os').abort()")
        assert worker.run(made) == Outcome("crash", "SIGABRT")
        assert worker.run(program("v0 = x0.exp()")).kind == "ok"

    def test_that_hang_are_replaced(self, worker: Worker) -> None:
        worker.send(program("v0 = __import__('time').sleep(60)"), 0.5)
        assert worker.receive().kind == "hang"
        assert worker.run(program("v0 = x0.exp()")).kind == "ok"

    def test_that_hang_beside_others_are_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hanging = program("v0 = __import__('time').sleep(600)")
        send, until = pool.Worker.send, time.monotonic() + 10
        monkeypatch.setattr(
            pool.Worker, "send", lambda worker, made: send(worker, made, 5.0 if made is hanging else 600.0)
        )
        short = program("v0 = x0.exp()")
        shorts = itertools.takewhile(lambda _: time.monotonic() < until, itertools.repeat(short))
        kinds = [outcome.kind for _, outcome in pool.outcomes(itertools.chain([hanging], shorts), 2)]
        assert kinds.count("hang") == 1
        assert kinds[-1] != "hang"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("torch-mlir has no lowering of it for these types", "refused"),
        (str(CompilerCrashError("the import of aten.mm.default", "died of signal 11 (SIGSEGV)")), "internal"),
    ],
)
def test_an_operator_that_ends_its_worker_is_no_refusal(reason: str, kind: str) -> None:
    made = program("v0 = x0.exp()")
    operator = UnsupportedOperator("aten.mm.default", reason)
    assert execution.raised(made, UnsupportedError([operator])).kind == kind
    fallback._reported.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fallback.warn([operator])
    outcome = execution.fallen_back(caught)
    assert outcome is not None
    assert outcome.kind == kind
