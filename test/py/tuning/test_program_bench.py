"""Whole programs in processes of their own: what they take is told, and what they do is data, whatever it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tilewright.compiler import driver
from tilewright.compiler.importers import Imported
from tilewright.compiler.options import check_options
from tilewright.compiler.profiler import program_bench
from tilewright.compiler.profiler.measure_program import difference
from tilewright.compiler.profiler.program_bench import NoReference, ProgramBench
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.errors import PackageError
from tilewright.runtime.program import Package, TensorSpec

FAULTY = "faulty_program"


def compiled(module: torch.nn.Module, *inputs: torch.Tensor) -> tuple[Package, Imported]:
    imported = driver.import_model(module, inputs)
    return driver.compile_package(imported.module, resolve("cpu"), check_options({})), imported


@pytest.fixture(scope="module")
def model() -> tuple[Package, Package, Imported]:
    """A program and, for what it is compared with, the same program by another way: a block of another size."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64)).eval()
    inputs = (torch.randn(33, 64),)
    package, imported = compiled(module, *inputs)
    again = driver.import_model(module, inputs)
    other = driver.compile_package(
        again.module, resolve("cpu"), check_options({"choices": {"matmul_0.block": 16}})
    )
    assert other.kernels != package.kernels
    return package, other, imported


@pytest.fixture(autouse=True)
def of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


def raced(model, monkeypatch: pytest.MonkeyPatch, faulty: str, **given):
    package, other, imported = model
    monkeypatch.setenv("FAULTY", faulty)
    with ProgramBench(package, imported.weights, 1, measuring=FAULTY, **given) as bench:
        monkeypatch.setattr(bench, "_run_s", 2.0)
        return bench.race(package, other)


def test_programs_take_turns_until_it_is_decided(model) -> None:
    package, other, imported = model
    with ProgramBench(package, imported.weights, 1) as bench:
        found = bench.race(package, other)
        folder = Path(bench._folder.name)
        assert folder.is_dir()
    assert not folder.exists()
    assert not found.error and 2 <= len(found.sittings) <= 8
    for sitting in found.sittings:
        assert len(sitting.before_us) == len(sitting.after_us) >= program_bench.LEAST
        assert min(*sitting.before_us, *sitting.after_us) > 0
    assert found.us is not None and found.gain is not None


def test_one_that_is_slower_by_far_is_found_so_from_either_side(model, monkeypatch) -> None:
    slower = raced(model, monkeypatch, "slow:program1")
    assert not slower.is_faster and slower.gain is not None and slower.gain < 0.9
    assert len(slower.sittings) == 2
    faster = raced(model, monkeypatch, "slow:program0")
    assert faster.is_faster and len(faster.sittings) == 8


@pytest.mark.parametrize(
    ("faulty", "error"),
    [
        ("crash:program1", "died of signal 11"),
        ("hang:program1", "no answer within 2 s"),
        ("wrong:program1", "wrong result 0: it is off by"),
        ("killed:program1", "its process died of signal 9"),
    ],
)
def test_what_a_program_does_is_data(model, monkeypatch, faulty: str, error: str) -> None:
    found = raced(model, monkeypatch, faulty)
    assert found.error.startswith(error) and found.gain is None and not found.is_faster


