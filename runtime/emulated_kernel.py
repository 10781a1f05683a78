"""One emulated GPU kernel: loads its object code, runs launches of it, says what was found in the kernel's own words.

The object code holds a description that the compiler wrote beside it, as JSON: `sites` (text and place of every
operation that can be named in a finding), `atomic` (which of them are atomic), `buffers` (of every memref argument:
bytes, granule, whether the kernel writes to it, whether it is `llvm.noalias`), `checked` and `async_proxy`.
"""

from __future__ import annotations

import ctypes
import json
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.runtime import emulator_native as native
from tilewright.runtime import launch_rules
from tilewright.runtime.errors import EmulationError, PackageError
from tilewright.runtime.program import Launch

KINDS = {
    1: "out of bounds",
    2: "misaligned access",
    3: "uninitialised read",
    4: "race",
    5: "divergence",
    6: "standstill",
    7: "unfinished work",
    8: "misuse",
    9: "early access",
}
"""Kinds of findings as csrc/emulator_abi.h numbers them."""


@dataclass(frozen=True)
class Memory:
    """A buffer of a launch: where it is, and how many of its bytes hold values before (-1 for what its kind says)."""

    address: int
    nbytes: int
    ready_bytes: int = -1


class EmulatedKernel:
    """A loaded kernel. Raises PackageError when the object code is refused, or this machine cannot emulate."""

    def __init__(self, name: str, object_: bytes, launch: Launch):
        broken = launch_rules.broken_rule(launch)
        if broken:
            raise PackageError(f"kernel `{name}`: {broken}")
        self.name, self.launch = name, launch
        self._handle = native.load(name, object_)
        weakref.finalize(self, native.library().tw_emulator_unload, self._handle).atexit = False
        self.description = json.loads(native.library().tw_emulator_describe(self._handle))
        self._atomic = bytes(self.description["atomic"])

    def run(self, memory: Sequence[Memory], *, seed: int = 0, checked: bool = True, workers: int = 1) -> None:
        """Runs one launch on the kernel's memref arguments in order: buffers, workspace, status.

        Raises EmulationError with everything that was found, PackageError for arguments that do not fit.
        """
        buffers = self._buffers(memory)
        maps = self._maps(memory)
        parameters = (ctypes.c_void_p * (len(memory) + len(maps) + 1))()
        for number, entry in enumerate(memory):
            parameters[number] = entry.address
        for number in range(len(maps)):
            parameters[len(memory) + number] = ctypes.addressof(maps) + number * ctypes.sizeof(native.Map)
        launch = self.launch
        table = native.Emulation(
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            shared_bytes=launch.shared_bytes,
            is_cooperative=launch.cooperative,
            is_checked=checked and self.description["checked"],
            workers=workers,
            has_async_proxy=self.description["async_proxy"],
            overlaps=launch.overlaps,
            seed=seed,
            buffers=buffers,
            buffer_count=len(memory),
            parameters=parameters,
            maps=maps,
            map_count=len(maps),
            site_atomic=self._atomic,
            site_count=len(self._atomic),
        )
        findings = native.run(self._handle, table)
        if findings:
            raise EmulationError(self.report(findings, seed))

    def report(self, findings: Sequence[native.Finding], seed: int) -> str:
        """The findings as text: what, who, and the operations involved with their places in the source."""
        lines = [f"kernel `{self.name}`, seed {seed}: {len(findings)} finding(s)"]
        for finding in findings:
            text = finding.text.decode(errors="replace")
            sentence = re.sub(r"\{(\d+)\}", lambda found: self._short(int(found[1])), text)
            lines.append(
                f"- {KINDS[finding.kind]}: block {finding.block}, thread {finding.thread} {sentence}\n"
                f"    in {self._site(finding.site)}"
            )
            if finding.other_site >= 0:
                lines.append(f"    and {self._site(finding.other_site)}")
        return "\n".join(lines)

    def _site(self, number: int) -> str:
        sites = self.description["sites"]
        return sites[number] if 0 <= number < len(sites) else "an operation without a number"

    def _short(self, number: int) -> str:
        text = self._site(number)
        found = re.search(r'"?\b([a-z_]+\.[a-z_0-9.]+)', text)
        return f"`{found[1] if found else text}` (operation {number})"

    def _buffers(self, memory: Sequence[Memory]) -> ctypes.Array:
        described = self.description["buffers"]
        if len(memory) != len(described):
            raise PackageError(
                f"kernel `{self.name}`: expected {len(described)} buffers, found {len(memory)}"
            )
        table = (native.Buffer * max(len(memory), 1))()
        zeroed = self.launch.zeroed_bytes
        for number, (entry, facts) in enumerate(zip(memory, described)):
            if entry.nbytes < facts["bytes"]:
                raise PackageError(
                    f"kernel `{self.name}`: buffer {number} needs {facts['bytes']} B, found {entry.nbytes} B"
                )
            ready = entry.ready_bytes
            if ready < 0:
                ready = {"workspace": zeroed, "status": entry.nbytes}.get(
                    facts["kind"], 0 if facts["written"] else entry.nbytes
                )
            table[number] = native.Buffer(
                entry.address,
                facts["bytes"],
                ready,
                facts["granule"],
                facts["written"],
                facts["kind"] == "status",
                facts["private"],
            )
        return table

    def _maps(self, memory: Sequence[Memory]) -> ctypes.Array:
        table = (native.Map * len(self.launch.tensor_maps))()
        for number, map_ in enumerate(self.launch.tensor_maps):
            size = launch_rules.TENSOR_MAP_DTYPES[map_.dtype].nbytes
            covered, held = launch_rules.span_bytes(map_), memory[map_.buffer].nbytes
            if covered > held:
                raise PackageError(
                    f"kernel `{self.name}`: tensor map {number} covers {covered} B of buffer {map_.buffer}, which "
                    f"has {held} B"
                )
            entry = native.Map(
                address=memory[map_.buffer].address,
                rank=len(map_.shape),
                element_bytes=size,
                swizzle_bytes=map_.swizzle_bytes,
                buffer=map_.buffer,
            )
            for i, stride in enumerate((size, *map_.strides_bytes)):
                entry.shape[i], entry.strides[i] = map_.shape[i], stride
                entry.copied[i], entry.element_strides[i] = map_.copied[i], map_.steps[i]
            table[number] = entry
        return table
