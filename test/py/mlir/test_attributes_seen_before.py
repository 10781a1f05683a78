"""The verifier remembers what was right: under that name, and nowhere else."""

from __future__ import annotations

import pytest

from tilewright.compiler.dialects import verifier
from tilewright.compiler.errors import PassError, TilewrightError
from tilewright.compiler.ir import ir, parse

FUNCTION = "func.func private @f(%a: tensor<4xf32> {{{argument}}}) -> tensor<4xf32> attributes {{{attributes}}} {{ return %a : tensor<4xf32> }}"


def module(attributes: str = "", argument: str = "") -> ir.Operation:
    return parse(FUNCTION.format(attributes=attributes, argument=argument)).operation


def test_a_text_that_was_right_as_an_operator_is_no_count_of_tasks():
    for _ in range(2):
        verifier.verify(module('tilewright.operator = "seen_before"'))
    with pytest.raises(PassError, match=r"`tilewright.tasks`: expected an integer of at least 0"):
        verifier.verify(module('tilewright.tasks = "seen_before"'))


def test_what_was_wrong_is_wrong_again():
    for _ in range(3):
        with pytest.raises(PassError, match=r"`tilewright.tasks`: expected an integer"):
            verifier.verify(module("tilewright.tasks = -7"))
        with pytest.raises(PassError, match=r"argument 0: `tilewright.role`: expected one of"):
            verifier.verify(module(argument='tilewright.role = "guest"'))
        with pytest.raises(TilewrightError):
            verifier.verify(module("tilewright.schedule = {tiles = 3}"))
        with pytest.raises(PassError, match=r"unknown attribute `tilewright.operater`; did you mean"):
            verifier.verify(module('tilewright.operater = "matmul"'))


def test_arguments_are_read_again_when_they_change():
    right = module(argument='tilewright.role = "input"')
    verifier.verify(right)
    function = right.regions[0].blocks[0].operations[0].operation
    with right.context:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({"tilewright.role": ir.StringAttr.get("stranger")})]
        )
    with pytest.raises(PassError, match="argument 0"):
        verifier.verify(right)


def test_no_more_is_remembered_than_the_limit(monkeypatch):
    monkeypatch.setattr(verifier, "_MOST_RIGHT", 8)
    verifier._right.clear()
    for number in range(40):
        verifier.verify(module(f"tilewright.tasks = {number + 1000}"))
        assert len(verifier._right) <= 8