def test_a_process_that_somebody_ends_costs_a_sitting(model, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FAULTY_ONCE", str(tmp_path / "once"))
    found = raced(model, monkeypatch, "killed:program1")
    assert (tmp_path / "once").exists() and not found.error and found.gain is not None


def test_bits_are_compared_where_they_are_to_be_the_same(model) -> None:
    package, _, imported = model
    with ProgramBench(package, imported.weights, 1, exact=True) as bench:
        assert not bench.race(package, package).error
    spec = (TensorSpec("y", "f32", (4,)),)
    one = np.asarray([1.0, 2.0, 3.0, 4.0], np.float32)
    other_bits = [np.nextafter(one, 5.0, dtype=np.float32)]
    assert difference([one], other_bits, spec, exact=False) == ""
    assert difference([one], other_bits, spec, exact=True) == "wrong result 0: its bits are others"


@pytest.mark.parametrize(
    ("dtype", "found", "expected", "said"),
    [
        ("f32", [1.0, 2.0, 3.0], [1.0, 2.0, 3.001], ""),
        ("f32", [1.0, 2.0, 3.0], [1.0, 2.0, -3.0], "off by"),
        ("f32", [0.0, 0.0, 0.0], [0.0, 0.0, 1e-6], "off by"),
        ("f32", [0.0, 1e-9], [0.0, 0.0], "not 0 all over"),
        ("f32", [0.0, 0.0], [0.0, 0.0], ""),
        ("f32", [np.nan, 2.0], [np.nan, 2.0], ""),
        ("f32", [np.nan, np.inf], [np.nan, np.inf], ""),
        ("f32", [np.nan, 2.0], [1.0, 2.0], "infinite or not a number"),
        ("i64", [1, 2, 3], [1, 2, 4], "33% of its elements differ"),
        ("i64", [7] + [1] * 99, [8] + [1] * 99, ""),
        ("i1", [True, False], [True, True], "50% of its elements differ"),
        ("f32", [], [], ""),
    ],
)
def test_rounding_is_told_from_what_is_wrong(dtype: str, found: list, expected: list, said: str) -> None:
    kind = {"f32": np.float32, "i64": np.int64, "i1": np.bool_}[dtype]
    one, other = np.asarray(found, kind), np.asarray(expected, kind)
    reason = difference([one], [other], (TensorSpec("y", dtype, one.shape),), exact=False)
    assert said in reason and bool(reason) == bool(said)


class TestArguments:
    """They are drawn so that the constructed program takes them."""

    def drawn(self, module: torch.nn.Module, *inputs: torch.Tensor) -> dict:
        package, imported = compiled(module, *inputs)
        with ProgramBench(package, imported.weights, 1) as bench:
            assert not bench.race(package, package).error
            return bench._drawn["compute"]

    def test_places_in_a_table_lie_in_it(self) -> None:
        whole = torch.nn.Embedding(100, 8)
        assert self.drawn(whole, torch.tensor([3, 99]))["integers"] == [1, 4]
        assert self.drawn(torch.nn.Embedding(2, 8), torch.tensor([0, 1]))["integers"] == [1, 2]
        assert self.drawn(torch.nn.Embedding(1, 8), torch.tensor([0, 0]))["integers"] == [0, 1]

    def test_nothing_is_divided_by_0(self) -> None:
        class Divides(torch.nn.Module):
            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return x // y

        assert self.drawn(Divides(), torch.tensor([7, 9]), torch.tensor([2, 3]))["integers"] == [1, 4]

    def test_results_are_numbers_where_positive_arguments_make_them_so(self) -> None:
        class Roots(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.sqrt(x[:, 0] * x[:, 1] * x[:, 2]) + torch.sqrt(x[:, 3]) + torch.sqrt(x[:, 4])

        assert self.drawn(Roots(), torch.rand(64, 5))["positive"]
        assert not self.drawn(torch.nn.ReLU(), torch.rand(64, 5))["positive"]

    def test_a_model_that_takes_none_of_them_is_not_raced(self) -> None:
        class Both(torch.nn.Module):
            """Divides by what is a place in a table of one row."""

            def __init__(self) -> None:
                super().__init__()
                self.table = torch.nn.Embedding(1, 8)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.table(x) / (12 // (x + 0)).reshape(-1, 1)

        package, imported = compiled(Both(), torch.tensor([0, 0]))
        with pytest.raises(NoReference, match=r"does not run on random arguments: .*kernel"):
            ProgramBench(package, imported.weights, 1)

    def test_buffers_that_a_model_changes_are_arguments(self) -> None:
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).train()
        assert self.drawn(module, torch.randn(2, 3, 8, 8))

    def test_a_model_without_arguments_runs(self) -> None:
        class Constant(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(5, 3))

            def forward(self) -> torch.Tensor:
                return self.weight.exp()

        assert self.drawn(Constant())


def test_a_constructed_program_that_fails_leaves_nothing_to_compare_with(model, monkeypatch) -> None:
    package, _, imported = model
    monkeypatch.setenv("FAULTY", "crash:program0")
    with pytest.raises(NoReference, match="the constructed program failed: died of signal 11"):
        ProgramBench(package, imported.weights, 1, measuring=FAULTY)
    with pytest.raises(NoReference, match="No module named"):
        ProgramBench(package, imported.weights, 1, measuring="no.such.module")


def test_weights_that_are_none_of_the_model_are_refused(model) -> None:
    package, _, imported = model
    with pytest.raises(PackageError, match="expected 4 weights, found 0"):
        ProgramBench(package, (), 1)
    with pytest.raises(PackageError, match="weight"):
        ProgramBench(package, [w.to(torch.float64) for w in imported.weights], 1)
