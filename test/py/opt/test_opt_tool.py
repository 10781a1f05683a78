"""tilewright-opt as a process and in one: what it imports, how it fails, what it leaves behind."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.compiler.cli.opt import main, split
from tilewright.compiler.ir import context

SUBTRACTION = "func.func @f(%x: i32) -> i32 {\n  %y = arith.subi %x, %x : i32\n  return %y : i32\n}\n"


@pytest.fixture
def subtraction(tmp_path: Path) -> Path:
    path = tmp_path / "subtraction.mlir"
    path.write_text(SUBTRACTION)
    return path


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_it_starts_without_torch(subtraction: Path) -> None:
    code = (
        "import sys\n"
        "from tilewright.compiler.cli.opt import main\n"
        "assert main([sys.argv[1], '--canonicalize', '-o', sys.argv[1] + '.out']) == 0\n"
        "assert main(['--list-passes']) == 0\n"
        "print('torch' in sys.modules)\n"
    )
    done = python(code, str(subtraction))
    assert done.stdout.endswith("False\n"), done.stderr
    assert "arith.constant 0" in Path(f"{subtraction}.out").read_text()


@pytest.mark.slow
def test_it_starts_fast(subtraction: Path) -> None:
    """Processor seconds, not wall-clock: other work on the machine must not fail this."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "tilewright.compiler.cli.opt",
                str(subtraction),
                "--cse",
                "-o",
                "/dev/null",
            ],
            check=True,
            timeout=120,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.6


def test_a_refusal_is_a_diagnostic_with_source_and_caret(
    subtraction: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(subtraction), "--refuse-subtraction"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"{subtraction}:2:8: error: `refuse-subtraction`: subtraction is not supported; negate and add\n"
        "  %y = arith.subi %x, %x : i32\n       ^\n"
    )


def test_a_refusal_can_be_expected(subtraction: Path) -> None:
    subtraction.write_text(SUBTRACTION.replace(": i32\n", ": i32  // expected-error {{negate and add}}\n", 1))
    assert main([str(subtraction), "--refuse-subtraction", "--verify-diagnostics"]) == 0


def test_a_crash_is_a_diagnostic_with_a_reproducer(
    subtraction: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    assert main([str(subtraction), "--cse", "--divide-by-zero"]) == 1
    err = capsys.readouterr().err
    assert f"{subtraction}:1:1: error: `divide-by-zero` crashed with ZeroDivisionError: 1 / 0" in err
    assert "note: this is a defect of the pass, reproducer generated at" in err
    assert "Traceback" not in err
    (reproducer,) = (tmp_path / "dump").iterdir()
    assert main([str(reproducer), "--run-reproducer"]) == 1
    assert "`divide-by-zero` crashed" in capsys.readouterr().err


def test_debugging_shows_the_traceback(
    subtraction: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "2")
    assert main([str(subtraction), "--divide-by-zero"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_pass_that_fails_inside_mlir_says_so_once(
    subtraction: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(subtraction), "--run-bad-script"]) == 1
    err = capsys.readouterr().err
    assert err.count("error:") == 1
    assert "Traceback" not in err


def test_a_dying_process_leaves_its_reproducer(subtraction: Path, tmp_path: Path) -> None:
    reproducer = tmp_path / "reproducer.mlir"
    code = (
        f"import sys, os; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import sample_passes\n"
        "from tilewright.compiler.pipeline import registry\n"
        "from tilewright.compiler.cli.opt import main\n"
        "cls = sample_passes.DivideByZero\n"
        "cls.run = lambda self, op: os.abort()\n"
        "registry.exists = lambda name: name == 'divide-by-zero'\n"
        "registry.load = lambda name: cls\n"
        "main([sys.argv[1], '--divide-by-zero', '--mlir-pass-pipeline-crash-reproducer=' + sys.argv[2]])\n"
    )
    done = python(code, str(subtraction), str(reproducer))
    assert done.returncode < 0
    assert "arith.subi" in reproducer.read_text()
    assert 'pipeline: "builtin.module(divide-by-zero)"' in reproducer.read_text()


def test_the_context_is_left_as_it_was_found(subtraction: Path) -> None:
    ctx = context()
    before = (ctx.allow_unregistered_dialects, ctx.emit_error_diagnostics)
    main([str(subtraction), "--refuse-subtraction"])
    assert (ctx.allow_unregistered_dialects, ctx.emit_error_diagnostics) == before


def test_verification_between_passes_can_be_turned_off(
    subtraction: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(subtraction), "--break-types"]) == 1
    assert "doesn't match function result type" in capsys.readouterr().err
    assert main([str(subtraction), "--break-types", "--verify-each=false"]) == 0


def test_binary_rubbish_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"\xff\xfe\x00")
    assert main([str(rubbish)]) == 1
    assert "is neither UTF-8 text nor MLIR bytecode: byte 0" in capsys.readouterr().err


def test_damaged_bytecode_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "damaged.mlirbc"
    damaged.write_bytes(b"ML\xefR\x00garbage")
    assert main([str(damaged)]) == 1
    assert "error:" in capsys.readouterr().err


def test_splitting_keeps_line_numbers() -> None:
    text = "a\n// -----\nb\nc\n// ----- \nd"
    assert split(text) == ["a\n", "\n\nb\nc\n", "\n\n\n\n\nd"]
    assert split("// -----// IR Dump") == ["// -----// IR Dump"]
