"""Models of transformers, diffusers and timm, compiled and compared with eager PyTorch, each in a process of its own.

    python -m tilewright.bench.library_models transformers [MODEL...] [--how torch.compile] [-o FILE]

The models are those of `bench/data/library_models.json`: families of each library, small where their size can be chosen, with
random weights. The library has to be installed. A record in `-o` is written after every model, and one that is there is
continued: models that it holds are left out.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils import _pytree as pytree

import tilewright
from tilewright.bench.machine import machine, versions
from tilewright.compiler.errors import UnsupportedError

MODELS = Path(__file__).parent / "data" / "library_models.json"
"""By library and name: the classes of the model and its configuration, options, and inputs by name."""
HOW = ("tilewright.compile", "torch.compile")
LARGEST_ERROR = 1e-4
"""The largest difference from eager PyTorch, over the largest result, of what counts as right."""
_SECONDS = 1.0
"""For how long either is called."""


@dataclass(frozen=True)
class Outcome:
    """What became of a model: `right`, `wrong`, `refused`, `failed`, or `unbuilt` where the library does not make it.

    `error` is the largest difference from eager PyTorch over the largest result; times are lower quartiles of calls.
    """

    name: str
    outcome: str
    detail: str = ""
    error: float | None = None
    compile_s: float | None = None
    eager_ms: float | None = None
    ours_ms: float | None = None


def read_models(path: Path = MODELS) -> dict[str, dict[str, dict[str, Any]]]:
    """The models by library and name."""
    return json.loads(path.read_text())


def made(spec: Mapping[str, Any]) -> torch.Tensor:
    """The tensor that a model is given: `values`, or a shape of `normal` numbers, `ones` or `zeros`."""
    ((kind, value),) = spec.items()
    if kind == "values":
        return torch.tensor(value)
    return {"normal": torch.randn, "ones": torch.ones, "zeros": torch.zeros}[kind](value)


def build(library: str, entry: Mapping[str, Any]) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The model for inference, and its inputs by name."""
    module = import_module(library)
    if library == "timm":
        model = module.create_model(entry["model"], pretrained=False)
        size = model.default_cfg.get("input_size", (3, 224, 224))
        first = next(iter(inspect.signature(model.forward).parameters))
        return model.eval(), {first: torch.randn(1, *size)}
    model_class = getattr(module, entry["model"])
    if "config" in entry:
        config = getattr(module, entry["config"])(**entry["options"])
        if hasattr(config, "use_cache"):
            config.use_cache = False
        model = model_class(config)
    else:
        model = model_class(**entry["options"])
    return model.eval(), {name: made(spec) for name, spec in entry["inputs"].items()}


def judge(found: Any, wanted: Any) -> tuple[float, str]:
    """The error of floating-point results, and what is wrong with them; nothing where they are right."""
    ours, theirs = (
        [x for x in pytree.tree_leaves(r) if isinstance(x, torch.Tensor)] for r in (found, wanted)
    )
    if len(ours) != len(theirs) or not theirs:
        return 0.0, f"{len(ours)} results, eager PyTorch has {len(theirs)}"
    worst = 0.0
    for own, eager in zip(ours, theirs):
        if own.shape != eager.shape or own.dtype != eager.dtype:
            return (
                worst,
                f"{own.dtype} {list(own.shape)}, eager PyTorch has {eager.dtype} {list(eager.shape)}",
            )
        if not eager.is_floating_point():
            if not torch.equal(own, eager):
                return worst, "integers differ from eager PyTorch's"
        elif eager.numel():
            own, eager = own.double(), eager.double()
            if not torch.equal(own.isfinite(), eager.isfinite()):
                return worst, "other elements are infinite or NaN than in eager PyTorch"
            inside = eager.isfinite()
            apart = torch.where(inside, own - eager, 0.0).abs().max()
            worst = max(worst, float(apart / torch.where(inside, eager, 0.0).abs().max().clamp(min=1e-9)))
    return worst, "" if worst <= LARGEST_ERROR else f"off by {worst:.1e} of the largest result"


