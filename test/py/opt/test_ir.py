"""The door to the bindings: parsing, walking, and what it gives by name."""

from __future__ import annotations

import pytest

from tilewright.compiler import ir as door
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import functions, ir, loaded_dialects, parse, run_upstream, static_shape, walk


def test_parse_errors_name_the_source_and_the_place() -> None:
    with pytest.raises(PassError) as caught:
        parse("module {\n  func.func @f() -> i32 {\n    return\n  }\n}", "model.mlir")
    assert str(caught.value).startswith("model.mlir:3:5: error: 'func.return' op has 0 operands")
    with pytest.raises(PassError, match=r"^<string>:1:1: error: "):
        parse("nonsense")


def test_walk_is_in_post_order_and_safe_to_erase_in() -> None:
    module = parse(
        "func.func @f(%x: i32) -> i32 {\n %y = arith.addi %x, %x : i32\n return %x : i32\n}"
    ).operation
    assert [op.name for op in walk(module)] == ["arith.addi", "func.return", "func.func", "builtin.module"]
    for op in walk(module, "arith.addi"):
        op.erase()
    assert not walk(module, "arith.addi")


def test_functions_are_those_with_a_body() -> None:
    module = parse("func.func private @declared()\nfunc.func @defined() { return }")
    assert [ir.StringAttr(f.attributes["sym_name"]).value for f in functions(module)] == ["defined"]


def test_upstream_failures_carry_their_place() -> None:
    module = parse(
        'func.func @f(%x: tensor<4xf32>) {\n  "a.b"(%x) : (tensor<4xf32>) -> ()\n  return\n}'
    ).operation
    with pytest.raises(PassError) as caught:
        run_upstream(module, "builtin.module(one-shot-bufferize)")
    assert 'loc("-":2:3)' in str(caught.value.location)
    with pytest.raises(PassError, match="does not refer to a registered pass"):
        run_upstream(module, "builtin.module(no-such-pass)")


def test_static_shapes_only() -> None:
    with door.context():
        assert static_shape(ir.Type.parse("tensor<2x3xf32>")) == (2, 3)
        with pytest.raises(ValueError, match=r"expected a static shape, found tensor<\?xf32>"):
            static_shape(ir.Type.parse("tensor<?xf32>"))


def test_dialects_come_by_name() -> None:
    assert hasattr(door.arith, "addi")
    assert hasattr(door.transform_structured, "FuseOp")
    with pytest.raises(AttributeError, match="has no `arithmetic`; from the bindings it gives: affine,"):
        _ = door.arithmetic
    assert {"arith", "linalg", "torch"} <= set(loaded_dialects())


def test_a_module_takes_over_operations_and_attributes() -> None:
    with door.context():
        module = parse('module attributes {test.a = 1 : i64, test.b = "old"} { func.func private @f() }')
        other = parse('module attributes {test.b = "new", test.c} { func.func private @g() }')
        door.take_over(module, other)
        assert str(module.operation) == str(
            parse('module attributes {test.b = "new", test.c} { func.func private @g() }')
        )
        assert not list(other.body.operations)
