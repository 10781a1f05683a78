"""What code generation can cut of a dispatch: the loops of its result, the sizes they may be cut into, and those of registers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.compiler.nouns.workload import Operand


@dataclass(frozen=True)
class RegisterLoops:
    """The loops of the register tile, as loops of the sink (None: it is none of them), and their extents.

    `widths` are the vector extents that packing allows, None for any.
    """

    unroll: int | None
    vector: int | None
    unroll_extent: int
    vector_extent: int
    widths: tuple[int, ...] | None = None


@dataclass(frozen=True)
class CutSpace:
    """What code generation can cut of a dispatch.

    `extents` are those of the sink's loops, `axes` the workload's axis of each; `loops` may be cut, outer first, into
    multiples of `steps[i]`, and only into divisors where `exact`. `blocks[i]` are packed along a loop (1 where nothing
    is): tiles are multiples or divisors of them whatever else is asked. `registers` is None where nothing is register-tiled.
    `transposed` is the loop order of a source that is read in another order than the result is written. `passes` are
    what operations walk one after the other, each all of an rTask; empty where there is one. `copied` says that tiles which
    do not divide accumulate in memory of their own, and copy the result out.
    """

    extents: tuple[int, ...]
    axes: tuple[int, ...]
    loops: tuple[int, ...]
    steps: tuple[int, ...]
    exact: bool
    registers: RegisterLoops | None = None
    transposed: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    passes: tuple[tuple[Operand, ...], ...] = ()
    copied: bool = False

    def whole(self) -> CutSpace:
        """Without any cut."""
        return replace(self, loops=(), transposed=())
