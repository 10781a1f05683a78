"""Runs one program through its path and says what became of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import torch

from fuzz import gradients, graph_run
from fuzz.bounds import Expected, compared, difference
from fuzz.graph import Graph
from fuzz.graph_reference import agree, model_evaluations
from fuzz.oracle import expected, shared
from fuzz.outcome import Outcome
from fuzz.paths import COMPILERS, NotExported, exported
from fuzz.program import Program
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.torch import fallback
from tilewright.runtime.errors import ArgumentError, TilewrightError

SECOND_CALL = 7_000_003
"""Added to the seed of a program for the inputs of its second call."""


@dataclass(frozen=True)
class Call:
    """One call of a program: what it is given, built anew each time, and what eager makes of it."""

    program: Program
    build: Callable[[], dict[str, torch.Tensor]]
    wanted: list[Expected] | Exception


def run(program: Program | Graph) -> Outcome:
    """The outcome of a program; crashes and hangs end this process instead."""
    start = time.perf_counter()
    outcome = graph_run.run(program) if isinstance(program, Graph) else _run(program)
    return replace(outcome, seconds=time.perf_counter() - start)


def _run(program: Program) -> Outcome:
    if program.path == "grad":
        return gradients.run(program)
    again = second(program)
    calls: list[Call] = []
    state: dict[str, torch.Tensor] = {}
    for called, seed in ((program, program.seed), (again, program.seed + SECOND_CALL)):
        build = partial(_built, called, seed, clones(state))
        try:
            wanted = expected(called, build)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            if not program.fails or called is again:
                return Outcome("invalid", str(error))
            calls.append(Call(called, build, error))
            continue
        if program.fails and called is program:
            return Outcome("invalid", "eager PyTorch accepts what it should refuse")
        if program.path == "onnx":
            wanted = [_as_attributes(want) for want in wanted]
        calls.append(Call(called, build, wanted))
        for tensor, after in zip(program.owned(), wanted[len(program.outputs) :]):
            if tensor.role == "parameter":
                state[tensor.name] = after.value
    counts = [compared(call.wanted) for call in calls if not isinstance(call.wanted, Exception)]
    found = _compare(program, calls)
    return replace(found, compared=sum(c for c, _ in counts), elements=sum(n for _, n in counts))


def _built(program: Program, seed: int, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**program.build(seed), **clones(state)}


def second(program: Program) -> Program:
    """The program as it is called again: other values, dense inputs, no index out of range, no two inputs the same."""
    inputs = [
        replace(t, layout="dense", alias=None, fill=t.fill.replace("faulty", "index")) for t in program.inputs
    ]
    return replace(program, inputs=tuple(inputs), fails=False)


def _as_attributes(want: Expected) -> Expected:
    """ONNX keeps numbers such as a norm's epsilon, or the scale of an image, in f32: so exact are results in f64."""
    if want.value.dtype != torch.float64 or not want.value.numel():
        return want
    largest = want.value.abs().nan_to_num(0, 0, 0).max()
    return replace(want, bound=want.bound + largest * torch.finfo(torch.float32).eps * 16)


