"""The pipeline language: what prints parses back, and what is wrong is pointed at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.errors import PipelineSyntaxError
from tilewright.compiler.pipeline.syntax import Node, parse_options, parse_pipeline, quoted, split_list

names = st.from_regex(r"[a-z][a-z0-9_.-]{0,11}", fullmatch=True)
keys = st.from_regex(r"[a-z][a-z0-9-]{0,7}", fullmatch=True)
values = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
option_texts = st.dictionaries(keys, values, max_size=3).map(
    lambda options: " ".join(f"{key}={quoted(value)}" for key, value in options.items())
)
leaves = st.builds(Node, names, option_texts)
trees = st.recursive(
    leaves,
    lambda inner: st.builds(Node, names, option_texts, st.lists(inner, max_size=4).map(tuple)),
    max_leaves=12,
)
pipelines = st.builds(Node, names, option_texts, st.lists(trees, max_size=4).map(tuple))


@given(pipelines)
def test_what_prints_parses_back(node: Node) -> None:
    assert parse_pipeline(str(node)) == node


@given(pipelines)
def test_columns_point_at_names(node: Node) -> None:
    text = f"  {node}"

    def check(inner: Node) -> None:
        assert text[inner.column :].startswith(inner.name)
        for child in inner.children or ():
            check(child)

    check(parse_pipeline(text))


@given(st.dictionaries(keys, values, max_size=5))
def test_options_survive_quoting(options: dict[str, str]) -> None:
    assert parse_options(" ".join(f"{key}={quoted(value)}" for key, value in options.items())) == options


@given(st.lists(values, max_size=5))
def test_lists_survive_quoting(items: list[str]) -> None:
    assert split_list("[" + ",".join(map(quoted, items)) + "]") == items


@given(st.text(alphabet="ab(),{}[]=\"' \\.", max_size=24))
def test_any_text_parses_or_is_refused_with_a_column(text: str) -> None:
    try:
        node = parse_pipeline(text)
    except PipelineSyntaxError as error:
        first, shown, caret = str(error).split("\n")
        column = int(first.removeprefix("pipeline column ").partition(":")[0])
        assert shown == f"  {text}"
        assert caret == " " * (column + 1) + "^"
        assert column <= len(text) + 1
    else:
        assert parse_pipeline(str(node)) == node


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a", {"a": ""}),
        ("a=1 b=[1,2] c", {"a": "1", "b": "[1,2]", "c": ""}),
        ("tile-sizes=8,16 x={y=1 z=2}", {"tile-sizes": "8,16", "x": "{y=1 z=2}"}),
        ("a='x y' b=\"}\"", {"a": "x y", "b": "}"}),
        (r'a="say \"x\" \\"', {"a": 'say "x" \\'}),
        ("  a=[ 1, 2 ]  ", {"a": "[ 1, 2 ]"}),
    ],
)
def test_options(text: str, expected: dict[str, str]) -> None:
    assert parse_options(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("=1", "column 1: expected an option's name, found `=1`"),
        ("a=1 a=2", "column 5: option `a` is given twice"),
        ("a='x", "column 3: the quote ' is not closed"),
        ("a=[1", "column 3: `[` is not closed"),
        ("a=[1}", "column 5: `}` closes nothing"),
        ("a='x'y", "column 6: expected a space after option `a`, found `y`"),
    ],
)
def test_malformed_options(text: str, message: str) -> None:
    with pytest.raises(PipelineSyntaxError) as caught:
        parse_options(text)
    assert message in str(caught.value)


def test_an_empty_anchor_is_a_pipeline() -> None:
    assert parse_pipeline(" builtin.module ( ) ") == Node("builtin.module", "", ())


def test_a_pass_alone_is_none() -> None:
    with pytest.raises(PipelineSyntaxError, match=r"e\.g\. 'builtin\.module\(cse\)'"):
        parse_pipeline("cse")
