"""Pipelines run: upstream and own passes mixed, nested, verified, and leaving reproducers when they crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.compiler.errors import PassError, PipelineSyntaxError
from tilewright.compiler.ir import ir, parse
from tilewright.compiler.pipeline import pipeline as pipeline_module
from tilewright.compiler.pipeline.pipeline import Pipeline, StepError, run_pipeline
from tilewright.compiler.pipeline.reproducer import split_reproducer

TWO_FUNCTIONS = """
func.func @f(%x: i32) -> i32 {
  %a = arith.addi %x, %x : i32
  %b = arith.addi %x, %x : i32
  %c = arith.muli %a, %b : i32
  return %c : i32
}
module @inner {
  func.func @hidden(%x: i32) -> i32 { return %x : i32 }
}
func.func @g(%x: i32) -> i32 { return %x : i32 }
"""

UNBUFFERIZABLE = """func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "some.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


def module(text: str = TWO_FUNCTIONS) -> ir.Operation:
    return parse(text).operation


def test_passes_run_in_order_whoever_wrote_them() -> None:
    op = module()
    run_pipeline(op, "builtin.module(func.func(count-adds,cse,canonicalize),func.func(count-adds{scale=10}))")
    assert "adds = 10 : i64" in str(op), "cse merges two additions before the second count"


def test_nested_passes_see_direct_children_only() -> None:
    op = module()
    run_pipeline(op, "builtin.module(func.func(count-adds))")
    assert str(op).count("adds =") == 2
    assert "@hidden(%arg0: i32) -> i32 attributes" not in str(op)
    run_pipeline(op, "builtin.module(builtin.module(func.func(count-adds)))")
    assert str(op).count("adds =") == 3


def test_any_runs_on_every_isolated_operation() -> None:
    op = module()
    run_pipeline(op, "builtin.module(any(every-kind))")
    assert str(op).count("test.ran") == 3


def test_hooks_see_every_step() -> None:
    seen: list[tuple[str, str]] = []
    pipeline = Pipeline.parse(
        "builtin.module(cse,canonicalize,func.func(count-adds{scale=2}),symbol-dce)",
        lambda step, op, seconds: seen.append((step, op.name)) if seconds >= 0 else None,
    )
    pipeline.run(module())
    assert seen == [
        ("builtin.module(cse,canonicalize)", "builtin.module"),
        ("count-adds{scale=2}", "func.func"),
        ("count-adds{scale=2}", "func.func"),
        ("builtin.module(symbol-dce)", "builtin.module"),
    ]


def test_separate_steps() -> None:
    before: list[tuple[str, str]] = []
    pipeline = Pipeline.parse("builtin.module(cse,func.func(canonicalize))")
    pipeline.separate = True
    pipeline.before_pass = lambda step, op: before.append((step, op.name))
    pipeline.run(module())
    assert before == [("cse", "builtin.module"), ("canonicalize", "func.func"), ("canonicalize", "func.func")]


def test_separate_and_joined_steps_give_the_same() -> None:
    text = "builtin.module(func.func(cse,canonicalize),any(cse),symbol-dce)"
    joined, separate = module(), module()
    Pipeline.parse(text).run(joined)
    pipeline = Pipeline.parse(text)
    pipeline.separate = True
    pipeline.run(separate)
    assert str(joined) == str(separate)


def test_nothing_runs_when_a_later_name_is_wrong() -> None:
    op = module()
    with pytest.raises(
        PipelineSyntaxError, match=r"column 37: `count-add` is no pass .*did you mean `count-adds`"
    ):
        run_pipeline(op, "builtin.module(func.func(count-adds,count-add))")
    assert "adds" not in str(op)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("builtin.module(count-adds)", "`count-adds` runs on `func.func`, it was placed on `builtin.module`"),
        ("any(count-adds)", "it was placed on `any`; nest it: func.func(count-adds)"),
        ("builtin.module(needs-size)", "column 16: `needs-size` needs option `size`"),
        ("builtin.module(cse{no=1})", "column 16: <Pass-Options-Parser>: no such option no"),
    ],
)
def test_misplaced_passes_and_wrong_options(text: str, message: str) -> None:
    with pytest.raises(PipelineSyntaxError) as caught:
        Pipeline.parse(text)
    assert message in str(caught.value)


def test_the_anchor_must_be_the_operation() -> None:
    with pytest.raises(PassError, match=r"anchored on `func\.func`, the operation is `builtin\.module`"):
        run_pipeline(module(), "func.func(cse)")


