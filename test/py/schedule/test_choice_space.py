"""Choices made before dispatches exist: obeyed exactly, refused by name, sampled from one space, kept as text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import choice_models
import numpy as np
import pytest
import torch

import tilewright
from tilewright.compiler import phases
from tilewright.compiler.choice_space import choice_space
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import PassError, ScheduleError, TilewrightError
from tilewright.compiler.ir import functions, ir, parse, walk
from tilewright.compiler.nouns.choices import Choices
from tilewright.compiler.nouns.space import KEPT, Space
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve

MODELS = tuple(choice_models.models())
TARGETS = ("x86-64-v4", "x86-64-v3", "cuda:sm_80")
KEY = "test.name"


@cache
def imported(model: str) -> str:
    module, inputs = choice_models.models()[model]
    return import_model(module, inputs).module.operation.get_asm(enable_debug_info=True)


@cache
def space_of(model: str, target: str) -> Space[Choices]:
    return choice_space(parse(imported(model)), resolve(target))


def compiled_to(last: str, model: str, target: str, choices: Choices | None) -> ir.Module:
    """The IR after a phase; with None, without any names."""
    module = parse(imported(model))
    if choices is not None:
        choice_attribute.ask_choices(module, choices.values)
    phases.run_phases(module, resolve(target), "graph", last)
    return module


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS)
def test_names_and_defaults_change_nothing(model: str, target: str) -> None:
    plain = compiled_to("dispatch", model, target, None)
    space = space_of(model, target)
    assert len(space.knobs) > 2
    for choices in (Choices({}), space.default()):
        assert str(compiled_to("dispatch", model, target, choices)) == str(plain)


@pytest.mark.parametrize("model", MODELS)
def test_points_and_choices_are_the_same(model: str) -> None:
    space, rng = space_of(model, "x86-64-v4"), np.random.default_rng(0)
    points = np.concatenate([space.sample(20, rng), space.neighbours(space.point(space.default()))])
    assert (space.legal(points) == KEPT).all()
    for point in points:
        choices = space.schedule(point)
        assert (space.point(choices) == point).all()
        assert Choices.parse(choices.text()) == Choices(dict(sorted(choices.values.items())))
    assert space.encode(points).shape == (len(points), len(space.features))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS)
def test_a_choice_is_on_its_operation_and_nowhere_else(model: str, target: str) -> None:
    """Attributes of one name differ from the default at the end of `packing` or of `layout`, as the knob says."""
    space = space_of(model, target)
    default = {phase: compiled_to(phase, model, target, space.default()) for phase in ("layout", "packing")}
    for point in space.neighbours(space.point(space.default())):
        choices = space.schedule(point)
        moved = [k for k, v in choices.values.items() if space.default().values.get(k) != v]
        phase = "packing" if moved[0].endswith(".joins") else "layout"
        now = attributes(compiled_to(phase, model, target, choices))
        names = {n for (n, before), (_, after) in zip(attributes(default[phase]), now) if before != after}
        assert names == {knob.rpartition(".")[0] for knob in moved}


def attributes(module: ir.Module) -> list[tuple[str, dict]]:
    found = [choice_attribute.read(op) for op in walk(module.operation, "linalg.generic")]
    return [(str(choice.get("name")), choice) for choice in found]


@pytest.mark.parametrize("model", MODELS)
def test_a_sampled_choice_is_carried_out_exactly(model: str) -> None:
    """Whoever joins is not the last of its dispatch, whoever does not is; filters and blocks are as they should be."""
    space = space_of(model, "x86-64-v4")
    for point in space.sample(5, np.random.default_rng(1)):
        choices = space.schedule(point).values
        module = compiled_to("packing", model, "x86-64-v4", Choices(choices))
        for op in walk(module.operation, "linalg.generic"):
            choice = choice_attribute.read(op)
            assert not choice.keys() & {"algorithm", "block", "copy"}
            if "name" in choice:
                op.attributes[KEY] = ir.StringAttr.get(str(choice["name"]), module.context)
                check_storage(op, {field: choices.get(f"{choice['name']}.{field}") for field in CHOSEN})
        run_pipeline(module.operation, "builtin.module(outline-dispatches{under-windows=true})")
        last, inner = set(), set()
        for function in functions(module):
            if "tilewright.operator" in function.attributes:
                ops = [v.operation for v in function.regions[0].blocks[0].operations]
                names = [
                    ir.StringAttr(op.attributes[KEY]).value if KEY in op.attributes else "" for op in ops
                ]
                inner |= set(names[:-2])
                last.add(names[-2])
        for knob, value in choices.items():
            name, _, field = knob.rpartition(".")
            if field == "joins":
                assert (name in inner, name in last) == (bool(value), not value), knob


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


NARROW, WIDE, LARGE = "x86-64-v3", "x86-64-v4", "sapphire-rapids"
"""Tiles of 6 x 16 and 512 KiB of a core's own, 6 x 64 and 1 MiB, 6 x 64 and 2 MiB."""


