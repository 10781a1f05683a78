"""PTX of kernels that overlap: nothing is taken for constant while the kernel before may still write it."""

from __future__ import annotations

import pytest

from tilewright.compiler.codegen.coherence import coherent
from tilewright.compiler.errors import PassError

WAIT = "\tgriddepcontrol.wait;\n"
SETUP = (
    "\tld.param.b64 \t%rd1, [k_param_0];\n\tcvta.to.global.u64 \t%rd2, %rd1;\n\tst.shared.b32 \t[%r1], %r2;\n"
)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("ld.global.nc.v4.b32", "ld.global.v4.b32"),
        ("ld.global.L1::no_allocate.nc.b32", "ld.global.L1::no_allocate.b32"),
        ("@%p1 ld.global.nc.b16", "@%p1 ld.global.b16"),
        ("ld.global.b32", "ld.global.b32"),
    ],
)
def test_loads_see_what_was_written(load: str, expected: str) -> None:
    text = f"{SETUP}{WAIT}\t{{}} \t%r1, [%rd2];\n"
    assert coherent(text.format(load)) == text.format(expected)


def test_kernels_that_do_not_wait_stay() -> None:
    text = f"{SETUP}\tld.global.nc.b32 \t%r1, [%rd2];\n"
    assert coherent(text) == text


@pytest.mark.parametrize(
    "access",
    [
        "ld.global.nc.b32 \t%r1, [%rd2];",
        "st.global.b32 \t[%rd2], %r1;",
        "@%p1 ld.b32 \t%r1, [%rd1];",
        "atom.relaxed.gpu.add.u32 %r1, [%rd1], %r2;",
        "red.global.add.u32 [%rd2], %r1;",
        "cp.async.cg.shared.global [%r1], [%rd2], 16;",
    ],
)
def test_accesses_before_the_wait_are_refused(access: str) -> None:
    with pytest.raises(
        PassError, match=r"`griddepcontrol\.wait` must come before every access to global memory"
    ):
        coherent(f"{SETUP}\t{access}\n{WAIT}")
