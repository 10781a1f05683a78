"""Plugins: what they add is there under its name, what fails adds nothing, and the example is an installable package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import plugins
from tilewright.compiler.errors import PluginError
from tilewright.compiler.options import check_options
from tilewright.compiler.pipeline import registry
from tilewright.compiler.targets.target import PRESETS, resolve
from tilewright.compiler.tuning.cost_models.cost_model import Samples
from tilewright.compiler.tuning.cost_models.registry import COST_MODELS, make_cost_model
from tilewright.compiler.tuning.features.feature_set import Table
from tilewright.compiler.tuning.search.strategies import EXPLORERS, STRATEGIES, strategy_named

EXAMPLE = Path(__file__).parents[3] / "examples/plugin"
ALL = """
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cost_models.micro_performance import MicroPerformance
from tilewright.compiler.tuning.search.genetic import Genetic
from tilewright.compiler.tuning.search.strategies import Strategy

def register(plugin):
    plugin.cost_model("model-of-mine", lambda seed: MicroPerformance())
    plugin.explorer("way-of-mine", Genetic)
    plugin.strategy(Strategy("strategy-of-mine", Genetic, "model-of-mine"))
    plugin.target("machine-of-mine", lambda: resolve("x86-64-v3"))
"""


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test adds is gone behind it."""
    tables: list[dict] = [COST_MODELS, EXPLORERS, STRATEGIES, PRESETS, registry.ADDED]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before):
        table.clear()
        table.update(kept)
    plugins._load.cache_clear()
    plugins.load_installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("tilewright_example")]:
        del sys.modules[name]


def written(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(text)
    return str(path)


def test_everything_that_a_plugin_adds_is_there_under_its_name(tmp_path: Path) -> None:
    plugins.load(written(tmp_path, ALL))
    plugins.load(str(tmp_path / "mine.py"))
    assert make_cost_model("model-of-mine").name == "micro-performance"
    assert strategy_named("strategy-of-mine").model == "model-of-mine" and "way-of-mine" in EXPLORERS
    assert resolve("machine-of-mine") == resolve("x86-64-v3")
    options = check_options({"opt": "O2", "strategy": "strategy-of-mine", "cost_model": "model-of-mine"})
    assert options["strategy"] == "strategy-of-mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("def register(plugin:", "SyntaxError"),
        ("x = 1", "it has no function `register(plugin)`"),
        ("register = 3", "it has no function `register(plugin)`"),
        ("def register(plugin): raise ValueError('no good')", "ValueError: no good"),
        ("def register(): pass", "TypeError: register() takes 0 positional arguments"),
        (
            "def register(p): p.cost_model('trees', lambda seed: 0)",
            "cost model `trees`: there is one of that name",
        ),
        (
            "def register(p): p.cost_model('a b', lambda seed: 0)",
            "cost model `a b`: expected a name in kebab-case",
        ),
        ("def register(p): p.cost_model('mine', 3)", "cost model `mine`: expected a function, found `3`"),
        ("def register(p): p.strategy('mine')", "expected a Strategy, found `'mine'`"),
        ("def register(p): p.compiler_pass(int)", "expected a class of Pass"),
        ("def register(p): p.target('h100', int)", "target `h100`: there is one of that name"),
        (
            "def register(p): p.explorer('x', int); p.explorer('x', int)",
            "explorer `x`: there is one of that name",
        ),
    ],
)
def test_what_goes_wrong_names_the_plugin_and_adds_nothing(tmp_path: Path, text: str, said: str) -> None:
    first = "import builtins\ndef first(p): p.cost_model('early', lambda seed: 0)\n"
    whole = f"{first}\n{text}".replace("def register(p): ", "def register(p): first(p); ")
    with pytest.raises(PluginError, match=r"plugin `mine\.py`: ") as refusal:
        plugins.load(written(tmp_path, whole))
    assert said in str(refusal.value)
    assert "early" not in COST_MODELS and "x" not in EXPLORERS


def test_plugins_that_are_nowhere_are_told(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"plugin `absent\.py`: there is no file"):
        plugins.load(str(tmp_path / "absent.py"))
    with pytest.raises(PluginError, match=r"plugin `absent\.module`: ModuleNotFoundError"):
        plugins.load("absent.module")


def installed(folder: Path, entry: str) -> None:
    """What a package leaves behind that names an entry point, without its code."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nmine = {entry}\n")


class TestInstalled:
    def test_the_example_is_found_by_its_entry_point(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        import tomllib

        project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
        installed(tmp_path, project["entry-points"][plugins.GROUP]["example"])
        for path in (tmp_path, EXAMPLE / "src"):
            monkeypatch.syspath_prepend(str(path))
        plugins.load_installed()
        assert strategy_named("nearest-first").model == "nearest"
        assert registry.load("count-dispatches") is not None

    def test_one_that_cannot_be_loaded_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        installed(tmp_path, "nothing_of_that_name:register")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(PluginError, match=r"plugin `mine` .*nothing_of_that_name"):
            plugins.load_installed()

    @pytest.mark.slow
    def test_the_example_installs(self, tmp_path: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--target",
            str(tmp_path),
            str(EXAMPLE),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        names = [d.metadata["Name"] for d in metadata.distributions(path=[str(tmp_path)])]
        assert names == ["tilewright-example-plugin"] and (tmp_path / "tilewright_example").is_dir()


class TestExample:
    @pytest.fixture(autouse=True)
    def loaded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
        plugins.load("tilewright_example")

    def test_its_cost_model_says_what_its_neighbours_took(self, tmp_path: Path) -> None:
        model = make_cost_model("nearest")
        table = Table(("loops",), ("",), np.asarray([[1.0], [10.0], [100.0], [1000.0]]))
        model.fit([Samples("k", {"statement": table}, np.asarray([5.0, 10.0, np.inf, 20.0]), "here")])
        near = {"statement": Table(("loops",), ("",), np.asarray([[1.1], [900.0]]))}
        found = model.predict(near)
        np.testing.assert_allclose(found.mean, [0.0, -np.log(4.0)])
        model.save(tmp_path / "model.json")
        again = type(model).load(tmp_path / "model.json")
        np.testing.assert_array_equal(again.predict(near).mean, found.mean)
        (tmp_path / "model.json").write_text('{"kind": "other"}')
        with pytest.raises(Exception, match="no file of `nearest`"):
            type(model).load(tmp_path / "model.json")

    def test_its_pass_counts(self) -> None:
        from tilewright.compiler.ir import parse
        from tilewright.compiler.pipeline.pipeline import run_pipeline

        text = 'func.func private @{}() attributes {{tilewright.operator = "{}"}} {{ return }}\n'
        module = parse(
            "".join(text.format(*pair) for pair in (("a", "conv"), ("b", "conv"), ("c", "matmul")))
        )
        run_pipeline(module.operation, "builtin.module(count-dispatches{least=2})")
        assert str(module.operation.attributes["example.dispatches"]) == "{conv = 2 : i64}"


def test_both_tools_take_plugins(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tilewright.compiler.cli.main import main

    plugin = written(tmp_path, ALL)
    shown = CliRunner().invoke(main, ["--load-plugin", plugin, "targets", "machine-of-mine"])
    assert shown.exit_code == 0, shown.output
    refused = CliRunner().invoke(main, ["--load-plugin", str(tmp_path / "absent.py"), "targets"])
    assert refused.exit_code == 1 and "plugin `absent.py`: there is no file" in refused.output
