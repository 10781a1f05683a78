"""Launch data of GPU kernels in artifacts: written and read back whole, refused where it cannot be right."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tilewright.compiler.gpu.tensor_maps import read_tensor_map, tensor_map
from tilewright.compiler.ir import context
from tilewright.runtime import artifact, container, native
from tilewright.runtime.container import Entry
from tilewright.runtime.errors import ArtifactError
from tilewright.runtime.launch_rules import broken_rule, span_bytes
from tilewright.runtime.program import (
    BufferRef,
    Kernel,
    Launch,
    Package,
    Program,
    Step,
    TensorMap,
    TensorSpec,
)

MAP = TensorMap(0, "f16", (72, 33), (144,), (64, 16), 128)
STEPPED = TensorMap(0, "f16", (8, 3, 33), (16, 48), (8, 1, 32), 0, (1, 1, 2))
LAUNCH = Launch(
    "cubin", 6, 384, 2, 100_000, 1024, 256, True, (MAP, STEPPED), 168, 4, b".version 8.0", rtasks=9
)


def package(launch: Launch | None = LAUNCH) -> Package:
    kernels = (
        Kernel("gemm", "gemm_symbol", b"\x7fELF", asserts=("index in range",), launch=launch),
        Kernel("plain", "plain", b".version 8.0", launch=Launch("ptx", 0, 32, overlaps=True)),
    )
    specs = (TensorSpec("x", "f16", (33, 72)),), (TensorSpec("y", "f16", (33, 72)),)
    steps = (
        Step(0, (BufferRef("input"), BufferRef("output")), 9, "dispatch_0"),
        Step(1, (BufferRef("output"),), 0),
    )
    return Package("cuda:sm_90a", (), *specs, (), (), kernels, Program(steps, 64))


def test_comes_back_whole(tmp_path):
    path = tmp_path / "p.safetensors"
    artifact.save_package(package(), path)
    assert artifact.load_package(path) == package()
    artifact.save_package(package(None), path)
    assert artifact.load_package(path) == package(None)


def rewritten(path, change):
    file = container.read(path)
    manifest = json.loads(file.metadata["manifest"])
    change(manifest["kernels"][0]["launch"])
    text = json.dumps(manifest)
    tensors = {key: Entry("u8", (len(data),), bytes(data)) for key, data in file.tensors.items()}
    sums = {"format": artifact.PACKAGE_FORMAT, "manifest": text}
    container.write(path, tensors, {**sums, "manifest_crc32c": f"{native.crc32c(text.encode()):08x}"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(image="sass"), r"kernels\[0\].launch: image: expected one of cubin, ptx, emul"),
        (lambda m: m.update(grid=-1), r"launch.grid: expected a size, found -1"),
        (lambda m: m.update(grid=True), r"launch.grid: expected a size, found True"),
        (lambda m: m.update(grid=1 << 31), "grid: expected 0 to 2147483647 blocks, found 2147483648"),
        (lambda m: m.update(block=100), "block: expected whole warps of 32"),
        (lambda m: m.update(cluster=4), "cluster: expected 1 to 16 blocks that divide the grid of 6, found 4"),
        (lambda m: m.update(rtasks=2), "rtasks: expected 3, one for each block or cluster, to 2147483647, found 2"),
        (lambda m: m.update(rtasks=1 << 31), "rtasks: expected 3.* to 2147483647, found 2147483648"),
        (lambda m: m.update(rtasks="9"), "launch.rtasks: expected a size, found '9'"),
        (lambda m: m.update(zeroed_bytes=2048), "zeroed_bytes: expected 0 to workspace_bytes 1024"),
        (lambda m: m.update(cooperative=1), "launch.cooperative: expected true or false, found 1"),
        (lambda m: m.update(ptx="weights/none"), "launch.ptx: expected the name of a tensor in the file"),
        (lambda m: m.pop("registers"), "launch: expected an object with `registers`"),
        (lambda m: m["tensor_maps"][0].pop("box"), r"tensor_maps\[0\]: expected an object with `box`"),
        (lambda m: m["tensor_maps"][0].update(shape=[72, "x"]), r"tensor_maps\[0\].shape\[1\]: expected a size"),
        (
            lambda m: m["tensor_maps"][0].update(strides_bytes=[150]),
            r"launch: tensor_maps\[0\].strides_bytes: expected multiples of 16 B",
        ),
    ],
)  # fmt: skip
def test_bad_fields_are_named(tmp_path, change, message):
    path = tmp_path / "p.safetensors"
    artifact.save_package(package(), path)
    rewritten(path, change)
    with pytest.raises(ArtifactError, match=message):
        artifact.load_package(path)


def test_in_files_that_do_not_say_so_every_block_has_an_rtask(tmp_path):
    path = tmp_path / "p.safetensors"
    artifact.save_package(package(), path)
    rewritten(path, lambda m: m.pop("rtasks"))
    launch = artifact.load_package(path).kernels[0].launch
    assert launch == replace(LAUNCH, rtasks=0) and launch.tasks == launch.grid == 6


def test_a_gang_is_whoever_waits_for_each_other():
    alone = Launch("ptx", 6, 32)
    assert alone.gang == "alone"
    assert replace(alone, cluster=2).gang == "cluster"
    assert replace(alone, cooperative=True).gang == "grid"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "c64"}, "dtype: expected one of"),
        ({"shape": ()}, "shape: expected 1 to 5 dimensions, found 0"),
        ({"shape": (1,) * 6}, "found 6"),
        ({"shape": (72, 0)}, "shape: expected extents from 1"),
        ({"strides_bytes": ()}, "strides_bytes: expected 1, one per dimension but the first, found 0"),
        ({"strides_bytes": (0,)}, "strides_bytes: expected multiples of 16"),
        ({"strides_bytes": (1 << 40,)}, "below 2"),
        ({"strides_bytes": (128,)}, "strides_bytes: expected multiples of 2 B from 144 B on, found 128"),
        (
            {"shape": (8, 3, 4), "strides_bytes": (32, 64), "box": (8, 1, 1)},
            "strides_bytes: expected multiples of 32 B from 96 B on, found 64",
        ),
        (
            {"shape": (8, 3, 4), "strides_bytes": (32, 112), "box": (8, 1, 1)},
            "strides_bytes: expected multiples of 32 B from 96 B on, found 112",
        ),
        ({"element_strides": (1,)}, "element_strides: expected 1, then 1 from 1 to 8, found [1]"),
        ({"element_strides": (2, 1)}, "element_strides: expected 1, then 1 from 1 to 8, found [2, 1]"),
        ({"element_strides": (1, 9)}, "element_strides: expected 1, then 1 from 1 to 8, found [1, 9]"),
        ({"box": (64,)}, "box: expected 2 extents"),
        ({"box": (64, 257)}, "box: expected 2 extents"),
        ({"box": (60, 16)}, "box: expected rows of a multiple of 16 B, found 120 B"),
        ({"box": (72, 16)}, "box: expected rows of at most swizzle_bytes 128, found 144 B"),
        ({"swizzle_bytes": 48}, "swizzle_bytes: expected one of 0, 32, 64, 128, found 48"),
        ({"buffer": -1}, "buffer: expected the number"),
    ],
)
def test_tensor_maps_keep_the_rules_of_the_driver(fields, message):
    broken = broken_rule(replace(LAUNCH, tensor_maps=(MAP, replace(MAP, **fields))))
    assert broken is not None
    assert broken.startswith("tensor_maps[1].")
    assert message in broken
    assert broken_rule(LAUNCH) is None


def test_copies_take_what_element_strides_leave():
    """ceil(box / element stride) elements of every dimension."""
    assert MAP.copied == MAP.box
    assert replace(STEPPED, box=(8, 2, 33), element_strides=(1, 8, 2)).copied == (8, 1, 17)


def test_attributes_are_read_as_written():
    """With element strides or without; a map that the driver would refuse is not written."""
    with context():
        for made in (MAP, STEPPED):
            assert read_tensor_map(tensor_map(**vars(made))) == made
        with pytest.raises(ValueError, match="a tensor map over buffer 3: strides_bytes: expected multiples"):
            tensor_map(3, "f16", [72, 33], [128], [64, 16], 128)


def test_reach_of_a_tensor_map():
    assert span_bytes(MAP) == 33 * 144
    assert span_bytes(TensorMap(0, "f32", (5, 3, 2), (32, 160), (4, 1, 1))) == 160 + 64 + 20
