"""The emulator's C functions through ctypes: its structs, loading a kernel, running one launch."""

from __future__ import annotations

import ctypes
from functools import cache

from tilewright.runtime import native
from tilewright.runtime.errors import PackageError

_ERROR_BYTES = 1024
MOST_FINDINGS = 16
"""Findings after which a launch is ended."""

i32, i64, u64, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p


class Finding(ctypes.Structure):
    _fields_ = (
        ("kind", i32),
        ("site", i32),
        ("block", i64),
        ("thread", i64),
        ("other_site", i32),
        ("reserved", i32),
        ("other_block", i64),
        ("other_thread", i64),
        ("text", ctypes.c_char * 640),
    )


class Buffer(ctypes.Structure):
    _fields_ = (
        ("address", u64),
        ("bytes", i64),
        ("ready_bytes", i64),
        ("granule", i32),
        ("is_written", i32),
        ("is_flag", i32),
        ("is_private", i32),
    )


class Map(ctypes.Structure):
    _fields_ = (
        ("address", u64),
        ("rank", i32),
        ("element_bytes", i32),
        ("swizzle_bytes", i32),
        ("buffer", i32),
        ("shape", i64 * 5),
        ("strides", i64 * 5),
        ("copied", i64 * 5),
        ("element_strides", i64 * 5),
    )


class Emulation(ctypes.Structure):
    _fields_ = (
        ("grid", i64),
        ("block", i64),
        ("cluster", i64),
        ("shared_bytes", i64),
        ("is_cooperative", i32),
        ("is_checked", i32),
        ("workers", i32),
        ("has_async_proxy", i32),
        ("overlaps", i32),
        ("reserved", i32),
        ("seed", u64),
        ("buffers", ctypes.POINTER(Buffer)),
        ("buffer_count", i64),
        ("parameters", ctypes.POINTER(pointer)),
        ("maps", ctypes.POINTER(Map)),
        ("map_count", i64),
        ("site_atomic", ctypes.c_char_p),
        ("site_count", i64),
        ("findings", ctypes.POINTER(Finding)),
        ("most_findings", i64),
        ("finding_count", i64),
    )


@cache
def library() -> ctypes.CDLL:
    """The runtime library with the emulator's functions declared."""
    lib = native.library()
    lib.tw_emulator_load.restype = pointer
    lib.tw_emulator_load.argtypes = (ctypes.POINTER(native._Object), ctypes.c_char_p, u64)
    lib.tw_emulator_unload.restype = None
    lib.tw_emulator_unload.argtypes = (pointer,)
    lib.tw_emulator_describe.restype = ctypes.c_char_p
    lib.tw_emulator_describe.argtypes = (pointer,)
    lib.tw_emulator_run.restype = i64
    lib.tw_emulator_run.argtypes = (pointer, ctypes.POINTER(Emulation), ctypes.c_char_p, u64)
    return lib


def load(name: str, object_: bytes) -> int:
    """Loads a kernel's object code, which must define `tw_kernel`; raises PackageError."""
    described = native._Object(object_, len(object_), name.encode(), b"tw_kernel", 0)
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    handle = library().tw_emulator_load(ctypes.byref(described), error, _ERROR_BYTES)
    if not handle:
        raise PackageError(error.value.decode(errors="replace"))
    return handle


def run(handle: int, table: Emulation) -> list[Finding]:
    """Runs one launch; the findings in the order they were made. Raises MemoryError."""
    findings = (Finding * MOST_FINDINGS)()
    table.findings = findings
    table.most_findings = MOST_FINDINGS
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if library().tw_emulator_run(handle, ctypes.byref(table), error, _ERROR_BYTES):
        raise MemoryError(f"emulation: {error.value.decode(errors='replace')}")
    return list(findings[: table.finding_count])
