"""What compiling for a CPU does not need is not loaded for it: every process that compiles pays for what it imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

KERNELS_OF_GPUS = (
    "families.gpu",
    "families.attention",
    "families.contraction",
    "families.wgmma",
    "gpu.builder",
)
SEARCH = ("profiler.schedule_search", "families.tasks.dispatch_task", "tuning.search.tuner")
PROGRAM = """
import sys
{program}
print(*sorted(sys.modules))
"""


def loaded_by(program: str) -> list[str]:
    """The compiler's modules that a new process has after `program`, without the package's name."""
    command = [sys.executable, "-c", PROGRAM.format(program=program)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    prefix = "tilewright.compiler."
    return [name.removeprefix(prefix) for name in ran.stdout.split() if name.startswith(prefix)]


@pytest.mark.parametrize(
    ("program", "needed"),
    [
        ("import tilewright; tilewright.compile", "driver"),
        (
            "from tilewright.compiler.workers import tasks; tasks.preload()",
            "passes.lower_cpu.apply_schedule",
        ),
    ],
    ids=["driver", "workers"],
)
def test_kernels_of_gpus_and_searches_wait_until_they_are_needed(program, needed):
    loaded = loaded_by(program)
    assert needed in loaded and "passes.schedule.construct_schedules" in loaded
    assert not [name for name in loaded if name.startswith((*KERNELS_OF_GPUS, *SEARCH))]


def test_the_names_are_those_of_modules():
    loaded = loaded_by(
        "from tilewright.compiler.profiler import schedule_search; from tilewright.compiler.tuning.search import tuner;"
        "from tilewright.compiler.codegen import lower_gpu"
    )
    for name in (*KERNELS_OF_GPUS, *SEARCH):
        assert any(module.startswith(name) for module in loaded), name
