"""What a model asserts of its tensors' values: taken as true while it is traced, and checked in every call.

    if not (x >= 0).all():                     =>    tilewright.checked(result, all(x >= 0), "ValueError ...")
        raise ValueError("...")

A branch on a value has one way out where the other ends in an error: so are models traced that test their arguments, as
`torch.distributions` does. Branches with two ways stay refused.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx import Graph, Node

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers.torch.checks import checked
from tilewright.compiler.importers.torch.lowering import location
from tilewright.compiler.importers.torch.source_lines import COMPILER_FOLDER
from tilewright.compiler.importers.torch.tracer import is_relied_on

_functional: Any = torch  # functionalisation and assertions have no public names

OPERATORS = (
    _functional._assert_async,
    torch.ops.aten._assert_async.default,
    torch.ops.aten._assert_async.msg,
)
"""PyTorch's own assertions of tensors."""

_LONGEST_TEXT = 200
_UNNAMED = "an assertion of the model does not hold"


class Assertions:
    """Those of one trace, in the order in which the model makes them."""

    def __init__(self):
        self._found: list[tuple[torch.Tensor, str]] = []

    def add(self, holds: torch.Tensor, message: str = _UNNAMED) -> None:
        """Asserts that the one element of `holds` is not zero."""
        self._found.append((holds.reshape([]) != 0, message))

    def add_own(self, tensors: Sequence[tuple[str, torch.Tensor]], values: Sequence[torch.Tensor]) -> None:
        """Asserts that those of a model's tensors which its trace relies on have the values that they had.

        `values` stand for them in the trace.
        """
        for (name, tensor), value in zip(tensors, values):
            if is_relied_on(value):
                now, then = map(_functional._to_functional_tensor, (value, tensor.detach().clone()))
                said = f"`{name}` has another value than when the model was compiled, which depends on it: compile it again"
                self.add((now == then).all(), said)

    def truth(self, x: torch.Tensor, frame: FrameType) -> bool:
        """The truth value of `x`: the one with which `frame` raises no error, where that is known in the call alone.

        Raises DataDependentOutputException where `frame` is not at a branch that ends in an error on one side alone.
        """
        try:
            return bool(x)
        except DataDependentOutputException:
            expected = _without_error(frame)
            if expected is None:
                raise
        holds, message = expected
        self.add(x if holds else torch.logical_not(x), message)
        return holds

    def checked(self, results: Sequence[torch.Tensor], place: str) -> list[torch.Tensor]:
        """`results` of the trace, of which one fails the call where an assertion does not hold.

        Raises UnsupportedError at `place` where there is no such result.
        """
        results = list(results)
        for holds, message in self._found:
            carrier = _carrier(results)
            if carrier is None:
                raise _no_carrier(place)
            _functional._sync(holds)
            held = _functional._from_functional_tensor(holds)
            results[carrier] = checked(results[carrier], held, message)
        return results


def attach(graph: Graph, results: list[Node]) -> None:
    """Puts a node that fails the call where an assertion of `graph` does not hold in the place of one of `results`.

    Raises UnsupportedError where there is no such result.
    """
    asserted = [node for node in graph.nodes if node.target in OPERATORS]
    for node in asserted:
        carrier = _carrier([result.meta["val"] for result in results])
        if carrier is None:
            raise _no_carrier(location(node))
        source = results[carrier]
        holds, *message = node.args
        text = message[0] if message else _UNNAMED
        (output,) = graph.find_nodes(op="output")
        with graph.inserting_before(output):
            truth = graph.call_function(torch.ops.aten.ne.Scalar, (holds, 0))
            truth.meta["val"] = holds.meta["val"].to(torch.bool)  # type: ignore[union-attr]
            scalar = graph.call_function(torch.ops.aten.reshape.default, (truth, []))
            scalar.meta["val"] = truth.meta["val"].reshape([])
            made = graph.call_function(torch.ops.tilewright.checked.default, (source, scalar, text))
        made.meta = dict(source.meta)
        results[carrier] = made
        graph.erase_node(node)


