"""Pipelines mix upstream, torch-mlir and our passes, nested and with options, in mlir-opt's own syntax.

    builtin.module(canonicalize,outline-dispatches{max-ops=64},func.func(cse))

Runs of upstream passes go to the C++ pass manager as they stand; ours run from Python in between, and
one callback sees every boundary for verification, timing and printing. Names, options and anchors are all
checked before the first pass runs.
"""

from __future__ import annotations

import difflib
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tilewright.compiler.dialects import verifier
from tilewright.compiler.errors import PassError, PipelineSyntaxError, ScheduleError, TilewrightError
from tilewright.compiler.ir import context, ir, passmanager, run_upstream, take_over
from tilewright.compiler.pipeline import registry
from tilewright.compiler.pipeline.diagnostics import place
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.pipeline.reproducer import default_path, reproducer_text, write_reproducer
from tilewright.compiler.pipeline.syntax import Node, parse_options, parse_pipeline, syntax_error
from tilewright.compiler.settings import settings

__all__ = ["Node", "OnPass", "Pipeline", "StepError", "parse_options", "parse_pipeline", "run_pipeline"]

PRINT_EVERY_PASS = 4
"""The TILEWRIGHT_DEBUG level from which the IR goes to standard error after every pass."""

OnPass = Callable[[str, ir.Operation, float], None]
"""Called after each step with its pipeline text, the operation it ran on, and its seconds."""

BeforePass = Callable[[str, ir.Operation], None]
"""Called before each step with its pipeline text and the operation it will run on."""


class StepError(PassError):
    """One step of a pipeline failed.

    step: its pipeline text; reason: the message alone; crashed: by an exception that nobody meant to raise;
    reproducer: the file that runs it again, if one was written.
    """

    def __init__(self, step: str, reason: str, location: object | None, crashed: bool = False):
        self.step, self.reason, self.crashed = step, reason, crashed
        self.reproducer: Path | None = None
        where = place(location)
        super().__init__(f"{where}: {reason}" if where else reason, location)


