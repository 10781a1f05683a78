"""Options of passes: text to typed fields and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_passes import CountAdds, EveryKind, NeedsSize

from tilewright.compiler.errors import PipelineSyntaxError
from tilewright.compiler.pipeline.syntax import parse_options, parse_pipeline

text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=10)
instances = st.builds(
    EveryKind,
    flag=st.booleans(),
    count=st.integers(),
    ratio=st.floats(allow_nan=False),
    name_of_it=text,
    mode=st.sampled_from(["fast", "safe"]),
    sizes=st.lists(st.integers(), max_size=4).map(tuple),
    names=st.lists(text, max_size=3).map(tuple),
    limit=st.none() | st.integers(),
)


@given(instances)
def test_what_a_pass_prints_builds_it_again(instance: EveryKind) -> None:
    node = parse_pipeline(f"any({instance.spec()})")
    assert node.children is not None
    assert EveryKind.from_options(parse_options(node.children[0].options)) == instance


def test_defaults_are_not_printed() -> None:
    assert EveryKind().spec() == "every-kind"
    assert EveryKind(sizes=(4,), name_of_it="a b").spec() == 'every-kind{name-of-it="a b" sizes=[4]}'


def test_underscores_are_accepted() -> None:
    assert EveryKind.from_options({"name_of_it": "y"}) == EveryKind(name_of_it="y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flag": "yes"}, "`every-kind{flag}`: expected true|false, found `yes`"),
        ({"count": "3.5"}, "`every-kind{count}`: expected int, found `3.5`"),
        ({"count": ""}, "`every-kind{count}`: expected int, found ``"),
        ({"ratio": "half"}, "`every-kind{ratio}`: expected float, found `half`"),
        ({"mode": "slow"}, "`every-kind{mode}`: expected fast|safe, found `slow`"),
        ({"sizes": "[1,x]"}, "`every-kind{sizes}`: expected int, found `x`"),
        ({"limit": "few"}, "`every-kind{limit}`: expected int, found `few`"),
        ({"cout": "1"}, "`every-kind` has no option `cout`; its options are: count, flag, limit, mode,"),
        ({"name-of-it": "a", "name_of_it": "b"}, "option `name_of_it` is given twice"),
    ],
)
def test_bad_values(options: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineSyntaxError) as caught:
        EveryKind.from_options(options)
    assert message in str(caught.value)


def test_a_required_option_must_be_given() -> None:
    with pytest.raises(PipelineSyntaxError, match=r"`needs-size` needs option `size`; write size=\.\.\."):
        NeedsSize.from_options({})


def test_options_as_the_command_line_lists_them() -> None:
    assert CountAdds.options() == [("scale", "int", "1")]
    assert NeedsSize.options() == [("size", "int", None)]
    assert ("limit", "int|none", "none") in EveryKind.options()
    assert ("mode", "fast|safe", "fast") in EveryKind.options()
    assert ("sizes", "[int,...]", "[1,2]") in EveryKind.options()
