"""AMX on any CPU: LLVM IR whose tile instructions are calls back into Python, which keeps the eight tile registers.

The loops, addresses, shapes, strides and register numbers around the instructions stay the ones that real tiles are
compiled from. What a CPU would fault on is recorded: a register that the loaded configuration does not have, shapes
that do not fit each other, a tile used before LDTILECFG or after TILERELEASE.

Source: Intel, Architecture Instruction Set Extensions and Future Features, 319433, ch. 3.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np


class Tiles:
    """The state of one core, and what it was asked to do: `faults`, and how often each instruction ran."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.data: list[np.ndarray] = []
        self.faults: list[str] = []
        self.ran: Counter[str] = Counter()

    def ldtilecfg(self, memory: int) -> None:
        configuration = _bytes(memory, 64)
        row_bytes, rows = configuration[16:32].view(np.uint16), configuration[48:56]
        if configuration[0] != 1 or configuration[1:16].any() or row_bytes.max() > 64 or rows.max() > 16:
            raise ValueError(f"no configuration: {configuration.tobytes().hex()}")
        if ((row_bytes == 0) != (rows == 0)).any():
            raise ValueError(f"a tile with one extent of 0: {configuration.tobytes().hex()}")
        self.shapes = [(int(r), int(b)) for r, b in zip(rows, row_bytes)]
        self.data = [np.zeros(shape, np.uint8) for shape in self.shapes]

    def tilerelease(self) -> None:
        self.shapes, self.data = [], []

    def tilezero(self, register: int) -> None:
        self._tile(register)[:] = 0

    def tileloadd64(self, register: int, memory: int, stride: int) -> None:
        tile = self._tile(register)
        tile[:] = _strided(memory, stride, tile.shape)

    def tilestored64(self, register: int, memory: int, stride: int) -> None:
        tile = self._tile(register)
        _strided(memory, stride, tile.shape)[:] = tile

    def tdpbf16ps(self, sums: int, rows: int, columns: int) -> None:
        c, a, b = self._operands(sums, rows, columns)
        left, right = (_float32(a.view(np.uint16)), _float32(b.view(np.uint16)))
        with np.errstate(all="ignore"):
            c.view(np.float32)[:] += left @ _interleaved(right, 2)

    def tdpbusd(self, sums: int, rows: int, columns: int) -> None:
        c, a, b = self._operands(sums, rows, columns)
        right = _interleaved(b.view(np.int8), 4).astype(np.int32)
        c.view(np.int32)[:] += a.astype(np.int32) @ right

    def _tile(self, register: int) -> np.ndarray:
        if not self.shapes:
            raise ValueError("no configuration is loaded")
        if 0 in self.shapes[register]:
            raise ValueError(f"tmm{register} is not configured")
        return self.data[register]

    def _operands(self, *registers: int) -> list[np.ndarray]:
        c, a, b = (self._tile(register) for register in registers)
        if len(set(registers)) < 3 or (c.shape[0], c.shape[1]) != (a.shape[0], b.shape[1]):
            raise ValueError(f"tmm{registers}: {c.shape} is no product of {a.shape} and {b.shape}")
        if a.shape[1] != 4 * b.shape[0]:
            raise ValueError(f"tmm{registers}: rows of {a.shape} do not meet columns of {b.shape}")
        return [c, a, b]


def _bytes(address: int, count: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)


def _strided(address: int, stride: int, shape: tuple[int, ...]) -> np.ndarray:
    memory = _bytes(address, (shape[0] - 1) * stride + shape[1])
    return np.lib.stride_tricks.as_strided(memory, shape, (stride, 1))


def _float32(halves: np.ndarray) -> np.ndarray:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _interleaved(tile: np.ndarray, group: int) -> np.ndarray:
    """`[k / group, n * group]`, as column operands lie in tiles, as `[k, n]`."""
    groups, width = tile.shape
    return tile.reshape(groups, width // group, group).transpose(0, 2, 1).reshape(-1, width // group)


_BYTE, _POINTER, _WORD = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
_SIGNATURES = {
    "ldtilecfg": (_POINTER,),
    "tilerelease": (),
    "tilezero": (_BYTE,),
    "tileloadd64": (_BYTE, _POINTER, _WORD),
    "tilestored64": (_BYTE, _POINTER, _WORD),
    "tdpbf16ps": (_BYTE, _BYTE, _BYTE),
    "tdpbusd": (_BYTE, _BYTE, _BYTE),
}
_INTRINSIC = re.compile(r"@llvm\.x86\.(" + "|".join(_SIGNATURES) + r")\(")


class Emulator:
    """Rewrites LLVM IR to call `tiles`; code made from it runs while this object lives, on one thread."""

    def __init__(self) -> None:
        self.tiles = Tiles()
        self._entries = {
            name: ctypes.CFUNCTYPE(None, *types)(self._guarded(name)) for name, types in _SIGNATURES.items()
        }

    def _guarded(self, name: str) -> Callable[..., None]:
        def run(*arguments: int) -> None:
            self.tiles.ran[name] += 1
            try:
                getattr(self.tiles, name)(*arguments)
            except ValueError as fault:
                self.tiles.faults.append(f"{name}: {fault}")

        return run

    def rewritten(self, text: str) -> str:
        """The IR with every tile instruction as a call back."""

        def called(match: re.Match[str]) -> str:
            address = ctypes.cast(self._entries[match[1]], ctypes.c_void_p).value
            return f"inttoptr (i64 {address} to ptr)("

        lines = text.split("\n")
        return "\n".join(
            _INTRINSIC.sub(called, line)
            for line in lines
            if not (line.startswith("declare") and _INTRINSIC.search(line))
        )


@contextmanager
def emulator() -> Iterator[Emulator]:
    """An emulator that must have met no fault by the end."""
    made = Emulator()
    yield made
    assert not made.tiles.faults, made.tiles.faults[:5]
