"""MLIR as a model: dialects, entry functions, names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.mlir_text import import_mlir

LINALG = """
func.func @scale(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %e = tensor.empty() : tensor<2x3xf32>
  %s = linalg.add ins(%a, %b : tensor<2x3xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  %p = linalg.mul ins(%a, %b : tensor<2x3xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %s, %p : tensor<2x3xf32>, tensor<2x3xf32>
}
"""
TORCH = """
func.func @main(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %y = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %y : !torch.vtensor<[2,3],f32>
}
"""
TOSA = """
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = tosa.abs %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}
"""
CALLS = """
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32> {tilewright.role = "weight", tilewright.name = "w"}) -> tensor<4xf32> {
  %y = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %z = call @twice(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}
"""
X = np.array([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]], np.float32)


def test_linalg_gives_a_tuple_of_its_results() -> None:
    total, product = tilewright.compile(LINALG)(X, X)
    np.testing.assert_array_equal(total, 2 * X)
    np.testing.assert_array_equal(product, X * X)


@pytest.mark.parametrize(("text", "expected"), [(TORCH, np.maximum(X, 0)), (TOSA, abs(X))])
def test_other_dialects_are_brought_to_linalg(text: str, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(tilewright.compile(text)(X), expected)


def test_callees_are_inlined_and_weights_become_inputs(tmp_path: Path) -> None:
    path = tmp_path / "calls.mlir"
    path.write_text(CALLS)
    imported = import_mlir(path)
    assert [spec.name for spec in imported.signature.inputs] == ["w"]
    assert "call @" not in str(imported.module)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(tilewright.compile(str(path))(x), 4 * x)


def test_torch_tensors_come_back_as_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    assert torch.equal(tilewright.compile(TORCH)(x), x.relu())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func @main( {\n}", "expected"),
        ("module {\n}", "expected a function @main or a single public function, found none"),
        (
            "func.func @f(%x: tensor<1xf32>) {\n return }\nfunc.func @g(%x: tensor<1xf32>) {\n return }",
            "found @f, @g",
        ),
        (
            "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n return %x : tensor<?xf32> }",
            "tensors of static shape, found (tensor<?xf32>) -> tensor<?xf32>",
        ),
        ("func.func @main(%x: memref<4xf32>) {\n return }", "tensors of static shape, found (memref<4xf32>)"),
        (Path("nowhere.mlir"), "`nowhere.mlir`: cannot be read"),
    ],
)
def test_refusals(text: str | Path, message: str) -> None:
    with pytest.raises(ModelImportError) as refusal:
        import_mlir(text)
    assert message in str(refusal.value)


@pytest.mark.parametrize("shape", ["4", "", "2x3", "0x2"])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
def test_arithmetic_on_whole_tensors(shape: str, kind: str) -> None:
    type_ = f"tensor<{shape + 'x' if shape else ''}{kind}>"
    source = f"""
func.func @main(%x: {type_}) -> {type_} {{
  %e = math.exp %x : {type_}
  %y = arith.addf %e, %x : {type_}
  return %y : {type_}
}}
"""
    x = torch.ones([int(n) for n in shape.split("x")] if shape else [])
    x = x.to({"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[kind])
    found = tilewright.compile(source)(x)
    torch.testing.assert_close(torch.as_tensor(found), x.exp() + x)