def _carrier(results: Sequence[torch.Tensor]) -> int | None:
    """The number of the smallest result that has elements to fail with; of complex ones there are no checks."""
    able = [i for i, x in enumerate(results) if x.numel() and not x.dtype.is_complex]
    return min(able, key=lambda i: results[i].numel(), default=None)


def _no_carrier(place: str) -> UnsupportedError:
    reason = "the model has no result that could fail with it"
    return UnsupportedError([UnsupportedOperator("an assertion about values", reason, place)])


def calling_frame(frame: FrameType) -> FrameType:
    """`frame`, or the first one that it was called from which is not the compiler's."""
    while frame.f_code.co_filename.startswith(COMPILER_FOLDER) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _without_error(frame: FrameType) -> tuple[bool, str] | None:
    """The value with which the branch at `frame` does not raise, and what it raises otherwise; None where that is open.

    It is where no side or both raise, and where the model catches errors that are raised there.
    """
    steps = _steps(frame.f_code)
    at = next((n for n, step in enumerate(steps) if step.offset == frame.f_lasti), None)
    if at is None:
        return None
    if sys.version_info >= (3, 13) and steps[at].opname in ("TO_BOOL", "COMPARE_OP"):
        at += 1  # the truth is asked for before the branch
    branch = steps[at]
    if not branch.opname.startswith("POP_JUMP") or not branch.opname.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    jumps = branch.opname.endswith("IF_TRUE")
    raised = {jumps: _raise_at(steps, branch.argval), not jumps: _raise_at(steps, steps[at + 1].offset)}
    ends = [(not truth, step) for truth, step in raised.items() if step is not None]
    if len(ends) != 1 or _is_caught(frame, ends[0][1].offset):
        return None
    ((holds, step),) = ends
    return holds, _text(frame.f_code, step)


@lru_cache(maxsize=256)
def _steps(code: CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


def _raise_at(
    steps: list[dis.Instruction], offset: int, ends: tuple[str, ...] = ("RAISE_VARARGS",)
) -> dis.Instruction | None:
    """The last of the instructions of `ends` with which every way on from `offset` ends; None where one does not."""
    found = None
    numbers = {step.offset: n for n, step in enumerate(steps)}
    waiting, seen = [offset], set()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        step = steps[numbers[at]]
        if step.opname in ends:
            found = step
        elif step.opname.startswith(("RETURN", "YIELD", "RERAISE", "RAISE")):
            return None
        else:
            is_jump = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
            waiting += [step.argval] if is_jump else []
            if not (is_jump and step.opname.startswith("JUMP") and "IF" not in step.opname):
                waiting.append(steps[numbers[at] + 1].offset)
    return found


def _is_caught(frame: FrameType, raised: int) -> bool:
    """Whether the model goes on from an error at offset `raised` of `frame`: `with` blocks are taken to pass errors on."""
    for code, last in [(frame.f_code, raised), *((f.f_code, f.f_lasti) for f in _callers(frame))]:
        for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
            ends = ("RAISE_VARARGS", "RERAISE", "WITH_EXCEPT_START")
            if entry.start <= last < entry.end and _raise_at(_steps(code), entry.target, ends) is None:
                return True
    return False


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """The frames of the model that `frame` was called from."""
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename.startswith(COMPILER_FOLDER):
            if not caller.f_code.co_name.startswith("__torch"):
                return
        else:
            yield caller
        caller = caller.f_back


def _text(code: CodeType, step: dis.Instruction) -> str:
    """What is raised, as the source has it, and where; without the folder, which differs between machines."""
    positions: Any = step.positions
    first, last = positions.lineno or code.co_firstlineno, positions.end_lineno or code.co_firstlineno
    lines = [linecache.getline(code.co_filename, n) for n in range(first, last + 1)]
    said = " ".join("".join(lines).split())[:_LONGEST_TEXT]
    return f"{Path(code.co_filename).name}:{first} in {code.co_name}: {said}"
