"""The compile cache: kernels by the hash of what their code depends on, one file each, written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.lower import LoweredKernel
from tilewright.compiler.settings import settings
from tilewright.runtime.program import Kernel, Launch, TensorMap

_MAGIC = b"TWK4"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class KernelCache:
    """A folder of kernels.

    A file is a magic word, the SHA-256 of all that follows, the header's length, the header as JSON, the object, and
    PTX when there is some beside it: machine code that was damaged on the disk must not run.
    """

    folder: Path

    @classmethod
    def open(cls) -> KernelCache:
        return cls(settings().cache_dir / "kernels")

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.twk"

    def find(self, key: str, name: str) -> LoweredKernel | None:
        """The kernel stored under `key`, called `name` from now on; None if there is none or it is damaged."""
        try:
            data = self._path(key).read_bytes()
        except FileNotFoundError:
            debug.log(1, f"kernel {name}: not in the cache, key {key[:12]}")
            return None
        except OSError as error:
            debug.log(1, f"kernel {name}: cache entry {key[:12]} cannot be read: {error}")
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        body = data[start:]
        if data[:start] != _MAGIC + hashlib.sha256(body).digest():
            debug.log(1, f"kernel {name}: damaged cache entry {key[:12]}, compiled anew")
            return None
        (length,) = struct.unpack_from("<I", body)
        header, code = json.loads(body[4 : 4 + length]), body[4 + length :]
        launch = header["launch"]
        if launch is not None:
            code, ptx = code[: header["object_bytes"]], code[header["object_bytes"] :]
            launch = _launch(launch, ptx)
        kernel = Kernel(
            name, header["symbol"], code, header["scratch_bytes"], tuple(header["asserts"]), launch
        )
        return LoweredKernel(kernel, header["tasks"], header["whole"], header["family"])

    def store(self, key: str, lowered: LoweredKernel) -> None:
        """Writes the kernel; a folder that cannot be written only costs the next process a compilation."""
        kernel = lowered.kernel
        ptx = kernel.launch.ptx if kernel.launch else b""
        header = json.dumps(
            {
                "symbol": kernel.symbol,
                "scratch_bytes": kernel.scratch_bytes,
                "asserts": list(kernel.asserts),
                "tasks": lowered.tasks,
                "whole": lowered.whole,
                "family": lowered.family,
                "launch": kernel.launch and {**asdict(kernel.launch), "ptx": None},
                "object_bytes": len(kernel.object),
            }
        ).encode()
        body = struct.pack("<I", len(header)) + header + kernel.object + ptx
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(file.name, path)
        except OSError as error:
            debug.log(1, f"kernel {kernel.name}: not cached: {error}")


def _launch(data: dict, ptx: bytes) -> Launch:
    maps = tuple(
        TensorMap(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
        for entry in data["tensor_maps"]
    )
    return Launch(**{**data, "tensor_maps": maps, "ptx": ptx})
