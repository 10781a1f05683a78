"""What a kernel needs, kept on it as the attribute `tilewright.launch`: rTasks and their gang, threads, memory, tensor maps.

    {rtasks = 560, grid = 264, cluster = 2, cooperative = false, block = 384, workspace_bytes = 0, ...}

560 rTasks, each done by the two blocks of a cluster; 132 clusters take them in turn. `Launch` has the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.gpu.tensor_maps import read_tensor_map
from tilewright.compiler.ir import ir
from tilewright.runtime.program import Launch

LAUNCH = "tilewright.launch"
"""Attribute of a `gpu.func`: what it needs. Fields as in `Launch`, and the messages of its run-time checks as `asserts`."""
_NUMBERS = ("grid", "block", "cluster", "shared_bytes", "workspace_bytes", "zeroed_bytes", "rtasks")


@dataclass(frozen=True)
class Gang:
    """Who waits for whom while an rTask is done; `blocks` do one rTask together.

    alone     nobody waits for another block: rTasks may be done in any order, by any block, one after the other
    cluster   the blocks of a cluster do an rTask together and wait for each other
    grid      a block does an rTask alone, and waits for those that do the others: all of them run at once
    """

    name: str
    blocks: int = 1


ALONE = Gang("alone")
GRID = Gang("grid")


def cluster_of(blocks: int) -> Gang:
    """The gang of the blocks of a cluster; one block is alone."""
    return Gang("cluster", blocks) if blocks > 1 else ALONE


def launch_attribute(
    rtasks: int,
    gang: Gang,
    grid: int,
    block: int,
    workspace_bytes: int = 0,
    zeroed_bytes: int = 0,
    tensor_maps: Sequence[ir.Attribute] = (),
    asserts: Sequence[str] = (),
) -> ir.DictAttr:
    """The `tilewright.launch` of a kernel whose shared memory is still to be placed; needs a context."""
    i64 = ir.IntegerType.get_signless(64)
    numbers = {
        "grid": grid,
        "block": block,
        "cluster": gang.blocks,
        "rtasks": rtasks,
        "workspace_bytes": workspace_bytes,
        "zeroed_bytes": zeroed_bytes,
    }
    return ir.DictAttr.get(
        {
            **{name: ir.IntegerAttr.get(i64, number) for name, number in numbers.items()},
            "cooperative": ir.BoolAttr.get(gang == GRID),
            "tensor_maps": ir.ArrayAttr.get(list(tensor_maps)),
            "asserts": ir.ArrayAttr.get([ir.StringAttr.get(text) for text in asserts]),
        }
    )


def launch_of(kernel: ir.Operation) -> Launch:
    """What a kernel needs, as its attribute says, for the emulator; shared memory counts once it has been placed."""
    fields = _fields(kernel)
    return Launch(
        "emulated",
        **{name: ir.IntegerAttr(fields[name]).value for name in _NUMBERS if name in fields},
        cooperative=ir.BoolAttr(fields["cooperative"]).value,
        overlaps="overlaps" in fields and ir.BoolAttr(fields["overlaps"]).value,
        tensor_maps=tuple(read_tensor_map(entry) for entry in fields["tensor_maps"]),
    )


def asserts_of(kernel: ir.Operation) -> tuple[str, ...]:
    """The messages of a kernel's run-time checks."""
    return tuple(ir.StringAttr(text).value for text in _fields(kernel)["asserts"])


def _fields(kernel: ir.Operation) -> dict[str, ir.Attribute]:
    return {entry.name: entry.attr for entry in ir.DictAttr(kernel.attributes[LAUNCH])}
