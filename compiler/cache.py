"""The compile cache: kernels by the hash of what their code depends on, one file each, written atomically."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.lower import LoweredKernel
from tilewright.compiler.settings import settings
from tilewright.runtime.program import Kernel

_MAGIC = b"TWK1"


@dataclass(frozen=True)
class KernelCache:
    """A folder of kernels; a file is a magic word, the header's length, the header as JSON, and the object."""

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
        try:
            magic, length = struct.unpack_from("<4sI", data)
            header = json.loads(data[8 : 8 + length])
            code = data[8 + length :]
            if magic != _MAGIC or len(code) != header["object_bytes"]:
                raise ValueError("truncated")
            kernel = Kernel(name, header["symbol"], code, header["scratch_bytes"], tuple(header["asserts"]))
            return LoweredKernel(kernel, header["tasks"])
        except (ValueError, KeyError, struct.error) as error:
            debug.log(1, f"kernel {name}: damaged cache entry {key[:12]} ({error}), compiled anew")
            return None

    def store(self, key: str, lowered: LoweredKernel) -> None:
        """Writes the kernel; a folder that cannot be written only costs the next process a compilation."""
        kernel = lowered.kernel
        header = json.dumps(
            {
                "symbol": kernel.symbol,
                "scratch_bytes": kernel.scratch_bytes,
                "asserts": list(kernel.asserts),
                "tasks": lowered.tasks,
                "object_bytes": len(kernel.object),
            }
        ).encode()
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(struct.pack("<4sI", _MAGIC, len(header)) + header + kernel.object)
            os.replace(file.name, path)
        except OSError as error:
            debug.log(1, f"kernel {kernel.name}: not cached: {error}")
