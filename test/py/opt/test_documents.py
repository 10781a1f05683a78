"""Sessions shown in the documents are what the tools print: the commands run again and are compared.

`python test/py/opt/test_documents.py` writes the present output into the documents.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENTS = ("choices.md", "schedules.md", "tilewright-opt.md")
PASS_FILE = re.compile(
    r"`(compiler/passes/\w+\.py|test/lit/passes/[\w-]+\.mlir)`[^`\n]*:\n\n```\w+\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
BLOCK = re.compile(r"^```(mlir|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"`([\w-]+\.mlir)`:\s*$|\A// ([\w-]+\.mlir)$", re.MULTILINE)


def environment_of_commands() -> dict[str, str]:
    """What a reader's shell has: the tools, and none of the compiler's settings."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("TILEWRIGHT_DEBUG", "TILEWRIGHT_DUMP", "TILEWRIGHT_OVERRIDE"):
        environment.pop(name, None)
    return environment


def rerun(text: str, folder: Path) -> str:
    """The document with the output of its `console` blocks as it is now; `mlir` blocks with a name become files."""
    environment = environment_of_commands()

    def replace(match: re.Match[str]) -> str:
        kind, body = match[1], match[2]
        if kind == "mlir":
            before = text[: match.start()].rstrip()[-80:]
            named = FILE_NAME.search(before) or FILE_NAME.match(body)
            if named:
                (folder / (named[1] or named[2])).write_text(body)
            return match[0]
        shown = []
        for line in body.splitlines():
            if line.startswith("$ "):
                done = subprocess.run(
                    line[2:],
                    shell=True,
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=120,
                    check=False,
                )
                shown.append(f"{line}\n{done.stdout.rstrip()}".rstrip())
        return "```console\n" + "\n".join(shown) + "\n```"

    return BLOCK.sub(replace, text)


def masked(text: str) -> str:
    """The text without what differs from run to run: times and shares of it."""
    return re.sub(r" *\d+\.\d+ \( *\d+\.\d%\)|\d+\.\d+ seconds", "<time>", text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_sessions_are_real(document: str, tmp_path: Path) -> None:
    text = (DOCS / document).read_text(encoding="utf-8")
    assert "$ tilewright" in text
    assert masked(rerun(text, tmp_path)) == masked(text)


def worked_session(target: str, folder: Path) -> str:
    """The session of `cli.md` for `target`, with its model as a file in `folder`."""
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    session = text[text.index("## A worked session") : text.index("## compile")]
    model = re.search(r"`(my_models\.py)`:\n\n```python\n(.*?)^```$", session, re.DOTALL | re.MULTILINE)
    assert model and "--target x86-64-v3" in session
    (folder / model[1]).write_text(model[2])
    return session.replace("--target x86-64-v3", f"--target {target}")


@pytest.mark.parametrize("target", ["x86-64-v3", "cpu"])
def test_the_worked_session_edits_what_it_says_it_edits(target: str, tmp_path: Path) -> None:
    session = worked_session(target, tmp_path)
    assert rerun(session, tmp_path) == session


def test_the_commands_of_the_worked_session_succeed(tmp_path: Path) -> None:
    session = worked_session("x86-64-v3", tmp_path)
    for commands in re.findall(r"^```sh\n(.*?)^```$", session, re.DOTALL | re.MULTILINE):
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=tmp_path,
            env=environment_of_commands(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "<svg" in (tmp_path / "encoder.html").read_text()


def test_the_pass_in_the_document_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file loads as a pass, and lit and FileCheck accept its tests."""
    files = dict(PASS_FILE.findall((DOCS / "adding-a-pass.md").read_text(encoding="utf-8")))
    assert sorted(Path(name).name for name in files) == [
        "mark-large-invalid.mlir",
        "mark-large.mlir",
        "mark_large.py",
    ]
    for name, text in files.items():
        (tmp_path / Path(name).name).write_text(text)
    (tmp_path / "tilewright-opt").write_text(
        f"#!{sys.executable}\n"
        "import importlib.util, sys\n"
        "from tilewright.compiler.pipeline import registry\n"
        "from tilewright.compiler.cli.opt import main\n"
        f"spec = importlib.util.spec_from_file_location('mark_large', {str(tmp_path / 'mark_large.py')!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['mark_large'] = module\n"
        "spec.loader.exec_module(module)\n"
        "registry.exists = lambda name: name == 'mark-large'\n"
        "registry.load = lambda name: module.MarkLarge\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    (tmp_path / "tilewright-opt").chmod(0o755)
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    for name in files:
        for command in re.findall(r"// RUN: (.*)", files[name]):
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command.replace("%s", str(tmp_path / Path(name).name))],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    import tempfile

    for name in DOCUMENTS:
        with tempfile.TemporaryDirectory() as scratch:
            path = DOCS / name
            path.write_text(rerun(path.read_text(encoding="utf-8"), Path(scratch)), encoding="utf-8")
