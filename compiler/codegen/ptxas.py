"""Runs NVIDIA's assembler on PTX: machine code and what it takes of registers and memory.

An assembler is looked for in TILEWRIGHT_PTXAS, the packages nvidia-cuda-nvcc-* and triton, CUDA installations, and the
PATH; the first that knows the architecture is used. Without one, PTX is all there is: the driver compiles it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.codegen.libdevice import cuda_folders, package_folders
from tilewright.compiler.errors import PassError
from tilewright.compiler.settings import settings

_TIMEOUT_S = 300
_QUIET = re.compile(
    r"Compiling entry function|Function properties|Used \d+ registers|bytes stack frame|gmem|bytes cumulative|Compile time|^\s*$"
)
_ASKED = re.compile(r"\.minnctapersm (\d+)")
"""Blocks that the assembler has to leave room for on a multiprocessor."""
_THREADS = re.compile(r"^\.reqntid .*$", re.MULTILINE)
"""How many threads a block has, the line behind which those blocks are asked for."""
_FIELDS = {
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "static_shared_bytes": r"(\d+) bytes smem",
    "constant_bytes": r"(\d+) bytes cmem\[0\]",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_store_bytes": r"(\d+) bytes spill stores",
    "spill_load_bytes": r"(\d+) bytes spill loads",
}


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, as the assembler reports it: per thread, but for barriers and shared memory per block.

    `warnings` are its messages besides the report, such as C7508 for an ignored setmaxnreg.
    """

    registers: int
    barriers: int = 0
    static_shared_bytes: int = 0
    constant_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def spill_bytes(self) -> int:
        """Bytes of registers that go through memory, stores and loads together."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True)
class Assembled:
    """Machine code of one kernel, the text that it was made of, what it takes, and the assembler's seconds."""

    ptx: str
    cubin: bytes
    resources: Resources
    seconds: float


def candidates() -> list[Path]:
    """Every assembler found, in the order they are tried."""
    chosen = settings().ptxas
    if chosen is not None:
        return [chosen]
    found = [path for folder in package_folders("nvidia") for path in sorted(folder.glob("*/bin/ptxas"))]
    found += [folder / "backends/nvidia/bin/ptxas" for folder in package_folders("triton")]
    found += [folder / "bin/ptxas" for folder in cuda_folders()]
    if on_path := shutil.which("ptxas"):
        found.append(Path(on_path))
    return [path for path in found if path.is_file()]


@cache
def _knows(ptxas: Path, arch: str) -> bool:
    """Whether an assembler takes an architecture; it lists them in its help. One that does not start knows none."""
    try:
        shown = subprocess.run(
            [ptxas, "--help"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        debug.log(1, f"{ptxas} is passed over: {error}")
        return False
    return f"'{arch}'" in shown.stdout


def find(arch: str) -> Path | None:
    """The first assembler that knows `arch`, or None."""
    return next((path for path in candidates() if _knows(path, arch)), None)


def assemble(ptx: str, arch: str) -> Assembled | None:
    """Assembles one kernel; None when no installed assembler knows `arch`. Raises PassError when it refuses the text.

    How many blocks can share a multiprocessor's registers is an estimate until the assembler has spoken: where room for
    the blocks that `ptx` asks for makes it spill, fewer are asked for, as many as there may be without. Of a text that asks
    for none it guesses how many registers are worth it, and may spill with most of them unused: then one block is asked for.
    """
    ptxas = find(arch)
    if ptxas is None:
        return None
    made = _run(ptxas, ptx, arch)
    asked = _ASKED.search(ptx)
    if not made.resources.spill_bytes:
        return made
    if asked is None:
        alone = _run(ptxas, _THREADS.sub(r"\g<0>\n.minnctapersm 1", ptx, count=1), arch)
        return min(made, alone, key=lambda one: one.resources.spill_bytes)
    texts = (_ASKED.sub(f".minnctapersm {blocks}", ptx) for blocks in range(int(asked[1]) - 1, 0, -1))
    others = (_run(ptxas, text, arch) for text in texts)
    return next((other for other in others if not other.resources.spill_bytes), made)


def _run(ptxas: Path, ptx: str, arch: str) -> Assembled:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [ptxas, f"-arch={arch}", "-O3", "-v", source, "-o", target]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise PassError(f"`{ptxas}` takes more than {_TIMEOUT_S} s; write a smaller kernel") from None
        report = ran.stderr + ran.stdout
        if ran.returncode:
            raise PassError(f"`{ptxas}` refuses the PTX for {arch}: {report.strip()[:2000]}")
        cubin = target.read_bytes()
    return Assembled(ptx, cubin, read_report(report), time.perf_counter() - start)


def assemble_all(kernels: Sequence[tuple[str, str]], workers: int) -> list[Assembled | None]:
    """`assemble` of many (ptx, arch), `workers` assemblers at once, in the order given."""
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        return list(pool.map(lambda kernel: assemble(*kernel), kernels))


def read_report(report: str) -> Resources:
    """Reads what `ptxas -v` says of one kernel."""
    numbers = {}
    for field, pattern in _FIELDS.items():
        found = re.search(pattern, report)
        numbers[field] = int(found[1]) if found else 0
    warnings = tuple(
        line.removeprefix("ptxas").strip(" :") for line in report.splitlines() if not _QUIET.search(line)
    )
    return Resources(warnings=warnings, **numbers)
