"""docs/search.md lists every strategy and explorer, and the numbers that it states are those of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tilewright.compiler.passes.schedule.search_schedules import SearchSchedules
from tilewright.compiler.pipeline.pipeline import Pipeline
from tilewright.compiler.tuning.search import finalists, task_scheduler, tuner
from tilewright.compiler.tuning.search.annealing import Annealing
from tilewright.compiler.tuning.search.draft_then_verify import DraftThenVerify
from tilewright.compiler.tuning.search.plain_explorers import Seeded
from tilewright.compiler.tuning.search.selection import Diverse, EpsilonGreedy
from tilewright.compiler.tuning.search.strategies import EXPLORERS, STRATEGIES

PAGE = Path(__file__).parents[3] / "docs/search.md"
TEXT = PAGE.read_text(encoding="utf-8")
WORDS = dict(zip(("two", "three", "four", "five", "nine"), (2, 3, 4, 5, 9)))


def default(made, name: str):
    return inspect.signature(made).parameters[name].default


def section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def named(title: str) -> list[str]:
    """The names in the first columns of a section's table."""
    cells = re.findall(r"^\| (`[^|]*`) \|", section(title), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)]


def test_every_strategy_and_its_model_is_listed() -> None:
    assert named("Strategies") == list(STRATEGIES)
    for name, strategy in STRATEGIES.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*", section("Strategies"), re.MULTILINE)
        assert row.split("|")[3].strip().strip("`") == (strategy.model or "none")


def test_every_explorer_is_listed() -> None:
    assert sorted(named("Explorers")) == sorted(EXPLORERS)


@pytest.mark.parametrize(
    "stated",
    [
        f"the best {default(Seeded, 'seeds')} schedules",
        f"{default(Annealing, 'chains')} chains of {default(Annealing, 'steps')} moves",
        f"{default(EpsilonGreedy, 'epsilon'):.0%} of a batch are drawn",
        f"keeps {default(DraftThenVerify, 'target')} and a tenth of the rest",
        f"none more than {finalists.NEAR - 1:.0%} slower",
        f"Those within {finalists.TIE - 1:.0%} of the best",
    ],
)
def test_the_numbers_are_those_of_the_code(stated: str) -> None:
    assert stated in re.sub(r"\s+", " ", TEXT)


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"of (\w+) times the batch", default(Diverse, "factor")),
        (r"at most (\w+) and none more", finalists.MOST),
        (r"on devices that can: (\w+) rounds", finalists.ROUNDS),
        (r"in the last (\w+) batches", task_scheduler.WINDOW),
        (r"each begins with (\w+) candidates", tuner.FIRST),
    ],
)
def test_the_words_for_numbers_are_those_of_the_code(pattern: str, value: int) -> None:
    (word,) = re.findall(pattern, re.sub(r"\s+", " ", TEXT))
    assert WORDS[word] == value


def test_the_tenth_is_the_share_of_the_code() -> None:
    assert default(DraftThenVerify, "share") == 0.1


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert links and not [link for link in links if not (PAGE.parent / link).exists()]


def test_its_pipelines_are_pipelines() -> None:
    pipelines = re.findall(r"--pass-pipeline='([^']+)'", TEXT)
    assert len(pipelines) == 2
    for text in pipelines:
        assert SearchSchedules.name() in str(Pipeline.parse(text).root)


def test_readers_find_it() -> None:
    for page in ("README.md", "docs/measuring.md"):
        assert "search.md)" in (PAGE.parents[1] / page).read_text(encoding="utf-8")
