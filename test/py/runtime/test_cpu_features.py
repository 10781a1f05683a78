"""CPU features by LLVM's names against /proc/cpuinfo's."""

from __future__ import annotations

import pytest

from tilewright.runtime.cpu_features import cpuinfo_name, machine_flags, missing

SAPPHIRE_RAPIDS = frozenset(
    [
        "fpu",
        "lm",
        "cx16",
        "sse",
        "sse2",
        "pni",
        "ssse3",
        "fma",
        "sse4_1",
        "sse4_2",
        "movbe",
        "popcnt",
        "aes",
        "avx",
        "f16c",
        "rdrand",
        "lahf_lm",
        "abm",
        "3dnowprefetch",
        "bmi1",
        "avx2",
        "bmi2",
        "avx512f",
        "avx512dq",
        "avx512cd",
        "avx512bw",
        "avx512vl",
        "avx_vnni",
        "avx512_bf16",
        "avx512vbmi",
        "avx512_vbmi2",
        "avx512_vnni",
        "avx512_bitalg",
        "avx512_vpopcntdq",
        "avx512_fp16",
        "amx_bf16",
        "amx_tile",
        "amx_int8",
        "gfni",
    ]
)


@pytest.mark.parametrize(
    "feature",
    [
        "64bit",
        "sse3",
        "sse4.1",
        "sse4.2",
        "cx16",
        "lzcnt",
        "bmi",
        "bmi2",
        "avx512f",
        "avx512bf16",
        "avx512vnni",
        "avx512fp16",
        "avxvnni",
        "amx-tile",
        "amx-bf16",
        "amx-int8",
        "+avx2",
        "prfchw",
        "sahf",
        "rdrnd",
        "avx512vpopcntdq",
    ],
)
def test_a_machine_that_has_it_says_so(feature):
    assert missing([feature], SAPPHIRE_RAPIDS) == []


def test_what_is_missing_is_listed_in_order():
    asked = ["amx-fp16", "avx2", "-sse4a", "avx10.2", "sha"]
    assert missing(asked, SAPPHIRE_RAPIDS) == ["amx-fp16", "avx10.2", "sha"]
    assert missing(asked, frozenset()) == ["amx-fp16", "avx2", "avx10.2", "sha"]


def test_this_machine_has_what_every_x86_64_has():
    assert missing(["64bit", "sse2", "cx8", "fxsr", "cmov"]) == []
    assert "sse2" in machine_flags()


def test_names_the_compiler_detects_are_names_the_runtime_confirms():
    target = pytest.importorskip("tilewright.compiler.targets.target").resolve("cpu")
    assert missing(target.cpu_features) == []


def test_spelling():
    assert cpuinfo_name("avx512vbmi2") == "avx512_vbmi2"
    assert cpuinfo_name("avx512vbmi") == "avx512vbmi"
