"""The runtime library through ctypes: its structs, its functions, and packages flattened into its tables."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

import tilewright.runtime
from tilewright.runtime.errors import PackageError
from tilewright.runtime.program import SPACES, Package, Program, TensorSpec

ABI_VERSION = 7
"""TW_ABI_VERSION of csrc/abi.h."""

ERROR_MEMORY, ERROR_UNBOUND = -1, -2
_ERROR_BYTES = 1024

i32, i64, u64, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p


class _Object(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_char_p),
        ("size", u64),
        ("name", ctypes.c_char_p),
        ("symbol", ctypes.c_char_p),
        ("scratch_bytes", i64),
    )


class _BufferRef(ctypes.Structure):
    _fields_ = (("space", i32), ("index", i32), ("offset", i64))


class _Step(ctypes.Structure):
    _fields_ = (("kernel", i32), ("buffer_count", i32), ("first_buffer", i64), ("tasks", i64))


class _Program(ctypes.Structure):
    _fields_ = (
        ("steps", ctypes.POINTER(_Step)),
        ("step_count", i64),
        ("buffers", ctypes.POINTER(_BufferRef)),
        ("buffer_count", i64),
        ("arena_bytes", i64),
    )


class _Update(ctypes.Structure):
    _fields_ = (("output", i64), ("input", i64))


class _Package(ctypes.Structure):
    _fields_ = (
        ("objects", ctypes.POINTER(_Object)),
        ("object_count", i64),
        ("input_bytes", ctypes.POINTER(i64)),
        ("input_count", i64),
        ("output_bytes", ctypes.POINTER(i64)),
        ("output_count", i64),
        ("weight_bytes", ctypes.POINTER(i64)),
        ("weight_count", i64),
        ("constant_bytes", ctypes.POINTER(i64)),
        ("constants", ctypes.POINTER(ctypes.c_char_p)),
        ("constant_count", i64),
        ("packed_bytes", i64),
        ("main", _Program),
        ("prepack", _Program),
        ("flush_denormals", i64),
        ("updates", ctypes.POINTER(_Update)),
        ("update_count", i64),
    )


@cache
def library() -> ctypes.CDLL:
    """The runtime library; raises PackageError when it is missing or of another version."""
    name = "libtilewright_runtime.so"
    found = [path for folder in tilewright.runtime.__path__ if (path := Path(folder) / name).exists()]
    if not found:
        raise PackageError(f"`{name}` is not beside the runtime package; reinstall tilewright")
    lib = ctypes.CDLL(str(found[0]))
    version = lib.tw_abi_version()
    if version != ABI_VERSION:
        raise PackageError(
            f"{found[0]}: interface version {version}, tilewright needs {ABI_VERSION}; rebuild it"
        )
    lib.tw_create.restype = pointer
    lib.tw_create.argtypes = (ctypes.POINTER(_Package), ctypes.c_char_p, u64)
    lib.tw_destroy.restype = None
    lib.tw_destroy.argtypes = (pointer,)
    lib.tw_bind.restype = i64
    lib.tw_bind.argtypes = (pointer, pointer, ctypes.c_int)
    lib.tw_run.restype = i64
    lib.tw_run.argtypes = (pointer, pointer, pointer, ctypes.c_int, pointer)
    lib.tw_code_bytes.restype = u64
    lib.tw_code_bytes.argtypes = (pointer,)
    lib.tw_reserve.restype = pointer
    lib.tw_reserve.argtypes = (u64,)
    lib.tw_release.restype = None
    lib.tw_release.argtypes = (pointer, u64)
    for crc in (lib.tw_crc32c, lib.tw_crc32c_portable):
        crc.restype = ctypes.c_uint32
        crc.argtypes = (pointer, u64)
    lib.tw_fingerprint.restype = u64
    lib.tw_fingerprint.argtypes = (pointer, pointer, u64)
    return lib


def create(package: Package) -> int:
    """Loads a package's kernels and tables; returns a handle for `tw_destroy`. Raises PackageError."""
    lib = library()
    if any(feature.startswith("amx") for feature in package.features) and lib.tw_request_amx() != 0:
        raise PackageError("the kernels use AMX tiles, which this system does not grant to the process")
    table = flatten(package)
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    handle = lib.tw_create(ctypes.byref(table), error, _ERROR_BYTES)
    if not handle:
        raise PackageError(error.value.decode(errors="replace"))
    return handle


