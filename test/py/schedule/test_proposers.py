"""What proposers propose is in the space of the dispatch, legal, distinct and the same each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from space_cases import CASES, Dispatch, dispatch_of, waves

from tilewright.compiler.analysis.workload_of import NoWorkload
from tilewright.compiler.families.cpu.complete_schedule import complete
from tilewright.compiler.families.cpu.proposals import cpu_proposals, read_dispatch
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch
from tilewright.compiler.tuning.proposers.cpu import CPU_PROPOSERS, IN_TURN
from tilewright.compiler.tuning.proposers.roller_cpu import register_tiles
from tilewright.compiler.tuning.roller.options import RULES, ConstructOptions

OTHERS = ("x86-64-v3", "sapphire-rapids")
UNCUT = ("attention", "causal attention")
"""Dispatches that no tile cuts: their own sizes are proposed."""
PROPOSED = [(name, "cpu") for name in CASES if name not in UNCUT]
PROPOSED += [(n, t) for n in ("packed product", "dots", "depthwise", "groups", "softmax") for t in OTHERS]


def subject_of(name: str, target: str) -> CpuDispatch:
    dispatch = dispatch_of(name, target)
    with dispatch.function.context, dispatch.function.location:
        return read_dispatch(dispatch.function, dispatch.target)


def propose(subject: CpuDispatch, proposer: str, count: int, **options) -> list[Candidate]:
    return CPU_PROPOSERS[proposer](subject, count, ConstructOptions(**options))


def assert_legal(subject: CpuDispatch, found: list[Candidate]) -> None:
    points = subject.space.points([candidate.schedule for candidate in found])
    assert (subject.space.legal(points) == KEPT).all()
    assert len({point.tobytes() for point in points}) == len(found)


@pytest.mark.parametrize(("name", "target"), PROPOSED)
def test_proposals_are_distinct_legal_points(name: str, target: str) -> None:
    subject = subject_of(name, target)
    with dispatch_of(name, target).function.context:
        for proposer in CPU_PROPOSERS:
            found = propose(subject, proposer, 10)
            assert 1 <= len(found) <= 10
            assert_legal(subject, found)
            assert all(candidate.us > 0 and candidate.bound for candidate in found)


@pytest.mark.parametrize("target", ("cpu", *OTHERS))
@pytest.mark.parametrize("name", UNCUT)
def test_cuts_of_attention_are_distinct_legal_points_by_predicted_time(name: str, target: str) -> None:
    dispatch = dispatch_of(name, target)
    with dispatch.function.context, dispatch.function.location:
        for proposer in ("", *CPU_PROPOSERS):
            found = cpu_proposals(dispatch.function, dispatch.target, 4, ConstructOptions(), proposer)
            points = dispatch.space.points([candidate.schedule for candidate in found])
            assert (dispatch.space.legal(points) == KEPT).all()
            assert len({point.tobytes() for point in points}) == len(found) <= 4
            assert all(candidate.us > 0 and candidate.bound for candidate in found)
            if proposer == "random":
                assert len(found) == 4 and {candidate.proposer for candidate in found} == {"random"}
            elif proposer != "default":
                first, *rest = (candidate.us for candidate in found)
                assert len(found) > 1 and rest == sorted(rest) and first < 1.12 * rest[0]


def test_the_model_chooses_among_the_cuts_of_an_attention() -> None:
    """Rows that are few enough leave less of a causal mask's diagonal to be computed in vain."""
    arguments = (waves(3, 1, 12, 64, 64),)
    causal = Dispatch.of(CASES["causal attention"].function, "x86-64-v4", arguments, 1)
    with causal.function.context, causal.function.location:
        found = cpu_proposals(causal.function, causal.target, 8, ConstructOptions())
        listed = complete(causal.function, Schedule(), causal.target)
    assert found[0].us == min(candidate.us for candidate in found)
    assert found[0].schedule != listed and listed in [candidate.schedule for candidate in found]


@pytest.mark.parametrize("name", ("packed product", "depthwise", "softmax", "permutation"))
def test_the_same_is_proposed_each_time_and_fewer_are_the_first_of_more(name: str) -> None:
    subject = subject_of(name, "cpu")
    with dispatch_of(name, "cpu").function.context:
        for proposer in CPU_PROPOSERS:
            every = propose(subject, proposer, 8)
            assert propose(subject, proposer, 8) == every
            if proposer != "random":
                assert propose(subject, proposer, 3) == every[:3]


@pytest.mark.parametrize("off", RULES)
@pytest.mark.parametrize("name", ("product", "convolution", "depthwise", "layer norm", "transposition"))
def test_rules_of_alignment_can_be_left_out(name: str, off: str) -> None:
    subject = subject_of(name, "cpu")
    with dispatch_of(name, "cpu").function.context:
        assert_legal(subject, propose(subject, "roller", 6, rules=frozenset(RULES) - {off}))


