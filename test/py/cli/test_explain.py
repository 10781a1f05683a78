"""The explain report: notes and times joined, bounds by arithmetic or memory, a page that stands alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewright.compiler.explain.page import page, picture
from tilewright.compiler.explain.report import duration, explain, predict, quantity, roofline, short_location
from tilewright.compiler.targets.target import resolve

NOTES = {
    "dispatches": [
        {
            "name": "d0",
            "operator": "conv_2d <3x3> & relu",
            "location": "/home/me/models/net.py:12:3",
            "schedule": "tile = [1, 64]",
            "flops": 2_000_000,
            "bytes": 40_000,
            "tasks": 8,
            "inputs": ["x", "conv.weight"],
            "kernel": 0,
        },
        {"name": "d1", "operator": "matmul", "flops": 10, "bytes": 4_000, "inputs": [0], "predicted_us": 2.5},
        {"name": "d2", "operator": "add", "bytes": 100, "inputs": [0, 1]},
    ],
    "phases_s": {"graph": 0.25, "lower": 1.5},
    "arena_bytes": 12_000,
}


@pytest.fixture
def report():
    return explain("net", NOTES, [30.0, 60.0, 10.0], resolve("x86-64-v4"), 4, {"x"})


def test_shares_sum_to_one(report) -> None:
    assert [d.share for d in report.dispatches] == pytest.approx([0.3, 0.6, 0.1])
    assert report.total_us == 100
    assert [d.number for d in report.slowest(2)] == [1, 0]


def test_weights_are_no_nodes(report) -> None:
    assert [d.inputs for d in report.dispatches] == [("x",), (0,), (0, 1)]


def test_what_the_notes_leave_out_has_a_default(report) -> None:
    last = report.dispatches[2]
    assert (last.tasks, last.flops, last.schedule) == (1, 0, "")
    assert report.dispatches[1].predicted_us == 2.5


def test_a_report_goes_to_json(report) -> None:
    assert json.loads(json.dumps(report.to_json()))["dispatches"][0]["bound"]["by"] == "compute"


@pytest.mark.parametrize(
    ("notes", "message"),
    [({}, "holds no notes on its dispatches"), ({"dispatches": []}, "notes 0 dispatches, its program has 1")],
)
def test_notes_that_do_not_fit_are_refused(notes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain("net", notes, [1.0], resolve("cpu"), 1)


class TestRoofline:
    target = resolve("x86-64-v4")

    def test_arithmetic_bounds_what_reuses_its_data(self) -> None:
        bound = roofline(320_000_000, 1_000, self.target, 4)
        assert bound.by == "compute"
        assert bound.us == pytest.approx(1000)

    def test_one_thread_has_a_core_s_share_of_the_peak(self) -> None:
        assert roofline(320_000_000, 1_000, self.target, 1).us == pytest.approx(4000)

    @pytest.mark.parametrize(
        ("count", "level"), [(1 << 16, "L1"), (1 << 20, "L2"), (1 << 23, "L3"), (1 << 28, "DRAM")]
    )
    def test_bytes_move_at_the_speed_of_the_level_that_holds_them(self, count: int, level: str) -> None:
        bound = roofline(0, count, self.target, 4)
        assert bound.by == level
        assert bound.us == pytest.approx(count / self.target.level(level).bandwidth_gbps / 1e3)

    def test_one_core_gets_of_memory_what_was_measured(self) -> None:
        slowest, *others = self.target.memory
        measured = replace(self.target, memory=(replace(slowest, core_gbps=20.0), *others))
        for cores, gbps in ((1, 20.0), (2, 40.0), (4, slowest.bandwidth_gbps)):
            assert roofline(0, 1 << 28, measured, cores).us == pytest.approx((1 << 28) / gbps / 1e3)
        assert roofline(0, 1 << 28, self.target, 1).us == pytest.approx(
            (1 << 28) / slowest.bandwidth_gbps / 1e3
        )


class TestPrediction:
    target = resolve("x86-64-v4")

    @pytest.mark.parametrize(
        ("tasks", "times_the_bound"), [(8, 1), (4, 1), (1, 4), (2, 2), (5, 8 / 5), (9, 12 / 9)]
    )
    def test_idle_threads_cost_their_share(self, tasks: int, times_the_bound: float) -> None:
        bound = roofline(320_000_000, 1_000, self.target, 4).us
        found = predict(320_000_000, 1_000, tasks, self.target, 4)
        assert found == pytest.approx(bound * times_the_bound)

    def test_it_is_never_under_the_bound(self) -> None:
        for tasks in range(1, 40):
            for flops, count in ((10**6, 10**3), (10, 10**7), (0, 100)):
                bound = roofline(flops, count, self.target, 4).us
                assert predict(flops, count, tasks, self.target, 4) >= bound * (1 - 1e-12)


class TestPage:
    def test_is_one_file_that_loads_nothing(self, report) -> None:
        text = page(report)
        assert not re.search(r"""(src|href)\s*=|@import|url\(""", text)
        assert "conv_2d &lt;3x3&gt; &amp; relu" in text

    def test_draws_every_dispatch_and_input_once(self, report) -> None:
        svg = re.search(r"<svg.*?</svg>", page(report), re.S)
        assert svg
        root = ElementTree.fromstring(svg[0])
        steps = [g.attrib["data-step"] for g in root.findall("g") if "data-step" in g.attrib]
        assert sorted(steps) == ["0", "1", "2"]
        assert len(root.findall("g")) == 4
        assert len(root.findall("path")) == 4

    def test_the_slowest_is_the_hottest(self, report) -> None:
        heat = {box.number: box.heat for box in picture(report).boxes}
        assert heat == {None: 0.0, 0: 0.5, 1: 1.0, 2: pytest.approx(1 / 6)}

    def test_a_model_without_dispatches_has_a_page(self) -> None:
        assert "<svg" in page(explain("empty", {"dispatches": []}, [], resolve("cpu"), 1))


@pytest.mark.parametrize(
    ("us", "text"), [(0.84, "0.8 us"), (12.34, "12.3 us"), (4560, "4.56 ms"), (1.2e6, "1.20 s"), (None, "-")]
)
def test_durations(us: float | None, text: str) -> None:
    assert duration(us) == text


def test_quantities_and_places() -> None:
    assert [quantity(v, "B") for v in (12, 3400, 5.6e6, 7.8e9)] == ["12 B", "3.4 kB", "5.6 MB", "7.8 GB"]
    assert short_location("/a/b/c/net.py:12:3") == "c/net.py:12"
    assert short_location("") == ""


def test_inputs_of_bf16_are_explained_on(folder: Path, tool) -> None:
    (folder / "short_models.py").write_text(
        "import torch\n\ndef short():\n    return torch.nn.ReLU(), torch.full((4, 8), -1.5, dtype=torch.bfloat16)\n"
    )
    result = tool("explain", "short_models:short")
    assert result.exit_code == 0, result.output
    assert "elementwise" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'loc("/a/lib/python3/site-packages/torch/nn/modules/conv.py":565:0)',
            "torch/nn/modules/conv.py:565",
        ),
        (
            'loc(callsite("/a/site-packages/torch/x.py":1:0 at "/home/me/work/models/net.py":12:0))',
            "work/models/net.py:12",
        ),
        ('loc("net.py":3:1)', "net.py:3"),
        ("loc(unknown)", "loc(unknown)"),
    ],
)
def test_places_are_what_another_machine_says_as_well(text: str, said: str) -> None:
    from tilewright.compiler.package.plan import location_text

    assert location_text(text) == said  # type: ignore[arg-type]
