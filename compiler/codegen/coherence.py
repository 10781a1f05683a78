"""PTX of kernels that overlap the one before them: what they read may be written until they have waited."""

from __future__ import annotations

import re

from tilewright.compiler.errors import PassError

WAIT = "griddepcontrol.wait;"
_NON_COHERENT = re.compile(r"\bld\.global((?:\.\w+(?:::\w+)?)*?)\.nc\b")
_ACCESS = re.compile(
    r"^\s*(?:@\S+\s+)?(?:ld|st|atom|red|cp)\.(?!param|shared|const|local)[^;]*;", re.MULTILINE
)


def coherent(ptx: str) -> str:
    """PTX whose loads see what was written before the kernel's wait; unchanged for kernels that do not wait.

    LLVM takes buffers that a kernel only reads for constant as long as it runs, and loads them by `ld.global.nc`,
    which need not see writes of kernels that it overlaps. Raises PassError where an access stands before the wait.
    Source: CUDA programming guide, "Read-Only Data Cache Load Function": read-only for the lifetime of the kernel.
    """
    head, wait, _ = ptx.partition(WAIT)
    if not wait:
        return ptx
    early = _ACCESS.search(head)
    if early:
        raise PassError(
            f"`{WAIT.rstrip(';')}` must come before every access to global memory, found `{early[0].strip()}` before it; "
            "report this with the kernel's IR"
        )
    return _NON_COHERENT.sub(r"ld.global\1", ptx)
