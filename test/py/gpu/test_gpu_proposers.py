"""What proposers propose for GPUs is in the space of the dispatch, legal, distinct and the same each time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dispatch_runs import Function, dispatches
from test_schedules_obeyed import CASES, asked_of

from tilewright.bench.gemm_expected import dispatch_text
from tilewright.bench.gemm_shapes import GEMM_SHAPES
from tilewright.compiler import phases
from tilewright.compiler.analysis.workload_of import NoWorkload
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.families.gpu.proposals import gpu_proposals, read_dispatch
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import PREDICTED, PROPOSER, UNSCHEDULED
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.passes.graph.lower_precision import ask_precision
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.proposers import aligned_gpu
from tilewright.compiler.tuning.proposers.gpu import GPU_PROPOSERS
from tilewright.compiler.tuning.proposers.gpu_dispatch import GpuDispatch
from tilewright.compiler.tuning.roller.options import ConstructOptions

TARGETS = ("cuda:sm_70", "cuda:sm_80", "cuda:sm_90a")
UNCUT = ("scatter", "sort", "scan")
"""Cases whose kernels no tile cuts, which alone is what is enumerated."""


@cache
def scheduled(case: str, target: str) -> tuple[ir.Module, ir.Operation]:
    """The dispatch of a case that its kernel is about, where the target has that kernel; any other one of it else."""
    function, args, _, kernel = CASES[case]
    module, found = dispatches(function, args, target)
    own = [f for f in found.values() if asked_of(f).kernel == kernel] or list(found.values())
    return module, own[-1]


def subject_of(function: ir.Operation, target: str) -> GpuDispatch:
    with function.context, function.location:
        return read_dispatch(function, resolve(target))


def proposed(function: ir.Operation, target: str, proposer: str, count: int = 10) -> list[Candidate]:
    with function.context, function.location:
        return gpu_proposals(function, resolve(target), count, ConstructOptions(), proposer)


def assert_legal(function: ir.Operation, target: str, found: list[Candidate]) -> None:
    subject = subject_of(function, target)
    with function.context, function.location:
        points = subject.space.points([candidate.schedule for candidate in found])
        assert (subject.space.legal(points) == KEPT).all()
    assert len({point.tobytes() for point in points}) == len(found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_proposals_are_distinct_legal_points(case: str, target: str) -> None:
    _module, function = scheduled(case, target)
    for proposer in GPU_PROPOSERS:
        if proposer == "aligned" and case in UNCUT:
            with pytest.raises(NoWorkload):
                proposed(function, target, proposer)
            continue
        found = proposed(function, target, proposer)
        assert 1 <= len(found) <= 10
        assert_legal(function, target, found)
        assert all(c.us > 0 and c.bound and c.proposer == proposer for c in found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "case", ("relu", "two results", "transpose", "softmax", "depthwise", "mma", "attention")
)
def test_the_same_is_proposed_each_time_and_fewer_are_the_first_of_more(case: str, target: str) -> None:
    _module, function = scheduled(case, target)
    for proposer in GPU_PROPOSERS:
        every = proposed(function, target, proposer, 8)
        assert proposed(function, target, proposer, 8) == every
        if proposer != "random":
            assert proposed(function, target, proposer, 2) == every[:2]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", ("relu", "columns", "transpose", "simt", "mma", "attention", "sort"))
def test_the_model_orders_what_is_modelled(case: str, target: str) -> None:
    """Its first is no slower by the model than those that tiles and families propose, and says the model's time."""
    _module, function = scheduled(case, target)
    subject = subject_of(function, target)
    modelled = proposed(function, target, "modelled")
    with function.context, function.location:
        us = subject.predictions([candidate.schedule for candidate in modelled]).us
        others = [] if case in UNCUT else proposed(function, target, "aligned", 1)
        others += proposed(function, target, "default")
        assert us[0] <= subject.predictions([candidate.schedule for candidate in others]).us.min()
    assert list(us) == sorted(us)
    assert [candidate.us for candidate in modelled] == pytest.approx(list(us), abs=1e-3)


def test_the_pass_takes_a_proposer_by_name() -> None:
    _module, function = scheduled("softmax", "cuda:sm_80")
    plain = ConstructSchedules.for_target(resolve("cuda:sm_80"))
    with function.context, function.location:
        target = plain.described(function)
        for proposer in GPU_PROPOSERS:
            named = replace(plain, proposer=proposer).candidates_or_none(function)
            assert named == gpu_proposals(function, target, 10, ConstructOptions(), proposer)
            assert {candidate.proposer for candidate in named} == {proposer}
        first, *_ = plain.candidates_or_none(function)
    assert ir.StringAttr(function.attributes[PROPOSER]).value == first.proposer
    assert schedule_attribute.read(function) == first.schedule


@pytest.mark.parametrize("case", ("depthwise", "pooling", *UNCUT))
@pytest.mark.parametrize("target", TARGETS)
def test_windows_scatters_sorts_and_scans_are_constructed_where_nobody_names_a_proposer(
    case: str, target: str
) -> None:
    _module, function = scheduled(case, target)
    assert ir.StringAttr(function.attributes[PROPOSER]).value == "roller"
    assert PREDICTED in function.attributes and UNSCHEDULED not in function.attributes


def test_what_nothing_is_proposed_for_gets_the_kernel_of_its_family_and_says_why() -> None:
    """Sorts have no axes to cut, which alone is what is enumerated."""
    target = resolve("cuda:sm_80")
    imported = import_model(Function(CASES["sort"][0]), CASES["sort"][1]).module
    phases.run_phases(imported, target, "graph", "dispatch")
    with imported.context, ir.Location.unknown():
        replace(ConstructSchedules.for_target(target), proposer="aligned").run(imported.operation)
    (function,) = (f for f in functions(imported) if UNSCHEDULED in f.attributes)
    assert asked_of(function).kernel == "sort" and PREDICTED not in function.attributes
    assert "no structured operation" in ir.StringAttr(function.attributes[UNSCHEDULED]).value


@pytest.mark.parametrize(
    ("target", "dtype"), [("cuda:sm_70", "f32"), ("cuda:sm_80", "tf32"), ("cuda:sm_90a", "f16")]
)
def test_products_are_listed_as_the_model_ranks_them(target: str, dtype: str) -> None:
    """Tiles are listed by what is estimated before their kernels are known, and complete schedules by the model."""
    lost = []
    for shape in GEMM_SHAPES:
        module = parse(dispatch_text(shape, dtype))
        if dtype == "tf32":
            ask_precision(module, dtype)
        subject = subject_of(next(functions(module)), target)
        with module.context, ir.Location.unknown():
            found = aligned_gpu.propose(subject, 10, ConstructOptions())
            us = subject.predictions([candidate.schedule for candidate in found]).us
        lost.append(us[0] / us.min())
    assert max(lost) < 1.1 and np.exp(np.mean(np.log(lost))) < 1.01