@dataclass
class Pipeline:
    """A runnable pipeline.

    on_pass, before_pass: called around every step; a step is one pass of ours or a run of upstream passes,
        with `separate` one upstream pass on one operation.
    verify: the IR is verified after every pass of ours (the C++ pass manager verifies after its own), our
        attributes before the first step too.
    late: the IR of a module is verified after the last step only, which takes two fifths less time. Where a step fails, or
        what came out is invalid, all of them run again on what there was, verified one by one: errors name the pass at fault.
        It does not hold where something looks on: with `on_pass`, `before_pass` or `separate`.
    reproducer: file that receives the IR and pipeline when any step fails, even when the process dies;
        without it only a crash of a pass of ours leaves one, in the dump folder or the temporary folder.
    """

    root: Node
    on_pass: OnPass | None = None
    before_pass: BeforePass | None = None
    separate: bool = False
    verify: bool = True
    late: bool = False
    reproducer: Path | None = None
    loud: bool = field(default=False, init=False)

    @classmethod
    def parse(cls, text: str, on_pass: OnPass | None = None, late: bool = False) -> Pipeline:
        """Parses and checks `text`; raises PipelineSyntaxError with the column of what is wrong."""
        return cls(_checked(text), on_pass, late=late)

    def run(self, op: ir.Operation) -> None:
        """Runs every step on `op` in place; raises StepError, or a pass's own TilewrightError."""
        op = op.operation
        if self.root.name not in (op.name, "any"):
            found = f"the pipeline is anchored on `{self.root.name}`, the operation is `{op.name}`"
            raise PassError(f"{found}; anchor it as {op.name}(...)", op.location)
        self.loud = settings().debug >= PRINT_EVERY_PASS
        self.separate |= self.loud
        if self.verify:
            try:
                verifier.verify(op)
            except ScheduleError as error:
                raise _placed(error) from None
        before = op.clone().operation
        if self.reproducer:
            self._write_reproducer(self.reproducer, before)
        try:
            if not self._ran_unverified(op, before):
                self._run(self.root.children or (), op)
        except StepError as error:
            path = self.reproducer
            if error.crashed and path is None:
                path = default_path(self._reproducer_text(before), settings().dump)
                self._write_reproducer(path, before)
            if path:
                error.reproducer = path
                error.add_note(f"reproducer generated at `{path}`")
            raise
        if self.reproducer:
            self.reproducer.unlink()

    def _ran_unverified(self, op: ir.Operation, before: ir.Operation) -> bool:
        """Whether all steps ran without a look between them and left valid IR; if not, `op` is what it was `before`."""
        watched = self.on_pass or self.before_pass or self.separate
        if not (self.late and self.verify) or watched or op.name != "builtin.module":
            return False
        self.verify = False
        try:
            self._run(self.root.children or (), op)
            op.verify()
            verifier.verify(op)
        except ScheduleError:
            raise
        except (TilewrightError, ir.MLIRError):
            take_over(op.opview, before.clone().opview)
            return False
        finally:
            self.verify = True
        return True

    def _reproducer_text(self, before: ir.Operation) -> str:
        return reproducer_text(before.get_asm(enable_debug_info=True), str(self.root), self.verify)

    def _write_reproducer(self, path: Path, before: ir.Operation) -> None:
        write_reproducer(path, self._reproducer_text(before))

    def _run(self, nodes: tuple[Node, ...], op: ir.Operation) -> None:
        upstream: list[Node] = []
        for node in nodes:
            if not self.separate and is_upstream(node):
                upstream.append(node)
                continue
            self._run_upstream(upstream, op)
            upstream = []
            if node.children is not None:
                for nested in _children(op, node.name):
                    self._run(node.children, nested)
            elif is_upstream(node):
                self._run_upstream([node], op)
            else:
                self._run_ours(node, op)
        self._run_upstream(upstream, op)

    def _run_upstream(self, nodes: list[Node], op: ir.Operation) -> None:
        if not nodes:
            return
        text = ",".join(map(str, nodes))
        anchored = f"{op.name}({text})"
        with self._step(anchored if not self.separate else text, op):
            run_upstream(op, anchored, self.verify)

    def _run_ours(self, node: Node, op: ir.Operation) -> None:
        instance = _instance(node)
        with self._step(instance.spec(), op):
            with op.context, op.location:
                instance.run(op)
            if self.verify:
                _verify(op, node.name)

    def _step(self, text: str, op: ir.Operation) -> _Step:
        return _Step(self, text, op)


@dataclass
class _Step:
    """Brackets one step: calls the hooks, times it, and turns what it raises into StepError."""

    pipeline: Pipeline
    text: str
    op: ir.Operation
    start: float = 0.0

    def __enter__(self) -> None:
        if self.pipeline.before_pass:
            self.pipeline.before_pass(self.text, self.op)
        self.start = time.perf_counter()

    def __exit__(self, _type, error: BaseException | None, _traceback) -> None:
        if error is None:
            if self.pipeline.on_pass:
                self.pipeline.on_pass(self.text, self.op, time.perf_counter() - self.start)
            if self.pipeline.loud:
                print(f"// -----// IR Dump After {self.text} //----- //\n{self.op}\n", file=sys.stderr)
            return
        if isinstance(error, StepError) or not isinstance(error, Exception):
            return
        if isinstance(error, PassError):
            location = error.location
            reason = str(error)
            if not reason.startswith("`"):
                reason = f"`{self.text}`: {reason}"
            raise StepError(self.text, reason, location) from error
        if isinstance(error, ir.MLIRError):
            location = error.error_diagnostics[0].location if error.error_diagnostics else self.op.location
            raise StepError(self.text, f"`{self.text}`: {error}", location) from error
        if isinstance(error, ScheduleError):
            _placed(error)
        if isinstance(error, TilewrightError):
            error.add_note(f"in pass `{self.text}`")
            return
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        where = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
        reason = f"`{self.text}` crashed with {raised} ({where})"
        raise StepError(self.text, reason, self.op.location, crashed=True) from error


