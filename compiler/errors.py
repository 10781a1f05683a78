"""Every error a user of the compiler can meet, each saying who refused, which rule, what was found, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.runtime.errors import TilewrightError


@dataclass(frozen=True)
class UnsupportedOperator:
    """One operator that cannot be compiled: its name, why, and where the model uses it."""

    operator: str
    reason: str
    location: str = "<unknown location>"

    def __str__(self) -> str:
        return f"{self.operator} at {self.location}: {self.reason}"


class UnsupportedError(TilewrightError):
    """A model holds operators that cannot be compiled; lists every one of them with its place in the source."""

    def __init__(self, operators: list[UnsupportedOperator]):
        self.operators = tuple(operators)
        lines = "\n".join(f"  - {op}" for op in self.operators)
        super().__init__(f"{len(self.operators)} operator(s) cannot be compiled:\n{lines}")


class PassError(TilewrightError):
    """A pass or pipeline failed; the message carries the diagnostics, `location` the place in the IR if known."""

    def __init__(self, message: str, location: object | None = None):
        super().__init__(message)
        self.location = location


class CompilerCrashError(TilewrightError):
    """A worker process died of what it compiled, or took too long: a bug of this compiler, of MLIR or of LLVM."""

    def __init__(self, what: str, how: str, reproducer: str = ""):
        self.what, self.how, self.reproducer = what, how, reproducer
        where = f" with its reproducer, `{reproducer}`," if reproducer else ""
        super().__init__(
            f"{what}: the process that compiled it {how}; this is a bug of the compiler: report it{where} and leave "
            "this part of the model to eager execution meanwhile"
        )


class PipelineSyntaxError(TilewrightError):
    """A pass pipeline string does not parse; the message points at the column."""


class ScheduleError(TilewrightError):
    """A schedule is malformed or illegal for its dispatch, which `location` places in the IR."""

    def __init__(self, reason: str, location: object | None = None):
        super().__init__(reason)
        self.reason, self.location = reason, location


class RecordError(TilewrightError):
    """A record of a measurement is malformed, or the file of records cannot be read or written."""


class LockError(TilewrightError):
    """A lockfile is malformed, or says something else than the model that is compiled with it."""


class PluginError(TilewrightError):
    """A plugin cannot be loaded, or adds what is there already; the message names the plugin."""


class CostModelError(TilewrightError):
    """A file that holds no cost model of the kind and version asked for, or candidates without what a model reads."""


class ModelImportError(TilewrightError):
    """A model file or object cannot be imported."""
