"""Every environment variable the compiler reads, typed and documented; nothing else of it looks them up."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from tilewright.compiler.errors import TilewrightError


class SettingError(TilewrightError):
    """An environment variable holds a value of the wrong kind."""


DEBUG_LEVELS = {
    1: "phases and their seconds, cache hits and why a look-up missed",
    2: "one line per dispatch: its operator, schedule and source line",
    3: "the IR after every phase",
    4: "the IR after every pass",
    5: "LLVM IR and assembly of every kernel",
}
"""What each TILEWRIGHT_DEBUG level adds to those below it; all of it goes to standard error."""


@dataclass(frozen=True)
class Settings:
    """The compiler's environment variables as they are now; each field is `TILEWRIGHT_<FIELD>`.

    debug: 0 (silent) to 5, see DEBUG_LEVELS.
    dump: folder that receives numbered phases, `.ll` and `.s` files; it is created.
    override: folder with edited copies of dumped files; a file of the same name replaces what was generated.
    cache_dir: folder of the compile cache; default `$XDG_CACHE_HOME/tilewright`, else `~/.cache/tilewright`.
    num_threads: workers of the runtime's pool, read by the runtime itself; None means one per physical core.
    ptxas: the NVIDIA assembler to use; None means the first one found that knows the architecture.
    compile_workers: processes that lower code; None means one per physical core, 0 lowers in the user's process.
    compile_limit_s: seconds that one kernel, one import or the phases of one model may take in a worker.
    """

    debug: int = 0
    dump: Path | None = None
    override: Path | None = None
    cache_dir: Path = Path()
    num_threads: int | None = None
    ptxas: Path | None = None
    compile_workers: int | None = None
    compile_limit_s: int = 600


def _integer(name: str, low: int, high: int | None) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    value = int(text) if text.lstrip("-").isdigit() else None
    if value is None or value < low or (high is not None and value > high):
        bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
        raise SettingError(f"{name}: expected an integer {bounds}, found `{text}`; unset it for the default")
    return value


def _folder(name: str, must_exist: bool) -> Path | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise SettingError(f"{name}: expected a folder, found the file `{path}`; name a folder")
    if must_exist and not path.exists():
        raise SettingError(f"{name}: the folder `{path}` does not exist; fill one with TILEWRIGHT_DUMP first")
    return path


def _program(name: str) -> Path | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    path = Path(text).expanduser()
    if not path.is_file():
        raise SettingError(f"{name}: expected a program, found no file `{path}`; unset it to search for one")
    return path


def default_cache_dir() -> Path:
    """Where compiled packages are kept when TILEWRIGHT_CACHE_DIR is unset."""
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache") / "tilewright"


def settings() -> Settings:
    """Reads the environment now, so that a test or a notebook may change it; raises SettingError.

    Unknown names beginning with TILEWRIGHT_ are left alone: the runtime and tools around it have their own.
    """
    return Settings(
        debug=debug_level(),
        dump=_folder("TILEWRIGHT_DUMP", must_exist=False),
        override=_folder("TILEWRIGHT_OVERRIDE", must_exist=True),
        cache_dir=_folder("TILEWRIGHT_CACHE_DIR", must_exist=False) or default_cache_dir(),
        num_threads=_integer("TILEWRIGHT_NUM_THREADS", 1, None),
        ptxas=_program("TILEWRIGHT_PTXAS"),
        compile_workers=_integer("TILEWRIGHT_COMPILE_WORKERS", 0, 1024),
        compile_limit_s=_integer("TILEWRIGHT_COMPILE_LIMIT_S", 1, None) or Settings.compile_limit_s,
    )


def debug_level() -> int:
    """TILEWRIGHT_DEBUG alone: it is asked for often, and the folders of the other variables are looked for on the disk."""
    return _integer("TILEWRIGHT_DEBUG", 0, max(DEBUG_LEVELS)) or 0


def variables() -> list[str]:
    """Names of all variables above, for documentation and `--help`."""
    return [f"TILEWRIGHT_{f.name.upper()}" for f in fields(Settings)]


def variables_set() -> dict[str, str]:
    """The TILEWRIGHT_ variables as they are now, for another process: folders and programs by their full paths."""
    paths = {"TILEWRIGHT_CACHE_DIR", "TILEWRIGHT_DUMP", "TILEWRIGHT_OVERRIDE", "TILEWRIGHT_PTXAS"}
    return {
        name: str(Path(text).expanduser().absolute()) if name in paths and text.strip() else text
        for name, text in os.environ.items()
        if name.startswith("TILEWRIGHT_")
    }


def adopt(variables: dict[str, str]) -> None:
    """Makes this process's TILEWRIGHT_ variables those of another one, as `variables_set` gave them there."""
    for name in [name for name in os.environ if name.startswith("TILEWRIGHT_") and name not in variables]:
        del os.environ[name]
    os.environ.update(variables)


def worker_environment() -> dict[str, str]:
    """The environment of processes that compile: libraries in them start no threads, which forks do not copy."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(threads, "1")}
