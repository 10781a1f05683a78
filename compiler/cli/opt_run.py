"""What tilewright-opt does with one buffer: parse it, run the pipeline with its hooks, print the result."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from tilewright.compiler.dialects import verifier
from tilewright.compiler.errors import PassError, ScheduleError, TilewrightError
from tilewright.compiler.ir import context, ir
from tilewright.compiler.pipeline.diagnostics import (
    Diagnostic,
    SourceText,
    Verifier,
    file_location,
    from_mlir,
    render,
)
from tilewright.compiler.pipeline.pipeline import Pipeline, StepError
from tilewright.compiler.pipeline.reproducer import reproducer_text, split_reproducer, write_reproducer
from tilewright.compiler.settings import settings

BYTECODE_MAGIC = b"ML\xefR"
_UNNAMED = "-"  # what MLIR's parser of whole modules calls its input
_SEVERAL_OPS = "source must contain a single top-level operation"


@dataclass(frozen=True)
class Printing:
    """How operations are printed; the fields are mlir-opt's flags of the same names."""

    debug_info: bool = False
    pretty_debug_info: bool = False
    generic: bool = False
    local_scope: bool = False
    elide_elements: int | None = None
    elide_resources: int | None = None

    def asm(self, op: ir.Operation) -> str:
        """The text of `op`, ending in a newline."""
        text = op.get_asm(
            enable_debug_info=self.debug_info or self.pretty_debug_info,
            pretty_debug_info=self.pretty_debug_info,
            print_generic_op_form=self.generic,
            use_local_scope=self.local_scope,
            large_elements_limit=self.elide_elements,
            large_resource_limit=self.elide_resources,
        )
        return text if text.endswith("\n") else text + "\n"


@dataclass(frozen=True)
class Dumps:
    """After or before which passes the IR goes to standard error; `before` and `after` name single passes."""

    before_all: bool = False
    after_all: bool = False
    after_change: bool = False
    after_failure: bool = False
    module_scope: bool = False
    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()

    def wants(self, when: str, step: str) -> bool:
        every, named = (self.before_all, self.before) if when == "Before" else (self.after_all, self.after)
        return every or _pass_name(step) in named


@dataclass
class Timing:
    """Wall-clock seconds per step, summed over operations and buffers, in order of first appearance."""

    seconds: dict[str, float] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - begin)

    def report(self) -> str:
        """The table that `--mlir-timing` prints, in mlir-opt's form; seconds and shares of the total."""
        total = time.perf_counter() - self.start
        rows = [
            *self.seconds.items(),
            ("Rest", max(total - sum(self.seconds.values()), 0.0)),
            ("Total", total),
        ]
        rule = f"===-{'-' * 73}-===\n"
        title = f"{'... Execution time report ...':^79}\n"
        lines = "".join(f"  {s:8.4f} ({s / total * 100:5.1f}%)  {name}\n" for name, s in rows)
        head = f"  Total Execution Time: {total:.4f} seconds\n\n  ----Wall Time----  ----Name----\n"
        return rule + title + rule + head + lines


@dataclass(frozen=True)
class Options:
    """Everything about a run but its input: `pipeline` is None when the input is only parsed and printed."""

    pipeline: str | None = None
    verify_each: bool = True
    verify_diagnostics: bool = False
    only_expected: bool = False
    implicit_module: bool = True
    allow_unregistered: bool = False
    show_operation: bool = True
    run_reproducer: bool = False
    crash_reproducer: Path | None = None
    generate_reproducer: Path | None = None
    dump_pipeline: bool = False
    bytecode: bool = False
    printing: Printing = field(default_factory=Printing)
    dumps: Dumps = field(default_factory=Dumps)


@contextmanager
def diagnostics_to(sink: Callable[[Diagnostic], None], options: Options) -> Iterator[None]:
    """Sends every diagnostic of the context to `sink`, and leaves the context as it was found."""
    ctx = context()
    before = (ctx.emit_error_diagnostics, ctx.allow_unregistered_dialects)

    def handle(diagnostic: ir.Diagnostic) -> bool:
        sink(from_mlir(diagnostic, options.show_operation and not options.verify_diagnostics))
        return True

    handler = ctx.attach_diagnostic_handler(handle)
    ctx.emit_error_diagnostics = True
    ctx.allow_unregistered_dialects = options.allow_unregistered
    try:
        yield
    finally:
        handler.detach()
        ctx.emit_error_diagnostics, ctx.allow_unregistered_dialects = before


