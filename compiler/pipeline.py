"""Pipelines mix upstream, torch-mlir and our passes, nested and with options, in mlir-opt's own syntax.

    builtin.module(canonicalize,outline-dispatches{max-ops=64},func.func(cse))

Runs of upstream passes go to the C++ pass manager as they stand; ours run from Python in between, and
one callback sees every boundary for verification, timing and printing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.compiler import passes
from tilewright.compiler.errors import PassError, PipelineSyntaxError, TilewrightError
from tilewright.compiler.ir import ir, run_upstream, walk
from tilewright.compiler.passes.base import Pass

OnPass = Callable[[str, ir.Operation, float], None]
"""Called after each step with its pipeline text, the operation it ran on, and its seconds."""


@dataclass(frozen=True)
class Node:
    """One element of a parsed pipeline: a pass with options, or an anchor with nested elements."""

    name: str
    options: str = ""
    children: tuple[Node, ...] | None = None

    def __str__(self) -> str:
        options = f"{{{self.options}}}" if self.options else ""
        nested = f"({','.join(map(str, self.children))})" if self.children is not None else ""
        return f"{self.name}{options}{nested}"

    @property
    def is_upstream(self) -> bool:
        if self.children is not None:
            return all(child.is_upstream for child in self.children)
        return passes.load(self.name) is None


@dataclass
class _Parser:
    text: str
    at: int = 0

    def fail(self, expected: str):
        raise PipelineSyntaxError(
            f"pipeline column {self.at + 1}: expected {expected}, found `{self.text[self.at : self.at + 12]}`\n"
            f"  {self.text}\n  {' ' * self.at}^"
        )

    def elements(self) -> tuple[Node, ...]:
        found = []
        while True:
            found.append(self.element())
            if self.at < len(self.text) and self.text[self.at] == ",":
                self.at += 1
                continue
            return tuple(found)

    def element(self) -> Node:
        match = re.compile(r"\s*([A-Za-z][\w.-]*)\s*").match(self.text, self.at)
        if not match:
            self.fail("a pass or operation name")
        assert match
        name, self.at = match[1], match.end()
        options = self.braced() if self.at < len(self.text) and self.text[self.at] == "{" else ""
        children = None
        if self.at < len(self.text) and self.text[self.at] == "(":
            self.at += 1
            children = () if self.text[self.at : self.at + 1] == ")" else self.elements()
            if self.text[self.at : self.at + 1] != ")":
                self.fail("`,` or `)`")
            self.at += 1
        spaces = re.compile(r"\s*").match(self.text, self.at)
        self.at = spaces.end() if spaces else self.at
        return Node(name, options, children)

    def braced(self) -> str:
        depth, start = 0, self.at
        while self.at < len(self.text):
            depth += {"{": 1, "}": -1}.get(self.text[self.at], 0)
            self.at += 1
            if depth == 0:
                return self.text[start + 1 : self.at - 1]
        self.at = start
        self.fail("a closing `}`")
        return ""


def parse_pipeline(text: str) -> Node:
    """Parses `anchor(...)`; raises PipelineSyntaxError that points at the offending column."""
    parser = _Parser(text.strip())
    node = parser.element()
    if parser.at != len(parser.text):
        parser.fail("the end of the pipeline")
    if node.children is None:
        raise PipelineSyntaxError(f"`{text}`: a pipeline is anchored on an operation, e.g. builtin.module({text})")
    return node


def parse_options(text: str) -> dict[str, str]:
    """`a=1 b=[1,2] c` -> {"a": "1", "b": "[1,2]", "c": ""}."""
    options = {}
    for part in re.findall(r"[^\s\[\]{}]+(?:[\[{][^\]}]*[\]}])?", text):
        key, _, value = part.partition("=")
        options[key] = value
    return options


@dataclass
class Pipeline:
    """A runnable pipeline; `on_pass` is called after every upstream run and every pass of ours."""

    root: Node
    on_pass: OnPass | None = None
    steps: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, text: str, on_pass: OnPass | None = None) -> Pipeline:
        return cls(parse_pipeline(text), on_pass)

    def run(self, op: ir.Operation) -> None:
        if self.root.name not in (op.name, "any"):
            raise PassError(f"the pipeline is anchored on `{self.root.name}`, the operation is `{op.name}`")
        assert self.root.children is not None
        self._run(self.root.children, op)

    def _run(self, nodes: tuple[Node, ...], op: ir.Operation) -> None:
        upstream: list[Node] = []
        for node in (*nodes, None):
            if node is not None and node.is_upstream:
                upstream.append(node)
                continue
            if upstream:
                text = f"{op.name}({','.join(map(str, upstream))})"
                self._step(text, op, lambda text=text: run_upstream(op, text))
                upstream = []
            if node is None:
                return
            if node.children is not None:
                for nested in [inner for inner in walk(op, node.name) if inner.parent == op]:
                    self._run(node.children, nested)
            else:
                self._run_ours(node, op)

    def _run_ours(self, node: Node, op: ir.Operation) -> None:
        pass_class = passes.load(node.name)
        assert pass_class is not None
        instance: Pass = pass_class.from_options(parse_options(node.options))
        if instance.anchor != op.name:
            raise PassError(f"`{node.name}` runs on `{instance.anchor}`, it was placed on `{op.name}`")

        def run():
            with op.context, op.location:
                instance.run(op)

        self._step(instance.spec(), op, run)

    def _step(self, text: str, op: ir.Operation, run: Callable[[], None]) -> None:
        start = time.perf_counter()
        try:
            run()
        except PassError as error:
            raise PassError(f"in `{text}`: {error}") from None
        except TilewrightError:
            raise
        if self.on_pass:
            self.on_pass(text, op, time.perf_counter() - start)


def run_pipeline(op: ir.Operation, text: str, on_pass: OnPass | None = None) -> None:
    """Parses and runs `text` on `op`."""
    Pipeline.parse(text, on_pass).run(op)
