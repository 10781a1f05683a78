"""A safetensors file, written and read without the safetensors library: named tensors behind a JSON header.

    u64 header length | JSON header, padded with spaces | tensor bytes without gaps

The header's length is chosen so that tensor bytes start at a multiple of 64. Tensors whose size is a multiple
of 64 come first, then the rest by falling element size: every tensor is aligned to its element, and all but a
few small ones to a cache line.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.runtime.errors import ArtifactError
from tilewright.runtime.program import ALIGNMENT_BYTES

DTYPES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16",
    "i8": "I8", "i1": "BOOL", "u64": "U64", "u32": "U32", "u16": "U16", "u8": "U8",
}  # fmt: skip
"""safetensors' names of dtypes; complex tensors are stored as pairs of their real type."""

_COMPLEX = {"c64": "F32", "c128": "F64"}
_LARGEST_HEADER_BYTES = 100_000_000  # the format's own limit


@dataclass(frozen=True)
class Entry:
    """One tensor to be written: dtype (a key of program.ITEM_BYTES), shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: Any

    @property
    def nbytes(self) -> int:
        return memoryview(self.data).nbytes


def write(path: str | os.PathLike[str], entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> None:
    """Writes the file, or leaves whatever was at `path` as it was when that fails."""
    part = Path(f"{os.fspath(path)}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.writelines(pieces(entries, metadata))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def pieces(entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """What a file holds, one piece after the other."""
    order = sorted(entries, key=lambda key: _rank(entries[key]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for key in order:
        entry = entries[key]
        pair = entry.dtype in _COMPLEX
        header[key] = {
            "dtype": _COMPLEX[entry.dtype] if pair else DTYPES[entry.dtype],
            "shape": [*entry.shape, 2] if pair else list(entry.shape),
            "data_offsets": [offset, offset + entry.nbytes],
        }
        offset += entry.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT_BYTES)
    yield len(text).to_bytes(8, "little") + text
    for key in order:
        yield memoryview(entries[key].data)


def _rank(entry: Entry) -> tuple[bool, int]:
    item = entry.nbytes and entry.nbytes & -entry.nbytes  # its largest power of two aligns what follows
    return entry.nbytes % ALIGNMENT_BYTES != 0, -item


@dataclass(frozen=True)
class Container:
    """A mapped file: its metadata and, per tensor, a read-only view of its bytes."""

    metadata: dict[str, str]
    tensors: dict[str, memoryview]


def read(path: str | os.PathLike[str]) -> Container:
    """Maps a safetensors file without copying it; raises ArtifactError saying what is wrong with it."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            view = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: cannot be read: {error}") from None
    return parse(view, path)


def parse(view: memoryview, path: str | os.PathLike[str]) -> Container:
    """Reads the bytes of a file; `path` names it in errors."""
    size = len(view)
    length = int.from_bytes(view[:8], "little")
    if size < 8 or length > _LARGEST_HEADER_BYTES or (view[8:9] != b"{" and size > 8):
        raise ArtifactError(f"{path}: not an artifact: it does not begin as a safetensors file does")
    if length > size - 8:
        raise ArtifactError(f"{path}: truncated: a header of {length} B in a file of {size} B")
    try:
        header = json.loads(bytes(view[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: damaged: its header is no JSON ({error})") from None
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict):
        raise ArtifactError(f"{path}: damaged: its header has no metadata")
    body = view[8 + length :]
    tensors, used = {}, 0
    for key, fields in header.items():
        begin, end = _offsets(path, key, fields)
        if end > len(body):
            raise ArtifactError(
                f"{path}: truncated: `{key}` ends at byte {8 + length + end}, the file has {size} B"
            )
        tensors[key] = body[begin:end]
        used = max(used, end)
    if used < len(body):
        raise ArtifactError(f"{path}: damaged: {len(body) - used} B follow its last tensor")
    return Container(metadata, tensors)


def _offsets(path: str | os.PathLike[str], key: str, fields: Any) -> tuple[int, int]:
    offsets = fields.get("data_offsets") if isinstance(fields, dict) else None
    if isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets):
        begin, end = offsets
        if 0 <= begin <= end:
            return begin, end
    raise ArtifactError(f"{path}: damaged: `{key}` has offsets {offsets}")