def _lower_quartile_ms(call: Callable[[], object]) -> float:
    times: list[float] = []
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return round(sorted(times)[len(times) // 4] * 1e3, 3)


@torch.no_grad()
def outcome_of(library: str, name: str, entry: Mapping[str, Any], how: str) -> Outcome:
    """Builds, compiles and compares one model in this process."""
    torch.manual_seed(0)
    try:
        model, inputs = build(library, entry)
        torch.manual_seed(1)  # of what a model draws while it is called
        wanted = model(**inputs)
    except Exception as error:  # whatever a library raises of another version of itself
        return Outcome(name, "unbuilt", f"{type(error).__name__}: {error}"[:300])
    start = time.perf_counter()
    try:
        if how == "torch.compile":
            compiled = torch.compile(model, backend="tilewright")
        else:
            compiled = tilewright.compile(model, inputs)
        torch.manual_seed(1)
        found = compiled(**inputs)
    except UnsupportedError as refusal:
        return Outcome(name, "refused", str(refusal)[:600])
    except Exception as error:
        return Outcome(name, "failed", f"{type(error).__name__}: {error}"[:600])
    compile_s = round(time.perf_counter() - start, 2)
    worst, wrong = judge(found, wanted)
    if wrong:
        return Outcome(name, "wrong", wrong, worst, compile_s)
    clocked = [_lower_quartile_ms(lambda call=call: call(**inputs)) for call in (model, compiled)]
    return Outcome(name, "right", "", worst, compile_s, *clocked)


def apart(library: str, name: str, how: str, seconds: float) -> Outcome:
    """The outcome of one model in a process of its own, which may die or take too long."""
    asked = [sys.executable, "-m", "tilewright.bench.library_models", library, name, "--how", how, "--here"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=seconds, env=os.environ | _QUIET)
    except subprocess.TimeoutExpired:
        return Outcome(name, "failed", f"took longer than {seconds:.0f} s")
    said = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
    if not said:
        return Outcome(name, "failed", f"exit status {done.returncode}: {done.stderr.strip()[-400:]}")
    return Outcome(**json.loads(said[-1]))


_QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def row(found: Outcome) -> str:
    """One line of the table."""
    if found.outcome != "right":
        return f"| {found.name} | {found.outcome}: {found.detail.splitlines()[0][:120]} | | | |"
    return f"| {found.name} | right | {found.compile_s:.1f} | {found.eager_ms:.3f} | {found.ours_ms:.3f} |"


@click.command(help=__doc__)
@click.argument("library", type=click.Choice(("transformers", "diffusers", "timm")))
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.option("--how", type=click.Choice(HOW), default=HOW[0], show_default=True)
@click.option("--seconds", default=300.0, show_default=True, help="For one model.")
@click.option("--here", is_flag=True, help="One model, in this process; its outcome is printed as JSON.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False))
def main(
    library: str, names: tuple[str, ...], how: str, seconds: float, here: bool, output: Path | None
) -> None:
    """Prints a table as Markdown; the exit code is 1 where a model is wrong or failed."""
    known = read_models()[library]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.UsageError(f"no model {', '.join(unknown)} of {library}; there are {', '.join(known)}")
    if here:
        for name in names:
            print(json.dumps(asdict(outcome_of(library, name, known[name], how))))
        return
    command = " ".join(["python -m tilewright.bench.library_models", library, *names, "--how", how])
    record: dict[str, Any] = {
        "command": command,
        "machine": machine(),
        "versions": versions() | {library: metadata.version(library)},
        "cases": [],
    }
    if output is not None and output.exists():
        record["cases"] = json.loads(output.read_text())["cases"]
    done = {case["name"] for case in record["cases"]}
    click.echo(
        "| model | outcome | compile, s | eager, ms | tilewright, ms |\n| --- | --- | --- | --- | --- |"
    )
    for name in names or known:
        if name in done:
            continue
        found = apart(library, name, how, seconds)
        click.echo(row(found))
        record["cases"].append(asdict(found))
        if output is not None:
            output.write_text(json.dumps(record, indent=1) + "\n")
    counts = Counter(case["outcome"] for case in record["cases"])
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    sys.exit(int(bool(counts["wrong"] or counts["failed"])))


if __name__ == "__main__":
    main()
