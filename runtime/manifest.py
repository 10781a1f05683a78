"""A package as JSON data plus named tensors, and back, every field checked on the way in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from tilewright.runtime.container import Entry
from tilewright.runtime.errors import ArtifactError
from tilewright.runtime.launch_rules import broken_rule
from tilewright.runtime.program import (
    DENORMALS,
    ITEM_BYTES,
    SPACES,
    BufferRef,
    Constant,
    Kernel,
    Launch,
    Package,
    Program,
    Step,
    TensorMap,
    TensorSpec,
    Update,
)


def spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def package_to_json(package: Package, tensors: dict[str, Entry]) -> dict[str, Any]:
    """The manifest's part about a package; code, constants and step tables are added to `tensors`."""
    kernels = []
    for number, kernel in enumerate(package.kernels):
        key = f"kernels/{number:04}/{kernel.name}"
        tensors[key] = _bytes_entry(kernel.object)
        kernels.append(
            {
                "name": kernel.name,
                "symbol": kernel.symbol,
                "scratch_bytes": kernel.scratch_bytes,
                "asserts": list(kernel.asserts),
                "object": key,
                "launch": _launch_to_json(kernel.launch, f"ptx/{number:04}/{kernel.name}", tensors),
            }
        )
    constants = []
    for number, constant in enumerate(package.constants):
        key = f"constants/{number:04}/{constant.spec.name}"
        tensors[key] = Entry(constant.spec.dtype, constant.spec.shape, constant.data)
        constants.append({**spec_to_json(constant.spec), "tensor": key})
    return {
        "target": package.target,
        "features": list(package.features),
        "inputs": [spec_to_json(spec) for spec in package.inputs],
        "outputs": [spec_to_json(spec) for spec in package.outputs],
        "weights": [spec_to_json(spec) for spec in package.weights],
        "constants": constants,
        "kernels": kernels,
        "main": _program_to_json("main", package.main, tensors),
        "prepack": _program_to_json("prepack", package.prepack, tensors),
        "packed_bytes": package.packed_bytes,
        "denormals": package.denormals,
        "updates": [asdict(update) for update in package.updates],
        # Seconds differ from run to run, artifacts must not.
        "notes": {key: note for key, note in package.notes.items() if key != "phases_s"},
    }


def _launch_to_json(launch: Launch | None, ptx: str, tensors: dict[str, Entry]) -> dict[str, Any] | None:
    if launch is None:
        return None
    data = asdict(launch)
    if launch.ptx:
        tensors[ptx] = _bytes_entry(launch.ptx)
    data["ptx"] = ptx if launch.ptx else None
    return data


def _bytes_entry(data: bytes) -> Entry:
    return Entry("u8", (len(data),), data)


def _program_to_json(name: str, program: Program, tensors: dict[str, Entry]) -> dict[str, Any]:
    steps = [(step.kernel, len(step.buffers), step.tasks) for step in program.steps]
    refs = [(SPACES.index(r.space), r.index, r.offset) for step in program.steps for r in step.buffers]
    for part, rows in (("steps", steps), ("buffers", refs)):
        table = np.array(rows, "<i8").reshape(-1, 3)
        tensors[f"programs/{name}/{part}"] = Entry("i64", table.shape, table)
    return {
        "steps": f"programs/{name}/steps",
        "buffers": f"programs/{name}/buffers",
        "arena_bytes": program.arena_bytes,
        "dispatches": [step.dispatch for step in program.steps],
    }


class Reader:
    """Typed access to untrusted JSON; every refusal names the field by its path in the manifest."""

    def __init__(self, data: Any, place: str = "manifest"):
        self.data, self.place = data, place

    def fail(self, expected: str) -> ArtifactError:
        shown = repr(self.data)
        return ArtifactError(f"damaged: {self.place}: expected {expected}, found {shown[:60]}")

    def __getitem__(self, key: str) -> Reader:
        if not isinstance(self.data, dict) or key not in self.data:
            raise self.fail(f"an object with `{key}`")
        return Reader(self.data[key], f"{self.place}.{key}")

    def items(self) -> list[Reader]:
        if not isinstance(self.data, list):
            raise self.fail("a list")
        return [Reader(item, f"{self.place}[{number}]") for number, item in enumerate(self.data)]

    def text(self) -> str:
        if not isinstance(self.data, str):
            raise self.fail("a string")
        return self.data

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def size(self) -> int:
        """An integer from 0 to 2**62."""
        if type(self.data) is not int or not 0 <= self.data <= 1 << 62:
            raise self.fail("a size")
        return self.data

    def sizes(self) -> tuple[int, ...]:
        return tuple(item.size() for item in self.items())

    def flag(self) -> bool:
        if not isinstance(self.data, bool):
            raise self.fail("true or false")
        return self.data

    def object(self) -> dict[str, Any]:
        if not isinstance(self.data, dict):
            raise self.fail("an object")
        return self.data

    def spec(self) -> TensorSpec:
        dtype = self["dtype"].text()
        if dtype not in ITEM_BYTES:
            raise self["dtype"].fail(f"one of {', '.join(ITEM_BYTES)}")
        spec = TensorSpec(
            self["name"].text(), dtype, tuple(extent.size() for extent in self["shape"].items())
        )
        if spec.nbytes > 1 << 62:
            raise self.fail("a tensor that fits in memory")
        return spec

    def tensor(self, tensors: Mapping[str, memoryview]) -> memoryview:
        key = self.text()
        if key not in tensors:
            raise self.fail("the name of a tensor in the file")
        return tensors[key]


