"""The bench of a reduction's blocks compares one schedule with others that differ in these alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.bench import reduction_depths
from tilewright.bench.suites import Case, operator
from tilewright.compiler import driver, phases
from tilewright.compiler.ir import functions
from tilewright.compiler.targets.target import resolve


def _is_convolution(function) -> bool:
    return "conv" in str(function.attributes["sym_name"])


@pytest.mark.parametrize("stride", [1, 2])
def test_variants_differ_in_blocks_and_order_alone(stride: int) -> None:
    """Of a convolution of stride 1 by Winograd's algorithm, too."""
    case = Case("", lambda: operator("conv2d", (1, 96, 14, 14), 160, 3, stride, 1))
    module = driver.import_model(*case.build()).module
    phases.run_phases(module, resolve("cpu"), "graph", "dispatch")
    with module.context:
        # The filter's transforms are a product too.
        found = [reduction_depths.variants(f) for f in functions(module) if _is_convolution(f)]
    (forms,) = [variants for variants in found if variants]
    assert len(forms) == len(reduction_depths.COLUMNS)
    whole, _, *blocked = (candidate.schedule for candidate in forms[:4])
    assert whole.reductions[0].loops == ("winograd" if stride == 1 else "products")
    assert not whole.reductions[0].depth and whole.reductions[0].order == "rows"
    for candidate in forms[1:]:
        (entry,) = candidate.schedule.reductions
        plain = replace(entry, depth=0, order="rows")
        assert replace(candidate.schedule, reductions=(plain,), levels=()) == replace(whole, levels=())
    for schedule, depth in zip(blocked, (64, 256), strict=True):
        assert schedule == whole or schedule.reductions[0].depth == depth
    assert whole not in blocked[:1]


def test_every_operator_has_a_name_of_its_own() -> None:
    names = [case.name for case in reduction_depths.cases()]
    assert (
        len(set(names)) == len(names) == len(reduction_depths.PRODUCTS) + len(reduction_depths.CONVOLUTIONS)
    )