@pytest.mark.parametrize("target", [NARROW, WIDE, LARGE])
@pytest.mark.parametrize(
    ("rows", "steps", "columns", "copied"),
    [
        (1024, 1024, 1024, (NARROW, WIDE, LARGE)),
        (512, 1024, 1024, (NARROW, WIDE, LARGE)),
        (512, 2048, 4096, (NARROW, WIDE, LARGE)),
        # Too few rows to pay for it, too little to copy, rows that fall into many sets: on cores that wait for lines less of each.
        (256, 1024, 1024, (NARROW, LARGE)),
        (1024, 512, 1024, (NARROW, WIDE, LARGE)),
        (1024, 1000, 1100, (NARROW, LARGE)),
        (256, 1000, 1100, (LARGE,)),
        (96, 1024, 1024, ()),
        (1024, 128, 1024, ()),
    ],
)
def test_large_arguments_that_many_rows_read_are_copied(
    target: str, rows: int, steps: int, columns: int, copied: tuple[str, ...]
) -> None:
    module = import_model(Product(), (torch.zeros(rows, steps), torch.zeros(steps, columns))).module
    assert choice_space(module, resolve(target)).default().values["matmul_0.copy"] == (target in copied)


CHOSEN = ("algorithm", "block", "copy")


def check_storage(op: ir.Operation, chosen: dict) -> None:
    maps = " ".join(map(str, op.attributes["indexing_maps"]))
    if chosen["block"] is not None or chosen["copy"] is not None:
        assert ("floordiv" in maps) == bool(chosen["block"])
        assert not chosen["block"] or f"floordiv {chosen['block']}" in maps
    if chosen["algorithm"] is not None:
        done = "tilewright.winograd"
        outputs = ir.IntegerAttr(op.attributes[done]).value if done in op.attributes else None
        assert chosen["algorithm"] == (f"winograd{outputs}" if outputs else "direct")


@pytest.mark.parametrize("model", MODELS)
def test_sampled_choices_compute_what_the_default_computes(model: str) -> None:
    module, inputs = choice_models.models()[model]
    expected = module(*inputs).detach()
    space = choice_space(parse(imported(model)), resolve("cpu"))
    for point in space.sample(3, np.random.default_rng(2)):
        choices = space.schedule(point)
        got = tilewright.compile(module, inputs, choices=choices.values)(*inputs)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4, msg=choices.text())


@pytest.mark.parametrize("model", MODELS)
def test_an_illegal_point_is_refused_with_its_knob_and_rule(model: str) -> None:
    space = space_of(model, "x86-64-v4")
    points = space.draw(400, np.random.default_rng(3))
    broken = space.legal(points)
    for number in sorted(set(broken.tolist()) - {KEPT}):
        (point, *_), rule = points[broken == number], space.rules[number]
        name, _, field = rule.field.rpartition(".")
        with pytest.raises(PassError, match=rf"{name}\.{field} = \w+: {rule.text}"):
            compiled_to("dispatch", model, "x86-64-v4", space.schedule(point))


def test_rules_remove_something() -> None:
    assert any(
        (space.legal(space.draw(400, np.random.default_rng(3))) != KEPT).any()
        for space in (space_of(model, "x86-64-v4") for model in MODELS)
    )


