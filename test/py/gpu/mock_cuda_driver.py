"""The mock CUDA driver as tests see it, and packages of mock kernels; `mock` is the fixture."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tilewright.runtime.program import (
    BufferRef,
    Constant,
    Kernel,
    Launch,
    Package,
    Program,
    Step,
    TensorMap,
    TensorSpec,
)

FOLDER = Path(__file__).parent / "mock_cuda"
HEADERS = Path(__file__).parents[3] / "runtime" / "csrc"
SHARED_OPT_IN, CLUSTERS, POOLS, COOPERATIVE, MAJOR, MINOR = 97, 120, 115, 95, 75, 76
OUT_OF_MEMORY, ILLEGAL_ADDRESS, UNKNOWN = 2, 700, 999


def build(folder: Path) -> Path:
    """Compiles the mock driver into `folder`, where it stays until its sources change."""
    sources = sorted(FOLDER.glob("*.cpp"))
    digest = hashlib.sha256()
    for path in (*sources, FOLDER / "mock_state.h", HEADERS / "cuda_driver.h"):
        digest.update(path.read_bytes())
    library = folder / f"libmockcuda-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        part = library.with_suffix(f".{os.getpid()}")
        flags = [
            "-std=c++17",
            "-O0",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            f"-I{HEADERS}",
            f"-I{FOLDER}",
        ]
        together = "".join(f'#include "{path.name}"\n' for path in sources)
        command = ["g++", *flags, "-x", "c++", "-", "-o", str(part)]
        subprocess.run(command, input=together, text=True, check=True, timeout=300)
        part.replace(library)
    return library


class MockDriver:
    """Configures the driver, makes it fail, and tells what it saw."""

    def __init__(self, path: Path):
        self.path = path
        self.lib = ctypes.CDLL(str(path))
        for name in ("mock_log", "mock_problems", "mock_live"):
            getattr(self.lib, name).restype = ctypes.c_char_p
        self.lib.mock_calls.restype = ctypes.c_int64
        self.lib.mock_allocated.restype = ctypes.c_uint64
        self.lib.mock_stream.restype = ctypes.c_void_p
        self.lib.mock_fail.argtypes = (ctypes.c_int64, ctypes.c_int)
        self.lib.mock_memory.argtypes = (ctypes.c_uint64,)
        self.lib.mock_adopt.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
        self.lib.mock_device.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)
        for name in ("mock_end_stream", "mock_drain"):
            getattr(self.lib, name).argtypes = (ctypes.c_void_p,)
        self.lib.mock_capture.argtypes = (ctypes.c_void_p, ctypes.c_int)

    def reset(self) -> None:
        self.lib.mock_reset()

    def device(self, index: int = 0, name: str | None = None, **attributes: int) -> None:
        numbers = {"major": 75, "minor": 76, "shared": 97, "clusters": 120, "pools": 115, "cooperative": 95}
        self.lib.mock_device(index, name.encode() if name else None, 0, 0)
        for key, value in attributes.items():
            self.lib.mock_device(index, None, numbers[key], value)

    def fail(self, call: int, code: int = UNKNOWN) -> None:
        self.lib.mock_fail(call, code)

    @property
    def calls(self) -> int:
        return self.lib.mock_calls()

    @property
    def log(self) -> list[str]:
        return self.lib.mock_log().decode().splitlines()

    @property
    def problems(self) -> list[str]:
        return self.lib.mock_problems().decode().splitlines()

    @property
    def live(self) -> list[str]:
        """What was made and not released, after all that Python has let go is gone."""
        found = self.lib.mock_live().decode().splitlines()
        if found:
            gc.collect()
            found = self.lib.mock_live().decode().splitlines()
        return found

    def taken(self) -> list[str]:
        """The log so far, which then begins anew."""
        found = self.log
        self.lib.mock_clear_log()
        return found


@pytest.fixture(scope="session")
def mock_library(request) -> MockDriver:
    return MockDriver(build(request.config.cache.mkdir("mock_cuda")))


@pytest.fixture
def mock(mock_library, monkeypatch) -> Iterator[MockDriver]:
    """A fresh driver that the runtime uses; what it has to object to fails the test, and so does what is left over."""
    gc.collect()
    monkeypatch.setenv("TILEWRIGHT_CUDA_LIBRARY", str(mock_library.path))
    monkeypatch.delenv("TILEWRIGHT_CUDA_GRAPH", raising=False)
    monkeypatch.delenv("TILEWRIGHT_CUDA_SYNC", raising=False)
    monkeypatch.delenv("TILEWRIGHT_CUDA_OVERLAP", raising=False)
    mock_library.reset()
    yield mock_library
    assert mock_library.problems == []
    mock_library.reset()


def kernel(name: str, text: str, image: str = "cubin", asserts: Sequence[str] = (), **launch) -> Kernel:
    """A kernel whose mock code is `BODY SIG key=value...`, called `NAME_symbol`."""
    head = "MOCK sm_90a" if image == "cubin" else ".version 8.0"
    code = f"{head}\nfn {name}_symbol {text}\n".encode()
    fields = {"grid": 4, "block": 128, **launch}
    return Kernel(name, f"{name}_symbol", code, asserts=tuple(asserts), launch=Launch(image=image, **fields))


def ref(place: str) -> BufferRef:
    """`arena+64`, `input:1` or `packed` as a BufferRef."""
    base, _, offset = place.partition("+")
    space, _, index = base.partition(":")
    return BufferRef(space, int(index or 0), int(offset or 0))


def step(number: int, *places: str, tasks: int = 4, dispatch: str = "") -> Step:
    return Step(number, tuple(map(ref, places)), tasks, dispatch)


def vector(name: str, count: int = 1000) -> TensorSpec:
    return TensorSpec(name, "f32", (count,))


def package(
    kernels: Sequence[Kernel],
    main: Sequence[Step],
    inputs: Sequence[TensorSpec] = (vector("x"),),
    outputs: Sequence[TensorSpec] = (vector("y"),),
    weights: Sequence[TensorSpec] = (),
    constants: Sequence[Constant] = (),
    prepack: Sequence[Step] = (),
    arena_bytes: int = 0,
    packed_bytes: int = 0,
    prepack_arena_bytes: int = 0,
    target: str = "cuda:sm_90a",
) -> Package:
    return Package(
        target,
        (),
        tuple(inputs),
        tuple(outputs),
        tuple(weights),
        tuple(constants),
        tuple(kernels),
        Program(tuple(main), arena_bytes),
        Program(tuple(prepack), prepack_arena_bytes),
        packed_bytes,
    )


COPY, ADD, DOUBLE = "copy pp n=1000", "add ppp n=1000", "scale pp n=1000 by=2"
ROW_MAP = TensorMap(0, "f32", (20, 50), (80,), (4, 8), 0)
"""A map over a [50, 20] matrix, as 1000 floats are."""


def whole_model() -> Package:
    """Five steps over every space: y = 2 * (x + 2 * w) + c, and z = y through a tensor map over the output."""
    import numpy as np

    kernels = (
        kernel("double", DOUBLE),
        kernel("add", ADD, "ptx", cluster=2, shared_bytes=100_000),
        kernel("through_map", "map ppm n=1000", tensor_maps=(ROW_MAP,)),
        kernel(
            "counting",
            "count ppp n=1000 full=2 zeroed=64",
            workspace_bytes=256,
            zeroed_bytes=64,
            cooperative=True,
        ),
        kernel("checking", "check ppp n=1000 full=2 limit=100000 check=1", asserts=("no", "value too large")),
    )
    constant = Constant(vector("c"), np.arange(1000, dtype=np.float32).tobytes())
    return package(
        kernels,
        main=(
            step(1, "input:0", "packed", "arena"),
            step(0, "arena", "arena+4096", dispatch="dispatch_1"),
            step(1, "arena+4096", "constant:0", "arena"),
            step(3, "arena", "output:0"),
            step(2, "output:0", "output:1"),
            step(4, "output:0", "arena", dispatch="dispatch_5"),
        ),
        outputs=(vector("y"), vector("z")),
        weights=(vector("w"),),
        constants=(constant,),
        prepack=(step(0, "weight:0", "packed"),),
        arena_bytes=8192,
        packed_bytes=4000,
    )
