"""What a schedule must know of a machine: frozen data per device, and the presets by name.

Memory levels run from the slowest (DRAM) to the fastest (registers). Capacities are those of one instance as
one core sees it (a core's own L1, the L3 that cores share, one thread block's shared memory, one core's
registers); bandwidths are peaks over the whole device, all cores pulling at once. The makers of presets stand in `target_cpus`, `target_gpus` and `target_host`,
where every number has its source; they are imported when first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class UnknownTargetError(ValueError):
    """A target name is not a preset; the message lists those that are."""


@dataclass(frozen=True)
class MemoryLevel:
    """One level of memory: `transaction_bytes` is its least useful access; `banks` is 1 if none conflict."""

    name: str
    capacity_bytes: int
    bandwidth_gbps: float
    transaction_bytes: int
    banks: int = 1
    bank_bytes: int = 64


@dataclass(frozen=True)
class MatrixUnit:
    """One matrix instruction: `[m, k] x [k, n]` of `dtype`, summed in `accumulator`."""

    name: str
    dtype: str
    accumulator: str
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Target:
    """A device as data; `peak_gflops` counts a multiply-add as two, per dtype, over all cores.

    `vector_bits` is one core's SIMD register (a GPU's widest load per thread); `registers_per_thread` counts
    vector registers on a CPU and 32-bit ones on a GPU; `cpu_features` and `llvm_cpu` are LLVM's names.
    """

    name: str
    kind: str
    arch: str
    memory: tuple[MemoryLevel, ...]
    num_cores: int
    warp_size: int
    vector_bits: int
    registers_per_thread: int
    peak_gflops: Mapping[str, float] = field(hash=False)
    matrix_units: tuple[MatrixUnit, ...] = ()
    cpu_features: tuple[str, ...] = ()
    llvm_cpu: str = ""

    def level(self, name: str) -> MemoryLevel:
        """The memory level called `name`; raises KeyError with the levels there are."""
        for level in self.memory:
            if level.name == name:
                return level
        raise KeyError(
            f"{self.name} has no memory level `{name}`; it has {', '.join(m.name for m in self.memory)}"
        )

    @property
    def llvm_features(self) -> str:
        """LLVM's feature string: `+f` for what there is, `-f` for what a CPU's name alone would imply."""
        if self.kind != "cpu":
            return ""
        absent = [f for f in X86_FEATURES if f not in self.cpu_features]
        return ",".join([f"+{f}" for f in self.cpu_features] + [f"-{f}" for f in absent])

    def to_json(self) -> dict:
        """Plain dicts, lists, strings and numbers; `from_json` reads it back."""
        return asdict(replace(self, peak_gflops=dict(self.peak_gflops)))

    @classmethod
    def from_json(cls, data: dict) -> Target:
        units = (MatrixUnit(**{**u, "shape": tuple(u["shape"])}) for u in data["matrix_units"])
        return cls(
            **{
                **data,
                "memory": tuple(MemoryLevel(**level) for level in data["memory"]),
                "matrix_units": tuple(units),
                "cpu_features": tuple(data["cpu_features"]),
            }
        )


# What generated code may use of x86, as LLVM names; other features (shstk, xsave) never come out of a kernel.
X86_V3 = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "avx", "avx2", "fma", "f16c", "bmi", "bmi2",
    "lzcnt", "movbe",
)  # fmt: skip
X86_V4 = (*X86_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_X86_BEYOND = (
    "avxvnni", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
    "avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16", "amx-fp16", "gfni",
)  # fmt: skip
X86_FEATURES = (*X86_V4, *_X86_BEYOND)


def _maker(module: str, function: str) -> Callable[[], Target]:
    """A preset's maker, imported when first called: the modules of makers import this one."""
    return lambda: getattr(import_module(f"tilewright.compiler.{module}"), function)()


PRESETS: dict[str, Callable[[], Target]] = {
    "cpu": _maker("target_host", "host"),
    "x86-64-v3": _maker("target_cpus", "x86_64_v3"),
    "x86-64-v4": _maker("target_cpus", "x86_64_v4"),
    "k80": _maker("target_gpus", "k80"),
    "v100": _maker("target_gpus", "v100"),
    "a100": _maker("target_gpus", "a100"),
    "h100": _maker("target_gpus", "h100"),
    "h200": _maker("target_gpus", "h200"),
    "mi50": _maker("target_gpus", "mi50"),
    "graphcore-ipu": _maker("target_gpus", "graphcore_ipu"),
}
"""Preset name -> maker, in the order they are listed."""


def resolve(name: str) -> Target:
    """The preset called `name`, in any case; raises UnknownTargetError with the list of presets."""
    maker = PRESETS.get(name.lower())
    if maker is None:
        raise UnknownTargetError(f"unknown target `{name}`; the presets are: {', '.join(PRESETS)}")
    return maker()
