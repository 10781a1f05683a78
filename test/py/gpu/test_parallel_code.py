"""PTX of element-wise, windowed and transposing kernels: accesses of 16 bytes where they can be, no spills, no warnings."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from family_kernels import emitter
from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_models import dispatches, sample
from torch import nn

from tilewright.compiler.codegen.ptxas import assemble
from tilewright.compiler.codegen.translate import translate
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.elementwise.choice import boxes
from tilewright.compiler.families.elementwise.family import read, trace
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import resolve

ARCHS = ["sm_70", "sm_80", "sm_90a"]


def kernels(function, *args: torch.Tensor, arch: str = "sm_90a", starts: str = "") -> list[str]:
    """PTX of a function's dispatches whose names start so, with default schedules; assembled on the way."""
    module, found = dispatches(function, *args, arch=arch)
    texts = []
    for name, dispatch in found.items():
        if not name.startswith(starts):
            continue
        written = emitter("elementwise")(dispatch, Schedule(), resolve(f"cuda:{arch}"))
        texts.append(translate(str(written), arch).text)
        assembled = assemble(texts[-1], arch)
        assert assembled is not None, "the development extra brings an assembler"
        assert assembled.resources.spill_store_bytes == assembled.resources.spill_load_bytes == 0
        assert assembled.resources.stack_bytes == 0
        assert not assembled.resources.warnings
    del module
    return texts


def accesses(text: str) -> Counter:
    """`ld.v4.b32` and alike -> how often."""
    found = re.findall(r"(ld|st)\.global(?:\.nc)?((?:\.v\d)?\.b\d+)", text)
    return Counter(kind + rest for kind, rest in found)


@pytest.mark.parametrize("arch", ARCHS)
def test_elements_in_order_are_accessed_by_16_bytes(arch: str) -> None:
    (text,) = kernels(lambda a, b: torch.relu(a) * b, sample(512, 1024), sample(512, 1024), arch=arch)
    assert set(accesses(text)) == {"ld.v4.b32", "st.v4.b32"}


@pytest.mark.parametrize(
    ("dtype", "lanes"), [(torch.float16, 8), (torch.int8, 16), (torch.float64, 2)], ids=str
)
def test_vectors_of_every_width(dtype: torch.dtype, lanes: int) -> None:
    _module, found = dispatches(lambda a: a + a, sample(512, 1024, dtype=dtype))
    (dispatch,) = found.values()
    written = str(emitter("elementwise")(dispatch, Schedule(), resolve("cuda:sm_90a")))
    found = set(re.findall(r"vector\.(?:load|store) .*{alignment = 16 : i64} : .*vector<(\d+)x", written))
    assert found == {str(lanes)}


def test_results_and_operands_of_different_width() -> None:
    """Eight bytes of a short operand for sixteen of a long result; never more than 16 at once."""
    (text,) = kernels(lambda a: a.to(torch.float32) * 2, sample(512, 1024, dtype=torch.float16))
    assert set(accesses(text)) <= {"ld.v2.b32", "ld.b64", "ld.v4.b16", "ld.v4.b32", "st.v4.b32"}
    assert accesses(text)["st.v4.b32"]


def test_one_element_per_row_is_loaded_once() -> None:
    (text,) = kernels(lambda a, b: a * b, sample(2048, 1024), sample(2048, 1))
    found = accesses(text)
    assert found["ld.v4.b32"] == found["ld.b32"] == found["st.v4.b32"]


def test_rows_that_no_vector_divides() -> None:
    """A whole tensor is vectors and a rest; with an operand per column, neighbouring threads take neighbours."""
    (text,) = kernels(torch.relu, sample(999, 1001))
    found = accesses(text)
    assert found["ld.v4.b32"] == found["st.v4.b32"] > 0
    assert found["ld.b32"] == found["st.b32"] == 1
    (text,) = kernels(lambda a, b: a + b, sample(999, 1001), sample(1001))
    assert set(accesses(text)) == {"ld.b32", "st.b32"}


def test_bytes_are_loaded_by_words() -> None:
    (text,) = kernels(
        lambda a, m: torch.where(m, a, 0.0), sample(512, 1024), sample(512, 1024, dtype=torch.bool)
    )
    assert set(accesses(text)) == {"ld.b32", "ld.v4.b32", "st.v4.b32"}


def test_flips_read_vectors_backwards() -> None:
    (text,) = kernels(lambda a: a.flip(1), sample(512, 1024))
    assert set(accesses(text)) == {"ld.v4.b32", "st.v4.b32"}