def clones(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _compare(program: Program, calls: list[Call]) -> Outcome:
    function = program.function()
    # Whether inputs share memory is decided at the call: half of the examples do not.
    example = (program if program.seed % 2 else replace(second(program), fails=program.fails)).build(
        program.seed
    )
    if not any(tensor.alias for tensor in program.inputs):
        example = program.build(program.seed)
    arguments = program.given(example)
    fallback._reported.clear()
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        try:
            compiled = COMPILERS[program.path](function, arguments)
        except NotExported as error:
            return Outcome("invalid", str(error))
        except Exception as error:
            return raised(program, error)
        for number, call in enumerate(calls):
            outcome = _call(program, compiled, function, example, call)
            if number == 0 and not isinstance(call.wanted, Exception):
                _settle(program, compiled, function, call.wanted)
            if outcome is not None:
                return replace(
                    outcome, detail=f"{'first' if number == 0 else 'second'} call: {outcome.detail}"
                )
    return fallen_back(caught) or Outcome("ok")


def _call(
    program: Program,
    compiled: Any,
    function: Any,
    example: dict[str, torch.Tensor],
    call: Call,
) -> Outcome | None:
    """What is wrong with one call, or None."""
    built, wanted = call.build(), call.wanted
    inputs = [built[tensor.name] for tensor in program.inputs]
    given = program.given(built)
    if program.path == "onnx":
        given = tuple(given)[: len(compiled.signature.inputs)] if hasattr(compiled, "signature") else given
    try:
        results = compiled(**given) if isinstance(given, dict) else compiled(*given)
    except Exception as error:
        if isinstance(wanted, Exception) and not isinstance(error, StopIteration):
            return None
        return raised(program, error)
    if isinstance(wanted, Exception):
        return Outcome("wrong", f"no error where eager raises {type(wanted).__name__}: {str(wanted)[:90]}")
    if program.path == "onnx":
        results = list(results) if isinstance(results, (tuple, list)) else [results]
    else:
        results = program.returned(results)
    if results is None or len(results) != len(program.outputs):
        return Outcome("wrong", "other containers, constants or numbers of results than eager's")
    own = _own_state(compiled)
    buffers = [own.get(t.name, getattr(function, t.name)) for t in program.owned() if t.role == "parameter"]
    found = [*results, *inputs, *buffers]
    outcome = _judged(program, example, built, found, wanted)
    if outcome is not None and program.path == "onnx" and _is_exporters(program, function, call, found):
        return Outcome("invalid", f"PyTorch's exporter writes another program: {outcome.detail}")
    if outcome is not None and program.path == "torch.compile" and _is_aots(program, function, call, found):
        return Outcome("invalid", f"AOTAutograd makes another program: {outcome.detail}")
    if outcome is None or call.program is program or program.path in ("torch.compile", "onnx"):
        return outcome
    # What copies only where it must, as `reshape` does, decides by the strides of the example (docs/pytorch.md).
    wanted = expected(call.program, lambda: _laid_out(program, call.build(), example))
    return _judged(program, example, built, found, wanted) and outcome


def _is_exporters(program: Program, function: Any, call: Call, found: list[Any]) -> bool:
    """Whether every reference that runs the exported model has our results, and none has eager's."""
    assert not isinstance(call.wanted, Exception)
    given = [call.build()[tensor.name] for tensor in program.inputs]
    model = exported(function, tuple(given))
    feeds = {i.name: _array(tensor.contiguous()) for i, tensor in zip(model.graph.input, given)}
    references = model_evaluations(model, feeds)
    for results in references:
        theirs = [Expected(_tensor(r), w.bound) for r, w in zip(results, call.wanted)]
        same = [agree(_array(torch.as_tensor(ours)), result) for ours, result in zip(found, results)]
        eager = [difference(r.value, w) is None for r, w in zip(theirs, call.wanted)]
        if not all(same) or all(eager):
            return False
    return bool(references)


def _is_aots(program: Program, function: Any, call: Call, found: list[Any]) -> bool:
    """Whether eager PyTorch has our results of the graphs that AOTAutograd makes, writes to the inputs included."""
    assert not isinstance(call.wanted, Exception)
    built = call.build()
    try:
        given = program.given(built)
        compiled = torch.compile(function, backend="aot_eager", dynamic=False)
        results = program.returned(compiled(**given) if isinstance(given, dict) else compiled(*given))
    except Exception:
        return False
    theirs = [*(results or ()), *(built[tensor.name] for tensor in program.inputs)]
    pairs = zip(found, theirs, call.wanted)
    return bool(theirs) and all(difference(ours, Expected(own, w.bound)) is None for ours, own, w in pairs)


def _laid_out(
    program: Program, built: dict[str, torch.Tensor], example: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The tensors with the inputs at the strides of the example's, but for those that repeat elements."""
    for name in (tensor.name for tensor in program.inputs):
        value, like = built[name], example[name]
        if all(step or n < 2 for n, step in zip(like.shape, like.stride())):
            built[name] = torch.empty_strided(value.shape, like.stride(), dtype=value.dtype).copy_(value)
    return built


def _judged(
    program: Program,
    example: dict[str, torch.Tensor],
    built: dict[str, torch.Tensor],
    found: list[Any],
    wanted: list[Expected],
) -> Outcome | None:
    """What is wrong with the results, inputs and buffers after a call, or None."""
    inputs = found[len(program.outputs) :][: len(program.inputs)]
    labels = [f"output {name}" for name in program.outputs] + [
        f"after the call {t.name}" for t in program.owned()
    ]
    for label, tensor, want in zip(labels, found, wanted):
        if not isinstance(tensor, torch.Tensor):
            tensor = torch.as_tensor(tensor)
        wrong = difference(tensor, want)
        if wrong:
            return Outcome("wrong", f"{label}: {wrong}")
        if not label.startswith("output") or program.path == "onnx":
            continue
        if shared(tensor, inputs) not in (want.shares, _copied(program, example, built, want.shares)):
            return Outcome(
                "wrong",
                f"{label}: in the memory of input {shared(tensor, inputs)}, in eager of {want.shares}",
            )
    return None


def _copied(
    program: Program, example: dict[str, torch.Tensor], given: dict[str, torch.Tensor], number: int | None
) -> int | None:
    """None, for a copy, where eager views an input that lies otherwise than the example did: `x.ravel()` does so or not.

    `torch.compile` sees other strides, and compiles anew for them.
    """
    if number is None or program.path == "torch.compile":
        return number
    name = program.inputs[number].name
    return number if example[name].stride() == given[name].stride() else None


def _settle(program: Program, compiled: Any, function: Any, wanted: list[Expected]) -> None:
    """Writes eager's buffers into a program's where they may differ: the next call reads them, and is judged alone."""
    own = _own_state(compiled)
    for tensor, want in zip(program.owned(), wanted[len(program.outputs) :]):
        if tensor.role == "parameter":
            state = own.get(tensor.name, getattr(function, tensor.name))
            differs = (want.bound != 0) & (state != want.value)
            if bool(differs.any()):
                state.copy_(torch.where(differs, want.value, state))


def _own_state(compiled: Any) -> dict[str, Any]:
    """The buffers that a program writes into by name, where it was saved and loaded and so has its own."""
    if not hasattr(compiled, "signature"):
        return {}
    return {s.name: _tensor(state) for s, state in zip(compiled.signature.state, compiled.state)}


def _tensor(array: Any) -> torch.Tensor:
    """A tensor of an array, or a tensor itself."""
    if getattr(array.dtype, "name", "") == "bfloat16":  # a type of ml_dtypes that PyTorch does not know
        return torch.as_tensor(array.view("int16")).view(torch.bfloat16)
    return torch.as_tensor(array if isinstance(array, torch.Tensor) else np.ascontiguousarray(array))


def _array(tensor: torch.Tensor) -> Any:
    """An array of a tensor, of ml_dtypes's type where NumPy has none."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def raised(program: Program | Graph, error: BaseException) -> Outcome:
    """An exception as an outcome: refusals are UnsupportedErrors, wrapped or not."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and len(chain) < 12:
        chain.append(link)
        link = getattr(link, "inner_exception", None) or link.__cause__ or link.__context__
    for link in chain:
        if isinstance(link, UnsupportedError):
            died = any("the process that compiled it" in o.reason for o in link.operators)
            reasons = "; ".join(f"{o.operator}: {o.reason}" for o in link.operators)
            return Outcome("internal" if died else "refused", reasons)
        if program.fails and isinstance(link, TilewrightError):
            return Outcome("ok")
        if (
            isinstance(link, ArgumentError)
            and isinstance(program, Program)
            and (any(tensor.alias for tensor in program.inputs) or "share one place in memory" in str(link))
        ):
            return Outcome("refused", str(link))
    text = str(error).strip().splitlines() or [""]
    return Outcome("internal", f"{type(error).__name__}: {' '.join(text)[:300]}")


def fallen_back(caught: list[warnings.WarningMessage]) -> Outcome | None:
    """What ran in eager PyTorch under torch.compile, as a refusal."""
    lines = [
        line.strip(" -")
        for warning in caught
        if issubclass(warning.category, fallback.FallbackWarning)
        for line in str(warning.message).splitlines()[1:]
    ]
    told = ("the compiler failed", "the process that compiled it")
    failed = [line for line in lines if any(words in line for words in told)]
    if failed:
        return Outcome("internal", failed[0][:400])
    return Outcome("refused", "; ".join(lines)[:400]) if lines else None