@dataclass
class BufferRun:
    """One buffer on its way through the pipeline; `run` tells whether all went well; see `output`."""

    source: SourceText
    options: Options
    timing: Timing
    bytecode_input: bytes | None = None
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    output: str | bytes = ""
    _errors: int = 0
    _verifier: Verifier | None = None
    _held: list[Diagnostic] | None = None
    _current: ir.Operation | None = None
    _before: str = ""

    def run(self) -> bool:
        """Processes the buffer; with `verify_diagnostics` success means: exactly what was expected."""
        if self.options.verify_diagnostics:
            self._verifier = Verifier(self.source, self.options.only_expected)
        with diagnostics_to(self._take, self.options):
            succeeded = self._process()
        if self._verifier is None:
            return succeeded
        problems = self._verifier.finish()
        for problem in problems:
            self.stderr.write(render(problem, self.source))
        return not problems

    def _take(self, diagnostic: Diagnostic) -> None:
        if self._held is not None:
            self._held.append(diagnostic)
            return
        diagnostic = _renamed(diagnostic, self.source.name)
        self._errors += diagnostic.severity == "error"
        if self._verifier:
            self._verifier.take(diagnostic)
        else:
            self.stderr.write(render(diagnostic, self.source))

    def _error(self, message: str, location: object | None, notes: tuple[Diagnostic, ...] = ()) -> None:
        found = file_location(location)
        position = (found.filename, found.start_line, found.start_col) if found else (None, 0, 0)
        self._take(Diagnostic("error", message, *position, notes))

    def _asm(self, op: ir.Operation) -> str:
        text = self.options.printing.asm(op)
        name = self.source.name.replace("\\", "\\\\").replace('"', '\\"')
        return re.sub(rf'"{_UNNAMED}"(?=:\d+:\d+)', lambda _: f'"{name}"', text) if "loc(" in text else text

    def _process(self) -> bool:
        text = self.options.pipeline
        verify = self.options.verify_each
        try:
            if self.options.run_reproducer:
                rest, text, verify = split_reproducer(self.source.text)
                self.source = replace(self.source, text=rest)
            with self.timing.measure("Parser"):
                op = self._parse()
            if verify:
                verifier.verify(op)
        except ir.MLIRError:
            return False
        except (PassError, ScheduleError) as error:
            self._error(str(error), error.location)
            return False
        if text is not None and not self._run_pipeline(op, text, verify):
            return False
        with self.timing.measure("Output"):
            self.output = op.get_asm(binary=True) if self.options.bytecode else self._asm(op)
        return True

    def _parse(self) -> ir.Operation:
        """The buffer's operation, in a module unless told otherwise; MLIRError after diagnostics."""
        with context():
            if self.bytecode_input is not None:
                return ir.Module.parse(self.bytecode_input).operation
            op = self._parse_single()
            if op is None:
                return ir.Module.parse(self.source.text).operation
            if op.name == "builtin.module" or not self.options.implicit_module:
                return op
            module = ir.Module.create(ir.Location.file(self.source.name, 1, 1))
            module.body.append(op)
            return module.operation

    def _parse_single(self) -> ir.Operation | None:
        """The buffer's one operation, with file names in its locations; None when it holds several or none.

        Only the parser of single operations takes a file's name, so it is asked first and its complaint about
        several operations is dropped; `Module.parse` then calls the file `-`, which `_take` maps back.
        """
        held = self._held = []
        try:
            return ir.Operation.parse(self.source.text, source_name=self.source.name).operation
        except ir.MLIRError:
            if self.options.implicit_module and any(d.message.startswith(_SEVERAL_OPS) for d in held):
                held.clear()
                return None
            raise
        finally:
            self._held = None
            for diagnostic in held:
                self._take(diagnostic)

    def _run_pipeline(self, op: ir.Operation, text: str, verify: bool) -> bool:
        try:
            pipeline = Pipeline.parse(text, self._after)
        except TilewrightError as error:
            self._error(str(error), None)
            return False
        pipeline.before_pass = self._before_step
        pipeline.separate, pipeline.verify = True, verify
        pipeline.reproducer = self.options.crash_reproducer
        if self.options.dump_pipeline:
            self.stderr.write(
                f"Pass Manager with {len(pipeline.root.children or ())} passes:\n{pipeline.root}\n\n"
            )
        if self.options.generate_reproducer:
            asm = op.get_asm(enable_debug_info=True)
            write_reproducer(
                self.options.generate_reproducer, reproducer_text(asm, str(pipeline.root), verify)
            )
        try:
            pipeline.run(op)
        except TilewrightError as error:
            self._report(error, op)
            return False
        return True

    def _report(self, error: TilewrightError, op: ir.Operation) -> None:
        """Prints a failure as a diagnostic, unless upstream's own diagnostics have already said it."""
        step = error if isinstance(error, StepError) else None
        if self.options.dumps.after_failure and step:
            self._dump(f"After {step.step} Failed", self._current or op)
        if settings().debug >= 2:
            traceback.print_exception(error, file=self.stderr)
        said = self._errors and step and isinstance(step.__cause__, (PassError, ir.MLIRError))
        upstream = step is not None and isinstance(_root_cause(step), ir.MLIRError)
        if not (said and upstream):
            location = getattr(error, "location", None) or (self._current.location if self._current else None)
            self._error(getattr(error, "reason", str(error)), location, self._crash_notes(step))
        if step and self.options.crash_reproducer:
            found = f"`{step.step}` on '{(self._current or op).name}' operation{_symbol(self._current or op)}"
            note = f"Pipeline failed while executing [{found}]: reproducer generated at `{step.reproducer}`"
            message = "Failures have been detected while processing an MLIR pass pipeline"
            self._error(message, op.location, (Diagnostic("note", note),))

    def _crash_notes(self, step: StepError | None) -> tuple[Diagnostic, ...]:
        if not step or not step.crashed:
            return ()
        where = f"this is a defect of the pass, reproducer generated at `{step.reproducer}`"
        again = f"run it again with `tilewright-opt {step.reproducer} --run-reproducer`"
        return (Diagnostic("note", f"{where}; {again}; TILEWRIGHT_DEBUG=2 shows the Python traceback"),)

    def _before_step(self, step: str, op: ir.Operation) -> None:
        self._current = op
        if self.options.dumps.wants("Before", step):
            self._dump(f"Before {step}", op)
        if self.options.dumps.after_change:
            self._before = op.get_asm()

    def _after(self, step: str, op: ir.Operation, seconds: float) -> None:
        self.timing.add(step if op.name == "builtin.module" else f"'{op.name}' {step}", seconds)
        changed = not self.options.dumps.after_change or op.get_asm() != self._before
        if changed and (self.options.dumps.wants("After", step) or self.options.dumps.after_change):
            self._dump(f"After {step}", op)

    def _dump(self, title: str, op: ir.Operation) -> None:
        shown, scope = op, ""
        if self.options.dumps.module_scope:
            scope = f" ('{op.name}' operation{_symbol(op)})"
            while shown.parent:
                shown = shown.parent.operation
        head = f"// -----// IR Dump {title}{scope} //----- //\n"
        self.stderr.write(head + self._asm(shown) + "\n")


def _renamed(diagnostic: Diagnostic, name: str) -> Diagnostic:
    """`diagnostic` and its notes with the buffer's real name in place of the parser's `-`."""
    notes = tuple(_renamed(note, name) for note in diagnostic.notes)
    return replace(diagnostic, file=name if diagnostic.file == _UNNAMED else diagnostic.file, notes=notes)


def _pass_name(step: str) -> str:
    return step.partition("{")[0]


def _symbol(op: ir.Operation) -> str:
    return f": @{ir.StringAttr(op.attributes['sym_name']).value}" if "sym_name" in op.attributes else ""


def _root_cause(error: BaseException) -> BaseException:
    return _root_cause(error.__cause__) if error.__cause__ else error