@pytest.mark.parametrize(
    ("model", "knob", "value", "rule"),
    [
        ("residual", "conv2d_9.block", 16, "there is no operation `conv2d_9`; there are .*conv2d_0"),
        (
            "residual",
            "conv2d_0.blocks",
            16,
            "there is no field `blocks`; choose of algorithm, block, copy, joins",
        ),
        ("residual", "conv2d_0.joins", 2, "conv2d_0.joins = 2: expected 0 or 1"),
        ("residual", "conv2d_0.algorithm", "fft", 'conv2d_0.algorithm = fft: expected "direct"'),
        ("residual", "conv2d_0.algorithm", "winograd3", "F.3, r. is not known for a filter of 3 x 3"),
        ("residual", "conv2d_2.algorithm", "winograd2", "F.2, r. is not known for a filter of 1 x 1"),
        (
            "separable",
            "conv2d_0.algorithm",
            "winograd2",
            "its stride or its dilation is not 1; choose direct",
        ),
        ("separable", "conv2d_0.block", 16, "leave it out|choose of 0"),
        ("perceptron", "matmul_0.block", 20, "divide the loop of 96; choose of 0, 16, 24, 32, 48, 96"),
        ("perceptron", "matmul_0.copy", 1, "a weight is stored once, when it is bound"),
        ("perceptron", "erf_0.joins", 1, "a contraction would recompute it"),
        ("scores", "matmul_0.joins", 1, "the group holds a reduction already"),
        ("scores", "matmul_0.block", 20, "divide the loop of 48; choose of 0, 16, 24, 48"),
    ],
)
def test_what_cannot_be_done_is_refused(model: str, knob: str, value: int | str, rule: str) -> None:
    names = {
        str(c.get("name")) for _, c in attributes(compiled_to("layout", model, "x86-64-v4", Choices({})))
    }
    name, _, field = knob.partition(".")
    if name == "erf_0":  # The last operation before the second product, whatever it is called.
        knob = f"{sorted(n for n in names if n.startswith('mul'))[-1]}.{field}"
    with pytest.raises(PassError, match=rule):
        compiled_to("dispatch", model, "x86-64-v4", Choices({knob: value}))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ([1], "expected an object"),
        ({"block": 3}, "expected operation.field"),
        ({"matmul_0.block": [3]}, "expected a number or a word"),
        ({"matmul_0.block": 1.5}, "expected a number or a word"),
        ("{", "cannot be read"),
    ],
)
def test_a_malformed_set_of_choices_is_refused(given: object, wrong: str) -> None:
    with pytest.raises(ScheduleError, match=wrong):
        Choices.of(given)


def test_a_file_of_choices_is_replayed_and_part_of_the_cache_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    module, inputs = choice_models.models()["perceptron"]
    (tmp_path / "choices.json").write_text(json.dumps({"matmul_1.joins": 0}))
    plain = tilewright.compile(module, inputs).executable.package
    apart = tilewright.compile(module, inputs, choices=tmp_path / "choices.json").executable.package
    assert len(apart.main.steps) == len(plain.main.steps) + 1
    again = tilewright.compile(module, inputs, choices={"matmul_1.joins": False}).executable.package
    assert list(again.notes["phases_s"]) == ["cache"] and len(again.main.steps) == len(apart.main.steps)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(TilewrightError, match=r"broken\.json: expected JSON"):
        tilewright.compile(module, inputs, choices=tmp_path / "broken.json")


class Alike(torch.nn.Module):
    """Two blocks that are equal, and a third of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(48, 48), torch.nn.Linear(48, 48), torch.nn.Linear(48, 32)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def test_equal_operations_in_equal_places_share_their_knobs() -> None:
    module = import_model(Alike().eval(), (torch.randn(5, 48),)).module
    space = choice_space(module, resolve("x86-64-v4"))
    blocks = [knob.name for knob in space.knobs if knob.name.endswith(".block")]
    assert blocks == ["matmul_0.block", "matmul_1.block"]