def test_a_refusal_carries_its_place() -> None:
    op = module("func.func @f(%x: i32) -> i32 {\n  %y = arith.subi %x, %x : i32\n  return %y : i32\n}")
    with pytest.raises(StepError) as caught:
        run_pipeline(op, "builtin.module(cse,refuse-subtraction)")
    assert str(caught.value) == "-:2:8: `refuse-subtraction`: subtraction is not supported; negate and add"
    assert not caught.value.crashed


def test_an_upstream_failure_carries_its_place() -> None:
    op = module(UNBUFFERIZABLE)
    with pytest.raises(StepError) as caught:
        run_pipeline(op, "builtin.module(one-shot-bufferize)")
    assert str(caught.value).startswith("-:2:8: `builtin.module(one-shot-bufferize)`: ")
    assert "op was not bufferized" in str(caught.value)


def test_a_failure_of_mlir_inside_a_pass_is_no_crash() -> None:
    with pytest.raises(StepError, match="`run-bad-script`: ") as caught:
        run_pipeline(module(), "builtin.module(run-bad-script)")
    assert not caught.value.crashed


def test_invalid_ir_is_noticed_right_after_the_pass() -> None:
    with pytest.raises(StepError, match="`break-types` left invalid IR behind: "):
        run_pipeline(module(), "builtin.module(func.func(break-types,count-adds))")


@pytest.mark.parametrize(
    ("text", "failing"),
    [
        (TWO_FUNCTIONS, "func.func(break-types)"),
        (TWO_FUNCTIONS, "func.func(break-types),cse"),
        (TWO_FUNCTIONS, "run-bad-script"),
        (
            "func.func @f(%x: i32) -> i32 {\n  %y = arith.subi %x, %x : i32\n  return %y : i32\n}",
            "cse,refuse-subtraction",
        ),
        (UNBUFFERIZABLE, "one-shot-bufferize"),
    ],
)
def test_errors_are_the_same_where_only_the_end_is_verified(text: str, failing: str) -> None:
    messages = []
    for late in (False, True):
        with pytest.raises(StepError) as caught:
            run_pipeline(module(text), f"builtin.module({failing})", late=late)
        messages.append((str(caught.value), caught.value.step, caught.value.crashed))
    assert messages[0] == messages[1]


def test_verifying_the_end_alone_looks_once_and_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "builtin.module(cse,drop-unit-results,fold-shape-casts,canonicalize)"
    looks = []
    monkeypatch.setattr(pipeline_module, "_verify", lambda op, name: looks.append(name))
    results = []
    for late in (False, True):
        op = module()
        run_pipeline(op, text, late=late)
        results.append(str(op))
        assert len(looks) == 2
    assert results[0] == results[1]
    run_pipeline(module(), text, on_pass=lambda *seen: None, late=True)
    assert len(looks) == 4


def test_a_crash_leaves_a_reproducer_of_the_untouched_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    op = module()
    before = str(op)
    text = "builtin.module(symbol-dce,divide-by-zero)"
    with pytest.raises(
        StepError, match=r"`divide-by-zero` crashed with ZeroDivisionError: 1 / 0 \(sample_passes\.py:"
    ) as caught:
        run_pipeline(op, text)
    assert caught.value.crashed
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    (path,) = tmp_path.iterdir()
    assert caught.value.reproducer == path
    asm, pipeline, verify = split_reproducer(path.read_text())
    assert str(module(asm)) == before
    assert (pipeline, verify) == (text, True)


def test_the_same_crash_leaves_the_same_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    for _ in range(2):
        with pytest.raises(StepError):
            run_pipeline(module(), "builtin.module(divide-by-zero)")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_refusal_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    op = module("func.func @f(%x: i32) -> i32 {\n  %y = arith.subi %x, %x : i32\n  return %y : i32\n}")
    with pytest.raises(StepError):
        run_pipeline(op, "builtin.module(refuse-subtraction)")
    assert not list(tmp_path.iterdir())


def test_a_reproducer_without_its_section_is_refused() -> None:
    with pytest.raises(PassError, match="no `mlir_reproducer` section"):
        split_reproducer("module {}\n{-# dialect_resources: {} #-}")


def test_debug_level_4_prints_the_ir_after_every_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "builtin.module(cse,canonicalize,func.func(count-adds))"
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "3")
    run_pipeline(module(), text)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "4")
    run_pipeline(module(), text)
    titles = [line for line in capsys.readouterr().err.splitlines() if line.startswith("// -----//")]
    steps = ["cse", "canonicalize", "count-adds", "count-adds"]
    assert titles == [f"// -----// IR Dump After {step} //----- //" for step in steps]