def _placed(error: ScheduleError) -> ScheduleError:
    """`error` with the place of its dispatch in front of its reason."""
    where = place(error.location)
    error.args = (f"{where}: {error.reason}" if where else error.reason,)
    return error


def run_pipeline(op: ir.Operation, text: str, on_pass: OnPass | None = None, late: bool = False) -> None:
    """Parses, checks and runs `text` on `op`; what `late` is, `Pipeline` says."""
    Pipeline.parse(text, on_pass, late).run(op)


@lru_cache(maxsize=256)
def _checked(text: str) -> Node:
    """Parses and checks `text`; every dispatch of a model is lowered by the same one."""
    root = parse_pipeline(text)
    check(root, text)
    return root


@lru_cache(maxsize=4096)
def is_upstream(node: Node) -> bool:
    """True when nothing in `node` is a pass of ours, so that C++ can run it as it stands."""
    if node.children is not None:
        return all(map(is_upstream, node.children))
    return not registry.exists(node.name)


def check(root: Node, text: str) -> None:
    """Checks every name, option and anchor below `root`; raises PipelineSyntaxError pointing into `text`."""

    def visit(node: Node, anchor: str) -> None:
        if node.children is not None:
            if node.options:
                raise syntax_error(text, node.column, f"`{node.name}` is an anchor; options belong to passes")
            for child in node.children:
                visit(child, node.name)
            return
        try:
            check_leaf(node, anchor)
        except PipelineSyntaxError as error:
            raise syntax_error(text, node.column, str(error)) from None

    visit(root, "builtin.module")


def check_leaf(node: Node, anchor: str) -> None:
    """Checks one pass placed under `anchor`; raises PipelineSyntaxError without a column."""
    if registry.exists(node.name):
        wanted = _instance(node).anchor
        if wanted not in (anchor, "any"):
            raise PipelineSyntaxError(
                f"`{node.name}` runs on `{wanted}`, it was placed on `{anchor}`; nest it: {wanted}({node})"
            )
        return
    try:
        with context():
            passmanager.PassManager.parse(f"{anchor}({node})")
    except ValueError as error:
        message = re.sub(r"\n\s*", "; ", str(error).strip())
        if "does not refer to a registered pass" in message:
            message = f"`{node.name}` is no pass of tilewright, of torch-mlir or of MLIR"
            close = difflib.get_close_matches(node.name, registry.names(), n=1)
            message += f"; did you mean `{close[0]}`?" if close else "; `--list-passes` lists ours"
        raise PipelineSyntaxError(message) from None


@lru_cache(maxsize=1024)
def _instance(node: Node) -> Pass:
    pass_class = registry.load(node.name)
    assert pass_class is not None
    return pass_class.from_options(parse_options(node.options))


def _children(op: ir.Operation, anchor: str) -> list[ir.Operation]:
    """The operations directly in `op` that a nested `anchor(...)` runs on; `any` means every isolated one."""
    direct = [inner.operation for region in op.regions for block in region for inner in block]
    if anchor == "any":
        return [inner for inner in direct if inner.has_trait(ir.IsIsolatedFromAboveTrait)]
    return [inner for inner in direct if inner.name == anchor]


def _verify(op: ir.Operation, name: str) -> None:
    """Raises PassError when `op`, just rewritten by pass `name`, is no longer valid IR."""
    try:
        op.verify()
    except ir.MLIRError as error:
        location = error.error_diagnostics[0].location if error.error_diagnostics else op.location
        raise PassError(f"`{name}` left invalid IR behind: {error}", location) from error
    try:
        verifier.verify(op)
    except TilewrightError as error:
        location = getattr(error, "location", op.location)
        raise PassError(f"`{name}` left an invalid attribute behind: {error}", location) from error
