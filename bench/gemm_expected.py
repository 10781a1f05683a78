"""What the thirty matrix products should take on a GPU: constructed schedules and the model's times beside the roofline.

`python -m tilewright.bench.gemm_expected` writes bench/results/gemm-expected-h200.json and docs/results/gemm-expected.md.
Nothing is run and no GPU is needed: every number is predicted from the target's data sheet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tilewright.bench.gemm_shapes import DTYPES, GEMM_SHAPES, GemmShape
from tilewright.compiler.families.gpu.emitted_tiles import read_product, takes
from tilewright.compiler.ir import functions, parse
from tilewright.compiler.targets.occupancy import occupancy
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.tuning.gpu.gemm_candidates import GemmChoice, gemm_choices

RESULTS = Path("bench/results")
PAGE = Path("docs/results/gemm-expected.md")


@dataclass(frozen=True)
class Expected:
    """One product: its bounds and the best schedule by the model; times in microseconds."""

    shape: GemmShape
    dtype: str
    choice: GemmChoice
    compute_us: float
    dram_us: float
    occupancy: float
    construct_ms: float

    @property
    def roofline_us(self) -> float:
        return max(self.compute_us, self.dram_us)

    @property
    def share(self) -> float:
        """The roofline's time over the expected one."""
        return self.roofline_us / self.choice.us

    def to_json(self) -> dict:
        choice = self.choice
        return {
            "name": self.shape.name,
            "batch": self.shape.batch,
            "m": self.shape.m,
            "n": self.shape.n,
            "k": self.shape.k,
            "dtype": self.dtype,
            "expected_us": choice.us,
            "expected_tflops": round(self.shape.flops / choice.us / 1e6, 2),
            "compute_bound_us": round(self.compute_us, 3),
            "dram_bound_us": round(self.dram_us, 3),
            "share_of_roofline": round(self.share, 4),
            "bound": choice.bound,
            "schedule": choice.tile.as_dict(),
            "schedule_text": choice.tile.text(),
            "registers": choice.registers,
            "shared_bytes": choice.shared_bytes,
            "blocks_per_core": choice.resident,
            "occupancy": round(self.occupancy, 4),
            "waves": round(choice.waves, 3),
            "dram_bytes": int(choice.dram_bytes),
        }


def dispatch_text(shape: GemmShape, dtype: str) -> str:
    """The dispatch of a product as the compiler has it: sums in f32, results in the type of the operands."""
    item = "f32" if dtype == "tf32" else dtype
    batch, lead, dims = ("b, ", f"{shape.batch}x", 1) if shape.batch > 1 else ("", "", 0)
    a = f"tensor<{lead}{shape.m}x{shape.k}x{item}>"
    b = f"tensor<{lead}{shape.k}x{shape.n}x{item}>"
    c = f"tensor<{lead}{shape.m}x{shape.n}xf32>"
    result = f"tensor<{lead}{shape.m}x{shape.n}x{item}>"
    kinds = ", ".join(['"parallel"'] * (dims + 2) + ['"reduction"'])
    maps = [f"affine_map<({batch}m, n, k) -> ({batch}{x})>" for x in ("m, k", "k, n", "m, n")]
    widen = lambda name: f"%{name}w = arith.extf %{name} : {item} to f32"  # noqa: E731
    wide = item != "f32"
    body = "\n".join([widen("a"), widen("b")]) if wide else ""
    left, right = ("%aw", "%bw") if wide else ("%a", "%b")
    same = f"affine_map<({batch}m, n) -> ({batch}m, n)>"
    parallel = ", ".join(['"parallel"'] * (dims + 2))
    narrow = (
        f"""%r = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = [{parallel}]}}
          ins(%p : {c}) outs(%o : {result}) {{
        ^bb0(%x: f32, %old: {item}):
          %y = arith.truncf %x : f32 to {item}
          linalg.yield %y : {item}
        }} -> {result}
        return %r : {result}"""
        if wide
        else f"return %p : {c}"
    )
    return f"""
      func.func private @gemm(%left: {a}, %right: {b}) -> {result} attributes {{tilewright.operator = "matmul"}} {{
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : {c}
        %o = tensor.empty() : {result}
        %i = linalg.fill ins(%zero : f32) outs(%e : {c}) -> {c}
        %p = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{kinds}]}}
            ins(%left, %right : {a}, {b}) outs(%i : {c}) {{
        ^bb0(%a: {item}, %b: {item}, %sum: f32):
          {body}
          %m = arith.mulf {left}, {right} : f32
          %s = arith.addf %sum, %m : f32
          linalg.yield %s : f32
        }} -> {c}
        {narrow}
      }}"""


