"""Builders of small packages: places, steps and specs written as text."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.runtime.program import BufferRef, Constant, Kernel, Package, Program, Step, TensorSpec, Update


def kernel(compiled: bytes, symbol: str = "kernel", **fields) -> Kernel:
    return Kernel(symbol, symbol, compiled, **fields)


def ref(place: str) -> BufferRef:
    """`arena+64`, `input:1` or `packed` as a BufferRef."""
    base, _, offset = place.partition("+")
    space, _, index = base.partition(":")
    return BufferRef(space, int(index or 0), int(offset or 0))


def step(number: int, tasks: int, *places: str, dispatch: str = "") -> Step:
    return Step(number, tuple(map(ref, places)), tasks, dispatch)


def specs(prefix: str, *texts: str) -> tuple[TensorSpec, ...]:
    """`f32[2,3]` texts as specs named prefix0, prefix1, …"""
    found = []
    for number, text in enumerate(texts):
        dtype, _, extents = text.rstrip("]").partition("[")
        found.append(TensorSpec(f"{prefix}{number}", dtype, tuple(int(e) for e in extents.split(",") if e)))
    return tuple(found)


def package(
    kernels: Iterable[Kernel],
    main: Iterable[Step],
    inputs: Iterable[str] = ("f32[1000]",),
    outputs: Iterable[str] = ("f32[1000]",),
    weights: Iterable[str] = (),
    constants: Iterable[Constant] = (),
    prepack: Iterable[Step] = (),
    arena_bytes: int = 0,
    packed_bytes: int = 0,
    prepack_arena_bytes: int = 0,
    features: Iterable[str] = (),
    updates: Iterable[Update] = (),
) -> Package:
    return Package(
        target="cpu",
        features=tuple(features),
        inputs=specs("x", *inputs),
        outputs=specs("y", *outputs),
        weights=specs("w", *weights),
        constants=tuple(constants),
        kernels=tuple(kernels),
        main=Program(tuple(main), arena_bytes),
        prepack=Program(tuple(prepack), prepack_arena_bytes),
        packed_bytes=packed_bytes,
        updates=tuple(updates),
    )
