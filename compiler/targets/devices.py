"""GPU targets by what they are for: `cuda` is the GPU that is present, `cuda:sm_90a` one by name, `emulate:sm_90a` the
same code run on the CPU."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.targets.target import PRESETS, Target, UnknownTargetError

PRESET_OF_ARCH = {"sm_70": "v100", "sm_80": "a100", "sm_90": "h100", "sm_90a": "h100", "gfx90a": "mi250"}
"""The preset whose numbers stand for an architecture when no board is named."""

_VENDOR = {"cuda": "sm_", "emulate": "sm_", "hip": "gfx"}
"""Prefix of a target's name -> how its architectures start."""


def named(name: str) -> Target:
    """The target of `cuda:ARCH`, `hip:ARCH` (compile only) or `emulate:ARCH`; ARCH may be a GPU preset's name too.

    Raises UnknownTargetError.
    """
    prefix, _, arch = name.partition(":")
    if prefix not in _VENDOR:
        raise UnknownTargetError(
            f"unknown target `{name}`: before the colon stands one of {', '.join(_VENDOR)}"
        )
    vendor = _VENDOR[prefix]
    preset = PRESET_OF_ARCH.get(arch, arch)
    target = PRESETS[preset]() if preset in PRESETS else None
    if target is None or target.kind != "gpu" or not target.arch.startswith(vendor):
        known = [a for a, p in PRESET_OF_ARCH.items() if a.startswith(vendor) and p in PRESETS]
        raise UnknownTargetError(
            f"unknown target `{name}`: `{arch}` is no architecture that code is generated for; name one of "
            f"{', '.join(known)} or a preset of that kind"
        )
    return replace(
        target, name=name, arch=arch if arch in PRESET_OF_ARCH else target.arch, emulated=prefix == "emulate"
    )


def present() -> Target:
    """The first NVIDIA GPU of this machine: its architecture's preset, with what its driver says of its size.

    Raises UnknownTargetError when there is none.
    """
    from tilewright.runtime.cuda import devices

    found = devices()
    if not found:
        raise UnknownTargetError(
            "target `cuda`: no NVIDIA GPU whose driver answers; name an architecture, as in `cuda:sm_90a`, to compile "
            "for one that is elsewhere"
        )
    return of_device(found[0].name, found[0].capability, found[0].multiprocessors, found[0].shared_bytes)


def of_device(name: str, capability: tuple[int, int], multiprocessors: int, shared_bytes: int) -> Target:
    """The target of a device: a preset that its name contains, else the newest architecture that it runs.

    `shared_bytes` is what one block may have on it, which differs between devices that run the same code.
    """
    major, minor = capability
    version = 10 * major + minor
    by_name = [p for p in PRESETS if p in name.lower().replace(" ", "-").split("-")]
    archs = {70: "sm_70", 80: "sm_80", 90: "sm_90a"}
    usable = [v for v in archs if v <= version]
    if not usable:
        raise UnknownTargetError(
            f"target `cuda`: {name} has compute capability {major}.{minor}; the least is 7.0"
        )
    arch = archs[max(usable)]
    if arch == "sm_90a" and major != 9:
        arch = "sm_80"  # `a` architectures run on their own generation only
    preset = PRESETS[by_name[0] if by_name else PRESET_OF_ARCH[arch]]()
    target = replace(preset, name=f"cuda:{arch}", arch=arch, num_cores=multiprocessors)
    return _with_shared(target, shared_bytes)


def _with_shared(target: Target, shared_bytes: int) -> Target:
    """The target with no more shared memory than a device has: 163 KiB on compute capability 8.0, 99 on 8.6."""
    if shared_bytes >= target.level("shared").capacity_bytes:
        return target
    memory = tuple(
        replace(level, capacity_bytes=shared_bytes) if level.name == "shared" else level
        for level in target.memory
    )
    return replace(target, memory=memory, core_shared_bytes=shared_bytes + target.block_reserved_bytes)