def crc32c(data) -> int:
    """CRC-32C of a buffer object's bytes, read-only ones included."""
    view = np.frombuffer(data, np.uint8)
    return library().tw_crc32c(view.ctypes.data, view.nbytes)


def flatten(package: Package) -> _Package:
    """A package as the library's struct, which keeps alive what it points to; raises PackageError."""
    try:
        return _flatten(package)
    except (KeyError, OverflowError, TypeError, ctypes.ArgumentError) as error:
        raise PackageError(f"the package's tables hold a value that does not fit: {error!r}") from None


def _flatten(package: Package) -> _Package:
    kernels = package.kernels
    objects = (_Object * len(kernels))(
        *(
            (bytes(k.object), len(k.object), k.name.encode(), k.symbol.encode(), _fits(k.scratch_bytes))
            for k in kernels
        )
    )
    constants = package.constants
    for constant in constants:
        if len(constant.data) != constant.spec.nbytes:
            raise PackageError(
                f"constant `{constant.spec.name}`: spec {constant.spec.nbytes} B, data {len(constant.data)} B"
            )
    return _Package(
        objects=objects,
        object_count=len(kernels),
        input_bytes=_sizes(package.inputs),
        input_count=len(package.inputs),
        output_bytes=_sizes(package.outputs),
        output_count=len(package.outputs),
        weight_bytes=_sizes(package.weights),
        weight_count=len(package.weights),
        constant_bytes=_sizes([constant.spec for constant in constants]),
        constants=(ctypes.c_char_p * len(constants))(*(bytes(constant.data) for constant in constants)),
        constant_count=len(constants),
        packed_bytes=_fits(package.packed_bytes),
        main=_flatten_program(package.main),
        prepack=_flatten_program(package.prepack),
        flush_denormals=int(package.denormals == "flush"),
        updates=(_Update * len(package.updates))(
            *((_fits(update.output), _fits(update.input)) for update in package.updates)
        ),
        update_count=len(package.updates),
    )


def _flatten_program(program: Program) -> _Program:
    space_ids = {space: number for number, space in enumerate(SPACES)}
    steps, refs = [], []
    for step in program.steps:
        steps.append((_fits(step.kernel, 31), len(step.buffers), len(refs), _fits(step.tasks)))
        refs.extend((space_ids[ref.space], _fits(ref.index, 31), _fits(ref.offset)) for ref in step.buffers)
    return _Program(
        (_Step * len(steps))(*steps),
        len(steps),
        (_BufferRef * len(refs))(*refs),
        len(refs),
        _fits(program.arena_bytes),
    )


def _sizes(specs: Sequence[TensorSpec]):
    return (i64 * len(specs))(*(_fits(spec.nbytes) for spec in specs))


def _fits(value: int, bits: int = 63) -> int:
    """`value` unchanged when a signed integer of `bits` + 1 bits holds it; ctypes itself would wrap it."""
    if not -(1 << bits) <= value < 1 << bits:
        raise OverflowError(f"{value} needs more than {bits + 1} bits")
    return value


BUILTINS = tuple(
    f"__{name}2"
    for name in ("truncsfhf", "truncdfhf", "truncsfbf", "truncdfbf", "extendhfsf", "extendhfdf", "extendbfsf")
)
"""Conversions of 16-bit floats that LLVM calls where a CPU has no instruction for them."""


def builtin_address(name: str) -> int:
    """Where one of BUILTINS is, for other loaders of compiled code than the runtime's own."""
    function = library().tw_builtin
    function.restype, function.argtypes = pointer, [ctypes.c_char_p]
    return function(name.encode())