def expect(shape: GemmShape, dtype: str, target: Target) -> Expected:
    """The best schedule of a product by the model, among those that its emitters take."""
    module = parse(dispatch_text(shape, dtype))
    (function,) = functions(module)
    start = time.process_time()
    product = read_product(function)
    assert product is not None, f"{shape.name} is a matrix product"
    precision = "tf32" if dtype == "tf32" else "f32"
    (best, *_) = gemm_choices(product.gemm, target, precision=precision, fits=takes(product, target))
    took = (time.process_time() - start) * 1e3
    # f32 is exact: its bound is that of ordinary lanes.
    compute_us = shape.flops / target.peak_gflops[dtype] / 1e3
    dram_us = product.gemm.nbytes / target.memory[0].bandwidth_gbps / 1e3
    tile = best.tile
    used = occupancy(target, tile.threads, best.registers, best.shared_bytes) if tile.threads else 0.0
    return Expected(shape, dtype, best, compute_us, dram_us, used, took)


def page(rows: Sequence[Expected], target: Target) -> str:
    """The table of `docs/results/gemm-expected.md`."""
    lines = [
        f"# Matrix products on {target.name.upper()}, expected",
        "",
        "**Predictions, not measurements.** No GPU was at hand when this was written: every time below comes from the",
        f"micro-performance model ([roller.md](../roller.md)) and the figures of the `{target.name}` preset, at its",
        "published clocks. Real boards lower their clock under load, which the model knows nothing of. Roofline: the longer",
        "of operations at the peak of the type (f32 on ordinary lanes) and of bytes, each once, at DRAM's peak bandwidth.",
        "`python -m tilewright.bench.device --part gemm` measures the same products on a GPU.",
        "",
    ]
    for dtype in DTYPES:
        own = [row for row in rows if row.dtype == dtype]
        mean = 1.0
        for row in own:
            mean *= row.share ** (1 / len(own))
        lines += [
            f"## {dtype}",
            "",
            "| product | expected us | TFLOP/s | roofline us | share | waits for | occupancy | schedule |",
            "| --- | ---: | ---: | ---: | ---: | --- | ---: | --- |",
        ]
        for row in own:
            choice = row.choice
            held = f"{row.occupancy:.0%}" if choice.tile.threads else ""
            lines.append(
                f"| {row.shape.name} | {choice.us:.1f} | {row.shape.flops / choice.us / 1e6:.1f} | {row.roofline_us:.1f} "
                f"| {row.share:.0%} | {choice.bound} | {held} | `{choice.tile.text()}` |"
            )
        lines += [f"| geometric mean | | | | {mean:.0%} | | | |", ""]
    lines += [
        "```sh",
        f"python -m tilewright.bench.gemm_expected --target {target.name}",
        "```",
        "",
    ]
    return "\n".join(lines)


@click.command()
@click.option("--target", default="h200", show_default=True, help="A GPU preset.")
@click.option("--output", type=click.Path(path_type=Path), help="The JSON file.")
@click.option("--page", "page_path", type=click.Path(path_type=Path), help="The markdown page.")
def main(target: str, output: Path | None, page_path: Path | None) -> None:
    """Predicts all products in all types, and writes a JSON file and a page; of other targets only where asked."""
    described = resolve(target)
    rows = [expect(shape, dtype, described) for dtype in DTYPES for shape in GEMM_SHAPES]
    path = output or RESULTS / f"gemm-expected-{target}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    command = f"python -m tilewright.bench.gemm_expected --target {target}"
    data = {
        "about": "predicted by the micro-performance model; nothing was measured",
        "command": command,
        "target": described.to_json(),
        "products": [row.to_json() for row in rows],
    }
    path.write_text(json.dumps(data, indent=1) + "\n")
    click.echo(f"{len(rows)} products in {sum(row.construct_ms for row in rows):.0f} ms; {path}")
    if page_path or target == "h200":
        written = page_path or PAGE
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(page(rows, described))
        click.echo(str(written))


if __name__ == "__main__":
    main()
