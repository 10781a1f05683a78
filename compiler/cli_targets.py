"""`tilewright targets`: the machines known by name, and what is known of them."""

from __future__ import annotations

import json

import click
from rich.table import Table

from tilewright.compiler.target import PRESETS, Target, resolve
from tilewright.compiler.terminal import console as new_console


@click.command("targets", short_help="List the machines known by name.")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List targets, or show the named ones; `cpu` is this machine as detected."""
    targets = [resolve(name) for name in names or PRESETS]
    if as_json:
        click.echo(json.dumps({target.name: target.to_json() for target in targets}, indent=1))
        return
    new_console().print(_table(targets))


def _capacity(count: int) -> str:
    """Bytes with a binary prefix, as memories are built."""
    for prefix, scale in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.4g} {prefix}B"
    return f"{count} B"


def _table(targets: list[Target]) -> Table:
    table = Table(title="targets; sources of all numbers are in compiler/target_*.py", show_lines=True)
    for column in ("name", "cores", "peak GFLOP/s", "memory", "capacity", "GB/s"):
        right = column in ("capacity", "GB/s")
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    for target in targets:
        code = "" if target.kind == "cpu" else "\n[dim]schedules only[/dim]"
        lanes = f"{target.vector_bits} bit" if target.kind == "cpu" else f"{target.warp_size} threads"
        table.add_row(
            f"{target.name}\n[dim]{target.arch}[/dim]{code}",
            f"{target.num_cores} x {lanes}",
            "\n".join(f"{dtype} {value:,.0f}" for dtype, value in target.peak_gflops.items()),
            "\n".join(level.name for level in target.memory),
            "\n".join(_capacity(level.capacity_bytes) for level in target.memory),
            "\n".join(f"{level.bandwidth_gbps:,.0f}" for level in target.memory),
        )
    return table
