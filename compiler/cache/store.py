"""The compile cache: kernels and imported modules by the hash of what they depend on, a file each, written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.codegen.lower_cpu import LoweredKernel
from tilewright.compiler.settings import settings
from tilewright.runtime.program import Kernel, Launch, TensorMap

_MAGIC, _IMPORT_MAGIC = b"TWK4", b"TWI1"
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
        body = _read(self._path(key), _MAGIC, f"kernel {name}")
        if body is None:
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
        return LoweredKernel(kernel, header["tasks"], header["family"])

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
                "family": lowered.family,
                "launch": kernel.launch and {**asdict(kernel.launch), "ptx": None},
                "object_bytes": len(kernel.object),
            }
        ).encode()
        body = struct.pack("<I", len(header)) + header + kernel.object + ptx
        _write(self._path(key), _MAGIC, body, f"kernel {kernel.name}")


@dataclass(frozen=True)
class ImportCache:
    """A folder of modules on linalg, as bytecode, by what torch-mlir made them of."""

    folder: Path

    @classmethod
    def open(cls) -> ImportCache:
        return cls(settings().cache_dir / "imports")

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.mlirbc"

    def find(self, key: str) -> bytes | None:
        """The module stored under `key`; None if there is none or it is damaged."""
        return _read(self._path(key), _IMPORT_MAGIC, "import")

    def store(self, key: str, module: bytes) -> None:
        """Writes the module, where the folder can be written."""
        _write(self._path(key), _IMPORT_MAGIC, module, "import")


def _read(path: Path, magic: bytes, what: str) -> bytes | None:
    """What `_write` wrote, or None with the reason in the debug log."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        debug.log(1, f"{what}: not in the cache, key {path.stem[:12]}")
        return None
    except OSError as error:
        debug.log(1, f"{what}: cache entry {path.stem[:12]} cannot be read: {error}")
        return None
    start = len(magic) + _DIGEST_BYTES
    body = data[start:]
    if data[:start] != magic + hashlib.sha256(body).digest():
        debug.log(1, f"{what}: damaged cache entry {path.stem[:12]}, compiled anew")
        return None
    return body


def _write(path: Path, magic: bytes, body: bytes, what: str) -> None:
    """A magic word, the SHA-256 of all that follows, and `body`; a folder that cannot be written costs only time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(magic + hashlib.sha256(body).digest() + body)
        os.replace(file.name, path)
    except OSError as error:
        debug.log(1, f"{what}: not cached: {error}")


def _launch(data: dict, ptx: bytes) -> Launch:
    maps = tuple(
        TensorMap(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
        for entry in data["tensor_maps"]
    )
    return Launch(**{**data, "tensor_maps": maps, "ptx": ptx})
