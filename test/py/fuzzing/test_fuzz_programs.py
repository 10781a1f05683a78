"""The first random programs, each through the path that its seed draws, against eager PyTorch; 300 with those that are slow."""

from __future__ import annotations

import pytest
from fuzz.draw import draw
from fuzz.outcome import FAILURES
from fuzz.pool import outcomes

CHUNKS, PROGRAMS = 10, 30
ALWAYS = 3
LATER = [pytest.param(chunk, marks=pytest.mark.slow) for chunk in range(ALWAYS, CHUNKS)]


@pytest.mark.parametrize("chunk", [*range(ALWAYS), *LATER])
def test_programs_do_what_eager_does(chunk: int) -> None:
    drawn = (draw(seed) for seed in range(chunk * PROGRAMS, (chunk + 1) * PROGRAMS))
    failed = [(p, o) for p, o in outcomes(drawn, processes=1) if o.kind in FAILURES]
    assert not failed, "\n\n".join(
        f"# {o.kind}: {o.detail}\n# seed {p.seed}\n{p.script()}" for p, o in failed
    )