def package_from_json(manifest: Reader, tensors: Mapping[str, memoryview]) -> Package:
    """The inverse of package_to_json; raises ArtifactError naming the field that is wrong.

    Kernel numbers, buffer places and the machine code itself are checked when the package is loaded.
    """
    kernels = tuple(
        Kernel(
            entry["name"].text(),
            entry["symbol"].text(),
            bytes(entry["object"].tensor(tensors)),
            entry["scratch_bytes"].size(),
            entry["asserts"].texts(),
            _launch_from_json(entry["launch"], tensors),
        )
        for entry in manifest["kernels"].items()
    )
    updates = tuple(
        Update(entry["output"].size(), entry["input"].size()) for entry in manifest["updates"].items()
    )
    if updates and any(kernel.launch for kernel in kernels):
        raise manifest["updates"].fail("none of a program for a GPU")
    return Package(
        target=manifest["target"].text(),
        features=manifest["features"].texts(),
        inputs=_specs(manifest["inputs"]),
        outputs=_specs(manifest["outputs"]),
        weights=_specs(manifest["weights"]),
        constants=tuple(
            Constant(entry.spec(), bytes(entry["tensor"].tensor(tensors)))
            for entry in manifest["constants"].items()
        ),
        kernels=kernels,
        main=_program_from_json(manifest["main"], tensors),
        prepack=_program_from_json(manifest["prepack"], tensors),
        packed_bytes=manifest["packed_bytes"].size(),
        notes=manifest["notes"].object(),
        denormals=_denormals(manifest["denormals"]),
        updates=updates,
    )


def _denormals(entry: Reader) -> str:
    if entry.text() not in DENORMALS:
        raise entry.fail(f"one of {', '.join(DENORMALS)}")
    return entry.text()


def _launch_from_json(entry: Reader, tensors: Mapping[str, memoryview]) -> Launch | None:
    if entry.data is None:
        return None
    launch = Launch(
        image=entry["image"].text(),
        grid=entry["grid"].size(),
        block=entry["block"].size(),
        cluster=entry["cluster"].size(),
        shared_bytes=entry["shared_bytes"].size(),
        workspace_bytes=entry["workspace_bytes"].size(),
        zeroed_bytes=entry["zeroed_bytes"].size(),
        cooperative=entry["cooperative"].flag(),
        tensor_maps=tuple(
            TensorMap(
                buffer=one["buffer"].size(),
                dtype=one["dtype"].text(),
                shape=one["shape"].sizes(),
                strides_bytes=one["strides_bytes"].sizes(),
                box=one["box"].sizes(),
                swizzle_bytes=one["swizzle_bytes"].size(),
                element_strides=one["element_strides"].sizes(),
            )
            for one in entry["tensor_maps"].items()
        ),
        registers=entry["registers"].size(),
        spill_bytes=entry["spill_bytes"].size(),
        ptx=b"" if entry["ptx"].data is None else bytes(entry["ptx"].tensor(tensors)),
        # Files from before kernels could overlap do not say so.
        overlaps="overlaps" in entry.object() and entry["overlaps"].flag(),
        # In files from before kernels said so, every block has one.
        rtasks=entry["rtasks"].size() if "rtasks" in entry.object() else 0,
    )
    broken = broken_rule(launch)
    if broken:
        raise ArtifactError(f"damaged: {entry.place}: {broken}")
    return launch


def _specs(entries: Reader) -> tuple[TensorSpec, ...]:
    return tuple(entry.spec() for entry in entries.items())


def _program_from_json(entry: Reader, tensors: Mapping[str, memoryview]) -> Program:
    steps, refs = _table(entry["steps"], tensors), _table(entry["buffers"], tensors)
    dispatches = entry["dispatches"].texts()
    if len(dispatches) != len(steps):
        raise entry["dispatches"].fail(f"{len(steps)} names")
    found, at = [], 0
    for (kernel, count, tasks), dispatch in zip(steps, dispatches):
        if not 0 <= count <= len(refs) - at:
            raise entry["steps"].fail(f"buffers within the {len(refs)} of the program, not {count} from {at}")
        buffers = []
        for space, index, offset in refs[at : at + count]:
            if not 0 <= space < len(SPACES):
                raise entry["buffers"].fail(f"spaces from 0 to {len(SPACES) - 1}, not {space}")
            buffers.append(BufferRef(SPACES[space], index, offset))
        found.append(Step(kernel, tuple(buffers), tasks, dispatch))
        at += count
    if at != len(refs):
        raise entry["buffers"].fail(f"{at} buffers, not {len(refs)}")
    return Program(tuple(found), entry["arena_bytes"].size())


def _table(entry: Reader, tensors: Mapping[str, memoryview]) -> list[list[int]]:
    data = entry.tensor(tensors)
    if len(data) % 24:
        raise entry.fail(f"rows of three integers, not {len(data)} B")
    return np.frombuffer(data, "<i8").reshape(-1, 3).tolist()
