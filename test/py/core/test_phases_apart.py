"""A phase whose passes look at one dispatch at a time gives the same module when several workers have some each."""

from __future__ import annotations

import pytest

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.ir import parse
from tilewright.compiler.phases import PHASES
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.workers import modules
from tilewright.compiler.workers.modules import run_phase, run_phase_apart

(SCHEDULE,) = (phase for phase in PHASES if phase.apart)


def module_text(dispatches: int, refused: tuple[int, ...] = ()) -> str:
    """@main and so many dispatches of different sizes; a schedule that no kernel has on those that are `refused`.

    The module says something of itself, as one of which products are asked for in bf16 does.
    """

    def dispatch(number: int) -> str:
        type_ = f"tensor<{16 + number}x64xf32>"
        schedule = f", tilewright.schedule = {{tile = [{1000 + number}, 0]}}" if number in refused else ""
        return f"""
          func.func private @d{number}(%a: {type_}) -> {type_} attributes {{tilewright.operator = "elementwise"{schedule}}} {{
            %e = tensor.empty() : {type_}
            %r = linalg.exp ins(%a : {type_}) outs(%e : {type_}) -> {type_}
            return %r : {type_}
          }}"""

    body = "func.func @main() { return }" + "".join(map(dispatch, range(dispatches)))
    return f'module attributes {{tilewright.precision = "bf16"}} {{ {body} }}'


@pytest.mark.parametrize("dispatches", [3, 45])
def test_the_module_is_the_same(dispatches):
    target, texts = resolve("x86-64-v3"), []
    for run in (run_phase, run_phase_apart):
        module = parse(module_text(dispatches))
        run(module, target, SCHEDULE.name, SCHEDULE.pipeline(target))
        texts.append(str(module))
    assert texts[0] == texts[1]
    assert texts[0].count("tilewright.schedule") == dispatches


def decided(text: str, run) -> str:
    module = parse(text)
    run(module, resolve("x86-64-v3"), SCHEDULE.name, SCHEDULE.pipeline(resolve("x86-64-v3")))
    return str(module)


def alike(attributes: str, count: int = 5) -> str:
    """So many dispatches of one text, the second of which has some more attributes."""
    type_ = "tensor<48x80xf32>"
    more = [attributes if number == 1 else "" for number in range(count)]
    return "\n".join(
        f"""
          func.func private @same{number}(%a: {type_}) -> {type_} attributes {{tilewright.operator = "elementwise"{more[number]}}} {{
            %e = tensor.empty() : {type_}
            %r = linalg.exp ins(%a : {type_}) outs(%e : {type_}) -> {type_}
            return %r : {type_}
          }}"""
        for number in range(count)
    )


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        ', tilewright.unfused = ["for a reason of its own"]',
        ", tilewright.schedule = {tile = [], levels = {L1 = [4, 80]}}",
        ', tilewright.predicted = {bound = "compute", us = 7.0}',
    ],
)
def test_what_is_alike_gets_the_same_and_keeps_its_own(attributes):
    text = f"module {{ func.func @main() {{ return }} {alike(attributes)} }}"
    assert decided(text, run_phase_apart) == decided(text, run_phase)


def test_what_is_known_is_not_decided_again(monkeypatch):
    text = f"module {{ func.func @main() {{ return }} {alike('')} }}"
    before, jobs = decided(text, run_phase_apart), []
    monkeypatch.setattr(modules, "_phase_job", lambda *_: jobs.append(1))
    assert decided(text, run_phase_apart) == before
    assert not jobs


def test_the_first_refusal_is_the_one_that_is_told():
    target, told = resolve("x86-64-v3"), []
    for run in (run_phase, run_phase_apart):
        with pytest.raises(TilewrightError) as raised:
            run(parse(module_text(45, refused=(20, 40))), target, SCHEDULE.name, SCHEDULE.pipeline(target))
        told.append(str(raised.value))
    assert told[0].splitlines()[0].rpartition(": ")[2] == told[1].splitlines()[0].rpartition(": ")[2]
    assert "1020" in told[1]
