"""Any tables at all: a package is refused with PackageError, or every place it names lies inside its space."""

from __future__ import annotations

import numpy as np
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from package_builder import kernel, specs

from tilewright.runtime.errors import PackageError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import SPACES, BufferRef, Constant, Package, Program, Step

# Reads nothing and writes nothing: whatever the tables say, only the tables are under test.
NOTHING = "KERNEL(kernel) { return first < 0 || end < first; }"

numbers = st.one_of(
    st.integers(-2, 3),
    st.sampled_from([64, 65, 128, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, 2**63, 2**70]),
)
refs = st.builds(BufferRef, st.sampled_from([*SPACES, "elsewhere"]), numbers, numbers)
steps = st.builds(Step, numbers, st.lists(refs, max_size=3).map(tuple), numbers)
sane_refs = st.builds(BufferRef, st.sampled_from(SPACES), st.just(0), st.integers(0, 64))
sane_steps = st.builds(
    Step, st.integers(0, 1), st.lists(sane_refs, max_size=3).map(tuple), st.integers(0, 2**40)
)
programs = st.builds(Program, st.lists(st.one_of(sane_steps, steps), max_size=4).map(tuple), numbers)


def sizes(package: Package, program: Program) -> dict[str, list[int]]:
    return {
        "input": [s.nbytes for s in package.inputs],
        "output": [s.nbytes for s in package.outputs],
        "weight": [s.nbytes for s in package.weights],
        "constant": [c.spec.nbytes for c in package.constants],
        "packed": [package.packed_bytes],
        "arena": [program.arena_bytes],
    }


def holds_together(package: Package) -> bool:
    """The rules of program.py, written once more."""
    for program in (package.main, package.prepack):
        spaces = sizes(package, program)
        if not 0 <= program.arena_bytes < 2**63:
            return False
        for step in program.steps:
            if not 0 <= step.kernel < len(package.kernels) or not 0 <= step.tasks < 2**63:
                return False
            for ref in step.buffers:
                if program is package.prepack and ref.space in ("input", "output"):
                    return False
                entries = spaces.get(ref.space, [])
                if not 0 <= ref.index < len(entries) or not 0 <= ref.offset <= entries[ref.index]:
                    return False
    return 0 <= package.packed_bytes < 2**63


@given(main=programs, prepack=programs, packed_bytes=numbers, threads=st.integers(1, 3))
@example(Program((Step(0, (BufferRef("arena", 0, 64),), 2**63 - 1),), 64), Program(), 0, 2)
@settings(max_examples=300, deadline=None)
def test_tables_hold_together_or_are_refused(compile_c, main, prepack, packed_bytes, threads):
    (constant,) = specs("c", "u8[64]")
    built = Package(
        target="cpu",
        features=(),
        inputs=specs("x", "u8[64]"),
        outputs=specs("y", "u8[64]"),
        weights=specs("w", "u8[64]"),
        constants=(Constant(constant, bytes(64)),),
        kernels=(kernel(compile_c(NOTHING)), kernel(compile_c(NOTHING), scratch_bytes=100)),
        main=main,
        prepack=prepack,
        packed_bytes=packed_bytes,
    )
    try:
        run = Executable(built, [np.zeros(64, np.uint8)], threads)
    except PackageError:
        assert not holds_together(built)
        return
    except MemoryError:
        assert max(main.arena_bytes, prepack.arena_bytes, packed_bytes) >= 2**40
        return
    assert holds_together(built)
    event("runs")
    run(np.zeros(64, np.uint8))
