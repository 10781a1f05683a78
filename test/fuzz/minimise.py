"""Makes a failing program small: fewer outputs, statements and inputs, smaller and plainer tensors, same failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzz import graph_run
from fuzz.outcome import Outcome
from fuzz.program import Program
from fuzz.tensors import Tensor


def minimise(program: Any, outcome: Outcome, check: Callable[[Any], Outcome], limit_s: float = 120.0) -> Any:
    """The smallest program, or ONNX graph, found within a time limit that fails in the same way: same kind, same mechanism."""
    start, best = time.monotonic(), program
    if isinstance(best, Program):
        best = without_dead(best)
    if not _same(check(best), outcome):
        best = program
    shrunk = True
    while shrunk and time.monotonic() - start < limit_s:
        shrunk = False
        for candidate in candidates(best) if isinstance(best, Program) else graph_run.smaller(best):
            if time.monotonic() - start > limit_s:
                break
            if candidate != best and _same(check(candidate), outcome):
                best, shrunk = candidate, True
                break
    return best


def _same(found: Outcome, wanted: Outcome) -> bool:
    return found.kind == wanted.kind and found.mechanism[:60] == wanted.mechanism[:60]


def candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, the boldest first."""
    if program.path != "compile":
        yield replace(program, path="compile")
    if program.container != "tuple" or program.keywords:
        yield replace(program, container="tuple", keywords=False)
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield without_dead(replace(program, outputs=(name,)))
        for name in program.outputs:
            yield without_dead(replace(program, outputs=tuple(n for n in program.outputs if n != name)))
    yield from _cut(program)
    for number, tensor in enumerate(program.inputs):
        for plainer in _plainer(tensor):
            inputs = list(program.inputs)
            inputs[number] = plainer
            yield replace(program, inputs=tuple(inputs))
    for number, tensor in enumerate(program.weights):
        if tensor.role == "parameter" and not program.fails:
            weights = program.weights[:number] + program.weights[number + 1 :]
            yield replace(program, inputs=(*program.inputs, replace(tensor, role="input")), weights=weights)
    yield from _smaller(program)


def _cut(program: Program) -> Iterator[Program]:
    """Without a statement: its result is another variable, or a new input of the same type."""
    for number, statement in enumerate(program.statements):
        rest = program.statements[:number] + program.statements[number + 1 :]
        if not statement.targets:
            yield without_dead(replace(program, statements=rest))
            continue
        earlier = [t.name for t in program.tensors()]
        earlier += [name for other in program.statements[:number] for name in other.targets]
        for name in statement.uses() + [n for n in earlier if n not in statement.uses()][:6]:
            if len(statement.targets) == 1:
                names = {statement.targets[0]: name}
                renamed = tuple(s.renamed(names) for s in rest)
                outputs = tuple(names.get(n, n) for n in program.outputs)
                if not all(n in {t.name for t in program.tensors()} for n in outputs):
                    yield without_dead(replace(program, statements=renamed, outputs=outputs))
    yield from _as_inputs(program)


def _as_inputs(program: Program) -> Iterator[Program]:
    """With the result of a statement as an input of its own, so that what came before is not needed."""
    from fuzz.shapes import forms

    found = forms(program)
    for number, statement in enumerate(program.statements):
        if not statement.targets or not all(name in found for name in statement.targets):
            continue
        names, made = {}, []
        for name in statement.targets:
            shape, dtype, fill = found[name]
            fresh = f"x{100 + int(name[1:])}"
            names[name] = fresh
            made.append(Tensor(fresh, shape, dtype, fill))
        rest = program.statements[:number] + program.statements[number + 1 :]
        if not rest:
            continue
        renamed = tuple(s.renamed(names) for s in rest)
        outputs = tuple(n for n in program.outputs if n not in names)
        if outputs:
            yield without_dead(
                replace(program, inputs=(*program.inputs, *made), statements=renamed, outputs=outputs)
            )


def _plainer(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.alias is not None:
        yield replace(tensor, alias=None)
        return
    if tensor.layout != "dense":
        yield replace(tensor, layout="dense")
    if tensor.fill != "normal" and ":" not in tensor.fill:
        yield replace(tensor, fill="normal")
    if tensor.dtype != "float32" and ":" not in tensor.fill and tensor.role == "input":
        yield replace(tensor, dtype="float32")


def _smaller(program: Program) -> Iterator[Program]:
    """One size made 1, 2 or half in every input that has it, or in one."""
    sizes = sorted({n for t in program.tensors() for n in t.shape if n > 1}, reverse=True)
    for size in sizes:
        for less in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < less < size:
                yield _resized(program, lambda t, d, n=size, m=less: m if t.shape[d] == n else t.shape[d])
                for tensor in program.inputs:
                    for dim, extent in enumerate(tensor.shape):
                        if extent == size:
                            yield _resized(
                                program,
                                lambda t, d, o=tensor, at=dim, m=less: (
                                    m if t is o and d == at else t.shape[d]
                                ),
                            )


def _resized(program: Program, extent: Callable[[Tensor, int], int]) -> Program:
    def made(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=tuple(extent(tensor, d) for d in range(len(tensor.shape))))

    return replace(
        program, inputs=tuple(map(made, program.inputs)), weights=tuple(map(made, program.weights))
    )


def without_dead(program: Program) -> Program:
    """Without statements and tensors that no output needs; writes in place stay where what they write is needed."""
    needed, kept = set(program.outputs), []
    written = {name for s in program.statements if not s.targets for name in s.uses()[:1]}
    for statement in reversed(program.statements):
        if not statement.targets or needed & set(statement.targets) or written & set(statement.targets):
            kept.append(statement)
            needed.update(statement.uses())
    inputs = tuple(
        t for t in program.inputs if t.name in needed or any(t.name == o.alias for o in program.inputs)
    )
    weights = tuple(t for t in program.weights if t.name in needed)
    inputs = inputs or program.inputs[:1]
    return replace(program, inputs=inputs, weights=weights, statements=tuple(reversed(kept)))
