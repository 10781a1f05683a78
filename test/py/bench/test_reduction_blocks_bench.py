"""The bench of a reduction's blocks compares one schedule with others that differ in these alone."""

from __future__ import annotations

from dataclasses import replace

from tilewright.bench import reduction_depths
from tilewright.bench.suites import Case, operator
from tilewright.compiler import driver, phases
from tilewright.compiler.ir import functions
from tilewright.compiler.targets.target import resolve


def test_variants_differ_in_blocks_and_order_alone() -> None:
    case = Case("", lambda: operator("conv2d", (1, 96, 14, 14), 160, 3, 2, 1))
    module = driver.import_model(*case.build()).module
    phases.run_phases(module, resolve("cpu"), "graph", "dispatch")
    with module.context:
        found = [
            reduction_depths.variants(f) for f in functions(module) if "tilewright.operator" in f.attributes
        ]
    (five,) = [variants for variants in found if variants]
    assert len(five) == len(reduction_depths.COLUMNS)
    whole, _, blocked, *_ = (candidate.schedule for candidate in five)
    assert not whole.reductions[0].depth and whole.reductions[0].order == "rows"
    for candidate in five[1:]:
        (entry,) = candidate.schedule.reductions
        plain = replace(entry, depth=0, order="rows")
        assert replace(candidate.schedule, reductions=(plain,), levels=()) == replace(whole, levels=())
    assert blocked == whole or blocked.reductions[0].depth == 256


def test_every_operator_has_a_name_of_its_own() -> None:
    names = [case.name for case in reduction_depths.cases()]
    assert (
        len(set(names)) == len(names) == len(reduction_depths.PRODUCTS) + len(reduction_depths.CONVOLUTIONS)
    )