def test_register_tiles_are_those_of_the_fewest_cycles_among_all_that_fit() -> None:
    """The recursion finds what enumeration would: enough accumulators, whole vectors."""
    for name in ("packed product", "dots", "depthwise", "row products"):
        subject = subject_of(name, "cpu")
        with dispatch_of(name, "cpu").function.context:
            held = subject.registers
            if held is None:
                # The registers of AMX hold tiles of one size.
                assert subject.space.default().text().endswith("tiles")
                continue
            first, *_ = register_tiles(subject, held, ConstructOptions())
            domains = [np.asarray(k.domain) for k in subject.space.knobs if k.name in held.knobs]
        every = np.stack([g.reshape(-1) for g in np.meshgrid(*domains, indexing="ij")], axis=1)
        every = every[(every <= held.layer.extents).all(axis=1)]
        if held.knobs[-1].endswith(".vector"):
            lanes = held.layer.lanes  # type: ignore[attr-defined]
            every = every[(every[:, 1] % lanes == 0) | (every[:, 1] == held.layer.extents[1])]
        every = every[held.layer.taken(every) <= subject.target.registers_per_thread]
        assert held.layer.cycles(np.asarray([first]))[0] <= 1.02 * held.layer.cycles(every).min(), name


GRADIENT = """
#image = affine_map<(c, h, w, f, n, y, x) -> (n, h + y * 2, w + x * 2, c)>
#result = affine_map<(c, h, w, f, n, y, x) -> (n, y, x, f)>
#packed = affine_map<(c, h, w, f, n, y, x) -> (f floordiv 64, n, y, x, f mod 64)>
#filter = affine_map<(c, h, w, f, n, y, x) -> (c, h, w, f)>
func.func private @gradient(%a: tensor<16x34x34x64xf32>, %b: TYPE) -> tensor<64x4x4x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x4x4x128xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x4x4x128xf32>) -> tensor<64x4x4x128xf32>
  %found = linalg.generic {indexing_maps = [#image, MAP, #filter],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%a, %b : tensor<16x34x34x64xf32>, TYPE) outs(%start : tensor<64x4x4x128xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x4x4x128xf32>
  return %found : tensor<64x4x4x128xf32>
}
"""


@pytest.mark.parametrize(
    ("map_", "type_", "taller"),
    (("#result", "tensor<16x16x16x128xf32>", True), ("#packed", "tensor<2x16x16x16x64xf32>", False)),
)
def test_registers_hold_more_rows_where_rows_come_from_caches(map_: str, type_: str, taller: bool) -> None:
    """Every tile goes through 2 MiB, which come fast enough where they are packed in panels."""
    module = parse(GRADIENT.replace("MAP", map_).replace("TYPE", type_))
    with module.context, ir.Location.unknown():
        (function,) = functions(module)
        subject = read_dispatch(function, resolve("x86-64-v4"))
        assert subject.registers is not None
        fewest, *_ = register_tiles(subject, subject.registers, ConstructOptions())
        chosen = propose(subject, "roller", 1)[0].schedule.reductions[subject.registers.number].sizes
    assert (chosen[0] > fewest[0]) == (chosen[1] < fewest[1]) == taller
    assert taller or chosen == fewest


def test_rows_are_cut_unless_windows_slide_along_them() -> None:
    """Halos are shared along an image; channels, along which a filter's gradient takes its steps, have none."""
    for name, rows in (("filter gradient", "channels"), ("convolution", "image")):
        cuts = subject_of(name, "cpu").cuts
        assert cuts.registers is not None and cuts.registers.unroll is not None
        step, extent = (sizes[cuts.registers.unroll] for sizes in (cuts.steps, cuts.extents))
        assert step == (extent if rows == "image" else 1) and extent > 1


def test_every_core_has_an_rtask_where_that_pays() -> None:
    """Scale-out: what is constructed for many cores is predicted no slower there than one rTask."""
    subject = subject_of("packed product", "cpu")
    for cores in (1, 2, 6, 8):
        target = replace(subject.target, num_cores=cores)
        wide = replace(subject, target=target)
        with dispatch_of("packed product", "cpu").function.context:
            us, _ = wide.predicted(propose(wide, "roller", 1)[0].schedule)
            whole, _ = wide.predicted(wide.complete(Schedule()))
        assert us <= 1.001 * whole


def test_the_pass_takes_a_proposer_by_name() -> None:
    dispatch = dispatch_of("permutation", "cpu")
    plain = ConstructSchedules.for_target(dispatch.target)
    with dispatch.function.context, dispatch.function.location:
        subject = read_dispatch(dispatch.function, plain.described(dispatch.function))
        for proposer in CPU_PROPOSERS:
            named = replace(plain, proposer=proposer)
            offered = named.candidates_or_none(dispatch.function)
            assert offered[0].schedule == propose(subject, proposer, 10)[0].schedule
        offered = plain.candidates_or_none(dispatch.function)
        first = replace(plain, proposer=IN_TURN[0]).candidates_or_none(dispatch.function)
    assert offered[: len(first)] == first
    assert {candidate.proposer for candidate in offered[len(first) :]} <= set(IN_TURN[1:])
    schedules = {replace(candidate.schedule, levels=()) for candidate in offered}
    assert len(schedules) == len(offered) >= len(first)


@pytest.mark.parametrize(
    "function",
    (lambda x: x.sum(), lambda x: x[0, 0] * 2, lambda x: x.reshape(-1)[:1].exp(), lambda x: x.max()),
)
def test_results_without_loops_or_of_one_step_get_schedules(function) -> None:
    dispatch = Dispatch.of(function, "cpu", CASES["row sums"].arguments, None)
    with dispatch.function.context, dispatch.function.location:
        subject = read_dispatch(dispatch.function, dispatch.target)
        for proposer in CPU_PROPOSERS:
            assert_legal(subject, propose(subject, proposer, 4))


def test_what_is_not_cut_is_left_to_its_family() -> None:
    for name in UNCUT:
        with pytest.raises(NoWorkload):
            subject_of(name, "cpu")
