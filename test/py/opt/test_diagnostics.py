"""Diagnostics: where they point, how they print, and how comments expect them."""

from __future__ import annotations

import pytest

from tilewright.compiler.ir import context, ir
from tilewright.compiler.pipeline.diagnostics import (
    Diagnostic,
    SourceText,
    Verifier,
    expectations,
    file_location,
    place,
    render,
)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ('loc("a.py":3:7)', "a.py:3:7"),
        ('loc("add"("a.py":3:7))', "a.py:3:7"),
        ('loc(callsite("f"("a.py":3:7) at "b.py":1:2))', "a.py:3:7"),
        ('loc(callsite("f" at "b.py":1:2))', "b.py:1:2"),
        ('loc(fused["x", "a.py":3:7, "b.py":1:2])', "a.py:3:7"),
        ('loc("add")', 'loc("add")'),
        ("loc(unknown)", ""),
    ],
)
def test_the_place_of_a_location(location: str, expected: str) -> None:
    with context():
        op = ir.Operation.parse(f"module {{}} {location}")
        assert place(op.location) == expected
        assert (file_location(op.location) is None) == (not expected or expected.startswith("loc("))


def test_the_place_of_a_location_in_an_exception() -> None:
    with context(), pytest.raises(ir.MLIRError) as caught:
        ir.Operation.parse("func.func @f() -> i32 {\n return\n}", source_name="x.mlir")
    assert place(caught.value.error_diagnostics[0].location) == "x.mlir:2:2"


def test_rendering_points_with_a_caret_and_keeps_tabs() -> None:
    source = SourceText("x.mlir", "first\n\tsecond line\n")
    note = Diagnostic("note", "here", "x.mlir", 1, 1)
    text = render(Diagnostic("error", "bad", "x.mlir", 2, 4, (note,)), source)
    assert text == "x.mlir:2:4: error: bad\n\tsecond line\n\t  ^\nx.mlir:1:1: note: here\nfirst\n^\n"


def test_rendering_without_a_position() -> None:
    assert render(Diagnostic("warning", "hot"), SourceText("x", "")) == "<unknown>:0: warning: hot\n"


def test_lines_of_other_files_are_shown_when_they_exist(tmp_path) -> None:
    model = tmp_path / "model.py"
    model.write_text("import torch\ny = x + 1\n")
    source = SourceText("x.mlir", "")
    assert "\ny = x + 1\n    ^\n" in render(Diagnostic("error", "bad", str(model), 2, 5), source)
    assert render(Diagnostic("error", "bad", "gone.py", 2, 5), source) == "gone.py:2:5: error: bad\n"


def test_expectations_and_their_lines() -> None:
    text = "\n".join(
        [
            "op  // expected-error {{one}}",
            "// expected-warning @+2 {{two}}",
            "// expected-note @below {{three}}",
            "// expected-remark @below {{four}}",
            "op",
            "// expected-error @above {{five}}",
            "// expected-error @-2 {{six}}",
            "// expected-error @unknown {{seven}}",
            "// expected-error-re @above {{a{{[0-9]+}}b}}",
            "// expected-error {{unfinished",
        ]
    )
    found = [(e.severity, e.text, e.line) for e in expectations(text)]
    assert found == [
        ("error", "one", 1),
        ("warning", "two", 4),
        ("note", "three", 5),
        ("remark", "four", 5),
        ("error", "five", 5),
        ("error", "six", 5),
        ("error", "seven", None),
        ("error", "a{{[0-9]+}}b", 5),
    ]


def test_regular_expressions_are_literal_outside_their_braces() -> None:
    (expected,) = expectations("// expected-error-re {{tile (.) {{[0-9]+}}}}")
    assert expected.matches(Diagnostic("error", "tile (.) 12"))
    assert not expected.matches(Diagnostic("error", "tile (x) 12"))


def verify(text: str, *produced: Diagnostic, only_expected: bool = False) -> list[str]:
    verifier = Verifier(SourceText("x", text), only_expected)
    for diagnostic in produced:
        verifier.take(diagnostic)
    return [problem.message for problem in verifier.finish()]


def test_each_expectation_is_met_once() -> None:
    text = "// expected-error {{a}}"
    at = Diagnostic("error", "a", "x", 1, 1)
    assert verify(text, at) == []
    assert verify(text, at, at) == ["unexpected error: a"]
    assert verify(text) == ['expected error "a" was not produced']


def test_notes_must_be_expected_too() -> None:
    with_note = Diagnostic("error", "a", "x", 1, 1, (Diagnostic("note", "n", "x", 1, 1),))
    assert verify("// expected-error {{a}}", with_note) == ["unexpected note: n"]
    assert verify("// expected-error {{a}}", with_note, only_expected=True) == []


def test_diagnostics_of_other_files_are_at_unknown_places() -> None:
    elsewhere = Diagnostic("error", "a", "other", 1, 1)
    assert verify("// expected-error @unknown {{a}}", elsewhere) == []
    assert verify("// expected-error {{a}}", elsewhere) == [
        "unexpected error: a",
        'expected error "a" was not produced',
    ]
