"""Launches that a GPU cannot start are refused before anything is compiled, saying which limit and what to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.compiler.codegen.limits import broken_limit, check_limits
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.gpu.builder import kernel
from tilewright.compiler.gpu.launch import cluster_of
from tilewright.compiler.ir import context, ir
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.program import Launch

FITS = Launch("emulated", 264, 384, cluster=2, shared_bytes=229_440)


def test_what_fits_passes() -> None:
    assert broken_limit(resolve("h100"), FITS) == ""
    assert broken_limit(resolve("a100"), replace(FITS, cluster=1, shared_bytes=163 << 10)) == ""


@pytest.mark.parametrize(
    ("target", "change", "message"),
    [
        ("h100", {"block": 1056}, "a block has 1056 threads, the rule is a multiple of 32 up to 1024; change `threads`"),
        ("h100", {"block": 100}, "a block has 100 threads"),
        ("h100", {"grid": 1 << 31}, "a grid has 2,147,483,648 blocks, the rule is 1 to 2,147,483,647; use larger tiles"),
        ("h100", {"grid": 0}, "a grid has 0 blocks"),
        ("a100", {"cluster": 1}, "a block takes 229,440 B of shared memory, the limit is 166,912 B; use fewer stages"),
        ("a100", {"shared_bytes": 1024}, "clusters of 2 blocks need sm_90, the target is sm_80; use cluster 1"),
        ("h100", {"grid": 263}, "263 blocks in clusters of 2, the rule is a divisor up to 8; use cluster 1"),
        ("h100", {"cluster": 16, "grid": 160}, "160 blocks in clusters of 16"),
    ],
)  # fmt: skip
def test_each_limit_is_named(target: str, change: dict, message: str) -> None:
    assert broken_limit(resolve(target), replace(FITS, **change)).startswith(message)


def test_cooperating_blocks_all_run_at_once() -> None:
    launch = Launch("emulated", 132, 384, shared_bytes=120_000, cooperative=True)
    assert broken_limit(resolve("h100"), launch) == ""
    assert broken_limit(resolve("h100"), replace(launch, grid=133, cooperative=False)) == ""
    problem = broken_limit(resolve("h100"), replace(launch, grid=133))
    assert problem == "133 cooperating blocks, 132 fit at once; use a grid of at most that"


def test_kernels_are_named() -> None:
    with context(), ir.Location.unknown():
        with kernel("wide", [], rtasks=1, block=64, gang=cluster_of(4)) as k:
            pass
        with pytest.raises(ScheduleError, match="@wide on v100: clusters of 4 blocks need sm_90"):
            check_limits(k.function, resolve("v100"))
