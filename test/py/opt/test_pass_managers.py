"""Pass managers of upstream pipelines are kept: used again, by one thread at a time, and not after a failure."""

from __future__ import annotations

import threading

import pytest

from tilewright.compiler import ir as door
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import parse, run_upstream

TWICE = "func.func @f(%x: i32) -> i32 {{ %a = arith.addi %x, %x : i32 {0} %b = arith.addi %x, %x : i32 %c = arith.muli %a, %b : i32 return %c : i32 }}"
UNKNOWN = """func.func @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "no.such"(%x) : (tensor<4xf32>) -> tensor<4xf32> return %y : tensor<4xf32> }"""


def sums(module) -> int:
    return str(module).count("arith.addi")


def test_one_manager_runs_on_many_modules():
    pipeline = "builtin.module(canonicalize,cse)"
    found = []
    for _ in range(3):
        module = parse(TWICE.format(""))
        run_upstream(module.operation, pipeline)
        found.append(sums(module))
    assert found == [1, 1, 1]
    assert (pipeline, True) in door._managers.kept


def test_a_manager_that_failed_is_not_used_again():
    pipeline = (
        "builtin.module(one-shot-bufferize{allow-unknown-ops=false bufferize-function-boundaries=true})"
    )
    for _ in range(2):
        with pytest.raises(PassError):
            run_upstream(parse(UNKNOWN).operation, pipeline)
        assert (pipeline, True) not in door._managers.kept
        module = parse(
            UNKNOWN.replace('"no.such"(%x)', "tensor.cast %x").replace(
                "(tensor<4xf32>) ->", "tensor<4xf32> to"
            )
        )
        run_upstream(module.operation, pipeline)
        assert "memref" in str(module)
        assert (pipeline, True) in door._managers.kept


def test_threads_have_managers_of_their_own():
    failures: list[BaseException] = []

    def body() -> None:
        try:
            for _ in range(20):
                module = parse(TWICE.format(""))
                run_upstream(module.operation, "builtin.module(cse)")
                assert sums(module) == 1
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=body) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
