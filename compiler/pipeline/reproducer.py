"""Reproducers: a module together with the pipeline that failed on it, in mlir-opt's own file format.

The file is plain MLIR whose last section names the pipeline, so it opens in any MLIR tool and runs again
with `tilewright-opt FILE --run-reproducer`.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path

from tilewright.compiler.errors import PassError

_SECTION = re.compile(r"\{-#(?:(?!\{-#|#-\}).)*?\bmlir_reproducer\b.*?#-\}", re.DOTALL)
_PIPELINE = re.compile(r'\bpipeline\s*:\s*"((?:[^"\\]|\\.)*)"')
_VERIFY = re.compile(r"\bverify_each\s*:\s*(true|false)")


def reproducer_text(asm: str, pipeline: str, verify_each: bool = True) -> str:
    """MLIR text `asm` followed by the section that records `pipeline`."""
    escaped = pipeline.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"{asm.rstrip()}\n\n{{-#\n  external_resources: {{\n    mlir_reproducer: {{\n"
        f'      pipeline: "{escaped}",\n      disable_threading: true,\n'
        f"      verify_each: {'true' if verify_each else 'false'}\n    }}\n  }}\n#-}}\n"
    )


def split_reproducer(text: str) -> tuple[str, str, bool]:
    """A reproducer's text -> (MLIR without the section, pipeline, verify_each); PassError when it has none.

    The section is blanked line by line, so locations in the rest stay what they are.
    """
    section = _SECTION.search(text)
    pipeline = _PIPELINE.search(section[0]) if section else None
    if not section or not pipeline:
        raise PassError(
            "`--run-reproducer`: the file holds no `mlir_reproducer` section with a `pipeline`; "
            "write one with `--mlir-pass-pipeline-crash-reproducer=FILE`"
        )
    blank = "\n" * section[0].count("\n")
    verify = _VERIFY.search(section[0])
    rest = text[: section.start()] + blank + text[section.end() :]
    return rest, re.sub(r"\\(.)", r"\1", pipeline[1]), not verify or verify[1] == "true"


def default_path(text: str, folder: Path | None = None) -> Path:
    """Where a reproducer goes when no file was named: `folder` or the temporary one; named by content."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return (folder or Path(tempfile.gettempdir())) / f"tilewright-reproducer-{digest}.mlir"


def write_reproducer(path: Path, text: str) -> None:
    """Writes `text`, creating folders; raises PassError when the place cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PassError(f"cannot write the reproducer `{path}`: {error.strerror}") from error
