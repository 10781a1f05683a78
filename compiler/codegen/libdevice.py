"""Finds NVIDIA's libdevice: the bitcode of exp, tanh, erf and their like, which PTX has no instructions for.

It is looked for in the packages nvidia-cuda-nvcc-* (extra `cuda`) and triton, then in CUDA installations.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tilewright.compiler.errors import TilewrightError

FILE = "libdevice.10.bc"


class LibdeviceError(TilewrightError):
    """A kernel calls mathematical functions and no libdevice is installed."""


def package_folders(name: str) -> list[Path]:
    """Folders of an installed package, which is not imported; none when it is absent."""
    spec = find_spec(name)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def cuda_folders() -> list[Path]:
    """Folders of CUDA installations, newest first, where the system keeps them."""
    versions = sorted(Path("/usr/local").glob("cuda-*"), reverse=True)
    return [folder for folder in (Path("/usr/local/cuda"), *versions, Path("/opt/cuda")) if folder.is_dir()]


def _candidates() -> list[Path]:
    nvidia = [
        found
        for folder in package_folders("nvidia")
        for found in sorted(folder.glob(f"*/nvvm/libdevice/{FILE}"))
    ]
    triton = [folder / "backends/nvidia/lib" / FILE for folder in package_folders("triton")]
    cuda = [folder / "nvvm/libdevice" / FILE for folder in cuda_folders()]
    return [*nvidia, *triton, *cuda]


@cache
def find() -> Path:
    """The path of libdevice; raises LibdeviceError that says how to get one."""
    for path in _candidates():
        if path.is_file():
            return path
    raise LibdeviceError(
        f"this kernel needs NVIDIA's {FILE}, found none in the packages nvidia-cuda-nvcc and triton nor under "
        "/usr/local/cuda; install the extra: pip install 'tilewright[cuda]'"
    )