def test_rows_are_gathered_by_16_bytes() -> None:
    (text,) = kernels(lambda i, t: t[i], torch.zeros(4096, dtype=torch.int64), sample(100, 256))
    found = accesses(text)
    assert found["ld.v4.b32"] == found["st.v4.b32"] > 0
    statuses = re.findall(r"st\.global\.b32 \s*\[%rd\d+\], (\S+);", text)
    assert found["st.b32"] == len(statuses) and set(statuses) == {"1"}  # an index out of range, and no data
    assert len(re.findall(r"setp\.lt\.u64 .*, 100;", text)) == len(statuses)  # before it loses its upper half


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8], ids=str)
def test_transposes_access_both_sides_by_16_bytes(arch: str, dtype: torch.dtype) -> None:
    (text,) = kernels(lambda a: a.transpose(1, 2).contiguous(), sample(2, 256, 320, dtype=dtype), arch=arch)
    assert set(accesses(text)) == {"ld.v4.b32", "st.v4.b32"}
    assert "bar.sync" in text or "barrier.sync" in text


def test_small_transposes_stay_without_shared_memory() -> None:
    (text,) = kernels(lambda a: a.transpose(0, 1).contiguous(), sample(16, 16))
    assert "shared" not in text


@pytest.mark.parametrize("arch", ARCHS)
def test_windows_share_what_they_read(arch: str) -> None:
    """Four columns of three by three taps: 18 vectors of the input instead of 36, nine of the taps, one of the bias."""
    conv = nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1, groups=64), nn.ReLU()).eval()
    x = sample(32, 64, 112, 112).to(memory_format=torch.channels_last)
    (text,) = kernels(conv, x, arch=arch, starts="conv")
    assert accesses(text) == {"ld.v4.b32": 28, "st.v4.b32": 4}


def test_poolings_load_vectors_of_channels() -> None:
    model = nn.Sequential(nn.Conv2d(8, 64, 1), nn.MaxPool2d(3, 2), nn.Conv2d(64, 8, 1)).eval()
    (text,) = kernels(model, sample(8, 8, 57, 57), starts="reduction")
    assert set(accesses(text)) == {"ld.v4.b32", "st.v4.b32"}


def test_poolings_across_memory_write_vectors() -> None:
    """Windows are read along columns and written along channels: through shared memory."""
    (text,) = kernels(lambda a: F.max_pool2d(a, 3, 2).permute(0, 2, 3, 1).contiguous(), sample(8, 64, 65, 65))
    assert accesses(text)["st.v4.b32"] and "shared" in text


def test_a_schedule_decides_threads_and_lanes() -> None:
    _module, found = dispatches(torch.relu, sample(64, 1024))
    (dispatch,) = found.values()
    target = resolve("cuda:sm_80")
    text = str(
        emitter("elementwise")(dispatch, Schedule((1024,), gpu=GpuTile("elementwise", 128, vector=2)), target)
    )
    assert "known_block_size = array<i32: 128, 1, 1>" in text
    assert "grid = 64 : i64" in text
    assert "vector<2xf32>" in text and "vector<4xf32>" not in text
    with pytest.raises(ScheduleError, match=r"gpu\.vector is 3"):
        emitter("elementwise")(dispatch, Schedule(gpu=GpuTile("elementwise", 128, vector=3)), target)


@settings(max_examples=20, derandomize=True, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(20, 140), st.integers(20, 140)),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.int8]),
    cores=st.sampled_from([1, 80]),
)
def test_boxes_cover_every_result(shape: tuple[int, ...], dtype: torch.dtype, cores: int) -> None:
    """Boxes lie inside, cover every axis, start where vectors may, and fit into the shared memory of any GPU."""
    _module, found = dispatches(lambda a: a.transpose(1, 2).contiguous(), sample(*shape, dtype=dtype))
    (function,) = found.values()
    with function.context, function.location:
        dispatch = read(function)
        _, (accessed,), _ = trace(dispatch)
        plan = boxes(dispatch.parts[0].extents, accessed, accessed[-1].buffer, cores)
    assert (plan is None) == (torch.Size(shape).numel() < 2048)
    if plan is None:
        return
    for extent, size, count in zip(plan.axes, plan.box, plan.counts):
        starts = [min(i * size, extent - size) for i in range(count)]
        assert starts[0] == 0 and all(b - a <= size for a, b in pairwise(starts))
        assert starts[-1] + size == extent
    assert plan.points % plan.read_lanes == plan.points % plan.write_lanes == 0
    strides, elements = plan.shared_strides(dtype.itemsize)
    assert elements * dtype.itemsize <= 48 * 1024
    places = {
        sum(i * s for i, s in zip((a, b), strides[-2:]))
        for a in range(plan.box[-2])
        for b in range(plan.box[-1])
    }
    assert len(places) == plan.box[-2] * plan.box[-1]
