"""`tilewright targets`: the machines known by name, what is known of them, and measuring this one."""

from __future__ import annotations

import json
import os
import time

import click
from rich.table import Table

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.targets import host as target_host
from tilewright.compiler.targets import measurements as target_measurements
from tilewright.compiler.targets.measurements import Measurements
from tilewright.compiler.targets.target import PRESETS, Target, resolve
from tilewright.compiler.terminal import console as new_console


@click.command("targets", short_help="List the machines known by name; measure this one.")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@click.option(
    "--measure", is_flag=True, help="Measure this machine now (under a minute) and keep what was found."
)
@click.option("--forget", is_flag=True, help="Drop this machine's measurements; `cpu` is nominal again.")
def command(names: tuple[str, ...], as_json: bool, measure: bool, forget: bool) -> None:
    """List targets, or show the named ones: presets, or .json files that describe a machine.

    `cpu` is this machine as detected. Once it was measured, measured rates stand in for nominal ones, and everything is
    compiled anew, as schedules may differ; the same measurements give the same code again.
    """
    if measure and forget:
        raise click.UsageError("--measure and --forget exclude each other")
    if measure or forget:
        if names:
            raise click.UsageError("only this machine can be measured; leave the names out")
        nominal = target_host.host()
        if measure:
            _measure(nominal, as_json)
        else:
            existed = target_measurements.forget(nominal)
            click.echo("measurements dropped; `cpu` is nominal" if existed else "there were no measurements")
            return
        names = ("cpu",)
    targets = [resolve(name) for name in names or PRESETS]
    if as_json:
        click.echo(json.dumps({target.name: target.to_json() for target in targets}, indent=1))
        return
    console = new_console()
    console.print(_table([target_host.host() if target.measured else target for target in targets]))
    if any(target.measured for target in targets):
        nominal = target_host.host()
        found = target_measurements.find(nominal)
        if found:
            console.print(_measured(nominal, found))


def _measure(nominal: Target, quiet: bool) -> None:
    """Measures and stores, saying what is going on on standard error."""
    from tilewright.compiler.targets.measure import measure

    progress = new_console(stderr=True)
    load = os.getloadavg()[0]
    if load > 0.3 * nominal.num_cores:
        progress.print(f"other work is running (load {load:.1f}): figures for all cores may come out low")
    start = time.perf_counter()
    with progress.status("measuring") as status:
        found = measure(nominal, lambda text: status.update(f"measuring: {text}"))
    try:
        file = target_measurements.store(nominal, found)
    except OSError as error:
        raise TilewrightError(
            f"measurements cannot be kept: {error}; name a folder that can be written with TILEWRIGHT_CACHE_DIR"
        ) from None
    if not quiet:
        progress.print(f"measured in {time.perf_counter() - start:.0f} s, kept in {file}", highlight=False)


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
        code = "" if target.has_code else "\n[dim]schedules only[/dim]"
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


def _measured(nominal: Target, found: Measurements) -> Table:
    """Measured rates beside nominal ones, one core's and all cores'."""
    cores = nominal.num_cores
    table = Table(
        title=f"cpu as measured ({found.processor}); copies count bytes read and written",
        caption=f"one more parallel step on {cores} core(s): {found.start_us:.3g} us; digest {found.digest}",
    )
    table.add_column("")
    for column in ("nominal", "1 core", f"{cores} cores", "copy, 1 core", f"copy, {cores} cores", "latency"):
        table.add_column(column, justify="right", no_wrap=True)

    def rate(value: float, unit: str = "GB/s") -> str:
        if not value:
            return "-"
        return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"

    for level in nominal.memory:
        if row := found.levels.get(level.name):
            rates = (row.read_core_gbps, row.read_gbps, row.copy_core_gbps, row.copy_gbps)
            cells = [rate(value) for value in (level.bandwidth_gbps, *rates)]
            table.add_row(level.name, *cells, rate(row.latency_ns, "ns"))
    table.add_section()
    for dtype, peak in found.peaks.items():
        values = (nominal.peak_gflops.get(dtype, 0.0), peak.core_gflops, peak.gflops)
        cells = [rate(value, "GFLOP/s") for value in values]
        table.add_row(f"{dtype} {peak.instruction}", *cells, "", "", "")
    return table
